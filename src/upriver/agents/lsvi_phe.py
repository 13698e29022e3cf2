"""LSVI-PHE: least-squares value iteration with perturbed histories.

Ishfaq et al., "Randomized Exploration for Reinforcement Learning with General Value Function
Approximation" (2021), the linear case. M times over, Gaussian noise is added to the regression
targets and to the prior; the largest of the M predictions is optimistic often enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, sqrt
from typing import ClassVar

import numpy as np

from upriver import kernels
from upriver.agents.fields import validate_fields
from upriver.agents.guard import guarded
from upriver.agents.linear import LeastSquaresLearner, Visits
from upriver.checks import Array, nonnegative_number, positive_integer
from upriver.mdp import Task
from upriver.planning import Clip, Plan


@guarded
@dataclass(frozen=True, eq=False)
class LSVIPHE(LeastSquaresLearner):
    """Q_h = max(0, min(H - h + 1, max_m phi^T theta_h^m)), Lambda_h = lambda I + sum phi phi^T and
    theta_h^m = Lambda_h^-1 (sum phi (r + V_{h+1}(s') + eps) + lambda xi), m = 1..M, with fresh
    eps ~ N(0, sigma^2) for each past visit and xi ~ N(0, sigma^2 I / lambda).

    Given the past, theta_h^m ~ N(w_h, sigma^2 Lambda_h^-1) with w_h as in LSVI-UCB, and that is
    what is drawn: perturbing the targets one by one would cost a pass over the history. With
    one-hot phi the perturbation of Q_h(s, a) is sigma / sqrt(N_h + lambda) times the largest of M
    independent standard normals.

    Deviations: a known reward is used as it is, r + phi^T Lambda_h^-1 sum phi V_{h+1}(s'), where
    the published form regresses it too (`regress_reward`). The sums are kept as counts, which
    changes only the cost. Ties are broken uniformly at random.

    Parameters
    ----------
    noise : float
        sigma / H; 0 is the greedy learner. The theory's is `lsvi_phe_theory_noise`.
    ensemble : int
        M, over which the maximum is taken. The theory's is `lsvi_phe_theory_ensemble`.
    regularization, regress_reward, phi
        As in `LSVIUCB`.
    """

    noise: float = 1e-3
    ensemble: int = 10

    GRID: ClassVar = {
        "noise": (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "regularization": (1e-6, 1e-3, 1e-1, 1.0),
    }

    def __post_init__(self) -> None:
        validate_fields(self, noise=nonnegative_number, ensemble=positive_integer)
        super().__post_init__()

    def plan(self, state: Visits, rng: np.random.Generator) -> Plan:
        """Return the values with the largest of M perturbations."""
        task, size = self.task, self.ensemble
        sigma, shape = self.noise * task.units.max_value, (task.horizon, len(task.sizes))

        def bonus(factor: Array) -> Array:
            normals = rng.standard_normal((task.horizon, size, self.phi.shape[1]))
            noise = np.empty(shape)
            kernels.linear.maximize_projections(self.phi, factor, normals, noise)
            return sigma * noise

        def one_hot_bonus(norms: Array) -> Array:
            return sigma * norms * largest_normal(shape, size, rng)

        return self.plan_with_bonus(state, clip_q_remaining(task), bonus, one_hot_bonus, rng)


@lru_cache(maxsize=64)
def clip_q_remaining(task: Task) -> Clip:
    """Return the clip of Q_h to [0, H - h + 1], h from 1, as LSVI-PHE is published."""
    cap = task.units.value_range[:-1].copy()
    return Clip(0.0, cap, cap)


def largest_normal(shape: tuple[int, ...], size: int, rng: np.random.Generator) -> Array:
    """Draw the largest of `size` independent standard normals by inversion, one draw for any size.

    It is Phi^-1(U^(1/size)) with -log U exponential; 1 - U^(1/size) keeps its digits near 0.
    """
    from scipy.special import ndtri

    return -ndtri(-np.expm1(rng.standard_exponential(shape) / -size))


def lsvi_phe_theory_noise(
    task: Task, n_episodes: int, delta: float = 0.05, dimension: int | None = None,
    constant: float = 1.0,
) -> float:  # fmt: skip
    """Return sigma / H, of order sqrt(d) up to logarithms: constant sqrt(d log(2 d K H / delta)).

    The paper gives the order, for lambda = 1; constant and logarithm are chosen here. d is S*A
    unless given.
    """
    d = len(task.sizes) if dimension is None else dimension
    steps = positive_integer("n_episodes", n_episodes) * task.horizon
    return constant * sqrt(d * log(2.0 * d * steps / delta))


def lsvi_phe_theory_ensemble(task: Task, delta: float = 0.05, dimension: int | None = None) -> int:
    """Return M = d log(delta / 9) / log Phi(1), Phi normal; d is S*A unless given."""
    d = len(task.sizes) if dimension is None else dimension
    return ceil(d * log(delta / 9.0) / log(0.8413447460685429))
