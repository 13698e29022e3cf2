"""Online estimates of the MNL model: one pass over the data, constant time and memory per episode.

Write l for the loss -log P_theta(s' | s, a) of one transition. Two estimators of Cho, Hwang, Lee
and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic Function
Approximation" (2024), both projected onto the ball ||theta|| <= L_theta in the norm of the matrix:

    online Newton step      A <- A + (kappa/2) sum_s' varphi varphi^T
    (RRL-MNL)               theta <- Proj_A(theta - A^-1 grad l(theta))

    online mirror descent   M = B + eta Hess l(theta)
    (ORRL-MNL, UCRL-MNL+)   theta <- Proj_M(theta - eta M^-1 grad l(theta))
                            B <- B + Hess l(theta), at the new theta

The Hessian is the centred sum_s' P (varphi - mean)(varphi - mean)^T, so B is local information and
needs no kappa. Neither couples two feature blocks; only the ball does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, erf, inf, log, log2, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from upriver import kernels
from upriver.checks import Array, positive_number
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl.radii import Evidence, TheoryRadius


@add_repr
class Online(NamedTuple):
    """One parameter theta or one per step (C = 1 or H), and what planning reads of them."""

    theta: Array
    """(C, d) the running estimate."""
    matrix: Array
    """(C, sum m^2) A or B, the flat blocks; `likelihood.from_blocks` makes a (d, d) matrix."""
    prob: Array
    """(C, n) P_theta, eq. (1)."""
    max_norm: Array
    """(C, S*A) max over the successors of ||varphi|| in the inverse of the matrix."""
    inverse_products: Array
    """(C, sum U^2) inner products of the features of each (s, a) in that inverse."""
    logdet: Array
    """(C, B) log-determinant of each block of the matrix."""
    regularization: float
    """lambda; the matrix began as lambda I."""


def start(features: Features, regularization: float, n_parameters: int) -> Online:
    """Return the model before the first episode: theta = 0 and a matrix of lambda I."""
    if features.spread:
        raise ValueError(
            "online estimators do not support pooled features; use UCRL-MNL, -SE or -LL, which "
            "estimate from counts"
        )
    task = features.task
    blocks = [regularization * np.eye(m).ravel() for m in features.layout.size]
    model = Online(
        theta=np.zeros((n_parameters, features.dimension)),
        matrix=np.tile(np.concatenate(blocks), (n_parameters, 1)),
        prob=np.tile(1.0 / np.repeat(task.sizes, task.sizes), (n_parameters, 1)),
        max_norm=np.zeros((n_parameters, len(task.sizes))),
        inverse_products=np.zeros((n_parameters, int(task.square_start[-1]))),
        logdet=np.full((n_parameters, len(features.layout.size)), nan),
        regularization=regularization,
    )
    none = np.empty(0, np.int64)  # no log-determinant is known, so everything is computed
    run_steps(features, model, none, none, 0.0, inf, False)
    return model


def learn(
    features: Features, model: Online, episode: Any, rate: float,
    theta_bound: float | None = None, *, mirror: bool,
) -> Online:  # fmt: skip
    """Return the model after the steps of an episode; theta_bound is L_theta.

    They are steps of mirror descent, with the rate eta, or online Newton steps, with kappa / 2.
    """
    new = Online._make([*(x.copy() for x in model[:-1]), model.regularization])
    bound = inf if theta_bound is None else theta_bound
    run_steps(features, new, episode.states, episode.actions, rate, bound, mirror)
    return new


def run_steps(
    features: Features, model: Online, states: Array, actions: Array, rate: float, bound: float,
    mirror: bool,
) -> None:  # fmt: skip
    """Do the steps of an episode in place in `model`."""
    bad, step, block = kernels.online.learn(
        features.compiled, *model[:-1], states, actions, rate, bound, mirror
    )
    if bad >= 0:
        features.task.refuse_step(bad, states, actions)
    if step >= 0 or block >= 0:
        what = f"step {step}" if step >= 0 else f"block {block}"
        raise RuntimeError(
            f"the matrix of {what} is not positive definite; a larger regularization makes it "
            "better conditioned"
        )


def local_bonus(task: Task, model: Any, first: float, second: float) -> Array:
    """Return (C, S*A) first * sum_s' P ||varphi - mean|| + second * max_s' ||varphi||^2.

    Norms are those in the inverse of the model's matrix. `model` is an `Online`, or a `Model` of
    `mnl.model` that keeps its inner products.
    """
    bonus = np.empty_like(model.max_norm)
    kernels.online.local_bonus(
        task.indptr, model.prob, model.max_norm, model.inverse_products, task.square_start, first,
        second, bonus,
    )  # fmt: skip
    return bonus


def noise(
    features: Features, model: Online, n_samples: int, rng: np.random.Generator, centred: bool
) -> Array:
    """Return (H, S*A) maxima over M = n_samples xi ~ N(0, matrix^-1), one set for each step.

    Centred: sum_s' P max (varphi - mean)^T xi, a maximum for each successor by itself, so that with
    one sample the sum is zero. Otherwise max varphi_hat^T xi, where varphi_hat is the feature of
    (s, a) with the largest norm in the inverse of the matrix.
    """
    task, layout = features.task, features.layout
    bonus = np.zeros((task.horizon, model.max_norm.shape[1]))
    first_pair = layout.blocks["first_pair"]
    is_alone = (np.diff(first_pair) == 1) & (not centred)
    alone = layout.block_pairs[first_pair[:-1][is_alone]]
    if len(alone):  # no other pair shares its features: the largest norm times a standard normal
        exponentials = -np.log1p(-rng.random((task.horizon, len(alone))))
        bonus[:, alone] = model.max_norm[:, alone] * largest_normal(exponentials, n_samples)
    if not is_alone.all():
        n_rows = int(layout.size[~is_alone].sum())
        n_steps = max(AT_ONCE // (n_rows * n_samples), 1)
        for h in range(0, task.horizon, n_steps):
            normals = rng.standard_normal((min(n_steps, task.horizon - h), n_rows, n_samples))
            kernels.online.random_bonus(
                features.compiled, model.matrix, model.prob, model.inverse_products, h, normals,
                is_alone, centred, bonus,
            )  # fmt: skip
    return bonus


def largest_normal(exponentials: Array, size: int) -> Array:
    """Turn standard exponential numbers into the largest of `size` standard normals each.

    It is Phi^-1(U^(1/size)) with -log U exponential; 1 - U^(1/size) keeps its digits near 0.
    """
    return -ndtri(-np.expm1(exponentials / -size))


AT_ONCE = 2_000_000  # normals that are held in memory, unless one step alone needs more
PHI_1 = 0.5 * (1.0 + erf(sqrt(0.5)))  # the standard normal distribution function at 1


def theory_samples(n: int) -> int:
    """Return M = ceil(1 - log n / log Phi(1)), n = H of RRL-MNL and H U of ORRL-MNL."""
    return ceil(1.0 - log(n) / log(PHI_1))


@dataclass(frozen=True)
class newton_radius(TheoryRadius):
    """alpha_k of RRL-MNL for the online Newton step, lambda >= L_varphi^2.

    alpha_k^2 = (8 d / kappa) log(1 + k U L_varphi^2 / (d lambda)) + (32 L_varphi L_theta / 3
    + 16 / kappa) log((1 + ceil(2 log2(k U L_varphi L_theta))) k^2 / delta) + 2 sqrt(2)
    + 2 lambda L_theta^2. With probability 1 - delta, ||theta_k - theta*||_{A_k} <= alpha_k for all
    k, for one parameter: H parameters together need delta / H. theta_k is projected, so kappa over
    the ball of radius L_theta is enough.
    """

    kappa: float
    theta_bound: float
    """L_theta."""
    delta: float = 0.05
    rounds: int = 1
    """Transitions per parameter and episode: 1 with one parameter per step, otherwise H."""

    def beta(self, e: Evidence) -> float:
        k, d, size = e.k * self.rounds, e.dimension, e.norm_bound * self.theta_bound
        covers = 1.0 + max(ceil(2.0 * log2(k * e.max_successors * size)), 0)
        gathered = k * e.max_successors * e.norm_bound**2 / (d * e.regularization)
        return sqrt(
            8.0 * d / self.kappa * log(1.0 + gathered)
            + (32.0 * size / 3.0 + 16.0 / self.kappa) * log(covers * k**2 / self.delta)
            + 2.0 * sqrt(2.0)
            + 2.0 * e.regularization * self.theta_bound**2
        )


@dataclass(frozen=True)
class mirror_radius(TheoryRadius):
    """beta_k of ORRL-MNL and UCRL-MNL+ for online mirror descent, from their Lemmas 13 to 15.

    beta_k^2 = alpha (G_A + G_B) + lambda L_theta^2, alpha = log U + 2 (1 + L_varphi L_theta),
    G_A = (3 log(U k) + L_varphi L_theta) (5/4 lambda + 4 log(H sqrt(1 + 2 k) / delta)) + 2,
    G_B = sqrt(6) (2 alpha / 3) d log(1 + 2 k L_varphi^2 / (d lambda)). With eta of `theory_step`
    and lambda of `mirror_regularization`, ||theta_k - theta*||_{B_k} <= beta_k for all k and h
    with probability 1 - delta.
    """

    theta_bound: float
    """L_theta."""
    delta: float = 0.05
    rounds: int = 1
    """Transitions per parameter and episode: 1 with one parameter per step, otherwise H."""

    def beta(self, e: Evidence) -> float:
        k, d, lam = e.k * self.rounds, e.dimension, e.regularization
        size = e.norm_bound * self.theta_bound
        alpha = log(e.max_successors) + 2.0 * (1.0 + size)
        spread = 3.0 * log(e.max_successors * k) + size
        chance = log(e.horizon * sqrt(1.0 + 2.0 * k) / self.delta)
        first = spread * (1.25 * lam + 4.0 * chance) + 2.0
        second = sqrt(6.0) * (2.0 * alpha / 3.0) * d * log(
            1.0 + 2.0 * k * e.norm_bound**2 / (d * lam)
        )  # fmt: skip
        return sqrt(alpha * (first + second) + lam * self.theta_bound**2)


def theory_step(features: Features, theta_bound: float) -> float:
    """Return eta = alpha / 2 of online mirror descent, alpha = log U + 2 (1 + L_varphi L_theta)."""
    size = features.norm_bound * positive_number("theta_bound", theta_bound)
    return 0.5 * log(features.task.max_successors) + 1.0 + size


def mirror_regularization(features: Features, theta_bound: float) -> float:
    """Return lambda = max(12 sqrt(2) L^3 alpha, 48 L^2 d alpha), L the norm bound of features."""
    alpha, big = 2.0 * theory_step(features, theta_bound), features.norm_bound
    if big == 0.0:  # no feature is nonzero: any lambda will do
        return 1.0
    return max(12.0 * sqrt(2.0) * big**3, 48.0 * big**2 * features.formal_dimension) * alpha
