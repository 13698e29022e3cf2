"""Fit a transition model to a log: a formula with covariates.

model = fit_transitions("action:jump + age:worse", frame, states=moves, cluster="patient")
print(model.summary())
model.predict(new_rows)
plan = plan_from_model(model.at(horizon=20, reward={"well": 1.0}), "cautious")
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import Array, check_kinds, nonnegative_number
from upriver.logs.design import build_design
from upriver.logs.formula import mentions
from upriver.logs.model import FittedLog, TransitionModel
from upriver.logs.population import (
    Population,
    population_of,
    population_of_clusters,
    read_history,
)  # fmt: skip
from upriver.logs.rewards import estimate_rewards, is_outcomes, parse_outcomes
from upriver.logs.situations import (
    StateSpace,
    build_situations,
    build_space,
    find_distinct,
    find_triples,
)  # fmt: skip
from upriver.logs.tables import COLUMNS, GIVEN_WEIGHTS, NUMBERS, Table, listed, quote
from upriver.mnl.choices import Choices
from upriver.mnl.fit import fit_dense

COUNT = re.compile("n|n_rows|counts?|freq(uency)?|times|weights?|cases|n_obs", re.IGNORECASE)


@check_kinds
def fit_transitions(
    formula: Any, frame: Any, states: Any = None, successors: Any = None,
    columns: Sequence[str] = COLUMNS, cluster: str | None = None, weights: Any = None,
    regularization: float = 0.0, missing: str = "refuse", *,
    individual: str | None = None, step: str | None = None,
    ended: str | None = None, propensity: str | None = None,
    horizon: int | None = None, discount: float | None = None, reward: Any = None,
) -> TransitionModel:  # fmt: skip
    """Fit an MNL transition model, eqs. (1) to (3), to a log of transitions.

    Every row is expanded to the next states that were possible, and the formula is evaluated there.
    It may use the three columns, covariates, and attributes from `states`. Who has features of a
    task instead of a formula uses `fit_mnl`.

    Parameters
    ----------
    formula
        In the language of formulaic. What is the same for every candidate has no effect and must be
        interacted with something of the next state. Formulas are executed; use only formulas you
        trust.
    frame
        One row per transition: a pandas, polars or pyarrow frame, a mapping of columns, three
        arrays, or the path of a .csv or .parquet file or of a folder of Parquet files.
    states
        A table of attributes of states: the formula has them under their names for the state, with
        the suffix `_next` for the candidate. A table that has the column of the next state, of the
        action, or both beside that of the state holds attributes of moves. Several tables go in a
        list.
    successors
        Which next states were possible. None: those seen from that (state, action); "all"; a
        function (state, action) -> states; or a table of the three columns.
    columns
        The columns of the state, the action and the next state.
    cluster
        The column of the individual, whose rows may depend on each other: standard errors are then
        those of the sandwich by cluster.
    weights
        How often each row counts: a column, or an array. A row of weight 0 is left out.
    regularization
        The ridge lambda of (2).
    missing
        "refuse" raises an error that names rows with gaps, "drop" leaves such rows out, unless they
        are an individual's, which follow each other; the summary says how many.
    individual, step
        The column of the individual (a patient, an episode) and that of the step, a number or a
        date; without it, rows are in their order in the table. Values are means over individuals,
        from the state of each one's first row, with each one's covariates: see
        `TransitionModel.population`. Unless given, an individual is a cluster, else a row.
    ended, propensity
        Columns for checks of values, see `check_policy_value`: whether an individual has ended with
        this row, and the probability of the logged action.
    horizon, discount, reward
        What the task of the model has, see `TransitionModel.at`. A reward may come from a column:
        "cost" is its mean for each (state, action), "cost ~ state + action:age" a linear model,
        which may use the next state. {"cost": "cost", "qaly": {"well": 0.9}} names several
        outcomes. Values allow for the errors of what was estimated. A pair without a row has no
        mean and is refused; a state that the log never left, and that only leads to itself, pays 0.

    Raises
    ------
    ValueError
        If a column is missing, has gaps or words where numbers are needed, or if the data do not
        identify a coefficient and regularization is 0.
    """
    lam = nonnegative_number("regularization", regularization)
    if isinstance(columns, str) or len(columns) != 3 or len(set(columns)) != 3:
        raise ValueError(f"columns is {columns!r}; it must name the state, the action and the next "
                         "state")  # fmt: skip
    columns = columns[0], columns[1], columns[2]
    if individual is None:
        for name, given in (("step", step), ("ended", ended), ("propensity", propensity)):
            if given is not None:
                raise ValueError(f"{name} is {given!r}; it needs individual, the column of the "
                                 "individual")  # fmt: skip
    named = {"cluster": cluster, "ended": ended, "propensity": propensity}
    times = weights if weights is None or isinstance(weights, str) else GIVEN_WEIGHTS
    table = Table(frame)
    uses, outcomes = mentions(formula), parse_outcomes(reward, table.names)

    def wanted(name: str) -> bool:
        return uses(name) or any(outcome.uses(name) for outcome in outcomes.values())

    covariates = [c for c in table.names if c not in columns and wanted(c)]
    paid = list(dict.fromkeys(outcome.column for outcome in outcomes.values()))
    more = list(dict.fromkeys([*paid, *(c for c in named.values() if c is not None)]))
    also = [c for c in (individual, step, cluster, *more) if c is not None]
    keys = list(dict.fromkeys([*columns, *covariates, *also]))
    numeric = [*paid, *([] if propensity is None else [propensity])]
    gaps = None if individual is not None and missing == "refuse" else missing
    rows = table.read(keys, weights, numeric, gaps, not also)
    space, s, a, s2 = build_space(rows, columns, states, successors, wanted)
    clash = [c for c in covariates if c in space.attributes]
    if clash:
        raise ValueError(f"column {clash[0]!r} is in the frame and in states; rename one of them")
    pair = s * len(space.actions) + a
    cells = {c: rows.values(c) for c in covariates}
    first, situation = find_distinct([pair, *cells.values()])
    of = build_situations(space, pair[first], {c: x[first] for c, x in cells.items()})
    row = find_reachable(space, pair, s2, table)
    chosen = of.indptr[situation] + row - space.indptr[pair]
    counts = np.bincount(chosen, rows.weight, minlength=len(of.successor))
    visits = np.add.reduceat(counts, of.indptr[:-1])
    known = list(dict.fromkeys([*columns, *table.names, *space.attributes]))
    design, x = build_design(formula, space, of, wanted, known, visits, lam == 0.0)
    data = Choices(of.indptr, x, counts, visits, lam)
    number, clusters = (None, []) if cluster is None else rows.codes(cluster)
    if len(clusters) == 1:
        raise ValueError(f"column {cluster!r} has one cluster; clustered errors need at least 2")
    rewards = estimate_rewards(outcomes, space, of, rows, chosen, number, known)
    members = None if number is None else (number, chosen, rows.weight)
    fitted = fit_dense(data, design.names, clusters=members)
    log = FittedLog(
        space, design, of, data, chosen, rows.weight, number, rows.n_rows, reward, clusters,
        rewards, weights if isinstance(weights, str) else None,
        "a frame" if table.file is None else Path(table.file).name,
        counts_in(table, {*keys, times or ""}),
    )  # fmt: skip
    numbered, history = (s, a, s2), None
    if individual is not None:
        history = read_history(
            rows, numbered, chosen, individual, step, [*covariates, *more], times, named
        )
        people: Any = population_of(
            individual, space.states, history.individual, history.state, history.following,
            history.weight, {c: history.cells[c] for c in covariates},
        )  # fmt: skip
    elif cluster is not None:
        people = population_of_clusters(rows, numbered, cluster, space.states, cells, times)
    else:
        state, one = of.pair // len(space.actions), np.ones(len(of.pair), np.int64)
        people = Population("row", space.states, state, visits, of.covariates, one)
    planned = None if is_outcomes(reward) else reward  # several outcomes are not one reward
    setting = horizon, discount, planned
    model = TransitionModel(
        fitted, log, setting=setting, dropped=rows.dropped, people=people, history=history
    )
    return model if covariates else model.at()


def counts_in(table: Table, used: Set[str]) -> tuple[str, ...]:
    """Return a sentence about each column that looks like a count of rows and is not used."""
    notes = []
    for name in table.names:
        if name in used or not COUNT.fullmatch(str(name)):
            continue
        types, cell = table.open_columns([name]), quote(name)
        if types[name].startswith(NUMBERS):
            question = f"SELECT min({cell}) >= 0, max({cell}) > 1 FROM source"
            if all(table.connection.execute(question).fetchall()[0]):
                notes.append(
                    f"Column {name!r} looks like a count of rows and is not used: name it "
                    f"with weights={name!r} if each row stands for several."
                )
    return tuple(notes)


def find_reachable(space: StateSpace, pair: Array, s2: Array, table: Table) -> Array:
    """Return (m,) the triple of each row in a space; refuse one that is not reachable."""
    row, states = find_triples(space, pair, s2, len(space.states)), space.states
    if (row < 0).any():
        i = int(np.argmax(row < 0))
        given = *space.names(int(pair[i])), states[int(s2[i])]
        known = [states[int(j)] for j in space.successors[slice(*space.indptr[pair[i] :][:2])]]
        at = table.place(dict(zip(space.columns, given, strict=True)))
        raise ValueError(f"{at} goes from {given[:2]!r} to {given[2]!r}, which is not among the "
                         f"declared successors {listed(known) or '(none)'}")  # fmt: skip
    return row
