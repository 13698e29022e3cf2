"""UC-MatrixRL: optimistic RL with a bilinear transition model."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents.base import State
from upriver.agents.counts import CountLearner, checked_table, one_hot_ridge
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array
from upriver.planning import Plan, clip_q


@dataclass(frozen=True, eq=False)
class UCMatrixRL(OptimisticReward, CountLearner):
    """Optimism with a bilinear transition model, P(s'|s,a) = phi(s,a)^T M* psi(s').

    Yang and Wang, "Reinforcement Learning in Feature Space: Matrix Bandit, Kernels, and Regret
    Bound" (2020).

    Q_h = clip_[0,H](r + phi^T M_n Psi^T V_{h+1} + bonus H ||phi||_{A_n^-1}), with
    A_n = lambda I + sum phi phi^T and M_n = A_n^-1 (sum phi psi(s')^T) K_psi^-1, K_psi = Psi^T Psi.

    With one-hot features P_hat(s'|s,a) = N(s,a,s') / (N(s,a) + lambda), whose rows sum to less than
    one, and the width is (N(s,a) + lambda)^-1/2.

    Deviations: the sum over next states runs over the task's successors of (s, a), which are all
    states, as published, with support "full". Ties are broken uniformly at random.

    Parameters
    ----------
    bonus : float
        2 C_psi sqrt(beta_n); 0 is the greedy learner.
    regularization : float
        lambda, the factor of the identity in A_n; the paper has 1.
    phi, psi : array, optional
        (S*A, d) features of pairs, and (S, d') features of next states; the default is one-hot.
    """

    bonus: float = 0.01
    regularization: float = 1e-6
    _: KW_ONLY
    phi: Any = None
    psi: Any = None

    GRID: ClassVar = {
        "bonus": (0.0, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
        "regularization": (1e-6, 1e-3, 1e-1, 1.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        psi = checked_table("psi", self.psi, self.task.n_states)
        if psi is not None and (rank := np.linalg.matrix_rank(psi)) < psi.shape[1]:
            raise ValueError(
                f"psi has {psi.shape[1]} columns of rank {rank}; they must be independent"
            )
        object.__setattr__(self, "phi", checked_table("phi", self.phi, len(self.task.sizes)))
        object.__setattr__(self, "psi", psi)

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the values with the bonus."""
        prob, width = self.estimate(state)
        scale = self.bonus * self.task.units.max_value
        return self.induce(prob, self.reward(state), clip_q, rng, width, scale)

    def estimate(self, state: State) -> tuple[Array, Array]:
        """Return phi^T M_n psi(s') of every triple (1, n), and ||phi||_{A_n^-1} (1, S*A)."""
        if self.phi is None and self.psi is None:
            prob, weight = one_hot_ridge(self.task, state.model, self.regularization)
            return prob, np.sqrt(weight)
        from scipy import linalg

        task, counts = self.task, state.model[0]
        phi = np.eye(len(task.sizes)) if self.phi is None else self.phi
        psi = np.eye(task.n_states) if self.psi is None else self.psi
        following = psi[task.successors]
        visits = task.by_pair(counts)
        sums = phi.T @ task.by_pair(counts * following.T).T
        gram = phi.T @ (visits[:, None] * phi) + self.regularization * np.eye(phi.shape[1])
        factor = linalg.cholesky(gram, lower=True)
        core = linalg.cho_solve((factor, True), sums)
        core = linalg.cho_solve(linalg.cho_factor(psi.T @ psi), core.T).T
        rows = np.repeat(phi @ core, task.sizes, axis=0)
        prob = np.einsum("ij,ij->i", rows, following)
        width = np.sqrt(np.square(linalg.solve_triangular(factor, phi.T, lower=True)).sum(axis=0))
        return prob[None], width[None]
