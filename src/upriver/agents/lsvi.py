"""LSVI-UCB and LSVI-PHE: least-squares value iteration with a bonus, or with perturbed histories.

For each step h both regress r + V_{h+1}(s') on phi(s, a), with the targets recomputed from the new
V_{h+1} in each episode. The first adds a bonus; the second adds Gaussian noise to the targets and
to the prior, M times over, and the largest of the M predictions is optimistic often enough.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode, Learner, State, add_counts
from upriver.agents.counts import checked_table, one_hot_ridge
from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.mnl.online import largest_normal
from upriver.planning import Clip, Plan, clip_q_above


@add_repr
class StepSums(NamedTuple):
    """What least-squares value iteration keeps: sums by step, so its cost does not grow with k."""

    counts: Array
    """(H, n) visits of each triple at each step."""
    paid: Array
    """(H, S*A) sum of the rewards of each pair at each step."""


@dataclass(frozen=True, eq=False)
class LeastSquaresLearner(Learner):
    """The base of LSVI-UCB and LSVI-PHE: regressions on phi(s, a), one for each step h.

    Deviations of both: a known reward is used as it is, r + phi^T Lambda_h^-1 sum phi V_{h+1}(s'),
    where the published form regresses it too (`regress_reward`). The sums are kept as counts, which
    changes only the cost. Ties are broken uniformly at random.
    """

    _: KW_ONLY
    regularization: float = 1e-6
    """lambda; the papers have 1."""
    regress_reward: bool = False
    """True regresses the rewards even where they are known, as published; unknown ones always."""
    phi: Any = None
    """(S*A, d) features of pairs; the default is one-hot."""

    CLIP: ClassVar[Any]
    """Where values are clipped: a function of the task that returns a `Clip`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "phi", checked_table("phi", self.phi, len(self.task.sizes)))

    def add(self, norms: Array, factor: Array | None, rng: np.random.Generator) -> Array:
        """Return what is added to Q_h (H, S*A).

        `norms` (H, S*A) are those of phi in Lambda_h^-1; `factor` (H, d, d) has the Cholesky
        factors of Lambda_h, or is None for one-hot phi.
        """
        raise NotImplementedError

    def start(self) -> StepSums:
        task = self.task
        return StepSums(
            np.zeros((task.horizon, task.n_triples)), np.zeros((task.horizon, len(task.sizes)))
        )

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return Q_h = clip(phi^T Lambda_h^-1 sum phi (r + V_{h+1}(s')) + bonus_h).

        Lambda_h = lambda I + sum phi phi^T, sums over the past visits at step h. With one-hot phi
        Q_h = clip((N_h r + sum N_h(s,a,s') V_{h+1}(s')) / (N_h + lambda) + bonus_h).
        """
        task, lam, phi, (counts, paid) = self.task, self.regularization, self.phi, state.model
        known = task.reward is not None and not self.regress_reward
        options = {"next_state_reward": known}  # a regressed reward contains it
        if phi is None:
            prob, weight = one_hot_ridge(task, counts, lam)
            bonus = self.add(np.sqrt(weight), None, rng)
            reward = task.reward_rows if known else paid * weight
            return self.induce(prob, reward, self.CLIP, rng, bonus, **options)
        visits = task.by_pair(counts)[:, :, None]
        gram = lam * np.eye(phi.shape[1]) + phi.T @ (visits * phi)
        factor = kernels.linear.factor_matrices(gram, lam)
        norms = np.linalg.norm(np.linalg.solve(factor, phi.T), axis=1)
        bonus = self.add(norms, factor, rng)
        if known:
            bonus, paid = bonus + task.reward_rows, np.zeros((1, len(task.sizes)))
        data = counts, paid, factor, bonus, phi, task.max_successors
        return self.run_pass(kernels.linear.regression_rule, data, self.CLIP, rng, **options)

    def learn(self, state: State, plan: Plan, episode: Episode) -> StepSums:
        counts, paid = (x.copy() for x in state.model)
        pairs = add_counts(self.task, counts, episode)
        paid[np.arange(len(pairs)), pairs] += episode.rewards
        return StepSums(counts, paid)


@dataclass(frozen=True, eq=False)
class LSVIUCB(LeastSquaresLearner):
    """Least-squares value iteration with an upper-confidence bonus.

    Jin, Yang, Wang and Jordan, "Provably Efficient Reinforcement Learning with Linear Function
    Approximation" (2020), Algorithm 1.

    Q_h = min(H, w_h^T phi + beta ||phi||_{Lambda_h^-1}), Lambda_h = lambda I + sum phi phi^T and
    w_h = Lambda_h^-1 sum phi (r + V_{h+1}(s')), sums over the past visits at step h.

    With one-hot phi the norm is 1 / sqrt(N_h + lambda), N_h the visits of (s, a) at step h. For the
    deviations and the other parameters see `LeastSquaresLearner`.

    Parameters
    ----------
    bonus : float
        beta / H; 0 is the greedy learner. The theory's is of order d sqrt(log(d K H / delta)).
    """

    bonus: float = 1e-3

    CLIP: ClassVar[Any] = staticmethod(clip_q_above)
    GRID: ClassVar = {
        "bonus": (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "regularization": (1e-6, 1e-3, 1e-1, 1.0),
    }

    def add(self, norms: Array, factor: Array | None, rng: np.random.Generator) -> Array:
        """Return beta ||phi||."""
        return self.bonus * self.task.units.max_value * norms


def clip_q_remaining(task: Task) -> Clip:
    """Clip Q_h to [0, H - h + 1], h from 1, as published."""
    return Clip(0.0, task.units.value_range, task.units.value_range)


@dataclass(frozen=True, eq=False)
class LSVIPHE(LeastSquaresLearner):
    """Least-squares value iteration on perturbed rewards.

    Ishfaq et al., "Randomized Exploration for Reinforcement Learning with General Value Function
    Approximation" (2021), the linear case.

    Q_h = max(0, min(H - h + 1, max_m phi^T theta_h^m)), Lambda_h = lambda I + sum phi phi^T and
    theta_h^m = Lambda_h^-1 (sum phi (r + V_{h+1}(s') + eps) + lambda xi), m = 1..M, with fresh
    eps ~ N(0, sigma^2) for each past visit and xi ~ N(0, sigma^2 I / lambda).

    Given the past, theta_h^m ~ N(w_h, sigma^2 Lambda_h^-1) with w_h as in LSVI-UCB, and that is
    what is drawn: perturbing the targets one by one would cost a pass over the history. With
    one-hot phi the perturbation of Q_h(s, a) is sigma / sqrt(N_h + lambda) times the largest of M
    independent standard normals. For the deviations and the other parameters see
    `LeastSquaresLearner`.

    Parameters
    ----------
    noise : float
        sigma / H; 0 is the greedy learner. The theory's is of order sqrt(d) up to logarithms.
    ensemble : int
        M, over which the maximum is taken. The theory's is d log(delta / 9) / log Phi(1).
    """

    noise: float = 1e-3
    ensemble: int = 10

    CLIP: ClassVar[Any] = staticmethod(clip_q_remaining)
    GRID: ClassVar = {
        "noise": (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "regularization": (1e-6, 1e-3, 1e-1, 1.0),
    }

    def add(self, norms: Array, factor: Array | None, rng: np.random.Generator) -> Array:
        """Return the largest of M perturbations."""
        sigma = self.noise * self.task.units.max_value
        if factor is None:
            exponentials = rng.standard_exponential(norms.shape)
            return sigma * norms * largest_normal(exponentials, self.ensemble)
        # phi^T L_h^-T z with z standard normal has the variance ||phi||^2
        z = rng.standard_normal((len(norms), self.ensemble, self.phi.shape[1])).mT
        return sigma * (self.phi @ np.linalg.solve(factor.mT, z)).max(axis=2)
