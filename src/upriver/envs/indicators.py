"""Indicator features by label: triples that share a label share a coordinate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upriver.features import Features
from upriver.mdp import Task


def indicators(task: Task, labels: Callable[[Any, Any, Any], Sequence[str]]) -> Features:
    """One feature for each label that occurs, 1 where a triple has it, in alphabetical order.

    `labels` gets (s, a, s') by the task's own names. A triple without labels has the zero vector;
    one successor of each pair should, since the model sees only differences within a pair.
    """
    states = task.states if task.states is not None else range(task.n_states)
    actions = task.actions if task.actions is not None else range(task.n_actions)
    found = [
        labels(states[s], actions[a], states[s2]) for s, a, s2 in zip(*task.triples, strict=True)
    ]
    names = sorted({name for each in found for name in each})
    column = {name: j for j, name in enumerate(names)}
    matrix = np.zeros((task.n_triples, max(len(names), 1)))
    for i, each in enumerate(found):
        matrix[i, [column[name] for name in each]] = 1.0
    return Features(task, matrix, names=names or ["nothing to learn"])


def check_named(task: Task, kind: type, environment: str) -> None:
    """Refuse a task whose states are not named as the environment of the features names them."""
    if task.states is None or not all(isinstance(s, kind) for s in task.states):
        raise ValueError(
            f"these features are made for the states of {environment}; the task's are "
            f"{'numbers' if task.states is None else f'named {task.states[0]!r} and so on'}"
        )
