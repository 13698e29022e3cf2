"""The value of a policy under a fitted model, with the standard error that the log implies.

J(theta) is the value of a policy under P_theta. Its gradient takes one backward and one forward
pass, grad J = sum_h sum_(s,a) d_h(s, a) sum_s' p (V_{h+1} - PV) varphi with d_h the probability of
(s, a) at step h, and the delta method gives the standard error sqrt(grad^T C grad), C the
covariance of the estimate: classical, robust or by cluster, whichever the fitted model has. The
interval is from the least to the largest value within z standard errors, see `logs.value_function`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from upriver.checks import Array, check_kinds
from upriver.display import Card, add_repr, to_frame
from upriver.logs.model import TransitionModel, for_population, with_reward
from upriver.logs.tables import listed
from upriver.logs.value_function import (
    PolicyValueFunction,
    build_value_function,
    evaluate_policy,
    segment_table,
)  # fmt: skip
from upriver.mnl.fitted import quantile_of


def show(number: float, digits: int = 4) -> str:
    """Return a number with a few digits, in full where it is large, a dash for nan."""
    if not np.isfinite(number):
        return "–"
    return f"{number:,.0f}" if 10**digits <= abs(number) < 1e15 else f"{number:.{digits}g}"


@add_repr
@dataclass(frozen=True, repr=False)
class PolicyValue:
    """A value, or a difference of values, with its interval."""

    value: float
    standard_error: float
    low: float
    high: float
    confidence: float
    unseen: float
    """Expected steps of an episode in pairs (s, a) of which the log has no row; with a discount
    discounted steps, of the average reward their share."""
    steps: str = "steps of an episode"  #: What is counted.

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "value": float(self.value),
            "standard error": float(self.standard_error),
            f"{100 * self.confidence:g}% interval": f"{show(self.low)} to {show(self.high)}",
        }
        if self.unseen > 1e-9:
            facts[f"{self.steps} in pairs without data"] = float(self.unseen)
        return Card(facts)

    def summary(self) -> str:
        """Return the value and its interval as text."""
        text = (
            f"{show(self.value)} ± {show(self.standard_error, 3)}, {100 * self.confidence:g}% "
            f"interval [{show(self.low)}, {show(self.high)}]"
        )
        if self.unseen > 1e-9:
            text += (
                f"\n{self.unseen:.3g} {self.steps} are in pairs of which the log has no row:\n"
                "there the value relies on the model alone"
            )
        return text


class Estimate(NamedTuple):
    """A number that was estimated, with its interval."""

    value: float
    standard_error: float
    low: float
    high: float


def value_row(name: Any, value: PolicyValue) -> dict[str, Any]:
    """Return the row of a value in a table of estimates."""
    return {"name": name} | {k: getattr(value, k) for k in Estimate._fields}


@add_repr
@dataclass(frozen=True, repr=False)
class PolicyValues:
    """Values of several outcomes or segments, or differences of values, with their covariance."""

    each: dict[Any, PolicyValue]  #: The value of each outcome, with its own interval.
    covariance: Array  #: (k, k) the covariance of the values.
    quantile: float  #: How many standard errors an interval reaches to each side.
    degrees: float  #: Degrees of freedom of t quantiles; infinite without clusters.
    functions: tuple[PolicyValueFunction, ...] = ()
    """The values as functions of what was estimated."""

    def __getitem__(self, name: Any) -> PolicyValue:
        if name not in self.each:
            raise ValueError(f"there is no {name!r}; there are {', '.join(map(str, self.each))}")
        return self.each[name]

    @property
    def values(self) -> Array:
        """(k,) the values."""
        return np.array([x.value for x in self.each.values()])

    def card(self) -> Card:
        facts = {
            str(k): f"{show(x.value)} [{show(x.low)}, {show(x.high)}]" for k, x in self.each.items()
        }
        return Card(facts, more="difference(), ratio(), draws()")

    def summary(self) -> str:
        """Return each value with its interval, as text."""
        return "\n".join(f"{k}: {x.summary()}" for k, x in self.each.items())

    def to_pandas(self) -> Any:
        """Return a data frame with a row for each value."""
        return to_frame([value_row(k, x) for k, x in self.each.items()]).set_index("name")

    def _moments(self, *names: Any) -> tuple[Array, Array]:
        """Return the values of some names and their covariance."""
        values = np.array([self[name].value for name in names])
        at = [list(self.each).index(name) for name in names]
        return values, self.covariance[np.ix_(at, at)]

    def difference(self, first: Any, second: Any) -> Estimate:
        """Return the value of the first minus that of the second."""
        values, covariance = self._moments(first, second)
        sign = np.array([1.0, -1.0])
        value, error = float(sign @ values), float(np.sqrt(max(sign @ covariance @ sign, 0.0)))
        reach = self.quantile * error
        return Estimate(value, error, value - reach, value + reach)

    def ratio(self, first: Any, second: Any) -> Estimate:
        """Return the first divided by the second, such as the cost of a year of life.

        The interval is Fieller's: all x for which first - x second may be 0. Where the second may
        be 0 itself it is not bounded, from -inf to inf. The standard error is the delta method's.
        """
        (a, b), v = self._moments(first, second)
        square = self.quantile**2
        # (a - x b)^2 <= square (v_aa - 2 x v_ab + x^2 v_bb), a quadratic in x
        lead, half = b * b - square * v[1, 1], a * b - square * v[0, 1]
        last = a * a - square * v[0, 0]
        slope = np.array([1.0, -a / b]) / b
        error = float(np.sqrt(max(slope @ v @ slope, 0.0)))
        if lead <= 0.0:
            return Estimate(float(a / b), error, -np.inf, np.inf)
        root = float(np.sqrt(max(half * half - lead * last, 0.0)))
        return Estimate(float(a / b), error, float(half - root) / lead, float(half + root) / lead)

    def draws(self, n: int = 1000, seed: int = 0) -> Array:
        """Return (n, k) the values of models that are drawn from the errors of the estimates."""
        rng, longest = np.random.default_rng(seed), max(self.functions, key=lambda f: len(f.origin))
        points = (longest.draw(rng) for _ in range(n))
        return np.array([[f.at(x[: len(f.origin)]).value for f in self.functions] for x in points])


def cohort_trace(model: TransitionModel, policy: Any) -> Any:
    """Return the expected shares of a cohort in each state, step by step, under a policy.

    `model` and `policy` are those of `policy_value`. The shares are estimates without intervals: a
    data frame with a column for each state and a row for each step, the first for the start.
    """
    if (model := for_population(model)).task.infinite_horizon:
        raise ValueError("the task has an infinite horizon; cohort_trace needs a last step")
    task, base, table = model.task, model.segment_task, segment_table(model, policy)
    if table is None:
        table = PolicyValueFunction(model, [], model.start).done()
    none = np.zeros((1, len(task.sizes))), np.empty((1, 0))
    found = evaluate_policy(task, model.prob, table, model.start, none, by_step=True).occupancy
    flow = np.repeat(found[-1], task.sizes) * model.prob[-1]
    last = np.bincount(task.successors, flow, task.n_states)
    shares = np.vstack([found.reshape(task.horizon, task.n_states, -1).sum(axis=2), last])
    shares = shares.reshape(task.horizon + 1, -1, base.n_states).sum(axis=1)
    return pd.DataFrame(shares, columns=list(base.state_names)).rename_axis("step")


@check_kinds
def policy_value(
    model: TransitionModel, policy: Any, confidence: float = 0.95, *, rewards: Any = None,
    by: str | None = None,
) -> Any:  # fmt: skip
    """Return the value of a policy for the population of a fitted model, with an interval.

    It is the weighted mean over individuals of the value from the first state of each, with the
    covariates of each. The interval allows for the errors of the transitions, of the behaviour
    where it is valued, and of rewards that come from columns; the individuals are taken as they
    are. It holds if the model is right; it does not see confounding or drift.

    Parameters
    ----------
    model
        A fitted model. `model.at` fixes covariates, and names the first state or a population.
    policy
        A Plan, a Policy (matched by name), actions (H, S) or (S,), probabilities (H, S, A) or
        (S, A), {state: action}, the name of an action to take in every state, or "behaviour",
        what the log did: a model of the actions given the state and the covariates.
    confidence
        The probability that the interval is to hold the value.
    rewards
        Several outcomes: a list of names of outcomes of the model, or {name: reward} with rewards
        as `TransitionModel.at` takes them. Terminal values of the task belong to one reward, and
        are refused where there are several.
    by
        A covariate: a value for each of its values, the mean over the individuals who have it.

    Returns
    -------
    PolicyValue, or PolicyValues with `rewards` or `by`
    """
    return value_policies(for_population(model), [(policy, 1.0)], confidence, rewards, by)


@check_kinds
def compare_policies(
    model: TransitionModel, new: Any, old: Any = "behaviour", confidence: float = 0.95, *,
    rewards: Any = None, by: str | None = None,
) -> Any:  # fmt: skip
    """Return the value of `new` minus that of `old`, with its own interval.

    Both depend on the same estimate, so the interval is narrower than that of two values. The
    arguments `model`, `confidence`, `rewards` and `by` are those of `policy_value`.
    """
    policies = [(new, 1.0), (old, -1.0)]
    return value_policies(for_population(model), policies, confidence, rewards, by)


def value_policies(
    model: TransitionModel, policies: list[tuple[Any, float]], confidence: float, rewards: Any,
    by: str | None,
) -> Any:  # fmt: skip
    """Return a signed sum of values of policies, of one outcome or of several."""
    if rewards is None and by is None:
        return value_function(build_value_function(model, policies), confidence)
    outcomes = rewards if isinstance(rewards, Mapping) else {k: k for k in rewards or [None]}
    functions: dict[Any, PolicyValueFunction] = {}
    for name, reward in outcomes.items():
        paid = model if reward is None else with_reward(model, reward)
        function = build_value_function(paid, policies)
        for value, segment in segment_starts(function, by).items():
            parts = [x for x in (name, value) if x is not None]
            functions[parts[0] if len(parts) == 1 else tuple(parts)] = segment
    each = {name: value_function(f, confidence) for name, f in functions.items()}
    longest = max(functions.values(), key=lambda f: len(f.origin))
    slopes = np.zeros((len(functions), len(longest.origin)))
    for row, f in zip(slopes, functions.values(), strict=True):
        row[: len(f.origin)] = f.at(f.origin).slope
    covariance = slopes @ np.stack([longest.image(row) for row in slopes]).T
    covariance = 0.5 * (covariance + covariance.T)
    degrees = min(f.degrees(f.at(f.origin)) for f in functions.values())
    return PolicyValues(each, covariance, quantile_of(degrees, confidence), degrees,
                        tuple(functions.values()))  # fmt: skip


def segment_starts(function: PolicyValueFunction, by: str | None) -> dict[Any, PolicyValueFunction]:
    """Return the value function of each value of a covariate; {None: function} without one."""
    if by is None:
        return {None: function}
    model = function.model
    segments = model.segments
    if by in model.values:
        raise ValueError(f"by is {by!r}, which is fixed at {model.values[by]!r}")
    if not segments or by not in segments[0]:
        known, name = list(model.log.situations.covariates), model.log.space.columns[2]
        raise ValueError(f"by is {by!r}, which the model does not use; put it into the formula, "
                         f"for example as {by}:{name}; the covariates are "
                         f"{listed(known) or '(none)'}")  # fmt: skip
    values = [x[by][0] if isinstance(x[by], list) else x[by] for x in segments]
    start = function.start.reshape(len(segments), -1)
    found = {}
    for value in dict.fromkeys(values):
        mine = start * np.array([[x == value] for x in values])
        found[value] = replace(function, start=(mine / mine.sum()).ravel())
    return found


def value_function(function: PolicyValueFunction, confidence: float) -> PolicyValue:
    """Return a signed sum of values of policies, with its interval."""
    model = function.model
    centre, task = function.at(function.origin), model.task
    value, degrees = centre.value, function.degrees(centre)
    z = quantile_of(degrees, confidence)
    error = float(np.sqrt(max(centre.slope @ function.image(centre.slope), 0.0)))
    visits = task.by_pair(model.counts)
    unseen = float(centre.occupancy[(visits == 0) & (task.sizes > 1)].sum())
    low, high = (function.optimize_in_ellipsoid(centre, z, x).value for x in (-1.0, 1.0))
    words = {None: PolicyValue.steps, 1.0: "of all steps"}.get(task.discount, "discounted steps")
    return PolicyValue(value, error, low, high, confidence, unseen, words)
