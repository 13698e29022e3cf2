"""From a log of transitions to a fitted core and its tests: the offline use of the model.

model = fit_from_log(task, features, "log.csv")
print(model.summary())                      # log-odds, standard errors, z, 95% intervals
print(model.goodness_of_fit().summary())    # does the model fit, and where does it not?
plan = plan_from_model(model, "pessimistic")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, special

from upriver.checks import Array
from upriver.display import Card, displayed
from upriver.features import Features
from upriver.logs.goodness import Cells, GoodnessOfFit, goodness_of_fit
from upriver.logs.reading import COLUMNS, count_log, read_log
from upriver.mdp import Task
from upriver.mdp.formats import from_model
from upriver.mnl import likelihood
from upriver.mnl.fit import fit_mnl
from upriver.mnl.fitted import FittedMNL


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class LogModel:
    """An MNL model fitted to logged transitions."""

    task: Task
    features: Features
    counts: Array
    """(n,) weight of each triple in the log."""
    fitted: FittedMNL

    @cached_property
    def probability(self) -> Array:
        """(n,) P_theta_hat of every triple."""
        return likelihood.probabilities(self.features, self.fitted.theta)

    @property
    def steps(self) -> tuple[Features, ...]:
        """The features of all steps, as planning reads them."""
        return (self.features,)

    @property
    def prob(self) -> Array:
        """(1, n) P_theta_hat, as planning reads it."""
        return self.probability[None]

    def table(self) -> list[dict[str, Any]]:
        """One row per feature: name, log-odds, standard error, z, p-value, 95% interval."""
        return self.fitted.table()

    def summary(self) -> str:
        return self.fitted.summary()

    def card(self) -> Card:
        return self.fitted.card()._replace(of=self.task.card().brief)

    def to_mdp(self, reward: Any = None, horizon: int | None = None, start: Any = None) -> Any:
        """The `FiniteMDP` that the estimate makes; see `FittedMNL.to_mdp`."""
        return from_model(self.task, self.prob, reward, horizon, start)

    def to_pandas(self) -> Any:
        """The table of coefficients as a data frame."""
        return self.fitted.to_pandas()

    def transitions(self, state: Any, action: Any, confidence: float = 0.95) -> list[Any]:
        """Where (state, action) leads, with intervals; see `FittedMNL.transitions`."""
        return self.fitted.transitions(state, action, confidence)

    def plot(self, state: Any = None, action: Any = None) -> Any:
        """A figure of the coefficients, or of where a pair leads; see `FittedMNL.plot`."""
        return self.fitted.plot(state, action)

    def likelihood_ratio(self, smaller: LogModel) -> LikelihoodRatio:
        """The test of a nested model: does it lose more than chance would explain?

        2 (l - l_smaller) is asymptotically chi-squared with as many degrees of freedom as features
        were left out, if the smaller model is true. Both must be fitted without penalty, to the
        same log.
        """
        check_nested(self, smaller)
        degrees = self.features.dimension - smaller.features.dimension
        statistic = max(2.0 * (self.fitted.log_likelihood - smaller.fitted.log_likelihood), 0.0)
        return LikelihoodRatio(statistic, degrees, float(special.chdtrc(degrees, statistic)))

    def goodness_of_fit(self, replicates: int = 999, seed: int = 0) -> GoodnessOfFit:
        """Pearson's test of the fitted probabilities, in total and for each (s, a) of the log.

        The p-values are shares of `replicates` logs drawn from the fitted model (a parametric
        bootstrap), so they hold for sparse logs too.
        """
        task = self.task
        group, rows = pairs_seen(task, self.counts)
        sizes = task.sizes[group]
        cells = Cells(
            indptr=np.concatenate([[0], np.cumsum(sizes)]),
            matrix=self.features.matrix[rows],
            counts=self.counts[rows],
            probability=self.probability[rows],
            offset=0.0,
            cell=np.arange(len(rows)),
            pair=np.repeat(np.arange(len(group)), sizes),
            names=[pair_name(task, int(g)) for g in group],
        )
        return goodness_of_fit(cells, self.fitted, replicates, seed)


@displayed
class LikelihoodRatio(NamedTuple):
    statistic: float
    degrees: int
    p_value: float


def fit_from_log(
    task: Task,
    features: Features,
    transitions: Any,
    weights: Any = None,
    regularization: float = 0.0,
    columns: Sequence[str] = COLUMNS,
) -> LogModel:
    """Fit the MNL model to logged transitions (s, a, s').

    transitions: three arrays (s, a, s'), an array (m, 3), a mapping or a pandas or polars frame
    with the named `columns`, or the path of a .csv or .parquet file with them. States and actions
    go by their names where the task has names. weights (m,): how often each row counts, once
    unless given; or the name of a column.
    """
    features.check_task(task)
    counts = count_log(task, read_log(transitions, tuple(columns), weights))
    fitted = fit_mnl(features, counts, regularization)
    return LogModel(task, fitted.features or features, counts, fitted)


def pairs_seen(task: Task, counts: Array) -> tuple[Array, Array]:
    """(the pairs (s, a) of the log that have a choice, the rows of their triples)."""
    group = np.repeat(np.arange(len(task.sizes)), task.sizes)
    seen = (np.bincount(group, counts, len(task.sizes)) > 0) & (task.sizes > 1)
    return np.flatnonzero(seen), np.flatnonzero(seen[group])


def pair_name(task: Task, g: int) -> tuple[Any, Any]:
    s, a = divmod(g, task.n_actions)
    return (
        task.states[s] if task.states is not None else s,
        task.actions[a] if task.actions is not None else a,
    )


def check_nested(larger: LogModel, smaller: LogModel) -> None:
    """Refuse models whose likelihoods cannot be compared."""
    if not isinstance(smaller, LogModel):
        raise TypeError(f"smaller is a {type(smaller).__name__}; it must come from fit_from_log")
    same_counts = np.array_equal(larger.counts, smaller.counts)
    if not (larger.task.same_support(smaller.task) and same_counts):
        raise ValueError("smaller was fitted to another log; both models need the same one")
    for name, model in (("the larger model", larger), ("smaller", smaller)):
        if model.fitted.regularization > 0:
            raise ValueError(
                f"{name} was fitted with regularization {model.fitted.regularization:g}; the "
                "likelihood-ratio test needs regularization=0"
            )
    if smaller.features.dimension >= larger.features.dimension:
        raise ValueError(
            f"smaller has {smaller.features.dimension} features, the larger model "
            f"{larger.features.dimension}; it must have fewer"
        )
    even = 1.0 / np.repeat(larger.task.sizes, larger.task.sizes)
    wide, narrow = (centred(m.features, even) for m in (larger, smaller))
    wide, narrow = (x.toarray() if sparse.issparse(x) else x for x in (wide, narrow))
    rest = narrow - wide @ np.linalg.lstsq(wide, narrow, rcond=None)[0]
    if np.abs(rest).max() > 1e-8 * max(np.abs(narrow).max(), 1e-300):
        raise ValueError(
            "smaller is not nested: some of its features are no combination of the larger model's"
        )


def centred(features: Features, weight: Array) -> Any:
    """(n, d) features minus their mean in each (s, a); the model does not change (Remark 1)."""
    task = features.task
    groups = np.repeat(np.arange(len(task.sizes)), task.sizes)
    shape = (task.n_triples, len(task.sizes))
    member = sparse.csr_array((np.ones(len(groups)), (np.arange(len(groups)), groups)), shape)
    return features.matrix - member @ (member.T @ sparse.diags_array(weight) @ features.matrix)
