"""The result of a fit: the estimate (3), its standard errors, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import fill
from typing import Any

import numpy as np
from scipy import sparse, special

from upriver.checks import Array, check_kinds, open_fraction
from upriver.display import Card, add_repr, to_frame
from upriver.features import Features
from upriver.mdp.building import from_model
from upriver.mnl import likelihood, pooled
from upriver.mnl.choices import Choices, visited
from upriver.mnl.clusters import cluster_scores
from upriver.mnl.newton import singular, solver

ERRORS = {
    "classical": "classical",
    "robust": "robust, the sandwich by choices",
    "cluster": "cluster ({} clusters)",
}
FEW_CLUSTERS = 40  # below which the summary says that they are few
WIDTH = 80  # characters of a line of a summary
VAGUE = 3.0  # standard error, in log-odds over the span of a column, of which the summary warns


def wrap_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines of a summary, the long ones broken."""
    return [fill(line, WIDTH, subsequent_indent="  ") for line in lines]


def quantile_of(degrees: float, confidence: float) -> float:
    """Return how many standard errors an interval reaches to each side."""
    level = open_fraction("confidence", confidence)
    return float(special.stdtrit(degrees, 0.5 + level / 2.0))


class Estimates:
    """The coefficients of a fit, under the names of statsmodels.

    Vectors are pandas series by the names of the coefficients.
    Triple effects of pooled features are not among them.
    """

    fitted: Any
    """The `FittedMNL` that has the numbers."""

    def _labelled(self, values: Array, columns: Any = None) -> Any:
        """Return a pandas series or frame by the names of coefficients."""
        import pandas as pd

        names = self.coefficient_names
        return (
            pd.Series(values, names) if values.ndim == 1 else pd.DataFrame(values, names, columns)
        )

    @property
    def coefficient_names(self) -> list[str]:
        names, m = self.fitted.names, self.fitted.n_listed
        return [f"theta[{i}]" for i in range(m)] if names is None else list(names[:m])

    @property
    def params(self) -> Any:
        """(d,) the coefficients, in log-odds."""
        return self._labelled(self.fitted.listed)

    @property
    def bse(self) -> Any:
        """(d,) standard errors of the coefficients."""
        return self._labelled(self.fitted.standard_errors)

    @property
    def tvalues(self) -> Any:
        """(d,) coefficients divided by their standard errors."""
        return self._labelled(self.fitted.listed / self.fitted.standard_errors)

    @property
    def pvalues(self) -> Any:
        """(d,) two-sided p-values of the hypotheses that single coefficients are 0."""
        z = self.fitted.listed / self.fitted.standard_errors
        return self._labelled(self.fitted.p_values(z))

    @check_kinds
    def conf_int(self, alpha: float = 0.05) -> Any:
        """Return (d, 2) intervals that hold each coefficient with probability 1 - alpha."""
        fitted, level = self.fitted, 1.0 - open_fraction("alpha", alpha)
        reach = fitted.quantile(level) * fitted.standard_errors
        return self._labelled(np.stack([fitted.listed - reach, fitted.listed + reach], axis=1))

    def cov_params(self) -> Any:
        """Return (d, d) the covariance of the coefficients."""
        fitted, m = self.fitted, self.fitted.n_listed
        covariance = fitted.covariance @ np.eye(len(fitted.theta), m)
        return self._labelled(covariance[:m], self.coefficient_names)

    @property
    def llf(self) -> float:
        """The log-likelihood at the estimate, without the penalty."""
        return self.fitted.log_likelihood

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 d - 2 llf with d coefficients; smaller is better."""
        return 2.0 * (len(self.fitted.theta) - self.llf)

    @property
    def bic(self) -> float:
        """Schwarz's criterion, d log(nobs) - 2 llf."""
        return len(self.fitted.theta) * float(np.log(self.nobs)) - 2.0 * self.llf

    @property
    def nobs(self) -> float:
        """The number of transitions or choices, or the sum of their weights."""
        return self.fitted.n_observations

    def table(self) -> list[dict[str, Any]]:
        """Return a row per coefficient, with its 95% interval.

        A row has name, estimate, standard_error, z, p_value, low and high.
        """
        x, error = self.fitted.listed, self.fitted.standard_errors
        z, reach = x / error, self.fitted.quantile(0.95) * error
        columns = {"name": self.coefficient_names, "estimate": x, "standard_error": error, "z": z}
        columns |= {"p_value": self.fitted.p_values(z), "low": x - reach, "high": x + reach}
        return to_frame(columns).to_dict("records")

    def to_pandas(self) -> Any:
        """Return `table` as a data frame whose index is the name."""
        return to_frame(self.table()).set_index("name")

    def coefficient_lines(self, limit: int) -> list[str]:
        """Return the first `limit` coefficients as lines of a summary."""
        rows = self.table()
        width = min(max([len(r["name"]) for r in rows[:limit]] + [11]), 24)
        text = ["", f"{'coefficient':<{width}} {'estimate':>9} {'std.err.':>9} {'z':>7} {'p':>8}  "
                     f"{'95% interval':>17}"]  # fmt: skip
        for r in rows[:limit]:
            name = r["name"]
            if len(name) > width:  # a long name has a line of its own
                text += wrap_lines([name])
                name = ""
            text.append(
                f"{name:<{width}} {r['estimate']:9.4g} {r['standard_error']:9.4g} {r['z']:7.2f} "
                f"{r['p_value']:8.2g}  {r['low']:8.4g} {r['high']:8.4g}"
            )
        if len(rows) > limit:
            text.append(f"... and {len(rows) - limit} more")
        return text


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class FittedMNL(Estimates):
    """A fitted MNL transition model, or the coefficients of a conditional logit.

    `fit_mnl`, `fit_choices` and `fit_transitions` make it. Names of statsmodels work too: `params`,
    `bse`, `conf_int()`, `cov_params()`, `llf`, `aic`, `bic`, `nobs`.
    """

    theta: Array
    """(d,) the estimate."""
    log_likelihood: float
    """At the estimate, without the penalty."""
    null_log_likelihood: float
    """At theta = 0, where all alternatives are equally likely."""
    n_observations: float
    regularization: float
    names: Sequence[str] | None = None
    features: Features | None = None
    """The features it was fitted on, where it is a transition model."""
    choices: Choices | None = None
    """The choices it was fitted on; None for blocks of sparse features and other units."""
    clusters: tuple[Any, ...] | None = None
    """The cluster of each choice, its row and how often it counts, where clusters were given."""
    errors: str = "classical"
    """Which standard errors these are: classical, from the observed information, or a sandwich."""
    n_clusters: int = 0
    """The number of clusters of choices; 0 where none were given."""
    counts: Array | None = None
    """(n,) the counts it was fitted on, where it is a transition model."""
    converged: bool = True
    """Whether the estimate is the maximum; a fit that stopped before has given a warning."""
    scale: Array | None = None
    """(d,) the unit of each column that the ridge is for, where these are not the user's."""

    @property
    def fitted(self) -> FittedMNL:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self

    @property
    def is_pooled(self) -> bool:
        """Whether the features are pooled; triple effects are then the last coefficients."""
        return self.features is not None and bool(self.features.spread)

    @property
    def n_listed(self) -> int:
        """The number of coefficients that are not triple effects."""
        return self.features.n_shared if self.features is not None else len(self.theta)

    @property
    def listed(self) -> Array:
        """The coefficients that are not triple effects."""
        return self.theta[: self.n_listed]

    @cached_property
    def information(self) -> Any:
        """(d, d) Hessian of (2) at the estimate, dense or sparse."""
        if self.choices is None:
            return likelihood.hessian(*self.data)
        return self.choices.hessian(self.theta)

    @cached_property
    def covariance(self) -> Any:
        """(d, d) of the estimate: `bread`, or the sandwich bread meat bread; dense or sparse.

        With triple effects it is a scipy LinearOperator, since the inverse has no zeros.
        """
        if self.errors == "cluster":
            return self.cluster_influence.T @ self.cluster_influence + self.ridge_part
        if self.errors == "robust":
            return self.bread @ self.scatter @ self.bread + self.ridge_part
        return self.bread

    @cached_property
    def cluster_influence(self) -> Array:
        """(C, d) what each cluster adds to the error of the estimate."""
        assert self.choices is not None and self.clusters is not None
        scores = cluster_scores(self.choices, self.theta, self.bread, *self.clusters)
        return scores @ self.bread

    @property
    def scatter(self) -> Array:
        """(d, d) the sum of the outer products of the scores of choices."""
        assert self.choices is not None
        return self.choices.scatter(self.theta)

    @property
    def ridge_part(self) -> Any:
        """(d, d) what a sandwich needs besides scores: the ridge is information without scores.

        Without it an effect that the ridge shrinks would have a standard error near 0.
        """
        return self.regularization * self.bread @ self.bread

    @property
    def degrees(self) -> float:
        """Degrees of freedom of t quantiles: clusters minus 1; infinite without clusters."""
        return self.n_clusters - 1.0 if self.errors == "cluster" else np.inf

    def quantile(self, confidence: float) -> float:
        """Return how many standard errors an interval reaches to each side."""
        return quantile_of(self.degrees, confidence)

    def p_values(self, z: Array) -> Array:
        """Return two-sided p-values of ratios of estimates and standard errors."""
        return 2.0 * special.stdtr(self.degrees, -np.abs(z))

    @check_kinds
    def with_errors(self, kind: str) -> FittedMNL:
        """Return the same fit with another kind of standard errors.

        Parameters
        ----------
        kind : "classical", "robust" or "cluster"
            From the observed information; the sandwich by single choices; or the sandwich by
            clusters of choices that may depend on each other, adjusted for few clusters, with
            t quantiles of C - 1 degrees of freedom.
        """
        if kind not in ERRORS:
            raise ValueError(f"errors is {kind!r}; it must be 'classical', 'robust' or 'cluster'")
        if kind == "cluster" and self.clusters is None:
            raise ValueError("errors is 'cluster'; the model was fitted without cluster=")
        if kind == "robust" and self.features is not None:
            raise ValueError(
                f"errors is {kind!r}; a fit of transition counts has only 'classical' ones, "
                "fit_transitions has all"
            )
        return replace(self, errors=kind)

    @cached_property
    def bread(self) -> Any:
        """(d, d) inverse of the observed information (with its ridge), dense or sparse."""
        if self.is_pooled:
            return pooled.covariance(*self.data)
        lam = float(np.min(self.ridge))
        if self.features is not None and sparse.issparse(self.information):
            entries = likelihood.block_entries(self.features)
            flat = np.asarray(self.information[entries]).ravel()
            layout = self.features.layout
            for m in np.unique(layout.size):
                of_size = np.flatnonzero(layout.size == m)
                at = layout.matrix_start[of_size][:, None] + np.arange(m * m)
                values, axes = np.linalg.eigh(flat[at].reshape(-1, m, m))
                values = np.maximum(values, lam)  # less is rounding error
                if (singular_ones := np.flatnonzero(values[:, 0] <= 0.0)).size:
                    check_identified(self.features, int(of_size[singular_ones[0]]))
                inverse = np.einsum("bij,bj,bkj->bik", axes, 1.0 / values, axes)
                flat[at] = inverse.reshape(-1, m * m)
            return likelihood.from_blocks(self.features, flat)
        return solver(self.information, self.names, lam)(np.eye(len(self.theta)))

    @cached_property
    def standard_errors(self) -> Array:
        """Square roots of the diagonal of the covariance, for all but the triple effects."""
        if self.is_pooled:
            return np.sqrt(pooled.shared_variances(*self.data))
        return np.sqrt(self.covariance.diagonal())

    @property
    def pseudo_r2(self) -> float:
        """McFadden's, 1 - log-likelihood / that of all alternatives alike; nan without a choice."""
        null = self.null_log_likelihood
        return 1.0 - self.log_likelihood / null if null else float("nan")

    @property
    def ridge(self) -> Any:
        """The ridge of all columns, or (d,) of each, in the units of the features."""
        return self.regularization * (1.0 if self.scale is None else self.scale**2)

    @property
    def data(self) -> Any:
        """(features, theta, counts, ridge) of a transition model."""
        return self.features, self.theta, self.counts, self.ridge

    def card(self) -> Card:
        n = float(self.n_observations)
        facts: dict[str, Any] = {
            "observations": int(n) if n.is_integer() else n, "coefficients": len(self.theta),
            "log-likelihood": float(self.log_likelihood), "McFadden's R2": float(self.pseudo_r2),
            "ridge": float(self.regularization), "errors": self.errors,
        }  # fmt: skip
        more = "summary() warns and explains, to_pandas() has all, plot() draws them"
        return Card(facts, rows=self.table, more=more, brief=f"{len(self.theta)} coefficients")

    @check_kinds
    def to_mdp(self, reward: Any = None, horizon: int | None = None, start: Any = None) -> Any:
        """Return the `FiniteMDP` that has the estimated probabilities.

        reward (S, A) or (H, S, A) and horizon are those of the task by default; start, a state or
        {state: probability}, is the first state by default.
        """
        features = self.transition_features()
        p = likelihood.probabilities(features, self.theta)
        return from_model(features.task, p[None], reward, horizon, start)

    def transition_features(self) -> Features:
        if self.features is None:
            raise ValueError(
                "this is a fit of choices; only a fit of transitions has a transition model"
            )
        return self.features

    @check_kinds
    def transitions(self, state: Any, action: Any, confidence: float = 0.95) -> list[Any]:
        """Return the probability of each next state of (state, action), given by name.

        A row has next_state, probability, standard_error, and the ends low and high of an interval
        made on the scale of log-odds, so that it lies between 0 and 1.
        """
        features = self.transition_features()
        p = likelihood.probabilities(features, self.theta)
        return pair_table(features, p, self, state, action, confidence)

    def plot(self, state: Any = None, action: Any = None) -> Any:
        """Return a figure of the coefficients, or of the next states of (state, action)."""
        from upriver.display import figures

        if state is None and action is None:
            return figures.plot_coefficients(self.table())
        return figures.plot_probabilities(self.transitions(state, action), state, action)

    @cached_property
    def warnings(self) -> list[str]:
        """A sentence about each kind of coefficient that the data do not determine."""
        data = self.choices or visited(self.features, self.counts, 0.0)
        span, names = data.spans(self.n_listed), self.coefficient_names
        vague, far = self.standard_errors * span > VAGUE, np.abs(self.listed) * span > VAGUE
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

    @property
    def errors_text(self) -> str:
        """How the standard errors were made, in words."""
        few = self.errors == "cluster" and self.n_clusters < FEW_CLUSTERS
        more = f"; {FEW_CLUSTERS} or more are needed to trust them" if few else ""
        return ERRORS[self.errors].format(self.n_clusters) + more

    @check_kinds
    def summary(self, limit: int = 40) -> str:
        """Return a text with the first `limit` coefficients (log-odds) and with warnings."""
        lines = [
            f"multinomial logit: {self.nobs:g} observations, {len(self.theta)} coefficients, "
            f"ridge {self.regularization:g}",
            f"log-likelihood {self.llf:.4f} ({self.null_log_likelihood:.4f} with theta = 0), "
            f"AIC {self.aic:.1f}, BIC {self.bic:.1f}, McFadden's R2 {self.pseudo_r2:.3f}",
            f"standard errors: {self.errors_text}",
        ]
        if self.is_pooled:
            deviation = self.transition_features().spread / np.sqrt(self.regularization)
            lines.append(
                f"triple effects (not listed): {len(self.theta) - self.n_listed}, with the "
                f"standard deviation {deviation:.3g}"
            )
        return "\n".join(
            [*wrap_lines(lines), *self.coefficient_lines(limit), *wrap_lines(self.warnings)]
        )


def log_odds_intervals(
    sizes: Array, p: Array, scores: Array, covariance: Any, z: float
) -> tuple[Array, Array, Array]:
    """Return (n,) standard errors of probabilities and the ends of their intervals.

    sizes (g,): the number of alternatives of each situation, at least 1; scores (n, d): the
    gradients of log p. Intervals reach z errors on the scale of log-odds. The odds of the most
    likely alternative are made from the sum of the others, since its own p may be 1 to rounding; a
    single alternative has p = 1 and the error 0.
    """
    p, of = np.maximum(p, 1e-300), np.repeat(np.arange(len(sizes)), sizes)
    starts, is_top = np.cumsum(sizes) - sizes, np.zeros(len(p), bool)
    is_top[np.lexsort((p, of))[starts + sizes - 1]] = True
    less = np.where(is_top, 0.0, p)
    rest = np.maximum(np.add.reduceat(less, starts), 1e-300)[of]
    mean = np.add.reduceat(less[:, None] * scores, starts)[of] / rest[:, None]
    others = np.where(is_top, rest, 1.0 - p)
    slopes = np.where(is_top[:, None], scores - mean, scores / others[:, None])
    image = np.asarray(covariance @ slopes.T)
    error = np.sqrt(np.maximum(np.einsum("ij,ji->i", slopes, image), 0.0))
    log_odds = np.log(p) - np.log(others)
    low, high = (special.expit(log_odds + x * error) for x in (-z, z))
    return p * others * error, low, high


def pair_table(
    features: Features, p: Array, fitted: FittedMNL, state: Any, action: Any, confidence: float
) -> list[dict[str, Any]]:
    """See `FittedMNL.transitions`; p (n,) the fitted probabilities of the triples of `features`."""
    z = fitted.quantile(confidence)
    part = (task := features.task).rows_of(state, action)
    x, p = features.matrix[part], p[part]
    x = x.toarray() if sparse.issparse(x) else x
    sizes = np.array([len(p)])
    error, low, high = log_odds_intervals(sizes, p, x - p @ x, fitted.covariance, z)
    columns = ("next_state", "probability", "standard_error", "low", "high")
    numbers = np.stack([p, error, low, high], axis=1).tolist()
    return [
        dict(zip(columns, (task.state_names[s], *row), strict=True))
        for s, row in zip(task.successors[part], numbers, strict=True)
    ]


def check_identified(features: Features, failed: int) -> None:
    """Raise a ValueError that names the first feature of the block `failed`, unless it is -1."""
    if failed >= 0:
        layout = features.layout
        raise singular(features.names, int(layout.features[layout.blocks["first_feature"][failed]]))
