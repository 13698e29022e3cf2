"""Logs of transitions: arrays, frames, .csv and .parquet files, to counts of triples."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.mdp import Task
from upriver.mdp.frames import column, column_names, read_table

COLUMNS = ("state", "action", "next_state")


class Log(NamedTuple):
    cells: list[Array]
    weights: Any
    source: str | None
    """The file it came from."""

    def place(self, i: int) -> str:
        """How to find row i."""
        if self.source is None:
            return f"row {i} of the log"
        csv = self.source.endswith(".csv")
        return f"{self.source}:{i + 2}" if csv else f"{self.source} row {i}"


def count_log(task: Task, log: Log) -> Array:
    """(n,) the weight of each triple in a log; a row outside the support is named."""
    s = numbers(log, 0, task.states, task.n_states, "state")
    a = numbers(log, 1, task.actions, task.n_actions, "action")
    s2 = numbers(log, 2, task.states, task.n_states, "next state")
    declared = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    wanted = (s * task.n_actions + a) * task.n_states + s2
    row = np.minimum(np.searchsorted(declared, wanted), len(declared) - 1)
    outside = declared[row] != wanted
    if outside.any():
        i = int(np.argmax(outside))
        state, action, following = (cells[i] for cells in log.cells)
        allowed = task.successors[task.rows(int(s[i]), int(a[i]))].tolist()
        names = [task.states[x] for x in allowed] if task.states is not None else allowed
        raise ValueError(
            f"{log.place(i)} goes from ({state!s}, {action!s}) to {following!s}, which is not "
            f"among the declared successors {listed(names)}"
        )
    return np.bincount(row, checked_weights(log, len(row)), minlength=task.n_triples)


def read_log(transitions: Any, columns: tuple[str, ...], weights: Any) -> Log:
    """The three columns of a log, and its weights."""
    if len(columns) != 3:
        raise ValueError(f"columns is {columns!r}; it must name the state, action and next state")
    source = None
    if isinstance(transitions, str | Path):
        source = str(transitions)
        used = {*columns, weights if isinstance(weights, str) else None}
        transitions, present = read_table(Path(transitions), used.__contains__)
    else:
        present = column_names(transitions)
    if present is not None:
        for name in [*columns, weights] if isinstance(weights, str) else columns:
            if name not in present:
                raise ValueError(
                    f"{source or 'transitions'} has no column {name!r}; it has {present}"
                )
        cells = [column(transitions[c]) for c in columns]
        if isinstance(weights, str):
            weights = np.asarray(transitions[weights])
    elif isinstance(weights, str):
        raise ValueError(f"weights is {weights!r}, but transitions have no named columns")
    elif isinstance(transitions, np.ndarray):
        if transitions.ndim != 2 or transitions.shape[1] != 3:
            raise ValueError(f"transitions have shape {transitions.shape}; an array must be (m, 3)")
        cells = list(transitions.T)
    elif isinstance(transitions, tuple | list) and len(transitions) == 3:
        cells = [column(x) for x in transitions]
    else:
        raise TypeError(
            f"transitions is a {type(transitions).__name__}; it must be three arrays, an array "
            "(m, 3), a frame, a mapping of columns, or the path of a .csv or .parquet file"
        )
    if len({c.shape for c in cells}) != 1 or cells[0].ndim != 1 or not len(cells[0]):
        raise ValueError(
            f"the columns of transitions have shapes {[c.shape for c in cells]}; they must be of "
            "one length of at least 1"
        )
    return Log(cells, weights, source)


def numbers(log: Log, at: int, names: Any, size: int, what: str) -> Array:
    """(m,) the numbers of named or numbered states or actions."""
    cells = log.cells[at]
    if names is None and np.issubdtype(cells.dtype, np.integer):
        found = cells.astype(np.int64)
    else:
        number = {x: i for i, x in enumerate(range(size) if names is None else names)}
        found = np.array([lookup(number, x) for x in cells.tolist()], np.int64)
    bad = (found < 0) | (found >= size)
    if bad.any():
        i = int(np.argmax(bad))
        given = cells[i : i + 1].tolist()[0]
        allowed = f"0 to {size - 1}" if names is None else f"one of {listed(names)}"
        raise ValueError(f"{log.place(i)} has the {what} {given!r}; it must be {allowed}")
    return found


def listed(names: Any, limit: int = 12) -> str:
    """The names, or the first of many."""
    shown = ", ".join(repr(x) for x in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def lookup(number: dict[Any, int], name: Any) -> int:
    try:
        return number.get(tuple(name) if isinstance(name, list | np.ndarray) else name, -1)
    except TypeError:
        return -1


def checked_weights(log: Log, size: int) -> Array:
    if log.weights is None:
        return np.ones(size)
    try:
        weights = np.asarray(log.weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"weights must be {size} numbers, one per row") from None
    if weights.shape != (size,):
        raise ValueError(f"weights have shape {weights.shape}; they must be ({size},)")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"{log.place(i)} has the weight {weights[i]}; weights must be finite and at least 0"
        )
    return weights
