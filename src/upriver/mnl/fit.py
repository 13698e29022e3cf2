"""Eq. (3), the maximum-likelihood estimate, with standard errors; for transitions and for choices.

Newton's method with step halving, stopped on the Newton decrement. One block of dense features, and
choice data, go through BLAS in chunks that fit the cache; the independent blocks of sparse features
(one-hot) are solved one by one in compiled code; past LARGE features the Hessian is never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse

from upriver import kernels
from upriver.checks import Array, as_float, nonnegative_number
from upriver.features import Features
from upriver.mnl import likelihood

CHUNK_NUMBERS = 32_768  # features per chunk of rows, so that a chunk stays in the cache
SAMPLE = 16  # a first fit on every 16th chunk gives the full fit its start
LARGE = 1500
DECREMENT = 1e-12
SETTLED = 1e-2  # decrement below which the last Hessian is good enough to go on with
VANISHED = 1e-6  # share of its first information at which a coefficient is on its way to infinity
ITERATIONS = 100
NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class FittedMNL:
    """A fitted transition core, or the coefficients of a conditional logit."""

    theta: Array
    """(d,) the estimate."""
    log_likelihood: float
    """At the estimate, without the penalty."""
    null_log_likelihood: float
    """At theta = 0: all alternatives alike."""
    n_observations: float
    regularization: float
    hessian: Callable[[], Any]
    """Computes `information`; standard errors cost nothing until they are asked for."""
    names: Sequence[str] | None = None
    features: Features | None = None
    """The features it was fitted on, where it is a transition model."""

    @cached_property
    def information(self) -> Any:
        """(d, d) Hessian of (2) at the estimate, dense or block-diagonal sparse."""
        return self.hessian()

    @cached_property
    def covariance(self) -> Any:
        """(d, d) inverse of the observed information (with its ridge), dense or sparse."""
        if sparse.issparse(self.information):
            assert self.features is not None
            flat = blocks_of(self.features, self.information)
            layout = self.features.layout
            failed = kernels.mnl.inverse(flat, self.features.matrix_start, layout.size)
            if failed >= 0:
                raise singular(self.names, int(layout.features[layout.feature_start[failed]]))
            return likelihood.from_blocks(self.features, flat)
        scale = 1.0 / np.sqrt(np.diag(self.information))
        factor = linalg.cho_factor(self.information * scale[:, None] * scale, lower=True)
        return linalg.cho_solve(factor, np.diag(scale)) * scale[:, None]

    @cached_property
    def standard_errors(self) -> Array:
        """(d,) square roots of the diagonal of the covariance."""
        return np.sqrt(self.covariance.diagonal())

    def table(self) -> list[dict[str, Any]]:
        """One row per coefficient: name, estimate, standard_error, z, and a 95% interval."""
        names = self.names or [f"theta[{i}]" for i in range(len(self.theta))]
        return [
            {
                "name": name,
                "estimate": float(x),
                "standard_error": float(e),
                "z": float(x / e),
                "low": float(x - NORMAL_95 * e),
                "high": float(x + NORMAL_95 * e),
            }
            for name, x, e in zip(names, self.theta, self.standard_errors, strict=True)
        ]

    def summary(self, limit: int = 40) -> str:
        """The coefficients (log-odds) as a table of text, the first `limit` of them."""
        rows = self.table()
        width = max([len(r["name"]) for r in rows[:limit]] + [7])
        lines = [
            f"multinomial logit: {self.n_observations:g} observations, {len(rows)} coefficients, "
            f"ridge {self.regularization:g}",
            f"log-likelihood {self.log_likelihood:.4f} (all alternatives alike: "
            f"{self.null_log_likelihood:.4f})",
            "",
            f"{'feature':<{width}}  log-odds  std.err.        z   95% interval",
        ]
        for r in rows[:limit]:
            lines.append(
                f"{r['name']:<{width}}  {r['estimate']:8.4f}  {r['standard_error']:8.4f} "
                f"{r['z']:8.2f}   [{r['low']:.4f}, {r['high']:.4f}]"
            )
        if len(rows) > limit:
            lines.append(f"... and {len(rows) - limit} more")
        return "\n".join(lines)


def fit_mnl(features: Features, counts: ArrayLike, regularization: float = 1.0) -> FittedMNL:
    """theta_hat of eq. (3) from the counts n(s, a, s'), one per row of the features.

    Standard errors are those of the penalised likelihood: square roots of the diagonal of the
    inverse Hessian of (2). With regularization 0 a direction without data is an error.
    """
    lam = nonnegative_number("regularization", regularization)
    n = likelihood.checked_counts(features, np.asarray(counts))
    if sparse.issparse(features.matrix):
        theta = np.zeros(features.dimension)
        failed = kernels.mnl.fit_blocks(features.layout, n, theta, lam)
        if failed >= 0:
            raise singular(
                features.names,
                int(features.layout.features[features.layout.feature_start[failed]]),
            )
    else:
        theta = maximise(Choices(features.task.indptr, features.matrix, n, lam), features.names)
    return FittedMNL(
        theta=theta,
        log_likelihood=-likelihood.loss(features, theta, n, 0.0),
        null_log_likelihood=-likelihood.loss(features, np.zeros_like(theta), n, 0.0),
        n_observations=float(n.sum()),
        regularization=lam,
        hessian=lambda: likelihood.hessian(features, theta, n, lam),
        names=features.names,
        features=features,
    )


def fit_choices(
    X: ArrayLike,
    chosen: ArrayLike,
    groups: ArrayLike,
    regularization: float = 0.0,
    names: Sequence[str] | None = None,
) -> FittedMNL:
    """The conditional logit on plain choice data: the same estimator as `fit_mnl`.

    X (n, d) has one row per available alternative, `groups` (n,) is the choice situation of each
    row, `chosen` (n,) is true for the alternative taken, once per situation. Situations may have
    any number of alternatives; nothing is padded, and nothing copied when groups are contiguous.
    """
    lam = nonnegative_number("regularization", regularization)
    x = as_float("X", X)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"X has shape {x.shape}; it must be (n, d), one row per alternative")
    taken, situation = np.asarray(chosen), np.asarray(groups)
    for name, given in (("chosen", taken), ("groups", situation)):
        if given.shape != (len(x),):
            raise ValueError(f"{name} has shape {given.shape}; it must be ({len(x)},)")
    if not np.isfinite(x).all():
        i, j = np.unravel_index(int(np.argmin(np.isfinite(x))), x.shape)
        raise ValueError(f"X[{i}, {j}] is {x[i, j]}; features must be finite")
    if names is not None and len(names) != x.shape[1]:
        raise ValueError(f"names has {len(names)} entries; there must be {x.shape[1]}")
    if not np.isin(taken, (0, 1)).all():
        i = int(np.argmin(np.isin(taken, (0, 1))))
        raise ValueError(f"chosen[{i}] is {taken[i]!r}; it must be true or false")
    starts = np.flatnonzero(np.r_[True, situation[1:] != situation[:-1]])
    if len(np.unique(situation[starts])) != len(starts):  # a situation's rows are not together
        order = np.argsort(situation, kind="stable")
        x, taken, situation = x[order], taken[order], situation[order]
        starts = np.flatnonzero(np.r_[True, situation[1:] != situation[:-1]])
    indptr = np.r_[starts, len(x)].astype(np.int64)
    counts = taken.astype(np.float64)
    per_situation = np.add.reduceat(counts, starts)
    if (per_situation != 1).any():
        g = int(np.argmax(per_situation != 1))
        raise ValueError(
            f"choice situation {situation[starts[g]]!r} has {per_situation[g]:g} chosen "
            "alternatives; it must have exactly one"
        )
    data = Choices(indptr, x, counts, lam)
    theta = maximise(data, names)
    return FittedMNL(
        theta=theta,
        log_likelihood=-(data.loss(theta) - 0.5 * lam * float(theta @ theta)),
        null_log_likelihood=-float(np.log(np.diff(indptr)).sum()),
        n_observations=float(len(starts)),
        regularization=lam,
        hessian=lambda: data.hessian(theta),
        names=names,
    )


class Choices:
    """The penalised negative log-likelihood (2) of dense rows, evaluated chunk by chunk."""

    def __init__(self, indptr: Array, x: Array, counts: Array, lam: float) -> None:
        self.indptr, self.x, self.counts, self.lam = indptr, x, counts, lam
        rows = max(CHUNK_NUMBERS // x.shape[1], int(np.diff(indptr).max()))
        edges = [0]
        while edges[-1] < len(indptr) - 1:
            stop = np.searchsorted(indptr, indptr[edges[-1]] + rows, side="right") - 1
            edges.append(int(stop))
        self.chunks = list(pairwise(edges))
        self.residual = np.empty(rows)
        self.rows = np.empty((rows, x.shape[1]))

    def sample(self) -> Choices | None:
        """Every SAMPLE-th chunk, on the same arrays; None where that would be too little."""
        if len(self.chunks) < 4 * SAMPLE:
            return None
        part = copy(self)
        part.chunks = self.chunks[::SAMPLE]
        return part

    def loss(self, theta: Array) -> float:
        return self.evaluate(theta, False)[0]

    def evaluate(self, theta: Array, with_hessian: bool) -> tuple[float, Array, Any]:
        """(loss, gradient (d,), Hessian (d, d) in its lower triangle, or None)."""
        loss = 0.5 * self.lam * float(theta @ theta)
        gradient = self.lam * theta
        hessian = np.asfortranarray(np.diag(np.full(len(theta), self.lam)))
        centre, syrk = kernels.choices.centre_chunk, linalg.blas.dsyrk
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            block = self.x[low:high]
            residual = self.residual[: high - low]
            rows = self.rows[: high - low]
            loss += centre(
                self.indptr, first, last, self.x, self.counts, block @ theta, residual, rows,
                with_hessian,
            )  # fmt: skip
            gradient += residual @ block
            if with_hessian:
                # rows is C-ordered, so its transpose is a Fortran view and nothing is copied.
                hessian = syrk(1.0, rows.T, beta=1.0, c=hessian, overwrite_c=1, lower=1)
        return loss, gradient, hessian if with_hessian else None

    def hessian(self, theta: Array) -> Array:
        """(d, d), both triangles."""
        half = self.evaluate(theta, True)[2]
        return np.tril(half) + np.tril(half, -1).T

    def product(self, theta: Array, vector: Array) -> Array:
        """Hessian times a vector, without the Hessian."""
        result = self.lam * vector
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            rows = self.rows[: high - low]
            kernels.choices.centre_chunk(
                self.indptr, first, last, self.x, self.counts, self.x[low:high] @ theta,
                self.residual[: high - low], rows, True,
            )  # fmt: skip
            result += (rows @ vector) @ rows
        return result


def maximise(data: Choices, names: Sequence[str] | None) -> Array:
    """theta at the maximum of the penalised likelihood."""
    theta = np.zeros(data.x.shape[1])
    if len(theta) > LARGE:
        return newton_cg(data, theta)
    part = data.sample()
    if part is not None:
        try:
            theta = newton(part.evaluate, theta, names, SETTLED)
        except (ValueError, RuntimeError):  # the sample identifies less than the whole
            theta = np.zeros_like(theta)
    return newton(data.evaluate, theta, names, DECREMENT)


def newton(
    evaluate: Callable[[Array, bool], tuple[float, Array, Any]],
    theta: Array,
    names: Sequence[str] | None,
    tolerance: float,
) -> Array:
    """Minimise by Newton with step halving; raises where the information is singular.

    Once the squared decrement is below SETTLED the Hessian is kept: the steps that remain shrink
    fast with it too, and each costs a gradient only. The step whose squared decrement is at most
    `tolerance` is the last. The Hessian is scaled to a unit diagonal before it is factored, so
    that badly scaled columns cost nothing.
    """
    loss, gradient, hessian = evaluate(theta, True)
    begun = np.diag(hessian).copy()
    before = np.inf
    for _ in range(ITERATIONS):
        if hessian is not None:
            scale, factor = factorise(hessian, names)
            if (np.diag(hessian) < VANISHED * begun).any():
                break
        step = scale * linalg.lapack.dpotrs(factor, gradient * scale, lower=1)[0]
        decrement = float(gradient @ step)
        if decrement <= max(tolerance, 1e-15 * abs(loss)):
            return theta - step
        fresh = decrement > SETTLED or (hessian is None and decrement > 0.25 * before)
        before = decrement
        size = 1.0
        while True:
            trial = theta - size * step
            trial_loss, gradient, hessian = evaluate(trial, fresh)
            near = decrement <= 1e-11 * abs(loss)  # the decrease drowns in rounding
            if trial_loss <= loss - 1e-4 * size * decrement or near:
                break
            size *= 0.5
            if size < 1e-10:
                raise RuntimeError("the maximum-likelihood fit found no step that improves it")
        theta, loss = trial, trial_loss
    raise RuntimeError(
        "the maximum-likelihood fit did not converge: some choices may be predicted perfectly, so "
        "that no finite estimate exists; a positive regularization mends that"
    )


def factorise(hessian: Array, names: Sequence[str] | None) -> tuple[Array, Array]:
    """(scale, factor): the Cholesky factor of the Hessian scaled to a unit diagonal."""
    diagonal = np.diag(hessian)
    if not (diagonal > 0).all():
        raise singular(names, int(np.argmin(diagonal > 0)))
    scale = 1.0 / np.sqrt(diagonal)
    factor, info = linalg.lapack.dpotrf(hessian * scale[:, None] * scale, lower=1)
    if info > 0 or (np.diag(factor) < 1e-8).any():
        raise singular(names, info - 1 if info > 0 else int(np.argmin(np.diag(factor))))
    return scale, factor


def newton_cg(data: Choices, theta: Array) -> Array:
    """Trust-region Newton with conjugate gradients, for dimensions where d x d is too much."""
    from scipy import optimize

    result = optimize.minimize(
        lambda x: data.evaluate(x, False)[:2],
        theta,
        jac=True,
        hessp=data.product,
        method="trust-ncg",
        options={"gtol": 1e-6, "maxiter": 500},
    )
    if not result.success:
        raise RuntimeError(f"the maximum-likelihood fit did not converge: {result.message}")
    return result.x


def blocks_of(features: Features, matrix: Any) -> Array:
    """The flat blocks of a block-diagonal sparse matrix; the inverse of likelihood.from_blocks."""
    flat = np.zeros(features.matrix_start[-1])
    layout = features.layout
    block = np.empty(features.dimension, np.int64)
    block[layout.features] = np.repeat(np.arange(len(layout.size)), layout.size)
    coo = sparse.coo_array(matrix)
    b = block[coo.row]
    size = layout.size.astype(np.int64)[b]
    flat[features.matrix_start[b] + layout.slot[coo.row] * size + layout.slot[coo.col]] = coo.data
    return flat


def singular(names: Sequence[str] | None, i: int) -> ValueError:
    name = names[i] if names else f"number {i}"
    return ValueError(
        f"the information matrix is singular at feature {name}: the data do not identify it; drop "
        "it, or use a positive regularization"
    )
