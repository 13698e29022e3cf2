"""A running MNL model: counts, the estimate (3), and what planning reads of its confidence set.

Pure functions of a `Model`. Only the blocks whose counts changed are fitted and factored again,
unless lambda_k changed, in which case all are.
"""

from __future__ import annotations

from math import log, nan
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array, new_tuple
from upriver.display import add_repr
from upriver.features import Features

NO_STEPS, NONE = np.empty(0, np.int64), np.empty((0, 0))


ErrorWeights = tuple[float, float]
"""How many standard errors the inner products of a pair stand for, see `kernels.model`: of the
columns that several pairs share; and of those that vary within one pair only and triple effects."""
ONCE = 1.0, 1.0


@add_repr
class Model(NamedTuple):
    """One parameter theta (the paper calls it the transition core), or one per step: C = 1 or H.

    A is the Gram matrix (5), or with `local` the Hessian of (2) at theta.
    """

    counts: Array
    """(C, n) visits of each triple."""
    theta: Array
    """(C, d) theta_hat, the minimiser of (2)."""
    prob: Array
    """(C, n) P_theta_hat, eq. (1)."""
    max_norm: Array
    """(C, S*A) max over the successors of ||varphi||_{A^-1}."""
    inverse_products: Array
    """(C, sum U^2) inner products of the features of each pair in A^-1; a factor of them where
    that is smaller and the model was started `factored`; (C, 0) if they are not kept."""
    logdet: Array
    """(C, B) log-determinant of each block of A."""
    regularization: float
    """The lambda that all of these were computed with."""
    spread: float = 0.0
    """The spread of pooled features that they were computed with; 0 for others."""


def start(
    features: Features, regularization: float, n_parameters: int, with_products: bool,
    local: bool = False, factored: bool = False, spread: float | None = None,
    weights: ErrorWeights = ONCE,
) -> Model:  # fmt: skip
    """Return the model before the first episode: theta = 0 and A = lambda I; n_parameters is C.

    with_products: keep `inverse_products`; factored: keep a factor of those of large pairs, see
    `kernels.Layout`; spread: that of the triple effects in place of that of the features.
    Here and in `absorb`, local: use the Hessian of (2) at theta_hat in place of the Gram matrix;
    weights: how the standard errors of pairs count in `inverse_products`, see `ErrorWeights`.
    """
    task, n_products = features.task, 0
    if with_products:
        n_products = int((features.layout.product_start if factored else task.square_start)[-1])
    model = Model(
        counts=np.zeros((n_parameters, task.n_triples)),
        theta=np.zeros((n_parameters, features.dimension)),
        prob=np.tile(1.0 / np.repeat(task.sizes, task.sizes), (n_parameters, 1)),
        max_norm=np.zeros((n_parameters, len(task.sizes))),
        inverse_products=np.zeros((n_parameters, n_products)),
        logdet=np.full((n_parameters, len(features.layout.size)), nan),
        regularization=regularization,
        spread=features.triple_scale if spread is None else spread,
    )
    bring_up_to_date(features, model, NO_STEPS, NO_STEPS, True, local, weights)
    return model


def absorb(
    features: Features, model: Model, episode: Any, lam: float, local: bool = False,
    weights: ErrorWeights = ONCE,
) -> Model:  # fmt: skip
    """Return the model after one more episode, with lambda_{k+1} = lam."""
    counts, theta, prob, max_norm, products, logdet, _, spread = model
    products = products.copy() if products.size else products
    copies = counts.copy(), theta.copy(), prob.copy(), max_norm.copy(), products, logdet.copy()
    new = new_tuple(Model, (*copies, lam, spread))
    everything = lam != model.regularization
    bring_up_to_date(features, new, episode.states, episode.actions, everything, local, weights)
    return new


def refit(features: Features, model: Model, counts: Array, weights: ErrorWeights) -> Model:
    """Return a `local` model of other counts (C, n); its arrays are used, and changed."""
    model.counts[...] = counts
    bring_up_to_date(features, model, NO_STEPS, NO_STEPS, True, True, weights)
    return model


def change_spread(features: Features, model: Model, spread: float, weights: ErrorWeights) -> Model:
    """Return a `local` model fitted with another spread; its arrays are used, and changed."""
    model.theta[:, features.n_shared :] *= model.spread / spread  # the same effects, in log-odds
    model = model._replace(spread=spread)
    bring_up_to_date(features, model, NO_STEPS, NO_STEPS, True, True, weights)
    return model


def multiply_errors(features: Features, model: Model, factor: Array) -> Model:
    """Return the model to plan with where the errors of each pair count `factor` (S*A,) times."""
    sizes, others = np.diff(features.layout.product_start), np.maximum(features.task.sizes - 1, 0)
    factor = np.where(sizes == others**2, factor**2, factor)  # of products, or of a factor of them
    return model._replace(inverse_products=model.inverse_products * np.repeat(factor, sizes))


def bring_up_to_date(
    features: Features, model: Model, states: Array, actions: Array, everything: bool, local: bool,
    weights: ErrorWeights = ONCE,
) -> None:  # fmt: skip
    """Count an episode and compute again the blocks that it touched, or all; in place."""
    *arrays, lam, spread = model
    if everything:
        model.logdet[:] = nan
    scale = spread if features.triple_scale else 0.0  # a state may hold a spread that is not used
    bad, failed, _ = kernels.model.refresh(
        features.compiled, *arrays, lam, scale, states, actions, False, local, *weights, NONE,
    )  # fmt: skip
    if bad >= 0:
        features.task.refuse_step(bad, states, actions)
    if failed >= 0:
        raise RuntimeError(
            f"the maximum-likelihood fit of feature block {failed} did not converge; "
            "a larger regularization makes it better conditioned"
        )


def fit_blocks(
    features: Features, counts: Array, theta: Array, lam: float, scale: float,
    is_fitted: bool = False, local: bool = True, normals: Array = NONE,
) -> tuple[int, float, float]:  # fmt: skip
    """Minimise (2) from theta (C, d) on, in place, unless it `is_fitted`.

    Returns the first block that failed, or -1; and with `local` (2) at theta and log det of its
    Hessian. normals (C, d) become draws of the packed features, see `kernels.model.refresh`.
    """
    logdet = np.full((len(theta), len(features.layout.size)), nan)
    _, failed, loss = kernels.model.refresh(
        features.compiled, counts, theta, NONE, NONE, NONE, logdet, lam, scale, NO_STEPS, NO_STEPS,
        is_fitted, local, *ONCE, normals,
    )  # fmt: skip
    return failed, loss, float(logdet.sum())


def logdet_ratio(features: Features, model: Model) -> float:
    """Return log(det A / lambda^d), the largest over the parameters."""
    total = model.logdet.sum() if len(model.logdet) == 1 else model.logdet.sum(axis=1).max()
    return float(total) - features.dimension * log(model.regularization)


def information(features: Features, model: Model, normals: Array = NONE) -> float:
    """Return log det of the Hessian of (2) at theta_hat, whichever matrix the model keeps.

    It is NaN where the Hessian is not positive definite; normals (C, d) become draws of the packed
    features.
    """
    counts, theta, lam = model.counts, model.theta, model.regularization
    failed, _, logdet = fit_blocks(features, counts, theta, lam, model.spread, True, True, normals)
    return logdet if failed < 0 else np.nan


def sample(features: Features, model: Model, rng: np.random.Generator) -> Array:
    """Return (C, d) parameters drawn from N(theta_hat, B^-1), the Laplace posterior.

    B is the Hessian of (2) at theta_hat, whichever matrix the model keeps: with the ridge as a
    normal prior this is the Laplace approximation of the posterior.
    """
    draws = rng.standard_normal(model.theta.shape)
    if np.isnan(information(features, model, draws)):
        raise RuntimeError(
            "the information of a feature block is not positive definite; a larger regularization "
            "makes it better conditioned"
        )
    if features.spread:
        draw_effects(features, model, draws)
    return draws


def draw_effects(features: Features, model: Model, draws: Array) -> None:
    """Turn the normals of triple effects into draws, given those of the shared features.

    Their covariance D + k k^T / sum a, see `kernels.likelihood`, has the root D^1/2 (I + f v v^T),
    with v = D^-1/2 k / sqrt(sum a).
    """
    task, m, variance = features.task, features.n_shared, model.spread**2 / model.regularization

    def add_up(x: Array) -> Array:
        """Return the sum of the pair of each triple."""
        return np.repeat(task.by_pair(x), task.sizes, axis=1)

    is_effect = np.ones(task.n_triples, bool)
    is_effect[task.first_rows] = False
    normals = np.zeros_like(model.prob)
    normals[:, is_effect] = draws[:, m:]
    weight = add_up(model.counts) * model.prob
    share = np.where(is_effect, 1.0 / (1.0 + variance * weight), 1.0)
    weight *= share
    total = add_up(weight)
    total[total == 0.0] = 1.0  # without a visit every a_u is 0, and so is k
    moved = np.asarray(features.matrix[:, :m] @ (draws[:, :m] - model.theta[:, :m]).T).T
    mean = add_up(weight * moved) / total
    k, root = np.where(is_effect, variance * weight, 0.0), np.sqrt(variance * share)
    v = k / root / np.sqrt(total)
    factor = add_up(v * normals) / (1.0 + np.sqrt(1.0 + add_up(v * v)))
    effect = root * normals + factor * k / np.sqrt(total) - k * (moved - mean)
    draws[:, m:] = model.theta[:, m:] + effect[:, is_effect] / model.spread
