"""Eq. (3), the maximum-likelihood estimate, with standard errors; for transitions and for choices.

Newton's method with step halving, stopped on the Newton decrement. Dense features and choice data
go through BLAS in chunks that fit the cache (`mnl.newton`); the independent blocks of sparse
features (one-hot) are solved one by one in compiled code (`kernels.model`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from upriver.checks import (
    Array,
    as_float,
    as_labels,
    check_kinds,
    nonnegative_number,
)
from upriver.features import Features, unpooled
from upriver.features import pooled as pool
from upriver.mnl import likelihood
from upriver.mnl.choices import Choices, visited
from upriver.mnl.fitted import FittedMNL, check_identified
from upriver.mnl.model import fit_blocks
from upriver.mnl.newton import VANISHED, fit_newton, infinite
from upriver.mnl.pooled import estimate_spread


@check_kinds
def fit_mnl(features: Features, counts: ArrayLike, regularization: float = 1.0) -> FittedMNL:
    """Fit an MNL transition model to counts: theta_hat of eq. (3).

    Parameters
    ----------
    features : Features
        Pooled features with spread "estimate" get the spread of the largest marginal likelihood;
        `fitted.features` has it.
    counts : (n,) array
        n(s, a, s') for each row of the features.
    regularization : float
        lambda >= 0, the ridge.

    Returns
    -------
    FittedMNL
        Its standard errors are square roots of the diagonal of the inverse Hessian of (2).

    Raises
    ------
    ValueError
        If regularization is 0 and the data do not identify a feature.
    """
    lam = nonnegative_number("regularization", regularization)
    n = likelihood.check_counts(features, counts)
    if features.spread and lam == 0.0:
        raise ValueError(
            "regularization is 0; pooled features need a positive one, which shrinks the "
            "triple effects"
        )
    if features.spread == "estimate":
        features = pool(unpooled(features), estimate_spread(features, n, lam))
    if not sparse.issparse(features.matrix):
        data = visited(features, n, lam)
        fitted = fit_dense(data, features.names)
        return replace(fitted, features=features, counts=n)
    task, theta = features.task, np.zeros(features.dimension)
    failed, *_ = fit_blocks(features, n[None], theta[None], lam, features.triple_scale, local=False)
    check_identified(features, failed)
    if lam == 0.0:  # on its way to infinity Newton's method stops where (2) is flat to rounding
        both = (likelihood.hessian(features, x, n, 0.0) for x in (0.0 * theta, theta))
        first, last = (x.diagonal() for x in both)
        vanished = np.flatnonzero(last < VANISHED * first)
        if len(vanished):
            raise infinite(features.names, vanished)
    return FittedMNL(
        theta=theta,
        log_likelihood=-likelihood.loss(features, theta, n, 0.0),
        null_log_likelihood=-float(task.by_pair(n) @ np.log(np.maximum(task.sizes, 1))),
        n_observations=float(n.sum()),
        regularization=lam,
        names=features.names,
        features=features,
        counts=n,
    )


def fit_standardized(features: Features, counts: Array, lam: float) -> FittedMNL:
    """Fit with the ridge in the units of `features.standardized`, not in those of the columns."""
    fit, scale = fit_mnl(features.standardized, counts, lam), features.scale
    return replace(fit, theta=fit.theta / scale, features=features, scale=scale, choices=None)


@check_kinds
def fit_choices(
    X: ArrayLike,
    chosen: ArrayLike,
    groups: ArrayLike,
    regularization: float = 0.0,
    names: Sequence[str] | None = None,
) -> FittedMNL:
    """Fit a conditional logit to choice data, with the same estimator as `fit_mnl`.

    Parameters
    ----------
    X : (n, d) array
        One row per available alternative. Situations may have any number of alternatives; X is
        not copied when the rows of each situation are contiguous.
    chosen : (n,) array of bool
        Whether the alternative was chosen: exactly once per situation.
    groups : (n,) array
        The choice situation of each row.
    regularization : float
        lambda >= 0, the ridge.
    names : sequence of str, optional
        One name per column.
    """
    lam = nonnegative_number("regularization", regularization)
    x = as_float("X", X)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"X has shape {x.shape}; it must be (n, d), one row per alternative")
    taken = as_float("chosen", chosen, None, shapes=[(len(x),)])
    situation = as_labels("groups", groups)
    if situation.shape != taken.shape:
        raise ValueError(f"groups has shape {situation.shape}; it must be {taken.shape}")
    for i, j in np.argwhere(~np.isfinite(x))[:1]:
        raise ValueError(f"X[{i}, {j}] is {x[i, j]}; features must be finite")
    if names is not None and len(names) != x.shape[1]:
        raise ValueError(f"names has {len(names)} entries; there must be {x.shape[1]}")
    for i in np.flatnonzero((taken != 0) & (taken != 1))[:1]:
        raise ValueError(f"chosen[{i}] is {taken[i]!r}; it must be true or false")
    starts = first_rows(situation)
    if len(np.unique(situation)) < len(starts):  # rows of a situation are not contiguous
        order = np.argsort(situation, kind="stable")
        x, taken, situation = x[order], taken[order], situation[order]
        starts = first_rows(situation)
    indptr = np.append(starts, len(x)).astype(np.int64)
    n_chosen = np.add.reduceat(taken.astype(np.int64), starts)
    for g in np.flatnonzero(n_chosen != 1)[:1]:
        raise ValueError(
            f"choice situation {situation[starts[g]]!r} has {n_chosen[g]} chosen alternatives; it "
            "must have exactly one"
        )
    data = Choices(indptr, x, taken.astype(np.float64), np.ones(len(starts)), lam)
    return fit_dense(data, names)


def fit_dense(
    data: Choices, names: Sequence[str] | None,
    clusters: tuple[Array, Array, Array | None] | None = None,
) -> FittedMNL:  # fmt: skip
    """Fit choice data, eq. (3), with the standard errors of clusters where these are given.

    clusters: three arrays (m,), the cluster of each choice, its row and how often it counts.
    """
    theta, loss, _, converged = fit_newton(data, names)
    return FittedMNL(
        theta=theta,
        log_likelihood=-(loss - 0.5 * data.lam * float(theta @ theta)),
        null_log_likelihood=-float(data.visits @ np.log(np.diff(data.indptr))),
        n_observations=float(data.visits.sum()),
        regularization=data.lam,
        names=names,
        converged=converged,
        choices=data,
        clusters=clusters,
        errors="classical" if clusters is None else "cluster",
        n_clusters=0 if clusters is None else int(clusters[0].max()) + 1,
    )


def first_rows(situation: Array) -> Array:
    """Return the rows whose label differs from that of the row before."""
    return np.append(0, np.flatnonzero(situation[1:] != situation[:-1]) + 1)
