"""Who a log is about: its individuals, where each of them starts, their covariates, and their rows.

An individual is what `individual=` names (a patient, an episode), else a cluster, else a row. The
value of a policy for a population is the weighted mean over its individuals of the value from the
state of each one's first row, with each one's covariates. So people who are followed for longer do
not count more, and who they are, where they start and what was done to them stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array, is_hashable
from upriver.display import Card, add_repr
from upriver.display.card import format_brief
from upriver.logs.situations import find_distinct
from upriver.logs.tables import Rows, Table, array_of, is_same, listed

MOST = 6  # states or words that a line of a summary names


@add_repr
class History(NamedTuple):
    """The rows of a log, individual by individual, in the order of their steps."""

    individual: Array  # (m,) the number of the individual of each row, ascending
    place: Array  # (m,) the place of the row among those of its individual, from 0
    state: Array  # (m,)
    action: Array  # (m,)
    following: Array  # (m,) the next state
    weight: Array  # (m,) one number for each individual
    cells: dict[str, Array]  # (m,) each: the covariates and other columns
    labels: Sequence[Any]  # The name of each individual
    named: dict[str, Any]
    """What the columns of the cluster, `ended` and `propensity` are called."""
    broken: Array  # (m,) whether the row starts elsewhere than where the row before it goes
    when: Array  # (m,) the step of each row, as the log has it
    choice: Array  # (m,) the row of the choice data of the fit

    def card(self) -> Card:
        return Card({"rows": len(self.state), "individuals": len(self.labels)})


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Population:
    """The individuals that values of policies are means over."""

    what: str  #: What an individual is: the name of a column, or "row".
    states: Sequence[Any]
    start: Array  #: (n,) the number of the first state of each individual.
    weight: Array  #: (n,) how often each counts.
    covariates: Mapping[str, Array]  #: (n,) each, at the first row.
    n_rows: Array  #: (n,) the number of rows of each.
    last: Array | None = None  #: (n,) the number of the state after the last row.
    ends: Array | None = None  #: (S,) whether the log never left the state.
    paths: Mapping[str, Array] = field(default_factory=dict)
    """(m,) covariates that change with the step; that of an individual begins at its `begin`."""
    begin: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    notes: tuple[str, ...] = ()  #: What a reader must know besides, in sentences.

    def cells(self, name: str, step: int = 0) -> Array:
        """Return (n,) a covariate at a step; after the last row its last value stays."""
        if name not in self.paths:
            return self.covariates[name]
        return self.paths[name][self.begin + np.minimum(step, self.n_rows - 1)]

    def having(self, values: Mapping[str, Any]) -> tuple[Population, Array]:
        """Return the individuals that have these values at their start, and which those are.

        Where nobody has them, they are all individuals, and a note says so.
        """
        keep = np.ones(len(self.weight), bool)
        for name, given in values.items():
            value = given[0] if isinstance(given, list) else given
            if name in self.covariates and is_hashable(value):
                keep &= is_same(self.cells(name), value)
        if keep.any():
            some = replace(
                self, start=self.start[keep], weight=self.weight[keep], n_rows=self.n_rows[keep],
                covariates={c: x[keep] for c, x in self.covariates.items()},
                last=None if self.last is None else self.last[keep],
                begin=self.begin[keep] if len(self.begin) else self.begin,
            )  # fmt: skip
            return some, np.flatnonzero(keep)
        said = " and ".join(f"{name} = {format_brief(x)}" for name, x in values.items())
        note = f"Nobody has {said}: the starts are those of all {len(keep)} individuals."
        return replace(self, notes=(*self.notes, note)), np.arange(len(keep))

    def segments(self, free: Sequence[str], n_steps: int) -> tuple[list[dict[str, Any]], Array]:
        """Return the distinct values of covariates, and (n,) those of each individual.

        A covariate that changes with the step has a list of n_steps values.
        """
        steps = {c: range(n_steps if c in self.paths else 1) for c in free}
        columns = {c: [self.cells(c, h) for h in steps[c]] for c in free}
        first, of = find_distinct([x for c in free for x in columns[c]])
        first = np.arange(len(of)) if isinstance(first, slice) else first
        lists = {c: [x[first].tolist() for x in columns[c]] for c in free}
        sets = [
            {c: [x[i] for x in lists[c]] if c in self.paths else lists[c][0][i] for c in free}
            for i in range(len(first))
        ]
        order = sorted(range(len(sets)), key=lambda i: tuple(sets[i].values()))
        return [sets[i] for i in order], np.argsort(order)[of]

    def starts(self) -> dict[Any, float]:
        """Return {state: share of the individuals that start there}."""
        share = np.bincount(self.start, self.weight) / self.weight.sum()
        return {self.states[s]: float(share[s]) for s in np.flatnonzero(share).tolist()}

    def table(self) -> list[tuple[str, str]]:
        """Return who they are as (what, numbers), the rows of a first table."""
        total = float(self.weight.sum())
        rows = [("individuals", f"{total:,.6g}, each a {self.what}")]
        rows += [("first state", name_shares(self.starts().items()))]
        if self.what != "row":
            low, middle, high = np.quantile(self.n_rows, [0.0, 0.5, 1.0])
            rows += [("rows of an individual", f"median {middle:g}, from {low:g} to {high:g}")]
        if self.last is not None and self.ends is not None:
            ended = np.bincount(self.last, self.weight, len(self.states)) * self.ends / total
            known = [(self.states[s], ended[s]) for s in np.flatnonzero(ended).tolist()]
            rows += [("ended in a state without return", name_shares(known) if known else "none")]
        for name in self.covariates:
            cells = self.cells(name)
            if cells.dtype.kind in "iuf" and len(np.unique(cells)) > 2:
                mean = float(self.weight @ cells) / total
                spread = float(np.sqrt(self.weight @ (cells - mean) ** 2 / total))
                words = f"mean {mean:.3g}, sd {spread:.3g}, from {cells.min():g} to {cells.max():g}"
            else:
                first, of = find_distinct([cells])
                share = np.bincount(of, self.weight) / total
                words = name_shares(zip(cells[first].tolist(), share, strict=True))
            changes = "; changes with the step" if name in self.paths else ""
            rows.append((name, f"{words}{changes}"))
        return rows

    def card(self) -> Card:
        return Card(dict(self.table()), more="summary()", brief=f"{len(self.weight)} individuals")

    def summary(self) -> str:
        """Return who the individuals are, as text."""
        lines = [f"{what}: {words}" for what, words in self.table()]
        return "\n".join([*lines, *self.notes])


def name_shares(shares: Any) -> str:
    """Return "ill 60%, well 40%" of (name, share), the largest first."""
    order = sorted(shares, key=lambda x: -x[1])
    named = [f"{name} {100 * share:.3g}%" for name, share in order[:MOST]]
    more = f" and {len(order) - MOST} more" if len(order) > MOST else ""
    return ", ".join(named) + more


def read_history(
    rows: Rows, numbered: Sequence[Array], choice: Array, individual: str, step: str | None,
    columns: Sequence[str], weights: str | None, named: dict[str, Any],
) -> History:  # fmt: skip
    """Return the rows of individuals; unless a step is named, they are in their order in the table.

    numbered: (m,) the numbers of s, a and s' of the rows; columns: those of covariates, rewards and
    what is `named`, see `History`.
    """
    title = rows.table.title
    if rows.dropped:
        raise ValueError(f"rows of {title} with gaps cannot be left out, since those of each "
                         f"{individual} follow each other; fill them in, or leave out the rows of "
                         f"each {individual} from its first gap on")  # fmt: skip
    change = None if weights is None else rows.table.find_change(weights, individual)
    if change is not None:
        label, low, high = change
        raise ValueError(f"column {weights!r} holds {low} and {high} for {individual} {label!r}; "
                         "all rows of an individual must have one weight")  # fmt: skip
    of, labels = rows.codes(individual)
    steps = np.arange(len(of)) if step is None else rows.values(step)
    if steps.dtype.kind == "O":
        raise ValueError(f"column {step!r} of {title} holds words; it must hold numbers, or dates "
                         "(pandas.to_datetime), which say in which order the rows of "
                         f"{individual!r} follow")  # fmt: skip
    order = np.lexsort((steps, of))
    (s, a, s2), of, steps = (x[order] for x in numbered), of[order], steps[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    twice = np.flatnonzero((place > 0) & (steps == np.roll(steps, 1)))
    if len(twice):
        i = twice[0]
        raise ValueError(f"{individual} {labels[of[i]]!r} of {title} has more than one row of step "
                         f"{steps[i]}; every row must have a step of its own, and a name that "
                         "stands for several needs more in it, such as the clinic")  # fmt: skip
    broken = (place > 0) & (s != np.roll(s2, 1))
    cells = {c: rows.values(c)[order] for c in columns}
    return History(
        of, place, s, a, s2, rows.weight[order], cells, labels, named, broken, steps, choice[order]
    )


def population_of(
    what: str, states: Sequence[Any], individual: Array, state: Array, following: Array,
    weight: Array, covariates: Mapping[str, Array],
) -> Population:  # fmt: skip
    """Return the population of the individuals (m,) of rows, which are in ascending order."""
    begin = np.flatnonzero(np.diff(individual, prepend=-1))
    n_rows = np.diff(np.append(begin, len(individual)))
    first = {c: x[begin] for c, x in covariates.items()}
    paths = {c: x for c, x in covariates.items() if (x != np.repeat(first[c], n_rows)).any()}
    notes = []
    if paths:
        notes.append(f"{listed(paths)} changes with the step; after the last row of an individual "
                     "its last value stays.")  # fmt: skip
    never_left = np.bincount(state, minlength=len(states)) == 0
    return Population(
        what, states, state[begin], weight[begin], first, n_rows, following[begin + n_rows - 1],
        never_left, paths, begin, tuple(notes),
    )  # fmt: skip


def population_of_clusters(
    rows: Rows, numbered: Sequence[Array], cluster: str, states: Sequence[Any],
    covariates: Mapping[str, Array], weights: str | None,
) -> Population | str:  # fmt: skip
    """Return the population in which each cluster is an individual, or why there is none."""
    of, labels = rows.codes(cluster)
    order = np.argsort(of, kind="stable")
    of, weight, (s, _, s2) = of[order], rows.weight[order], (x[order] for x in numbered)
    cells = {c: x[order] for c, x in covariates.items()}
    made = population_of(cluster, states, of, s, s2, weight, cells)
    differs = weight != made.weight[of]
    if differs.any():
        i = of[np.argmax(differs)]
        mine = weight[of == i]
        return (
            f"column {weights!r} holds {mine.min():g} and {mine.max():g} for {cluster} "
            f"{labels[i]!r}, so a {cluster} is not one individual; name the column of the "
            "individual, individual=, or give start= and all covariates"
        )
    changed = {c: np.unique(of[x != made.covariates[c][of]]) for c, x in made.paths.items()}
    notes = tuple(
        f"{name} changes within {len(some)} of {len(labels)}; that of the first row counts. With "
        f"individual={cluster!r} it is followed by step."
        for name, some in changed.items()
    )
    return replace(made, ends=None, paths={}, notes=notes)


def read_population(
    frame: Any, states: Sequence[Any], state: str, covariates: Sequence[str], weights: Any,
    fixed: Sequence[str], start: Any,
) -> Population:  # fmt: skip
    """Return the population of a table of individuals, one row for each.

    It has the column of the state, unless a start is given, and the covariates that are not fixed.
    """
    table = Table(frame, "population")
    needed = [c for c in covariates if c not in fixed or c in table.names]
    weights = weights if isinstance(weights, str) and weights in table.names else None
    keys = [*([] if start is not None and state not in table.names else [state]), *needed]
    if not keys:
        raise ValueError("population needs the column of the state, or covariates without a value")
    rows = table.read(keys, weights)
    n = len(rows.weight)
    first = rows.numbers(state, states, "state") if state in keys else np.zeros(n, np.int64)
    cells = {c: array_of(rows.values(c).tolist()) for c in needed}
    return Population(
        "row of the population", states, first, rows.weight, cells, np.ones(n, np.int64)
    )
