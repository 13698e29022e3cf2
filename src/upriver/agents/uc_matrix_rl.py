"""UC-MatrixRL: optimistic RL with a bilinear transition model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver.agents.base import State
from upriver.agents.counts import CountLearner, one_hot_ridge
from upriver.agents.rewards import OptimisticReward
from upriver.planning import Plan, clip_q


@dataclass(frozen=True, eq=False)
class UCMatrixRL(OptimisticReward, CountLearner):
    """Optimism with a bilinear transition model, P(s'|s,a) = phi(s,a)^T M* psi(s').

    Yang and Wang, "Reinforcement Learning in Feature Space: Matrix Bandit, Kernels, and Regret
    Bound" (2020).

    Q_h = clip_[0,H](r + phi^T M_n Psi^T V_{h+1} + bonus H ||phi||_{A_n^-1}), with
    A_n = lambda I + sum phi phi^T and M_n = A_n^-1 (sum phi psi(s')^T) K_psi^-1, K_psi = Psi^T Psi.

    The features are one-hot, so P_hat(s'|s,a) = N(s,a,s') / (N(s,a) + lambda), whose rows sum to
    less than one, and the norm is (N(s,a) + lambda)^-1/2.

    Deviations: the sum over next states runs over the task's successors of (s, a), which are all
    states, as published, with support "full". Ties are broken uniformly at random.

    Parameters
    ----------
    bonus : float
        2 C_psi sqrt(beta_n); 0 is the greedy learner.
    regularization : float
        lambda, the factor of the identity in A_n; the paper has 1.
    """

    bonus: float = 0.01
    regularization: float = 1e-6

    GRID: ClassVar = {
        "bonus": (0.0, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
        "regularization": (1e-6, 1e-3, 1e-1, 1.0),
    }

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the values with the bonus."""
        prob, weight = one_hot_ridge(self.task, state.model, self.regularization)
        scale = self.bonus * self.task.units.max_value
        return self.induce(prob, self.reward(state), clip_q, rng, np.sqrt(weight), scale)
