"""UCRL-VTR: value-targeted regression for linear mixture models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode, Learner, State, add_counts, number_or_function
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array, as_float, nonnegative_number
from upriver.display import add_repr
from upriver.planning import Plan, clip_q


@add_repr
class Regression(NamedTuple):
    """What UCRL-VTR has regressed; matrices are flat, those of pairs one after the other."""

    gram: Array
    """The sum of X X^T, without lambda I."""
    target: Array
    """(n,) sum of X V_{h+1}(s_{h+1})."""
    root: Array
    """Inverses of the Cholesky factors of M = lambda I + gram."""
    theta: Array
    """(n,) M^-1 target."""


@dataclass(frozen=True, eq=False)
class UCRLVTR(OptimisticReward, Learner):
    """Value-targeted regression for linear mixture models, P = sum_j theta_j P_j.

    Jia, Yang, Szepesvari and Wang, "Model-Based Reinforcement Learning with Value-Targeted
    Regression" (2020), and Ayoub, Jia, Szepesvari, Wang and Yang (2020). The planned value of the
    next state is regressed on X_V(s,a)_j = sum_s' V(s') P_j(s'|s,a):

    Q_h = clip_[0,H](r + X_h^T theta_k + sqrt(beta_k) ||X_h||_{M_k^-1}), X_h = X_{V_{h+1}}(s, a).

    The P_j are one-hot, e_(s,a,s'), so theta is the table of probabilities and X_h(s, a) holds
    V_{h+1} on the successors of (s, a): one small ridge regression for each (s, a).

    Deviations: the next states are the task's successors of (s, a), which are all states, as
    published, with support "full". Ties are broken uniformly at random.

    Parameters
    ----------
    bonus : float or function of k
        sqrt(beta_k); 0 is the greedy learner. The theory's beta_k is
        16 C^2 H^2 d log(1 + H k) log^2((k + 1)^2 H / delta), C at least 1 and ||theta*||.
    regularization : float
        lambda of M_1 = lambda I; the theory's is H^2 d. No one number serves all problems: on
        RiverSwim with local support 30 never leaves the near bank of a short river, and 3 explores
        a long one for too long. Tune it with `bonus`.
    """

    bonus: float | Callable[[int], float] = 3.0
    regularization: float = 10.0

    GRID: ClassVar = {
        "bonus": (0.0, 0.3, 1.0, 2.0, 3.0), "regularization": (0.1, 1.0, 3.0, 10.0, 30.0),
    }  # fmt: skip
    OWN_CHECKS: ClassVar = {"bonus": number_or_function}

    def start(self) -> Regression:
        eyes = [np.eye(size).ravel() for size in self.task.sizes]
        root, zeros = np.concatenate(eyes) / sqrt(self.regularization), np.zeros
        n = self.task.n_triples
        return Regression(np.zeros_like(root), zeros(n), root, zeros(n))

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimistic values."""
        task, (_, _, root, theta) = self.task, state.model
        beta = float(self.radius(state.k))
        data = self.reward(state), task.square_start, root, theta, beta, task.max_successors
        return self.run_pass(kernels.linear.value_target_rule, data, clip_q, rng)

    def learn(self, state: State, plan: Plan, episode: Episode) -> Regression:
        """Regress V_{h+1}(s_{h+1}) on X_h, with the values that the episode was planned with."""
        task, v = self.task, as_float("v of the plan", getattr(plan, "v", None))
        shape = task.horizon + 1, task.n_states
        if v.shape != shape or not np.isfinite(v).all():
            raise ValueError(
                f"plan is not one of this task: its v must be finite, of shape {shape}"
            )
        if np.any(getattr(plan, "in_user_units", False)) and not task.units.is_identity:
            raise ValueError("plan is in the user's units; update needs it as the agent made it")
        pairs = add_counts(task, np.empty((1, 0)), episode)  # checked, and not counted
        new = Regression._make(x.copy() for x in state.model)
        kernels.linear.update_value_regression(
            task.indptr, task.successors, task.square_start, float(self.regularization),
            task.next_state_reward_rows, pairs, episode.states, v, *new,
        )  # fmt: skip
        return new

    def radius(self, k: int) -> float:
        """Return sqrt(beta_k)."""
        rule = self.bonus
        return nonnegative_number("bonus", rule(k)) if callable(rule) else rule
