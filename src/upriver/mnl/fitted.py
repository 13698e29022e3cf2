"""The result of a fit: the estimate (3), its standard errors, and a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse, special

from upriver import kernels
from upriver.checks import Array, check_kinds, open_fraction
from upriver.display import Card, add_repr, to_frame
from upriver.features import Features
from upriver.mdp.building import from_model
from upriver.mnl import likelihood, pooled
from upriver.mnl.newton import singular, solver

ERRORS = {
    "classical": "classical",
    "robust": "robust, the sandwich by choices",
    "cluster": "cluster ({} clusters)",
}
FEW_CLUSTERS = 40  # below which the summary says that they are few
VAGUE = 3.0  # standard error, in log-odds over the span of a column, of which the summary warns


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class FittedMNL:
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
    hessian: Callable[[], Any]
    """Computes `information`, when standard errors are asked for."""
    names: Sequence[str] | None = None
    features: Features | None = None
    """The features it was fitted on, where it is a transition model."""
    spans: Callable[[], Array] | None = None
    """Computes (d,) the largest difference of each column within a situation."""
    scatter: Callable[[], Any] | None = None
    """Computes (d, d), the sum of the outer products of scores of choices."""
    cluster_scores: Callable[[Any], Array] | None = None
    """Computes (C, d), the sums of scores by cluster, from `bread`; see `mnl.clusters`."""
    errors: str = "classical"
    """Which standard errors these are: classical, from the observed information, or a sandwich."""
    n_clusters: int = 0
    """The number of clusters of choices; 0 where none were given."""
    counts: Array | None = None
    """(n,) the counts it was fitted on, where it is a transition model."""
    n_iter: int = 0
    """The number of Newton steps; 0 where blocks of sparse features were fitted one by one."""
    converged: bool = True
    """Whether the estimate is the maximum; a fit that stopped before has given a warning."""

    @property
    def is_pooled(self) -> bool:
        """Whether the features are pooled; triple effects are then the last coefficients."""
        return self.features is not None and bool(self.features.spread)

    @property
    def n_listed(self) -> int:
        """The number of coefficients that are not triple effects."""
        return self.features.n_shared if self.features is not None else len(self.theta)

    @cached_property
    def information(self) -> Any:
        """(d, d) Hessian of (2) at the estimate, dense or sparse."""
        return self.hessian()

    @cached_property
    def covariance(self) -> Any:
        """(d, d) of the estimate: `bread`, or the sandwich bread meat bread; dense or sparse.

        With triple effects it is a scipy LinearOperator, since the inverse has no zeros.
        """
        if self.errors == "cluster" and self.cluster_scores is not None:
            return self.cluster_influence.T @ self.cluster_influence + self.ridge_part
        if self.errors == "robust" and self.scatter is not None:
            return self.bread @ self.scatter() @ self.bread + self.ridge_part
        return self.bread

    @cached_property
    def cluster_influence(self) -> Array:
        """(C, d) what each cluster adds to the error of the estimate."""
        assert self.cluster_scores is not None
        return self.cluster_scores(self.bread) @ self.bread

    @property
    def ridge(self) -> Array:
        """(d,) the penalty of each coefficient."""
        return np.full(len(self.theta), self.regularization)

    @property
    def ridge_part(self) -> Any:
        """(d, d) what a sandwich needs besides scores: the ridge is information without scores.

        Without it an effect that the ridge shrinks would have a standard error near 0.
        """
        return (self.bread * self.ridge) @ self.bread

    @property
    def degrees(self) -> float:
        """Degrees of freedom of t quantiles: clusters minus 1; infinite without clusters."""
        return self.n_clusters - 1.0 if self.errors == "cluster" else np.inf

    def quantile(self, confidence: float) -> float:
        """Return how many standard errors an interval reaches to each side."""
        level = open_fraction("confidence", confidence)
        return float(special.stdtrit(self.degrees, 0.5 + level / 2.0))

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
        if kind == "cluster" and self.cluster_scores is None:
            raise ValueError("errors is 'cluster'; the model was fitted without cluster=")
        if kind == "robust" and self.scatter is None:
            raise ValueError(
                f"errors is {kind!r}; a fit of transition counts has only 'classical' ones, "
                "fit_transitions and fit_choices have all"
            )
        return replace(self, errors=kind)

    @cached_property
    def bread(self) -> Any:
        """(d, d) inverse of the observed information (with its ridge), dense or sparse."""
        if self.is_pooled:
            return pooled.covariance(*self.fit)
        if self.features is not None and sparse.issparse(self.information):
            flat = likelihood.to_blocks(self.features, self.information)
            layout = self.features.layout
            start = self.features.matrix_start
            failed = kernels.gram.inverse(flat, start, layout.size, self.regularization)
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
        """Akaike's criterion, 2 d - 2 log-likelihood; smaller is better."""
        return 2.0 * (len(self.theta) - self.log_likelihood)

    @property
    def bic(self) -> float:
        """Schwarz's criterion, d log(observations) - 2 log-likelihood."""
        return len(self.theta) * float(np.log(self.n_observations)) - 2.0 * self.log_likelihood

    @property
    def pseudo_r2(self) -> float:
        """McFadden's, 1 - log-likelihood / that of all alternatives alike."""
        return 1.0 - self.log_likelihood / self.null_log_likelihood

    # The names of statsmodels.
    params = property(lambda self: self.theta, doc="(d,) statsmodels' name of `theta`.")
    bse = property(lambda self: self.standard_errors, doc="That of `standard_errors`.")
    llf = property(lambda self: self.log_likelihood, doc="That of `log_likelihood`.")
    nobs = property(lambda self: self.n_observations, doc="That of `n_observations`.")

    def cov_params(self) -> Any:
        """Return `covariance`, under statsmodels' name."""
        return self.covariance

    @check_kinds
    def conf_int(self, alpha: float = 0.05) -> Array:
        """Return (d, 2) the ends of the intervals of level 1 - alpha."""
        reach = self.quantile(1.0 - open_fraction("alpha", alpha)) * self.standard_errors
        return np.stack([self.theta - reach, self.theta + reach], axis=1)

    @property
    def fit(self) -> Any:
        """(features, theta, counts, ridge) of a transition model."""
        return self.features, self.theta, self.counts, self.regularization

    def triple_effects(self) -> list[dict[str, Any]]:
        """Return how each triple differs from the shared model, the largest |z| first.

        A row has state, action, next_state, effect (log-odds), standard_error, z, and the visits
        of the pair. Only fits of pooled features have them.
        """
        if not self.is_pooled:
            raise ValueError("there are no triple effects; fit features.pooled(...) for them")
        features, _, counts, _ = self.fit
        task, m = features.task, self.n_listed
        rows = np.delete(np.arange(task.n_triples), task.first_rows)  # those that have effects
        s, a, following = (x[rows].tolist() for x in task.triples)
        effects, errors = (features.spread * x[m:] for x in (self.theta, self.standard_errors))
        z, visits = effects / errors, likelihood.visits(features, counts)[rows]
        order = np.argsort(-np.abs(z), kind="stable")
        return [
            {
                "state": task.state_names[s[i]], "action": task.action_names[a[i]],
                "next_state": task.state_names[following[i]], "effect": float(effects[i]),
                "standard_error": float(errors[i]), "z": float(z[i]), "visits": float(visits[i]),
            }
            for i in order[visits[order] > 0].tolist()
        ]  # fmt: skip

    @cached_property
    def triple_effect_sd(self) -> float:
        """The standard deviation of triple effects that maximises the marginal likelihood."""
        features, _, counts, lam = self.fit
        return pooled.estimate_spread(features, counts, lam) / np.sqrt(lam)

    def table(self) -> list[dict[str, Any]]:
        """Return a row per coefficient without triple effects, with its 95% interval."""
        m = self.n_listed
        names = (self.names or [f"theta[{i}]" for i in range(m)])[:m]
        x, e = self.theta[:m], self.standard_errors[:m]
        z, reach = x / e, self.quantile(0.95) * e
        columns = {
            "name": np.array(names, object), "estimate": x, "standard_error": e, "z": z,
            "p_value": self.p_values(z), "low": x - reach, "high": x + reach,
        }  # fmt: skip
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "observations": float(self.n_observations), "coefficients": len(self.theta),
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

    def to_pandas(self) -> Any:
        """Return `table` as a data frame whose index is the name."""
        return to_frame(self.table()).set_index("name")

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

    @property
    def errors_text(self) -> str:
        """How the standard errors were made, in words."""
        few = self.errors == "cluster" and self.n_clusters < FEW_CLUSTERS
        more = f"; {FEW_CLUSTERS} or more are needed to trust them" if few else ""
        return ERRORS[self.errors].format(self.n_clusters) + more

    @check_kinds
    def summary(self, limit: int = 40) -> str:
        """Return a text with the first `limit` coefficients (log-odds) and with warnings."""
        rows = self.table()
        width = max([len(r["name"]) for r in rows[:limit]] + [7])
        lines = [
            f"multinomial logit: {self.n_observations:g} observations, {len(rows)} coefficients, "
            f"ridge {self.regularization:g}",
            f"log-likelihood {self.log_likelihood:.4f} (all alternatives alike: "
            f"{self.null_log_likelihood:.4f}), AIC {self.aic:.1f}, BIC {self.bic:.1f}, McFadden's "
            f"R2 {self.pseudo_r2:.3f}",
            f"standard errors: {self.errors_text}",
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
        if self.is_pooled:
            lines += self.effect_lines()
        return "\n".join([*lines, *self.warnings])

    def effect_lines(self, limit: int = 10) -> list[str]:
        """Return the lines of the summary about the `limit` triple effects of the largest |z|."""
        rows, (features, *_) = self.triple_effects(), self.fit
        size = float(np.sqrt(np.mean([r["effect"] ** 2 for r in rows]))) if rows else 0.0
        taken = features.spread / np.sqrt(self.regularization)
        lines = [
            "",
            f"triple effects of {len(rows)} triples, in log-odds: standard deviation {size:.3g} as "
            f"estimated, {self.triple_effect_sd:.3g} by marginal likelihood (taken as {taken:.3g})",
            f"{'state, action, next state':<28}    effect  std.err.        z   visits",
        ]
        for r in rows[:limit]:
            name = f"{r['state']}, {r['action']}, {r['next_state']}"
            lines.append(
                f"{name:<28}  {r['effect']:8.4f}  {r['standard_error']:8.4f} {r['z']:8.2f} "
                f"{r['visits']:8g}"
            )
        return lines


def pair_table(
    features: Features, p: Array, fitted: FittedMNL, state: Any, action: Any, confidence: float
) -> list[dict[str, Any]]:
    """See `FittedMNL.transitions`; p (n,) the fitted probabilities of the triples of `features`."""
    z = fitted.quantile(confidence)
    part = (task := features.task).rows_of(state, action)
    x, p = features.matrix[part], p[part]
    x = x.toarray() if sparse.issparse(x) else x
    gradient = p[:, None] * (x - p @ x)
    image = np.asarray(fitted.covariance @ gradient.T)
    error = np.sqrt(np.maximum(np.einsum("ij,ji->i", gradient, image), 0.0))
    reach = z * error / np.maximum(p * (1 - p), 1e-300)
    low, high = special.expit(special.logit(p) - reach), special.expit(special.logit(p) + reach)
    columns = ("next_state", "probability", "standard_error", "low", "high")
    numbers = np.stack([p, error, low, high], axis=1).tolist()
    return [
        dict(zip(columns, (task.state_names[s], *row), strict=True))
        for s, row in zip(task.successors[part], numbers, strict=True)
    ]


def fit_blocks(features: Features, counts: Array, lam: float, start: Array) -> Array:
    """Return theta_hat of sparse features by Newton's method, block by block, in place of start."""
    scale = features.triple_scale
    failed = kernels.newton.fit_blocks(features.problem, counts, start, lam, scale)
    check_identified(features, failed)
    return start


def check_identified(features: Features, failed: int) -> None:
    """Raise a ValueError that names the first feature of the block `failed`, unless it is -1."""
    if failed >= 0:
        layout = features.layout
        raise singular(features.names, int(layout.features[layout.feature_start[failed]]))
