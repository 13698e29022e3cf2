"""Environments and their natural features, written by the names of states and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from upriver.mdp.validation import support_from_sets
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task


def from_outcomes(
    name: str,
    states: Sequence[Any],
    actions: Sequence[Any],
    outcomes: Callable[[Any, Any], Iterable[tuple[Any, float]]],
    reward: Callable[[Any, Any], float],
    horizon: int,
) -> FiniteMDP:
    """The MDP where (s, a) leads to outcomes(s, a), pairs (s', probability); starts in states[0].

    An outcome that is named twice has the sum. The local support of a pair is what any action can
    do in its state: a person sees that, but not which action does it.
    """
    number = {s: i for i, s in enumerate(states)}
    rows: dict[tuple[int, int], dict[int, float]] = {}
    local: list[set[int]] = []
    for i, s in enumerate(states):
        for j, a in enumerate(actions):
            row = rows[i, j] = {}
            for s2, p in outcomes(s, a):
                row[number[s2]] = row.get(number[s2], 0.0) + p
        local += [{s2 for j in range(len(actions)) for s2, p in rows[i, j].items() if p}] * (j + 1)
    return FiniteMDP.from_rows(
        rows,
        np.array([[reward(s, a) for a in actions] for s in states]),
        horizon,
        local=support_from_sets(local, len(states), len(actions)),
        states=None if isinstance(states, range) else states,
        actions=tuple(actions),
        name=name,
    )


def shares(weights: list[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """The outcomes with probabilities in proportion to their weights."""
    total = sum(w for _, w in weights)
    return [(s, w / total) for s, w in weights]


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
    matrix = np.zeros((task.n_triples, max(len(names), 1)))
    for row, each in zip(matrix, found, strict=True):
        row[[names.index(name) for name in each]] = 1.0
    return Features(task, matrix, names=names or ["nothing to learn"])


def check_named(task: Task, kind: type, environment: str) -> None:
    """Refuse a task whose states are not named as the environment of the features names them."""
    if task.states is None or not all(isinstance(s, kind) for s in task.states):
        raise ValueError(
            f"these features are made for the states of {environment}; the task's are "
            f"{'numbers' if task.states is None else f'named {task.states[0]!r} and so on'}"
        )
