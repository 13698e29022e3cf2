"""From a log of transitions to a fitted core, its tests, and a plan: the offline use of the model.

model = fit_from_log(task, features, "log.csv")
print(model.summary())                      # log-odds, standard errors, z, 95% intervals
print(model.goodness_of_fit().summary())    # does the model fit, and where does it not?
plan = plan_with(model, "pessimistic")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, special

from upriver import kernels
from upriver.checks import Array, checked_reward
from upriver.features import Features
from upriver.logs.reading import COLUMNS, count_log, read_log
from upriver.mdp import Task
from upriver.mnl import likelihood
from upriver.mnl.fit import FittedMNL, fit_mnl
from upriver.mnl.model import Model
from upriver.planning import Plan, empty_plan, optimism, steps_of


@dataclass(frozen=True, eq=False)
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

    def table(self) -> list[dict[str, Any]]:
        """One row per feature: name, log-odds, standard error, z, 95% interval."""
        return self.fitted.table()

    def summary(self) -> str:
        return self.fitted.summary()

    def likelihood_ratio(self, smaller: LogModel) -> LikelihoodRatio:
        """The test of a nested model: does it lose more than chance would explain?

        2 (l - l_smaller) is asymptotically chi-squared with as many degrees of freedom as features
        were left out, if the smaller model is true. Both must be fitted without penalty, to the
        same log.
        """
        check_nested(self, smaller)
        degrees = self.features.dimension - smaller.features.dimension
        statistic = 2.0 * (self.fitted.log_likelihood - smaller.fitted.log_likelihood)
        statistic = max(statistic, 0.0)
        return LikelihoodRatio(statistic, degrees, float(special.chdtrc(degrees, statistic)))

    def goodness_of_fit(self) -> GoodnessOfFit:
        """Pearson's test of the fitted probabilities, in total and for each (s, a) of the log."""
        return goodness_of_fit(self)


class LikelihoodRatio(NamedTuple):
    statistic: float
    degrees: int
    p_value: float


class GoodnessOfFit(NamedTuple):
    """sum (n - N p)^2 / (N p), against the chi-squared distribution."""

    statistic: float
    degrees: int
    """Free frequencies of the log minus fitted features."""
    p_value: float
    rows: list[dict[str, Any]]
    """Each (s, a) with a choice: state, action, n, statistic, degrees, p_value, least_expected.

    Below an expected count of about 5 the p-value is not to be trusted.
    """

    def summary(self, limit: int = 10) -> str:
        """The total and the `limit` pairs (s, a) that fit worst."""
        lines = [
            f"goodness of fit: chi-squared {self.statistic:.2f} with {self.degrees} degrees of "
            f"freedom, p = {self.p_value:.3g}",
            "     n  chi-squared  df        p  least expected  (state, action)",
        ]
        for r in sorted(self.rows, key=lambda r: r["p_value"])[:limit]:
            lines.append(
                f"{r['n']:6g} {r['statistic']:12.2f} {r['degrees']:3d} {r['p_value']:8.3g} "
                f"{r['least_expected']:15.1f}  ({r['state']!r}, {r['action']!r})"
            )
        return "\n".join(lines)


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
    return LogModel(task, features, counts, fit_mnl(features, counts, regularization))


def check_nested(larger: LogModel, smaller: LogModel) -> None:
    """Refuse models whose likelihoods cannot be compared."""
    if not isinstance(smaller, LogModel):
        raise TypeError(f"smaller is a {type(smaller).__name__}; it must come from fit_from_log")
    if not larger.task.same_support(smaller.task) or not np.array_equal(
        larger.counts, smaller.counts
    ):
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
    wide, narrow = (centred(m, uniform(m.task)) for m in (larger, smaller))
    dense = [x.toarray() if sparse.issparse(x) else x for x in (wide, narrow)]
    rest = dense[1] - dense[0] @ np.linalg.lstsq(dense[0], dense[1], rcond=None)[0]
    if np.abs(rest).max() > 1e-8 * max(np.abs(dense[1]).max(), 1e-300):
        raise ValueError(
            "smaller is not nested: some of its features are no combination of the larger model's"
        )


def uniform(task: Task) -> Array:
    return 1.0 / np.repeat(task.sizes, task.sizes)


def centred(model: LogModel, weight: Array) -> Any:
    """(n, d) features minus their mean in each (s, a); the model does not change (Remark 1)."""
    task = model.task
    groups = np.repeat(np.arange(len(task.sizes)), task.sizes)
    shape = (task.n_triples, len(task.sizes))
    member = sparse.csr_array((np.ones(len(groups)), (np.arange(len(groups)), groups)), shape)
    mean = member.T @ sparse.diags_array(weight) @ model.features.matrix
    return model.features.matrix - member @ mean


def goodness_of_fit(model: LogModel) -> GoodnessOfFit:
    """Pearson's test, see `LogModel.goodness_of_fit`."""
    task = model.task
    starts = task.indptr[:-1]
    total = np.add.reduceat(model.counts, starts)
    expected = np.repeat(total, task.sizes) * model.probability
    safe = np.where(expected > 0, expected, 1.0)
    share = np.where(expected > 0, (model.counts - expected) ** 2 / safe, 0.0)
    statistic = np.add.reduceat(share, starts)
    least = np.minimum.reduceat(expected, starts)
    used = np.flatnonzero((total > 0) & (task.sizes > 1))
    states = task.states if task.states is not None else range(task.n_states)
    actions = task.actions if task.actions is not None else range(task.n_actions)
    rows = [
        {
            "state": states[g // task.n_actions],
            "action": actions[g % task.n_actions],
            "n": float(total[g]),
            "statistic": float(statistic[g]),
            "degrees": int(task.sizes[g] - 1),
            "p_value": float(special.chdtrc(task.sizes[g] - 1, statistic[g])),
            "least_expected": float(least[g]),
        }
        for g in used.tolist()
    ]
    degrees = max(int((task.sizes[used] - 1).sum()) - model.features.dimension, 0)
    summed = float(statistic[used].sum())
    p_value = float(special.chdtrc(degrees, summed)) if degrees else float("nan")
    return GoodnessOfFit(summed, degrees, p_value, rows)


def plan_with(
    model: LogModel,
    how: str | optimism.Optimism = "greedy",
    confidence: float = 0.95,
    reward: Any = None,
) -> Plan:
    """Plan with a fitted model: "greedy", "optimistic" or "pessimistic".

    greedy takes the estimate for the truth. The others allow for every core in the ellipsoid
    (theta - theta_hat)^T I (theta - theta_hat) <= chi-squared quantile, I the observed information:
    asymptotically it holds the true core with probability `confidence`, and then an optimistic
    plan's values are at least V*, a pessimistic plan's at most what the plan really earns: they
    take the largest and the smallest expectation in the ellipsoid. how may also be a function of
    `upriver.planning.optimism`. reward (S, A) or (H, S, A) in [0, 1]: the task's own
    unless given.
    """
    if not isinstance(model, LogModel):
        raise TypeError(f"model is a {type(model).__name__}; it must come from fit_from_log")
    task = model.task
    if not callable(how) and how not in PLANS:
        raise ValueError(f"how is {how!r}; it must be one of {', '.join(PLANS)}")
    if not (isinstance(confidence, float) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence is {confidence!r}; it must lie between 0 and 1")
    rule = how if callable(how) else PLANS[how]
    paid = (
        task.reward_rows if reward is None
        else checked_reward(reward, task.n_states, task.n_actions, task.horizon)
        .reshape(-1, task.n_states * task.n_actions)
    )  # fmt: skip
    beta = float(np.sqrt(special.chdtri(model.features.dimension, 1.0 - confidence)))
    if rule is None:
        rule, beta = optimism.closed_form, 0.0
    return rule(task, ellipsoid(model), paid, beta, np.uint64(0))


def exact_minimum(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """Q = r + min over the confidence set of P_theta V: eq. (4) with a minus.

    The minimum is c - max P_theta (c - V), with c the largest V, so the exact maximum gives it.
    """
    policy, v, _ = empty_plan(task)
    free, nothing = np.full(1, np.inf), np.zeros((1, len(task.sizes)))

    def backup(h: int) -> Array:
        top = v[h + 1].max()
        turned = np.stack([np.zeros(task.n_states), top - v[h + 1]])
        most = np.empty(len(task.sizes))
        kernels.optimism.sweep_exact(
            task.indptr, task.successors, steps_of(model.prob, h), nothing,
            steps_of(model.geometry, h), task.square_start, beta, -np.inf, free, free, word,
            turned, np.empty_like(policy[:1]), most,
        )  # fmt: skip
        return (steps_of(reward, h)[0] + top - most).reshape(task.n_states, task.n_actions)

    for h in reversed(range(task.horizon)):
        q = backup(h)
        policy[h], v[h] = q.argmax(axis=1), q.max(axis=1)
    return Plan(policy, v, backup)


PLANS = {
    "greedy": None,
    "optimistic": optimism.exact_maximum,
    "pessimistic": exact_minimum,
}


def ellipsoid(model: LogModel) -> Model:
    """What planning reads: the norms of the features in the inverse of the observed information.

    The features are centred at their mean, which the model does not see and which makes the
    norms, and so the bonuses, small.
    """
    task = model.task
    rows = centred(model, model.probability)
    image = rows @ model.fitted.covariance
    first = np.repeat(task.indptr[:-1], task.sizes**2)
    place = np.arange(task.square_start[-1]) - np.repeat(task.square_start[:-1], task.sizes**2)
    size = np.repeat(task.sizes, task.sizes**2)
    left, right = first + place // size, first + place % size
    if sparse.issparse(rows):
        geometry = np.asarray(image[left].multiply(rows[right]).sum(axis=1)).ravel()
    else:
        geometry = np.einsum("ij,ij->i", image[left], rows[right])
    norms = np.sqrt(np.maximum(geometry[left == right], 0.0))
    return Model(
        counts=model.counts[None],
        theta=model.fitted.theta[None],
        prob=model.probability[None],
        width=np.maximum.reduceat(norms, task.indptr[:-1])[None],
        geometry=np.ascontiguousarray(geometry)[None],
        logdet=np.zeros((1, len(model.features.layout.size))),
        regularization=model.fitted.regularization,
    )
