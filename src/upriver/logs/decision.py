"""From a fitted model to a decision: a plan, its value against what was done, checks, one page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import check_kinds
from upriver.display import Card, add_repr
from upriver.logs.goodness import GoodnessOfFit
from upriver.logs.model import TransitionModel, for_population
from upriver.logs.offpolicy import (
    CannotCheck,
    ValueChecks,
    build_episodes,
    check_episodes,
    realised_mean,
)
from upriver.logs.planning import find_cautious, lowest, plan_from_model
from upriver.logs.value import (
    PolicyValue,
    PolicyValues,
    compare_policies,
    policy_value,
    show,
    value_function,
)
from upriver.logs.value_function import build_value_function
from upriver.mdp.writing import write_file
from upriver.mnl.fitted import quantile_of, wrap_lines

ROUNDING = 1e-12  # share of the values below which a gain is rounding
MISFIT = 0.01  # p-value below which the page says that the model does not fit
NO_CHOICE = (
    "It is not adjusted for choosing the plan, because no error of the estimates that is plausible "
    "would have led to a different plan."
)
ADJUSTED = (
    "Its lower end is adjusted for choosing the plan from this log: one half of the information, "
    "drawn at random, chose the plan, and the other half gives this end."
)
GREEDY = (
    "It is not adjusted for choosing the plan from this log, so it is too favourable; the cautious "
    "plan has an interval that is."
)
GIVEN = "The plan was given, so nothing is adjusted; that holds if it was not chosen from this log."


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Decision:
    """A plan and what supports it; made by `decide`."""

    model: TransitionModel  #: The model, for the population that the plan is for.
    plan: Any  #: The plan.
    gain: PolicyValue
    """The number to report: what the plan is worth more than what was done. Its interval is
    adjusted for choosing the plan, see `adjustment`."""
    adjustment: str  #: How the interval of the gain was adjusted, in a sentence.
    value: PolicyValue  #: The value of the plan; not adjusted.
    behaviour: PolicyValue  #: The value of what was done.
    realised: dict[str, Any] | None
    """The mean of what the individuals of the log earned: value, standard_error, low, high."""
    goodness_of_fit: GoodnessOfFit | str  #: Or why there is no test.
    checks: ValueChecks | str  #: Estimates that do not rely on the model, or why there are none.
    by: tuple[str, PolicyValues] | None = None
    """A covariate, and the gain for each of its values, where they were asked for."""
    command: str = ""  #: The command that makes the page again; empty where none does.

    def card(self) -> Card:
        facts = {"gain": self.gain.value, "value": self.value.value}
        return Card(facts, of=self.model.log.source, more="summary(), save()")

    @property
    def headline(self) -> str:
        """The gain with its interval, and whom and what it is about, in a sentence."""
        gain, task, model = self.gain, self.model.task, self.model
        what = "row" if isinstance(model.people, str) else model.population.what
        unit = "step" if task.discount == 1.0 else "individual" if "row" in what else what
        sign = "more" if gain.value >= 0 else "less"
        over = "The plan" if task.infinite_horizon else f"Over {task.horizon} steps the plan"
        if gain.low == gain.high == 0.0:
            return f"{over} earns what was earned before, {show(self.value.value)} per {unit}."
        said = (
            f"{over} earns {show(abs(gain.value))} {sign} per {unit} than what was "
            f"done: {show(self.value.value)} instead of {show(self.behaviour.value)} "
            f"({100 * gain.confidence:g}% interval of the difference {show(gain.low)} to "
            f"{show(gain.high)})"
        )
        if gain.low > 0.0:
            return f"{said}."
        return f"{said}: the log does not show that it is better."

    def summary(self) -> str:
        """Return what to do, the number to report and what to doubt, as text."""
        from upriver.logs.page import advise, words_of

        lines = [f"What to do: {words_of(advise(self))}", f"{self.headline} {self.adjustment}"]
        numbers = {"plan": self.value, "what was done": self.behaviour}
        found = [f"{k} {show(x.value)} [{show(x.low)}, {show(x.high)}]" for k, x in numbers.items()]
        if self.realised is not None:
            found.append(f"mean of the log {show(self.realised['value'])}")
        return "\n".join(wrap_lines([*lines, "; ".join(found), self.validity, *self.doubts]))

    @property
    def doubts(self) -> list[str]:
        """Sentences about a model that does not fit, or that checks contradict, and the log."""
        fit, said = self.goodness_of_fit, []
        if isinstance(fit, GoodnessOfFit) and fit.p_value < MISFIT:
            said.append(f"The model does not fit the log (p = {fit.p_value:.2g}): do not rely on "
                        "these numbers.")  # fmt: skip
        if isinstance(self.checks, ValueChecks) and "disagrees" in self.checks.verdict:
            said.append("Checks that do not rely on the model disagree with it.")
        return said + list(self.model.log.notes)

    @property
    def validity(self) -> str:
        """For whom the numbers hold: individuals, covariates, start, horizon, reward."""
        model, task, discount = self.model, self.model.task, self.model.setting[1]
        people = None if isinstance(model.people, str) else model.population
        who = f"{people.weight.sum():,.6g} individuals (each a {people.what})" if people else ""
        fixed = " and ".join(f"{name} = {value}" for name, value in model.values.items())
        valid = f"Valid for {who}{' with ' if who and fixed else ''}{fixed}".rstrip()
        if model.segments:
            valid += f", each with its own {' and '.join(map(str, model.segments[0]))}"
        start = model.start.reshape(-1, model.state_names.size).sum(axis=0)
        first = sorted(((model.state_names[s], start[s]) for s in np.flatnonzero(start)),
                       key=lambda x: -x[1])  # fmt: skip
        words = [(s if isinstance(s, str) else f"state {s}", p) for s, p in first[:6]]
        starts = ", ".join(f"{s} {100 * p:.3g}%" for s, p in words)
        more = f" and {len(first) - 6} other states" if len(first) > 6 else ""
        steps = "an infinite horizon" if task.infinite_horizon else f"{task.horizon} steps"
        if task.discount == 1.0:
            steps += ", the average per step"
        elif discount is not None:
            steps += f", discounted by {discount:g} per step"
        notes = "" if people is None else "".join(f" {x}" for x in people.notes)
        return (f"{valid}. Start: {starts}{more}{', as given' if model.first is not None else ''}. "
                f"Horizon: {steps}. Reward: {reward_text(model)}.{notes}")  # fmt: skip

    def save(self, path: Any) -> Path:
        """Write one page of HTML that needs no script and no network, and return its path."""
        from upriver.logs.page import decision_page

        return write_file(path, decision_page(self))


@check_kinds
def decide(
    model: TransitionModel, plan: Any = "cautious", *, by: str | None = None,
    confidence: float = 0.95,
) -> Decision:  # fmt: skip
    """Plan with a fitted model and value the plan against what was done.

    Parameters
    ----------
    model
        A fitted model with a reward and a horizon or discount. The numbers are means over its
        population; `model.at` fixes covariates, names the first state or another population. With
        `fit_transitions(..., individual=...)` there are checks that do not rely on the model.
    plan
        "cautious" or "greedy", as in `plan_from_model`, or a policy as in `policy_value`.
    by
        A covariate: the page has the gain for each of its values.
    confidence
        Of the intervals.

    Returns
    -------
    Decision
        `save("decision.html")` writes the page.
    """
    model = for_population(model)
    if model.setting[0] is None and model.setting[1] is None:
        raise ValueError("the model has no horizon and no discount; give one: "
                         "model.at(horizon=..., reward=...)")  # fmt: skip
    policy, w, adjustment = plan, None, GIVEN
    if isinstance(plan, str) and plan == "greedy":
        policy, adjustment = plan_from_model(model), GREEDY
    elif isinstance(plan, str) and plan == "cautious":
        best, w = find_cautious(model, confidence)
        policy, adjustment = best.plan, NO_CHOICE if w is None else ADJUSTED
    function = build_value_function(model, [(policy, 1.0), ("behaviour", -1.0)])
    gain = value_function(function, confidence)
    if w is not None:  # the half of the log that did not choose the plan gives the lower end
        z = quantile_of(function.degrees(function.at(function.origin)), confidence)
        gain = replace(gain, low=min(lowest(function, w, z).value, gain.low))
    value, done = (policy_value(model, x, confidence) for x in (policy, "behaviour"))
    if max(-gain.low, gain.high) <= ROUNDING * max(abs(value.value), abs(done.value)):
        gain = replace(gain, value=0.0, standard_error=0.0, low=0.0, high=0.0)
    realised, checks = None, "They follow individuals to a last step, which an infinite horizon"
    checks += " does not have"
    if not model.task.infinite_horizon:
        try:
            episodes = build_episodes(model)
            realised = realised_mean(model, episodes, confidence)
            checks = check_episodes(model, policy, episodes, confidence)
        except CannotCheck as error:
            checks = str(error)
    try:
        fit: GoodnessOfFit | str = model.goodness_of_fit()
    except ValueError as error:  # fractional weights, clusters
        fit = str(error).replace("goodness_of_fit", "a test of the fit")
    return Decision(
        model=model, plan=policy, gain=gain, adjustment=adjustment,
        value=value, behaviour=done, realised=realised,
        goodness_of_fit=fit, checks=checks,
        by=None if by is None else (by, compare_policies(model, policy, confidence=confidence,
                                                         by=by)),
    )  # fmt: skip


def reward_text(model: TransitionModel) -> str:
    """Return what was maximised, in words."""
    reward, log = model.setting[2], model.log
    columns = {} if log.rewards is None else log.rewards.outcomes
    outcomes = log.outcomes()

    def name_outcome(name: Any) -> str:
        if name not in columns:
            given = outcomes.get(name, name)
            return of_states(given) if isinstance(given, dict) else str(given)
        column, formula = columns[name].source
        return f"{column} ({'a mean of' if formula is None else 'estimated from'} the log)"

    def of_states(given: dict[Any, Any]) -> str:
        others = ", others 0" if len(given) < model.state_names.size else ""
        return ", ".join(f"{name} {value:g}" for name, value in given.items()) + others

    if isinstance(reward, str):
        return name_outcome(reward.split("~")[0].strip().strip("`"))
    if isinstance(reward, dict) and outcomes and set(reward) <= set(outcomes):
        times = ("" if x == 1.0 else f"{x:g} times " for x in reward.values())
        return " + ".join(x + name_outcome(c) for x, c in zip(times, reward, strict=True))
    return of_states(reward) if isinstance(reward, dict) else "as given"
