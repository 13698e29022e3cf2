"""Features read from a table that a person wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import as_float
from upriver.features.features import Features
from upriver.mdp import Task
from upriver.mdp.frames import read_columns, read_file
from upriver.mdp.names import Names

KEYS = ["state", "action", "next_state"]


def read_features(task: Task, path: Any) -> Features:
    """Read features from a .csv or .parquet file.

    Parameters
    ----------
    task : Task
    path : path
        A table with the columns state, action, next_state and one named column per feature. States
        and actions are names where these are text, else numbers. Every reachable triple of the task
        needs a row; rows of other triples are not used.
    """
    table = read_file(Path(path))
    columns = [c for c in table.column_names if c not in KEYS]
    if not columns:
        raise ValueError(f"{path} has no feature: columns after {', '.join(KEYS)} are features")
    cells = read_columns(table, [*KEYS, *columns])
    states, actions = (
        names if all(isinstance(x, str) for x in names) else Names(names.what, names.size, None)
        for names in (task.state_names, task.action_names)
    )
    pairs = zip((states, actions, states), KEYS, strict=True)
    listed = ([names.number(x, key) for x in cells[key]] for names, key in pairs)
    row_of: dict[tuple[int, ...], int] = {}
    for row, triple in enumerate(zip(*listed, strict=True)):
        if row_of.setdefault(triple, row) != row:
            raise ValueError(f"row {row} of {path} has the triple of row {row_of[triple]} again")
    rows = []
    for triple in zip(*map(np.ndarray.tolist, task.triples), strict=True):
        if triple not in row_of:
            s, a, s2 = triple
            raise ValueError(
                f"{path} has no row for (s={task.state_names[s]!r}, a={task.action_names[a]!r}, "
                f"s'={task.state_names[s2]!r})"
            )
        rows.append(row_of[triple])
    matrix = np.column_stack([as_float(c, cells[c])[rows] for c in columns])
    return Features(task, matrix, names=columns)
