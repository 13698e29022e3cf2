"""From a log to a decision: a model, a plan, its value against what was done, checks, one page."""

from __future__ import annotations

import html
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import Array, check_kinds
from upriver.display import Card, add_repr
from upriver.logs.fit import fit_transitions
from upriver.logs.formula import mentions
from upriver.logs.goodness import GoodnessOfFit
from upriver.logs.model import TransitionModel, check_model
from upriver.logs.offpolicy import (
    CannotCheck,
    Episodes,
    ValueChecks,
    check_episodes,
    is_absorbing,
    read_episodes,
)  # fmt: skip
from upriver.logs.planning import plan_from_model
from upriver.logs.tables import COLUMNS, Table
from upriver.logs.value import PolicyValue, PolicyValues, compare_policies, policy_value
from upriver.logs.value_function import build_value_function
from upriver.mdp import Task
from upriver.mdp.writing import write_file

FEW = 10  # rows of a pair below which the page lists it
MOST = 20  # entries of a list on the page
ESTIMATE = ("value", "standard_error", "low", "high")  # what a table says of an estimate
MISFIT = 0.01  # p-value below which the headline says that the model does not fit


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Decision:
    """A plan from a log and what supports it; made by `decide`."""

    model: TransitionModel  #: The model, at the covariates for which the plan is made.
    plan: Any  #: The cautious plan.
    bound: float  #: A lower bound of the plan's value, adjusted for choosing the plan.
    start: Mapping[Any, float]  #: The probabilities of the first state.
    value: PolicyValue  #: The value of the plan.
    behaviour: PolicyValue  #: The value of what the log did.
    gain: PolicyValue  #: The difference of both.
    occupancy: Array  #: (S*A,) expected steps of the plan in each pair.
    goodness_of_fit: GoodnessOfFit
    checks: ValueChecks | str | None
    """Estimates that do not rely on the model, or why there are none; None without episodes."""
    source: str  #: The name of the log.
    reward: str  #: What was maximised, in words.
    command: str = ""  #: The command that makes the page again; empty where none does.
    by: tuple[str, PolicyValues] | None = None
    """A covariate, and the gain for each of its values, where they were asked for."""

    @property
    def task(self) -> Task:
        return self.model.task

    def card(self) -> Card:
        facts = {"value": self.value.value, "gain": self.gain.value, "bound": self.bound}
        return Card(facts, of=self.source)

    def summary(self) -> str:
        """Return the values, the gain and the bound in two sentences."""
        new, old, gain = (
            f"{show(x.value)} [{show(x.low)}, {show(x.high)}]"
            for x in (self.value, self.behaviour, self.gain)
        )
        unit = " per step" if self.task.discount == 1.0 else ""
        return (
            f"The plan is worth {new}, what was done {old}: a gain of {gain}{unit}. "
            f"{100 * self.value.confidence:g}% lower bound, adjusted for choosing the plan: "
            f"{show(self.bound)}.{self.doubt}"
        )

    @property
    def doubt(self) -> str:
        """A sentence about a model that does not fit, or that checks contradict; or nothing."""
        fit, checks = self.goodness_of_fit, self.checks
        said = ""
        if fit.p_value < MISFIT:
            said += f" The model does not fit the log (p = {fit.p_value:.2g}): do not rely on this."
        if isinstance(checks, ValueChecks) and "disagrees" in checks.verdict:
            said += " Checks that do not rely on the model disagree with it."
        return said

    @property
    def validity(self) -> str:
        """For whom the numbers hold: covariates, start, horizon, reward."""
        model, (horizon, discount, _) = self.model, self.model.setting
        fixed = "; ".join(f"{name} = {value}" for name, value in model.values.items())
        valid = f"Valid for {fixed or 'all rows of the log alike'}."
        if model.segments:
            averaged = ", ".join(map(str, model.segments[0][0]))
            given = f", at {fixed}" if fixed else ""
            valid = f"Averages over {averaged} of the individuals of the log{given}."
        first = sorted(self.start.items(), key=lambda x: -x[1])
        starts = ", ".join(f"{name_state(s)} ({100 * p:.0f}%)" for s, p in first[:6])
        more = f" and {len(first) - 6} other states" if len(first) > 6 else ""
        steps = f"{horizon} steps" if horizon is not None else "an infinite horizon"
        if self.task.discount == 1.0:
            steps += ", the average per step"
        elif discount is not None:
            steps += f", discounted by {discount:g} per step"
        return f"{valid} Start: {starts}{more}. Horizon: {steps}. Reward: {self.reward}."

    def save(self, path: Any) -> Path:
        """Write one page of HTML that needs no script and no network, and return its path."""
        return write_file(path, decision_page(self))


@check_kinds
def decide(
    frame: Any, formula: str, *, reward: Any, horizon: int | None = None,
    discount: float | None = None, start: Hashable | Mapping[Any, float] | None = None,
    at: Mapping[str, Any] | None = None, average: bool = False, by: str | None = None,
    states: Any = None, successors: Any = None, columns: Sequence[str] = COLUMNS,
    cluster: str | None = None, weights: str | None = None, regularization: float = 0.0,
    missing: str = "refuse", episode: str | None = None, step: str = "step",
    ended: str | Iterable[Any] | None = None, propensity: str | None = None,
    confidence: float = 0.95,
) -> Decision:  # fmt: skip
    """Fit a log, plan with the model and value the plan against what was done.

    Parameters
    ----------
    frame, formula, states, successors, columns, cluster, weights, regularization, missing
        As in `fit_transitions`.
    reward
        What to maximise: {state: number} or {(state, action): number} with 0 for others, a column
        such as "benefit" or a linear model such as "benefit ~ state + action" as in
        `fit_transitions`, columns with their weights such as {"cost": -1}, or as in
        `TransitionModel.at`.
    horizon, discount
        Steps of an episode, what a reward of the next step counts, or both; with an infinite
        horizon a discount of 1 stands for the average reward.
    start
        The first state, or {state: probability}. Unless given, the states where the episodes
        start, or without `episode` the shares of the states among all rows.
    at, average
        The values of the covariates; whether others are averaged over the individuals of the log.
    by
        A covariate that is averaged over: the page has the gain for each of its values.
    episode, step
        The columns of the episode and of the step: with an episode, estimates that do not rely on
        the model are made.
    ended, propensity
        As in `check_policy_value`. Where `ended` is text and not a column, it names states,
        separated by commas.
    confidence
        Of the intervals.

    Returns
    -------
    Decision
        `save("decision.html")` writes the page.
    """
    if horizon is None and discount is None:
        raise ValueError("give a horizon, or a discount for an infinite horizon")
    if horizon is None and episode is not None:
        raise ValueError(f"episode is {episode!r}; checks by episodes need a horizon instead of a "
                         "discount")  # fmt: skip
    for name, given in (("ended", ended), ("propensity", propensity)):
        if given is not None and episode is None:
            raise ValueError(f"{name} is {given!r}; it is for the checks, which need episode=")
    table, is_text = Table(frame), isinstance(reward, str)
    weighted = isinstance(reward, Mapping) and set(reward) <= set(table.names)
    if episode is not None:  # the fit and the checks use the same rows
        named = [episode, step, ended, cluster, weights, propensity, *columns]
        named += reward if isinstance(reward, Mapping) else [reward]
        names = {x for x in named if isinstance(x, str)}
        formulas = [mentions(x) for x in (formula, propensity, reward) if isinstance(x, str)]
        table.keep(lambda name: name in names or any(uses(name) for uses in formulas))
    model = fit_transitions(
        formula, table, states=states, successors=successors, columns=columns, cluster=cluster,
        weights=weights, regularization=regularization, missing=missing,
        reward=reward if is_text else {c: c for c in reward} if weighted else None,
    )  # fmt: skip
    assert model.log is not None
    if isinstance(reward, Mapping) and not weighted:
        reward = {by_text("reward", model.log.space.states, s, model.log.space.actions): x
                  for s, x in reward.items()}  # fmt: skip
    if isinstance(ended, str) and ended not in table.names:
        ended = [by_text("ended", model.log.space.states, x.strip()) for x in ended.split(",")]
    model = model.at(
        at, horizon=horizon, discount=discount, average=average or by is not None,
        reward=None if is_text else reward,
    )  # fmt: skip
    task, episodes, checks = check_model(model).task, None, None
    if episode is not None and model.segments:
        checks = "the checks need fixed values of all covariates"
    elif episode is not None:
        try:
            episodes = read_episodes(
                model, table, columns, episode, step, None, weights, missing, ended, propensity,
                cluster,
            )  # fmt: skip
        except CannotCheck as error:
            checks = str(error)
    first = first_states(model, start, episodes)
    plan = plan_from_model(model, "cautious", confidence, start=first)
    function = build_value_function(model, [(plan, 1.0)], first)
    if task.discount == 1.0:
        bound = float(plan.gain)
    else:
        bound = float(function.start @ (plan.v if task.infinite_horizon else plan.v[0]))
    if episodes is not None:
        checks = check_episodes(model, plan, episodes, confidence)
    compare = partial(compare_policies, model, plan, "behaviour", confidence, first)
    return Decision(
        model=model, plan=plan, bound=bound, start=first,
        value=policy_value(model, plan, confidence, first),
        behaviour=policy_value(model, "behaviour", confidence, first),
        gain=compare(), by=None if by is None else (by, compare(by=by)),
        occupancy=function.at(function.origin).occupancy, goodness_of_fit=model.goodness_of_fit(),
        checks=checks, source=Path(table.file).name if table.file else "a frame",
        reward=reward_text(reward, weighted),
    )  # fmt: skip


def reward_text(reward: Any, weighted: bool) -> str:
    """Return what was maximised, in words; weighted: columns with their weights."""
    if weighted:
        return " + ".join(f"{weight:g} times the mean of {c}" for c, weight in reward.items())
    if isinstance(reward, str):
        return f"{reward}, estimated from the log" if "~" in reward else f"the mean of {reward}"
    if isinstance(reward, Mapping):
        return ", ".join(f"{name} {value:g}" for name, value in reward.items()) + ", others 0"
    return "as given"


def by_text(
    what: str, names: Iterable[Any], given: Any, actions: Sequence[Any] = (), kind: str = "states"
) -> Any:
    """Return the name that is equal to what was given, or that reads like it.

    actions: of (state, action), where what was given may be such a pair.
    """
    listed = list(names)
    for name in listed:
        if name == given or str(name) == str(given):
            return name
    if actions and isinstance(given, tuple) and len(given) == 2:
        state, action = given
        return by_text(what, names, state), by_text(what, actions, action, kind="actions")
    raise ValueError(f"{what} names {given!r}; the {kind} are {', '.join(map(str, listed))}")


def first_states(model: TransitionModel, start: Any, episodes: Episodes | None) -> dict[Any, float]:
    """Return {state: probability} of the first state; see `decide`."""
    task = model.segment_task
    if start is not None:
        given = start if isinstance(start, Mapping) else {start: 1.0}
        return {by_text("start", task.state_names, s): p for s, p in given.items()}
    if episodes is not None:
        return episodes.starts(task)
    visits = task.by_pair(model.counts[: task.n_triples])
    rows = visits.reshape(task.n_states, task.n_actions).sum(axis=1)
    return {task.state_names[s]: float(n / rows.sum()) for s, n in enumerate(rows) if n > 0}


def decision_page(decision: Decision) -> str:
    """Return the page of a decision; everything from the log is escaped."""
    task, value, confidence = decision.task, decision.value, decision.value.confidence
    visits, occupancy = task.by_pair(decision.model.counts), decision.occupancy
    actions = decision.plan.policy[None] if task.infinite_horizon else decision.plan.policy
    named = {"the plan": value, "what was done": decision.behaviour, "the gain": decision.gain}
    if decision.by is not None:
        named |= {f"{decision.by[0]} {x}": gain for x, gain in decision.by[1].each.items()}
    worth = [{"name": name} | {k: getattr(x, k) for k in ESTIMATE} for name, x in named.items()]
    moving = ~is_absorbing(task)  # what is done in other states does not matter
    # pairs that the plan needs and of which the log has few rows, those met most first
    few = (occupancy > 0) & (visits < FEW) & np.repeat(moving, task.n_actions)
    lacking = [g for g in np.argsort(-occupancy).tolist() if few[g]]
    met = [
        (name_state(task.state_names[g // task.n_actions]), task.action_names[g % task.n_actions],
         f"{occupancy[g]:.2g}", f"{visits[g]:g}")
        for g in lacking[:MOST]
    ]  # fmt: skip
    more = f" and {len(lacking) - MOST} more pairs" if len(lacking) > MOST else ""
    text = {
        "title": f"Decide from {decision.source}",
        "lead": decision.summary().removesuffix(decision.doubt),
        "validity": decision.validity,
        "confidence": f"{100 * confidence:g}%",
        "unseen": f"{value.unseen:.2g} {value.steps} are in pairs without any row.",
        "lacking": f"The plan meets these pairs{more}, of which the log has fewer than {FEW} rows."
        if lacking else f"The log has at least {FEW} rows of every pair that the plan meets.",
        "model": decision.model.summary(),
        "fit": decision.goodness_of_fit.summary(),
        "command": decision.command or f"upriver.decide, from {decision.source}",
    }  # fmt: skip
    parts = {k: html.escape(v) for k, v in text.items()} | {
        "style": resources.files("upriver.results.report").joinpath("style.css").read_text("utf-8"),
        "doubt": f"<p class='notice'>{html.escape(decision.doubt.strip())}</p>"
        * bool(decision.doubt),
        "worth": estimates_table(worth[:2]) + estimates_table(worth[2:], zero=True),
        "policy": html_table(
            ("state", "do", "was done", "differs"), policy_rows(task, actions, visits, moving)
        ),
        "missing": html_table(("state", "action", value.steps, "rows"), met) if met else "",
        "checks": checks_section(decision),
    }
    template = resources.files("upriver.logs").joinpath("decision.html").read_text("utf-8")
    # one pass: what stands for a name is never searched for names itself
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def show(number: float) -> str:
    """Return a number with four digits, in full where it has five or more, or a dash for nan."""
    if not isfinite(number):
        return "–"
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"


def name_state(name: Any) -> str:
    """Return the name of a state; one with covariates is a tuple of them and the state."""
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def policy_rows(task: Task, actions: Array, visits: Array, moving: Array) -> list[tuple[str, ...]]:
    """Return (state, actions of the plan, actions of the log, whether the most frequent ones
    differ) of every state that can be left. actions: (H, S), or (1, S) with an infinite horizon;
    the action of the first step comes first.
    """
    rows, table = [], visits.reshape(task.n_states, task.n_actions)
    for s in np.flatnonzero(moving).tolist():
        planned, n = actions[:, s].tolist(), len(actions)
        steps = {a: f" ({planned.count(a)} of {n} steps)" for a in dict.fromkeys(planned)}
        do = ", ".join(f"{task.action_names[a]}{x if len(steps) > 1 else ''}"
                       for a, x in steps.items())  # fmt: skip
        percent = 100.0 * table[s] / max(table[s].sum(), 1e-300)
        done = [a for a in np.argsort(-percent, kind="stable").tolist() if percent[a] > 0]
        words = ", ".join(f"{task.action_names[a]} {percent[a]:.0f}%" for a in done)
        usual = np.bincount(planned, minlength=task.n_actions).argmax()
        differs = "yes" if usual != table[s].argmax() else ""
        rows.append((name_state(task.state_names[s]), do, words, differs))
    return rows


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], drawn: Sequence[str] | None = None
) -> str:
    """Return a table whose first column names the rows; drawn: figures that follow it."""
    cells = ""
    for i, (first, *rest) in enumerate(rows):
        made = ([] if drawn is None else [drawn[i]]) + [html.escape(str(x)) for x in rest]
        cells += f"<tr><th scope='row'>{html.escape(str(first))}</th>"
        cells += f"{''.join(f'<td>{x}</td>' for x in made)}</tr>"
    titles = "".join(f"<th scope='col'>{html.escape(x)}</th>" for x in head)
    body = f"<table><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"
    return f"<div class='scroll' tabindex='0'>{body}</div>"


def checks_section(decision: Decision) -> str:
    """Return the estimates that do not rely on the model."""
    checks = decision.checks
    if isinstance(checks, ValueChecks):
        verdict = html.escape(checks.verdict[:1].upper() + checks.verdict[1:])
        return f"<p>{verdict}.</p>{estimates_table(checks.rows)}"
    why = checks or "name the column of the episode (--episode) to make them"
    if checks is None and decision.task.infinite_horizon:
        why = "they follow episodes to a last step, which an infinite horizon does not have"
    return f"<p>{html.escape(why[:1].upper() + why[1:])}.</p>"


def estimates_table(rows: Sequence[Mapping[str, Any]], zero: bool = False) -> str:
    """Return a table of estimates with a drawing of each interval; zero: with a mark at 0."""
    known = [r for r in rows if isfinite(r["value"])]  # importance sampling may have no value
    ends = [r[k] for r in known for k in ("low", "high")] + [0.0] * zero
    low, span = min(ends), (max(ends) - min(ends)) or 1.0
    head = ["", "interval", "value", "std. error", "low", "high"]
    cells = [[r["name"], *(show(r[k]) for k in ESTIMATE)] for r in rows]
    if "effective" in rows[0]:
        head.append("effective episodes")
        cells = [[*c, f"{r['effective']:.1f}"] for c, r in zip(cells, rows, strict=True)]
    mark = f"<line x1='{-100 * low / span:.1f}' x2='{-100 * low / span:.1f}' y1='0' y2='12' "
    mark = f"{mark}stroke='currentColor' stroke-dasharray='2 2' opacity='.6'/>" * zero
    drawn = []
    for r in rows:
        if r not in known:
            drawn.append("")
            continue
        left, at, right = (100 * (r[k] - low) / span for k in ("low", "value", "high"))
        drawn.append(
            f"<svg viewBox='-4 0 108 12' width='162' role='img'>{mark}<line x1='{left:.1f}' "
            f"x2='{right:.1f}' y1='6' y2='6' stroke='currentColor' stroke-width='2'/>"
            f"<circle cx='{at:.1f}' cy='6' r='3.5' fill='#d55e00'/></svg>"
        )
    return html_table(head, cells, drawn)
