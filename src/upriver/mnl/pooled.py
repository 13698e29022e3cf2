"""Triple effects of a fit: the covariance, and the spread that data suggest."""

from __future__ import annotations

from functools import partial
from math import exp, log, sqrt
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from upriver.checks import Array
from upriver.features import Features
from upriver.mnl import likelihood
from upriver.mnl.model import Model, fit_blocks

SMALLEST, LARGEST = 1e-3, 30.0  # standard deviations, in log-odds, between which one is estimated
GRID_SIZE = 21
"""Spreads that are tried before the best one is refined."""
GRID = np.geomspace(0.03, 3.0, 9)
"""The spreads that a learner chooses from while it plays."""
FIRST_SPREAD = 0.1
"""The spread of a learner before it has data, and the median of the log-normal prior of a spread,
whose logarithm has the standard deviation 1."""


def covariance(features: Features, theta: Array, counts: Array, lam: float) -> Any:
    """Return (d, d) the inverse Hessian as a scipy LinearOperator, since it has no zeros."""
    operator: Any = linalg.LinearOperator
    multiply = partial(multiply_covariance, features, theta, counts, lam)
    products = dict.fromkeys(("matvec", "rmatvec", "matmat", "rmatmat"), multiply)
    return operator((features.dimension, features.dimension), dtype=np.float64, **products)


def multiply_covariance(
    features: Features, theta: Array, counts: Array, lam: float, vectors: Array
) -> Array:
    """Return the inverse Hessian times a vector (d,), or several (d, k)."""
    hessian = sparse.csc_array(likelihood.hessian(features, theta, counts, lam))
    order = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
    return linalg.splu(hessian, **order).solve(np.asarray(vectors, dtype=np.float64))


def shared_variances(features: Features, theta: Array, counts: Array, lam: float) -> Array:
    """Return the diagonal of the inverse Hessian, for the shared features."""
    unit = np.eye(features.dimension, features.n_shared)
    return multiply_covariance(features, theta, counts, lam, unit).diagonal()


def log_evidence(
    features: Features, effects: Array, counts: Array, lam: float, spread: float
) -> float:
    """Return Laplace's approximation of the log marginal likelihood of pooled features.

    The ridge is a normal prior. effects (C, d), the estimates to start from, become (3) with this
    spread and counts (C, n); their triple effects are in log-odds, so that they serve as a start
    for another spread.
    """
    effects[:, features.n_shared :] /= spread
    failed, loss, logdet = fit_blocks(features, counts, effects, lam, spread)
    effects[:, features.n_shared :] *= spread
    return -np.inf if failed >= 0 else -loss - 0.5 * (logdet - effects.size * log(lam))


def estimate_spread(features: Features, counts: Array, lam: float) -> float:
    """Return the spread of pooled features that maximises the marginal likelihood.

    As a standard deviation it lies between SMALLEST, where states do not differ, and LARGEST.
    """
    from scipy.optimize import minimize_scalar

    effects = np.zeros((1, features.dimension))

    def cost(log_spread: float) -> float:
        return -log_evidence(features, effects, counts[None], lam, exp(log_spread))

    # The evidence may have several maxima: the best point of a grid is between its neighbours.
    grid = np.linspace(log(SMALLEST * sqrt(lam)), log(LARGEST * sqrt(lam)), GRID_SIZE)
    best = int(np.argmin([cost(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, GRID_SIZE - 1)]
    result: Any = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 0.01})
    return float(exp(result.x))


def likely_spread(features: Features, model: Model) -> float:
    """Return the spread in GRID with the largest marginal likelihood times its prior density."""
    effects = model.theta.copy()
    effects[:, features.n_shared :] *= model.spread
    best, chosen = -np.inf, model.spread
    for spread in GRID.tolist():
        evidence = log_evidence(features, effects, model.counts, model.regularization, spread)
        evidence -= 0.5 * log(spread / FIRST_SPREAD) ** 2
        if evidence > best:
            best, chosen = evidence, spread
    return chosen
