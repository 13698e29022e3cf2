"""Features read from a table that a person wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from upriver.features.features import Features
from upriver.mdp import Task
from upriver.mdp.tables import lookup, number, read_csv


def read_features(task: Task, path: Any) -> Features:
    """varphi from a .csv file: state, action, next_state, then one named column per feature.

    Every reachable triple of the task needs a line; lines about others are not used.
    """
    path = Path(path)
    keys = ["state", "action", "next_state"]
    rows = read_csv(path, keys)
    columns = [c for c in rows[0][1] if c not in keys] if rows else []
    if not columns:
        raise ValueError(f"{path} has no feature: columns after {', '.join(keys)} are features")
    state_of, _ = lookup([], list(task.states or range(task.n_states)), "state", path)
    action_of, _ = lookup([], list(task.actions or range(task.n_actions)), "action", path)
    given = {}
    for line, r in rows:
        triple = (state_of(r["state"], line), action_of(r["action"], line),
                  state_of(r["next_state"], line))  # fmt: skip
        if triple in given:
            raise ValueError(f"{path}:{line}: the triple was already given in a line above")
        given[triple] = [number(r, c, path, line) for c in columns]
    matrix = np.empty((task.n_triples, len(columns)))
    states, actions = task.states or range(task.n_states), task.actions or range(task.n_actions)
    for i, (s, a, s2) in enumerate(zip(*map(np.ndarray.tolist, task.triples), strict=True)):
        if (s, a, s2) not in given:
            raise ValueError(
                f"{path} has no line for (s={states[s]!r}, a={actions[a]!r}, s'={states[s2]!r})"
            )
        matrix[i] = given[s, a, s2]
    return Features(task, matrix, names=columns)
