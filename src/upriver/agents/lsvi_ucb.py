"""LSVI-UCB: least-squares value iteration with an upper-confidence bonus.

Jin, Yang, Wang and Jordan, "Provably Efficient Reinforcement Learning with Linear Function
Approximation" (2020), Algorithm 1. For linear MDPs: for each step h, ridge regression of
r + V_{h+1}(s') on phi(s, a), with the targets recomputed from the new V_{h+1} in each episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar

import numpy as np

from upriver import kernels
from upriver.agents.guard import guarded
from upriver.agents.linear import LeastSquaresLearner, Visits
from upriver.checks import Array, positive_integer
from upriver.mdp import Task
from upriver.planning import Plan, clip_q_above


@guarded
@dataclass(frozen=True, eq=False)
class LSVIUCB(LeastSquaresLearner):
    """Q_h = min(H, w_h^T phi + beta ||phi||_{Lambda_h^-1}), Lambda_h = lambda I + sum phi phi^T and
    w_h = Lambda_h^-1 sum phi (r + V_{h+1}(s')), sums over the past visits at step h.

    With one-hot phi, Q_h = min(H, (N_h r + sum N_h(s,a,s') V_{h+1}(s') ) / (N_h + lambda)
    + beta / sqrt(N_h + lambda)), N_h the visits of (s, a) at step h. Unknown rewards are regressed
    and need nothing more.

    Deviations: a known reward is used as it is, r + phi^T Lambda_h^-1 sum phi V_{h+1}(s'), where
    the published form regresses it too (`regress_reward`). The sums are kept as counts, which
    changes only the cost. Ties are broken uniformly at random.

    Parameters
    ----------
    bonus : float
        beta / H; 0 is the greedy learner. The theory's is `lsvi_ucb_theory_bonus`.
    regularization : float
        lambda; the paper has 1.
    regress_reward : bool
        True regresses the rewards even where they are known, as published.
    phi : array, optional
        (S*A, d) or (S, A, d) features of pairs; the default is one-hot.
    """

    bonus: float = 1e-3

    GRID: ClassVar = {
        "bonus": (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "regularization": (1e-6, 1e-3, 1e-1, 1.0),
    }

    def plan(self, state: Visits, rng: np.random.Generator) -> Plan:
        """Return the values with the bonus beta ||phi||."""
        task, beta = self.task, self.bonus * self.task.units.max_value

        def bonus(factor: Array) -> Array:
            norms = np.empty((task.horizon, len(task.sizes)))
            kernels.linear.compute_norms(self.phi, factor, norms)
            return beta * norms

        return self.plan_with_bonus(state, clip_q_above(task), bonus, lambda norm: beta * norm, rng)


def lsvi_ucb_theory_bonus(
    task: Task, n_episodes: int, delta: float = 0.05, dimension: int | None = None,
    constant: float = 1.0,
) -> float:  # fmt: skip
    """Return beta / H of Theorem 3.1: constant d sqrt(log(2 d K H / delta)), for lambda = 1.

    The paper proves that some absolute constant will do. d is S*A unless given.
    """
    d = len(task.sizes) if dimension is None else dimension
    steps = positive_integer("n_episodes", n_episodes) * task.horizon
    return constant * d * sqrt(log(2.0 * d * steps / delta))
