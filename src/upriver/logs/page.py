"""The page of a decision: one file of HTML that needs no script and no network."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.logs.decision import Decision
from upriver.logs.offpolicy import is_absorbing
from upriver.logs.tables import is_same
from upriver.logs.value import Estimate, show, value_row
from upriver.logs.value_function import (
    action_values,
    as_probabilities,
    build_value_function,
    segment_table,
)  # fmt: skip

FEW = 10  # rows of a pair below which the page lists it
MOST = 20  # entries of a list on the page
PHRASES = 6  # parts of the advice in words
TIE = 1e-9  # of the range of values, by which actions must differ to matter


class Advice(NamedTuple):
    """What to do in one state, or in neighbouring states, for some individuals."""

    where: str  # The state, or states that are numbers from one to another
    who: str  # The covariates, where they matter
    do: str
    done: Array  # (A,) what was done there
    differs: bool
    rows: float  # Rows of the log in which this was done there


def decision_page(decision: Decision) -> str:
    """Return the page of a decision; everything from the log is escaped."""
    value, model, realised = decision.value, decision.model, decision.realised
    advised, checks = advise(decision), decision.checks
    worth = [value_row("the plan", value), value_row("what was done", decision.behaviour)]
    worth += [] if realised is None else [realised]
    by, each = (None, {}) if decision.by is None else (decision.by[0], decision.by[1].each)
    gains = [value_row(span(str(by), [x]), gain) for x, gain in each.items()]
    n_differ = sum(x.differs for x in advised)
    text = {
        "title": f"Decide from {decision.model.log.source}",
        "advice": f"What to do: {words_of(advised)}.",
        "headline": decision.headline,
        "adjustment": decision.adjustment,
        "validity": decision.validity,
        "confidence": f"{100 * value.confidence:g}%",
        "differs": f"It differs from what was done most often in {n_differ} of "
        f"{len(advised)} rows. States without a choice, and steps in which all actions are worth "
        "the same, are left out.",
        "done": sentence(model.behaviour.summary()),
        "verdict": sentence(checks if isinstance(checks, str) else checks.verdict),
        "model": model.summary(),
        "fit": decision.goodness_of_fit if isinstance(decision.goodness_of_fit, str)
        else decision.goodness_of_fit.summary(),
    }  # fmt: skip
    lacking, met = missing_data(decision)
    people = [] if isinstance(model.people, str) else model.population.table()
    actions = list(model.task.action_names)
    policy = [
        (x.where, x.who or "everybody", x.do, name_shares(actions, x.done),
         "yes" if x.differs else "", f"{x.rows:,.6g}") for x in advised
    ]  # fmt: skip
    head = ["state", "for whom", "do", "was done", "differs", "rows with it"]
    if not any(x.who for x in advised):
        head, policy = [head[0], *head[2:]], [(x[0], *x[2:]) for x in policy]
    parts = {k: html.escape(v) for k, v in text.items()} | {
        "style": resources.files("upriver.results.report").joinpath("style.css").read_text("utf-8"),
        "doubt": "".join(f"<p class='notice'>{html.escape(x)}</p>" for x in decision.doubts),
        "gain": estimates_table([value_row("gain", decision.gain)], zero=True),
        "worth": estimates_table(worth),
        "by": f"<p>The gain, not adjusted for choosing the plan:</p>{estimates_table(gains, True)}"
        if gains else "",
        "people": html_table(("", "individuals of the log"), people),
        "policy": html_table(head, policy),
        "lacking": html.escape(lacking),
        "missing": html_table(("state", "action", value.steps, "rows"), met) if met else "",
        "checks": "" if isinstance(checks, str) else estimates_table(checks.rows),
        "footer": f"Made by <code>{html.escape(decision.command)}</code>" if decision.command
        else f"Made with upriver.decide, from {html.escape(decision.model.log.source)}",
    }  # fmt: skip
    template = resources.files("upriver.logs").joinpath("decision.html").read_text("utf-8")
    # one pass: what stands for a name is never searched for names itself
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def sentence(text: str) -> str:
    """Return text that begins with a capital letter and ends with a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def words_of(advised: Sequence[Advice]) -> str:
    """Return what to do in words: "drug when ill or bad; rest when well"."""
    where: dict[str, list[str]] = {}
    for x in advised:
        state = f"the state is {x.where}" if x.where[:1] in "-0123456789" else x.where
        where.setdefault(x.do, []).append(f"{state} ({x.who})" if x.who else state)
    if not where:
        return "all actions are worth the same"

    def say(do: str, states: str) -> str:
        return f"{states}: {do}" if " in step" in do else f"{do} {states}"

    if len(where) == 1:
        return say(next(iter(where)), "in every state with a choice")
    parts = []
    for do, states in list(where.items())[:PHRASES]:
        more = f" and {len(states) - PHRASES} more" if len(states) > PHRASES else ""
        *first, last = states[:PHRASES]
        named = ", ".join(first) + (", " if more else " or ") * bool(first) + last
        parts.append(say(do, f"when {named}{more}"))
    more = "; the table of the plan has the rest" if len(where) > PHRASES else ""
    return "; ".join(parts) + more


def advise(decision: Decision) -> list[Advice]:
    """Return the advice of a plan, state by state; equal rows of states that are numbers, and of
    neighbouring values of covariates, are one.
    """
    model, task, base = decision.model, decision.model.task, decision.model.segment_task
    n_segments, n_actions = max(len(model.segments), 1), task.n_actions
    function = build_value_function(model, [(decision.plan, 1.0)])
    table = segment_table(model, decision.plan)
    p = as_probabilities(task, function.done() if table is None else table)
    q, _ = action_values(model, decision.plan)
    p, q = np.broadcast_arrays(p, q.reshape(len(q), task.n_states, n_actions))
    q = np.where(task.available, q, np.nan)
    spread = np.nanmax(q, axis=2) - np.nanmin(q, axis=2)
    scale = np.nanmax(np.abs(q), axis=(1, 2), keepdims=True)[:, :, 0]
    matters = spread > TIE * np.maximum(scale, 1e-300)
    # one number for what is done at a step, -1 where it does not matter
    kinds, code = np.unique(np.round(p.reshape(-1, n_actions), 9), axis=0, return_inverse=True)
    code = np.where(matters, code.reshape(p.shape[:2]), -1)
    columns, of = np.unique(code, axis=1, return_inverse=True)
    texts = [describe_steps(column, kinds, list(task.action_names)) for column in columns.T]
    weight = model.start.reshape(n_segments, -1).sum(axis=1)
    done = model.behaviour.probabilities(model.behaviour_columns[0])  # at the first step
    done = done.reshape(n_segments, base.n_states, n_actions)
    of_log, visits = model.log.situations, model.log.data.visits
    like = lambda c, x: [is_same(of_log.covariates[c], y) for y in np.atleast_1d(x)]  # noqa: E731
    has = [  # (G,) whether situations of the log have the covariates of each segment
        np.all([visits >= 0, *(np.any(like(c, x), axis=0) for c, x in v.items())], axis=0)
        for v in model.segments or ({},)
    ]
    found, choice = [], (base.available.sum(axis=1) > 1) & ~is_absorbing(base)
    for s in np.flatnonzero(choice).tolist():
        mine = of.reshape(n_segments, -1)[:, s]
        for who, some in groups_of(model.segments, [texts[k] for k in mine]):
            k = int(mine[some[0]])
            if not texts[k]:
                continue
            share = weight[some] if weight[some].any() else None
            was = np.average(done[some, s], axis=0, weights=share)
            chosen = kinds[columns[columns[:, k] >= 0, k]].mean(axis=0)
            usual = int(chosen.argmax())
            pairs = np.isin(of_log.pair, s * n_actions + np.flatnonzero(chosen > 0))
            rows = float(visits[pairs & np.any([has[i] for i in some], axis=0)].sum())
            differs = usual != int(was.argmax())
            found.append((s, Advice(str(base.state_names[s]), who, texts[k], was, differs, rows)))
    return merge_neighbours(found, base.state_names)


def merge_neighbours(found: list[tuple[int, Advice]], names: Any) -> list[Advice]:
    """Return the advice with one row for states that are numbers, follow each other and agree."""

    def kind(row: tuple[int, Advice]) -> tuple[Any, ...]:
        s, x = row
        return x.who, x.do, x.differs, None if isinstance(names[s], int | float) else s

    merged = []
    for _, group in groupby(found, key=kind):
        first, *others = rows = [x for _, x in group]
        total = sum(x.rows for x in rows)
        weights = [x.rows for x in rows] if total else None
        where = f"{first.where} to {others[-1].where}" if others else first.where
        done = np.average([x.done for x in rows], axis=0, weights=weights)
        merged.append(first._replace(where=where, done=done, rows=total))
    return merged


def describe_steps(column: Array, kinds: Array, actions: Sequence[Any]) -> str:
    """Return what is done at the steps that matter; nothing where none does.

    column (H,): the number of what is done, -1 where it does not matter; kinds (K, A) probabilities
    of the actions.
    """

    def name(k: int) -> str:
        if kinds[k].max() > 1.0 - 1e-6:
            return str(actions[int(kinds[k].argmax())])
        return name_shares(actions, kinds[k])

    at = np.flatnonzero(column >= 0).tolist()
    runs = [(k, list(run)) for k, run in groupby(at, key=lambda h: int(column[h]))]
    if len(runs) <= 1:
        return name(runs[0][0]) if runs else ""
    if len(runs) <= 3:
        spans = [(k, hs[0] + 1, hs[-1] + 1) for k, hs in runs]
        return ", ".join(f"{name(k)} in step{'s' if a < b else ''} {a}{f' to {b}' if a < b else ''}"
                         for k, a, b in spans)  # fmt: skip
    order = Counter(column[at].tolist()).most_common()
    return ", ".join(f"{name(k)} in {n} of {len(at)} steps" for k, n in order)


def groups_of(
    segments: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> list[tuple[str, list[int]]]:
    """Return for whom each text is, in words, and the numbers of their segments.

    Where one covariate decides, its values are named in order, numbers as "from to".
    """
    if len(dict.fromkeys(texts)) == 1:
        return [("", list(range(len(texts))))]
    covariates = {
        c: [x[c][0] if isinstance(x[c], list) else x[c] for x in segments] for c in segments[0]
    }
    for name, values in covariates.items():
        if len(set(zip(values, texts, strict=True))) > len(set(values)):
            continue
        order = sorted(range(len(values)), key=lambda i: values[i])
        if isinstance(values[0], str | bool):  # words have no order
            order.sort(key=lambda i: texts[i])
        runs = [list(run) for _, run in groupby(order, key=lambda i: texts[i])]
        return [(span(name, [values[i] for i in run]), run) for run in runs]
    found = []
    for text in dict.fromkeys(texts):
        some = [i for i, x in enumerate(texts) if x == text]
        words = [span(name, [values[i] for i in some]) for name, values in covariates.items()]
        found.append((f"{len(some)} of {len(texts)} sets of covariates: {', '.join(words)}", some))
    return found


def span(name: str, values: Sequence[Any]) -> str:
    """Return "age 20 to 60" or "ward east, west"."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > 2 and not isinstance(distinct[0], str | bool):
        return f"{name} {min(distinct):g} to {max(distinct):g}"
    named = [f"{x:g}" if isinstance(x, float) else str(x) for x in distinct[:PHRASES]]
    return f"{name} {', '.join(named)}{' and more' if len(distinct) > PHRASES else ''}"


def name_shares(names: Sequence[Any], share: Array) -> str:
    """Return "drug 60%, rest 40%", the largest first."""
    order = np.argsort(-share, kind="stable").tolist()
    return ", ".join(f"{names[a]} {100 * share[a]:.0f}%" for a in order if share[a] >= 0.005)


def missing_data(decision: Decision) -> tuple[str, list[tuple[str, ...]]]:
    """Return a sentence on pairs that the plan needs and of which the log has few rows, and
    those met most.
    """
    model, base, value = decision.model, decision.model.segment_task, decision.value
    visits = base.by_pair(model.counts[: base.n_triples])
    function = build_value_function(model, [(decision.plan, 1.0)])
    occupancy = function.at(function.origin).occupancy.reshape(-1, len(visits)).sum(axis=0)
    moving = np.repeat(~is_absorbing(base), base.n_actions)  # elsewhere nothing is done
    few = (occupancy > 0) & (visits < FEW) & moving
    lacking = [g for g in np.argsort(-occupancy).tolist() if few[g]]
    met = [
        (str(base.state_names[g // base.n_actions]), str(base.action_names[g % base.n_actions]),
         f"{occupancy[g]:.2g}", f"{visits[g]:g}")
        for g in lacking[:MOST]
    ]  # fmt: skip
    more = f" and {len(lacking) - MOST} more pairs" if len(lacking) > MOST else ""
    said = f"The log has at least {FEW} rows of every pair that the plan meets."
    if lacking:
        said = f"The plan meets these pairs{more}, of which the log has fewer than {FEW} rows."
    return f"{said} {value.unseen:.2g} {value.steps} are in pairs without any row.", met


def html_table(head: Sequence[str], rows: Sequence[Any], drawn: Sequence[str] = ()) -> str:
    """Return a table whose first column names the rows; drawn: figures of intervals after it."""
    titles = [f"<th scope='col'>{html.escape(x)}</th>" for x in head]
    cells = [[f"<td>{html.escape(str(x))}</td>" for x in row[1:]] for row in rows]
    if drawn:
        titles.insert(1, "<th scope='col' class='drawn'>interval</th>")
        cells = [[f"<td class='drawn'>{x}</td>", *row] for x, row in zip(drawn, cells, strict=True)]
    body = "".join(
        f"<tr><th scope='row'>{html.escape(str(name))}</th>{''.join(row)}</tr>"
        for (name, *_), row in zip(rows, cells, strict=True)
    )
    table = f"<table><thead><tr>{''.join(titles)}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='scroll' tabindex='0'>{table}</div>"


def estimates_table(rows: Sequence[Mapping[str, Any]], zero: bool = False) -> str:
    """Return a table of estimates with a drawing of each interval; zero: with a mark at 0."""
    head = ["", "value", "std. error", "low", "high"]
    cells = [[r["name"], *(show(r[k]) for k in Estimate._fields)] for r in rows]
    if "effective" in rows[0]:
        head.append("effective episodes")
        cells = [[*c, f"{r['effective']:.1f}"] for c, r in zip(cells, rows, strict=True)]
    ends = [r[k] for r in rows if isfinite(r["low"]) for k in ("low", "high")] + [0.0] * zero
    low, width = min(ends), (max(ends) - min(ends)) or 1.0

    def at(x: float) -> str:
        return f"{100 * (x - low) / width:.1f}"

    mark = f"<line x1='{at(0.0)}' x2='{at(0.0)}' y1='0' y2='12' stroke='currentColor' "
    mark = f"{mark}stroke-dasharray='2 2' opacity='.6'/>" * zero

    def draw(r: Mapping[str, Any]) -> str:
        if not isfinite(r["low"]):  # importance sampling may have no interval
            return ""
        return (
            f"<svg viewBox='-4 0 108 12' width='162' role='img'>{mark}<line x1='{at(r['low'])}' "
            f"x2='{at(r['high'])}' y1='6' y2='6' stroke='currentColor' stroke-width='2'/>"
            f"<circle cx='{at(r['value'])}' cy='6' r='3.5' fill='#d55e00'/></svg>"
        )

    return html_table(head, cells, [draw(r) for r in rows])
