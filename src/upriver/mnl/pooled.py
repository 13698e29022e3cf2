"""Triple effects of a fit: their covariance, their sizes, and the spread that data suggest.

The Hessian of (2) is block diagonal in the triple effects and bordered by the shared features, so
everything goes by the Schur complement on the shared features (`kernels.pooled`); no matrix over
all triple effects is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.features import Features, pooled, unpooled
from upriver.mnl import likelihood

SMALLEST, LARGEST = 1e-3, 30.0  # standard deviations, in log-odds, between which one is estimated


def covariance(features: Features, theta: Array, counts: Array, lam: float) -> Any:
    """Return (d, d) the inverse Hessian as a scipy LinearOperator: products with it cost O(n)."""
    from scipy.sparse.linalg import LinearOperator

    def product(vector: Array) -> Array:
        result = np.array(vector, dtype=np.float64).ravel()
        kernels.covariance.solve(features.problem, counts, theta, lam, result)
        return result

    shape = (features.dimension, features.dimension)
    return LinearOperator(shape, matvec=product, rmatvec=product, dtype=np.float64)  # pyright: ignore[reportCallIssue]


def variances(features: Features, theta: Array, counts: Array, lam: float) -> tuple[Array, float]:
    """Return (d,) the diagonal of the inverse Hessian, and the log-determinant of the Hessian."""
    diagonal = np.full(features.dimension, 1.0 / lam)
    logdet = kernels.covariance.variances(features.problem, counts, theta, lam, diagonal)
    return diagonal, float(logdet)


def log_evidence(features: Features, theta: Array, counts: Array, lam: float) -> float:
    """Return Laplace's approximation of the log marginal likelihood, the ridge as a prior."""
    logdet = variances(features, theta, counts, lam)[1]
    loss = likelihood.loss(features, theta, counts, lam)
    return 0.5 * (features.dimension * log(lam) - logdet) - loss


def estimate_spread(
    features: Features, counts: Array, lam: float, fit: Callable[[Features, Array], Array]
) -> float:
    """Return the spread of pooled features that maximises the marginal likelihood.

    As a standard deviation it lies between SMALLEST, where states do not differ, and LARGEST.
    fit(features, start (d,)) returns the estimate (3) of pooled features.
    """
    from scipy.optimize import minimize_scalar

    shared = unpooled(features)
    effects = np.zeros(features.dimension)  # all effects in log-odds, to start from

    def cost(log_spread: float) -> float:
        made = pooled(shared, exp(log_spread))
        scale = np.r_[np.ones(made.n_shared), np.full(made.dimension - made.n_shared, made.spread)]
        theta = fit(made, effects / scale)
        effects[:] = theta * scale
        return -log_evidence(made, theta, counts, lam)

    bounds = [log(x * sqrt(lam)) for x in (SMALLEST, LARGEST)]
    found: Any = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 0.01})
    return float(exp(found.x))


class TripleEffects(NamedTuple):
    """The triple effects of a model that has other coefficients before them, in log-odds."""

    triples: Sequence[tuple[Any, Any, Any]]
    """(state, action, next state) of each."""
    visits: Array
    """(K,) of their pairs (s, a)."""
    deviation: float
    """The standard deviation of their prior, which has the largest marginal likelihood."""


def effects_of(features: Features, counts: Array) -> tuple[list[tuple[Any, Any, Any]], Array]:
    """Return the triples, by name, that have effects, and (K,) the visits of their pairs."""
    task = features.task
    rows = np.delete(np.arange(task.n_triples), task.first_rows)
    states, actions = task.state_names, task.action_names
    s, a, s2 = (x[rows].tolist() for x in task.triples)
    triples = [(states[i], actions[j], states[k]) for i, j, k in zip(s, a, s2, strict=True)]
    return triples, likelihood.visits(features, counts)[rows]


def effect_rows(
    triples: Sequence[tuple[Any, Any, Any]], effects: Array, errors: Array, visits: Array
) -> list[dict]:
    """Return a row for each effect of a visited pair, the largest |z| first."""
    z = effects / errors
    order = np.argsort(-np.abs(z), kind="stable")
    columns = ("state", "action", "next_state", "effect", "standard_error", "z", "visits")
    numbers = np.stack([effects, errors, z, visits], axis=1).tolist()
    return [
        dict(zip(columns, (*triples[i], *numbers[i]), strict=True))
        for i in order[visits[order] > 0].tolist()
    ]
