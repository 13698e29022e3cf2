"""UC-MatrixRL: optimistic RL with a bilinear transition model.

Yang and Wang, "Reinforcement Learning in Feature Space: Matrix Bandit, Kernels, and Regret Bound"
(2020). The model is P(s'|s,a) = phi(s,a)^T M* psi(s'). In each episode: estimate M* by ridge
regression, widen by ||phi||_{A^-1}, plan, play the greedy policy.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver.agents import linear, rewards
from upriver.agents.base import Episode, Validated, guarded
from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import Plan, backward_induction, clip_q, draw_tie_seed
from upriver.planning.optimism import ones


@add_repr
class UCMatrixRLState(NamedTuple):
    """What UC-MatrixRL keeps between episodes."""

    counts: Array
    """(1, n) visits of each triple; A_n and the regression are functions of them."""
    rewards: rewards.RewardSums | None
    """Sums of rewards, only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True, eq=False)
class UCMatrixRL(rewards.OptimisticReward, Validated):
    """Optimism with a bilinear transition model.

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
    phi : array, optional
        (S*A, d) or (S, A, d) features of pairs; the default is one-hot.
    psi : array, optional
        (S, d') features of next states; the default is one-hot.
    """

    task: Task
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
        object.__setattr__(self, "phi", linear.checked_pairs(self.task, self.phi))
        object.__setattr__(self, "psi", linear.checked_next(self.task, self.psi))

    def init(self) -> UCMatrixRLState:
        """Return counts of 0."""
        return UCMatrixRLState(np.zeros((1, self.task.n_triples)), rewards.start(self.task))

    def plan(self, state: UCMatrixRLState, rng: np.random.Generator) -> Plan:
        """Return the values with the bonus."""
        task, reward = self.task, self.reward(state)
        prob, width = self.estimate(state)
        scale, clip = (self.bonus * task.units.max_value) * ones(task), clip_q(task)
        return backward_induction(task, prob, reward, width, scale, clip, draw_tie_seed(rng))

    def update(self, state: UCMatrixRLState, plan: Plan, episode: Episode) -> UCMatrixRLState:
        """Return the counts with one more episode."""
        counts = state.counts.copy()
        linear.count_visits(self.task, counts, episode)
        return UCMatrixRLState(counts, rewards.observe(self.task, state.rewards, episode))

    def estimate(self, state: UCMatrixRLState) -> tuple[Array, Array]:
        """Return phi^T M_n psi(s') of every triple (1, n), and ||phi||_{A_n^-1} (1, S*A)."""
        if self.phi is None and self.psi is None:
            prob, weight = linear.one_hot_ridge(self.task, state.counts, self.regularization)
            return prob, np.sqrt(weight)
        from scipy import linalg

        task, counts = self.task, state.counts[0]
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
