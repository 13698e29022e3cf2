"""Eq. (3), the maximum-likelihood estimate, with standard errors; for transitions and for choices.

Newton's method with step halving, stopped on the Newton decrement. One block of dense features, and
choice data, go through BLAS in chunks that fit the cache (`mnl.newton`); the independent blocks of
sparse features (one-hot) are solved one by one in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse, special

from upriver import kernels
from upriver.checks import Array, as_float, nonnegative_number
from upriver.features import Features, unpooled
from upriver.features import pooled as pool
from upriver.mnl import likelihood, pooled
from upriver.mnl.choices import Choices
from upriver.mnl.newton import maximise, singular, solver

NORMAL_95 = 1.959963984540054
VAGUE = 3.0  # standard error, in log-odds over the span of a column, of which the summary warns


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
    spans: Callable[[], Array] | None = None
    """Computes (d,) the largest difference of each column within a situation."""
    meat: Callable[[], Any] | None = None
    """Computes (d, d), the sum of the outer products of scores, for a sandwich covariance."""
    errors: str = "classical"
    """Which standard errors these are, in words."""
    counts: Array | None = None
    """(n,) the counts it was fitted on, where it is a transition model."""

    @property
    def is_pooled(self) -> bool:
        """Whether there are own effects; they are the last coefficients."""
        return self.features is not None and bool(self.features.spread)

    @property
    def n_listed(self) -> int:
        """The number of coefficients but for own effects."""
        return self.features.n_shared if self.features is not None else len(self.theta)

    @cached_property
    def information(self) -> Any:
        """(d, d) Hessian of (2) at the estimate, dense or sparse."""
        return self.hessian()

    @cached_property
    def covariance(self) -> Any:
        """(d, d) of the estimate: `bread`, or the sandwich bread meat bread; dense or sparse.

        With own effects a scipy LinearOperator, since the inverse has no zeros.
        """
        return self.bread if self.meat is None else self.bread @ self.meat() @ self.bread

    @cached_property
    def bread(self) -> Any:
        """(d, d) inverse of the observed information (with its ridge), dense or sparse."""
        if self.is_pooled:
            return pooled.covariance(*self.fit)
        if self.features is not None and sparse.issparse(self.information):
            flat = likelihood.to_blocks(self.features, self.information)
            layout = self.features.layout
            failed = kernels.cholesky.inverse(
                flat, self.features.matrix_start, layout.size, self.regularization
            )
            check_identified(self.features, failed)
            return likelihood.from_blocks(self.features, flat)
        solve = solver(self.information, self.names, self.regularization)
        return solve(np.eye(len(self.theta)))

    @cached_property
    def standard_errors(self) -> Array:
        """(d,) square roots of the diagonal of the covariance."""
        if self.is_pooled:
            return np.sqrt(pooled.variances(*self.fit)[0])
        return np.sqrt(self.covariance.diagonal())

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 d - 2 log-likelihood."""
        return 2.0 * (len(self.theta) - self.log_likelihood)

    @property
    def bic(self) -> float:
        """Schwarz's criterion, d log(observations) - 2 log-likelihood."""
        return len(self.theta) * float(np.log(self.n_observations)) - 2.0 * self.log_likelihood

    @property
    def pseudo_r2(self) -> float:
        """McFadden's, 1 - log-likelihood / that of all alternatives alike."""
        return 1.0 - self.log_likelihood / self.null_log_likelihood

    @property
    def fit(self) -> Any:
        """(features, theta, counts, ridge) of a transition model."""
        return self.features, self.theta, self.counts, self.regularization

    def own_effects(self) -> list[dict[str, Any]]:
        """Of pooled features, where (s, a) differs from the shared model: the surest first.

        A row has state, action, next_state, effect (log-odds), standard_error, z and visits.
        """
        if not self.is_pooled:
            raise ValueError("there are no own effects; fit features.pooled(...) for them")
        features, theta, counts, _ = self.fit
        return pooled.own_effects(features, theta, counts, self.standard_errors)

    @cached_property
    def own_deviation(self) -> float:
        """The standard deviation of own effects that maximises the marginal likelihood."""
        features, _, counts, lam = self.fit
        return best_spread(features, counts, lam) / np.sqrt(lam)

    def table(self) -> list[dict[str, Any]]:
        """A row per coefficient (own effects apart): its name, estimate, error, z, p-value, interval."""
        m = self.n_listed
        names = self.names or [f"theta[{i}]" for i in range(m)]
        return [
            {
                "name": name,
                "estimate": float(x),
                "standard_error": float(e),
                "z": float(x / e),
                "p_value": float(special.erfc(abs(x / e) / np.sqrt(2.0))),
                "low": float(x - NORMAL_95 * e),
                "high": float(x + NORMAL_95 * e),
            }
            for name, x, e in zip(names, self.theta[:m], self.standard_errors[:m], strict=True)
        ]

    @cached_property
    def warnings(self) -> list[str]:
        """A sentence for each way in which the data leave coefficients open."""
        if self.spans is None:
            return []
        m = self.n_listed
        span, names = self.spans()[:m], self.names or [f"theta[{i}]" for i in range(m)]
        vague = self.standard_errors[:m] * span > VAGUE
        far = np.abs(self.theta[:m]) * span > VAGUE
        held = "only the ridge holds" if self.regularization > 0 else "hardly anything holds"
        advice = "drop or merge such columns, or take a larger regularization"
        found = []
        for which, what in (
            (vague & far, "the outcomes are predicted perfectly or nearly so by"),
            (vague & ~far, "the data leave open"),
        ):
            columns = np.flatnonzero(which)
            if len(columns):
                more = f" (and {len(columns) - 3} more)" if len(columns) > 3 else ""
                listed = ", ".join(str(names[i]) for i in columns[:3]) + more
                found.append(f"warning: {what} {listed}: {held} the estimate; {advice}")
        return found

    def summary(self, limit: int = 40) -> str:
        """The coefficients (log-odds) as a table of text, the first `limit` of them."""
        rows = self.table()
        width = max([len(r["name"]) for r in rows[:limit]] + [7])
        lines = [
            f"multinomial logit: {self.n_observations:g} observations, {len(rows)} coefficients, "
            f"ridge {self.regularization:g}",
            f"log-likelihood {self.log_likelihood:.4f} (all alternatives alike: "
            f"{self.null_log_likelihood:.4f}), AIC {self.aic:.1f}, BIC {self.bic:.1f}, McFadden's "
            f"R2 {self.pseudo_r2:.3f}",
            f"standard errors: {self.errors}",
            "",
            f"{'feature':<{width}}  log-odds  std.err.        z        p   95% interval",
        ]
        for r in rows[:limit]:
            lines.append(
                f"{r['name']:<{width}}  {r['estimate']:8.4f}  {r['standard_error']:8.4f} "
                f"{r['z']:8.2f} {r['p_value']:8.2g}   [{r['low']:.4f}, {r['high']:.4f}]"
            )
        if len(rows) > limit:
            lines.append(f"... and {len(rows) - limit} more")
        return "\n".join([*lines, *(self.own_lines() if self.is_pooled else []), *self.warnings])

    def own_lines(self, limit: int = 10) -> list[str]:
        """How much the states differ from the shared model, and the `limit` that surely do most."""
        rows, (features, *_) = self.own_effects(), self.fit
        size = float(np.sqrt(np.mean([r["effect"] ** 2 for r in rows]))) if rows else 0.0
        prior = features.spread / np.sqrt(self.regularization)
        lines = [
            "",
            f"own effects of {len(rows)} triples, in log-odds: standard deviation {size:.3g} as "
            f"estimated, {self.own_deviation:.3g} by marginal likelihood (taken as {prior:.3g})",
            f"{'state, action, next state':<28}    effect  std.err.        z   visits",
        ]
        for r in rows[:limit]:
            name = f"{r['state']}, {r['action']}, {r['next_state']}"
            lines.append(
                f"{name:<28}  {r['effect']:8.4f}  {r['standard_error']:8.4f} {r['z']:8.2f} "
                f"{r['visits']:8g}"
            )
        return lines


def fit_mnl(features: Features, counts: ArrayLike, regularization: float = 1.0) -> FittedMNL:
    """theta_hat of eq. (3) from the counts n(s, a, s'), one per row of the features.

    Standard errors are those of the penalised likelihood: square roots of the diagonal of the
    inverse Hessian of (2). With regularization 0 a direction without data is an error. Pooled
    features of an open spread get the one of the largest marginal likelihood: `fitted.features`.
    """
    lam = nonnegative_number("regularization", regularization)
    n = likelihood.checked_counts(features, np.asarray(counts))
    if features.spread and lam == 0.0:
        raise ValueError(
            "regularization is 0; pooled features need a positive one, which is what shrinks the "
            "own effects"
        )
    if features.spread == "estimate":
        features = pool(unpooled(features), best_spread(features, n, lam))
    if sparse.issparse(features.matrix):
        theta = fit_blocks(features, n, lam, np.zeros(features.dimension))
    else:
        theta, _ = maximise(visited(features, n, lam), features.names)
    return FittedMNL(
        theta=theta,
        log_likelihood=-likelihood.loss(features, theta, n, 0.0),
        null_log_likelihood=-likelihood.loss(features, np.zeros_like(theta), n, 0.0),
        n_observations=float(n.sum()),
        regularization=lam,
        hessian=lambda: likelihood.hessian(features, theta, n, lam),
        names=features.names,
        features=features,
        spans=lambda: spans(features.matrix[:, : features.n_shared], features.task.indptr),
        counts=n,
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
    if taken.dtype != bool and not np.isin(taken, (0, 1)).all():
        i = int(np.argmin(np.isin(taken, (0, 1))))
        raise ValueError(f"chosen[{i}] is {taken[i]!r}; it must be true or false")
    starts = first_rows(situation)
    labels = situation[starts]
    ascending = (labels[1:] > labels[:-1]).all()
    if not ascending and len(np.unique(labels)) != len(labels):  # rows that belong together are not
        order = np.argsort(situation, kind="stable")
        x, taken, situation = x[order], taken[order], situation[order]
        starts = first_rows(situation)
        labels = situation[starts]
    indptr = np.append(starts, len(x)).astype(np.int64)
    check_one_chosen(taken, indptr, labels)
    data = Choices(indptr, x, taken.astype(np.float64), np.ones(len(starts)), lam)
    theta, loss = maximise(data, names)
    return FittedMNL(
        theta=theta,
        log_likelihood=-(loss - 0.5 * lam * float(theta @ theta)),
        null_log_likelihood=-float(np.log(np.diff(indptr)).sum()),
        n_observations=float(len(starts)),
        regularization=lam,
        hessian=lambda: data.hessian(theta),
        names=names,
        spans=lambda: spans(x, indptr),
    )


def visited(features: Features, counts: Array, lam: float) -> Choices:
    """The choice data of the pairs (s, a) that have counts, which are often few."""
    sizes = features.task.sizes
    group = np.repeat(np.arange(len(sizes)), sizes)
    visits = np.bincount(group, counts, len(sizes))
    seen = visits > 0 if (visits > 0).any() else np.arange(len(sizes)) == 0
    x, n = (
        (features.matrix, counts)
        if seen.all()
        else (features.matrix[seen[group]], counts[seen[group]])
    )
    return Choices(np.concatenate([[0], np.cumsum(sizes[seen])]), x, n, visits[seen], lam)


def spans(x: Any, indptr: Array) -> Array:
    """(d,) the largest difference between two rows of one situation, for each column."""
    if not sparse.issparse(x):
        starts = indptr[:-1]
        return (np.maximum.reduceat(x, starts) - np.minimum.reduceat(x, starts)).max(axis=0)
    from_first = x - x[np.repeat(indptr[:-1], np.diff(indptr))]  # within a factor of two
    return abs(from_first).max(axis=0).toarray().ravel()


def fit_blocks(features: Features, counts: Array, lam: float, start: Array) -> Array:
    """theta_hat of sparse features by compiled Newton, block by block, in place of the start."""
    check_identified(features, kernels.newton.fit_blocks(features.layout, counts, start, lam))
    return start


def best_spread(features: Features, counts: Array, lam: float) -> float:
    """The spread of pooled features that has the largest marginal likelihood."""
    return pooled.estimate_spread(
        features, counts, lam, lambda made, start: fit_blocks(made, counts, lam, start)
    )


def check_identified(features: Features, failed: int) -> None:
    """Refuse a singular block, naming its first feature."""
    if failed >= 0:
        layout = features.layout
        raise singular(features.names, int(layout.features[layout.feature_start[failed]]))


def first_rows(situation: Array) -> Array:
    """Where the label differs from that of the row before."""
    return np.append(0, np.flatnonzero(situation[1:] != situation[:-1]) + 1)


def check_one_chosen(taken: Array, indptr: Array, labels: Array) -> None:
    """Refuse a situation with no or with several chosen alternatives, naming the first."""
    rows = np.flatnonzero(taken)
    starts, stops = indptr[:-1], indptr[1:]
    if len(rows) == len(starts) and ((rows >= starts) & (rows < stops)).all():
        return
    chosen = np.add.reduceat(taken.astype(np.int64), starts)
    g = int(np.argmax(chosen != 1))
    raise ValueError(
        f"choice situation {labels[g]!r} has {chosen[g]} chosen alternatives; it must have "
        "exactly one"
    )
