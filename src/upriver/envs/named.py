"""Tools for environments and features that are written with the names of states and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.building import assemble
from upriver.mdp.validation import check_size, support_of_triples

MAX_LISTED = 5_000_000
"""How many triples of an environment that is written with names are listed, in about a minute."""


def build_mdp(
    name: str, states: Sequence[Any], actions: Sequence[Any],
    outcomes: Callable[[Any, Any], Iterable[tuple[Any, float]]],
    reward: Callable[[Any, Any], float], horizon: int,
) -> FiniteMDP:  # fmt: skip
    """Make an MDP that starts in states[0]; `outcomes` gives the pairs (s', probability) of (s, a).

    A next state that occurs twice gets the sum of its probabilities. The local support has, for
    every action of a state, what any action can do there.
    """
    number, shape = {s: i for i, s in enumerate(states)}, (len(states), len(actions))
    chances: dict[tuple[int, int], float] = {}  # of (s * A + a, s')
    for at, (s, a) in enumerate(product(states, actions)):
        for s2, p in outcomes(s, a):
            chances[at, number[s2]] = chances.get((at, number[s2]), 0.0) + p
    triples = sorted(chances)
    (pair, following), p = np.array(triples).T, np.array([chances[at] for at in triples])
    source, reached = np.unique([pair[p > 0] // shape[1], following[p > 0]], axis=1)
    every = np.add.outer(source * shape[1], np.arange(shape[1])).ravel()
    order = np.argsort(every, kind="stable")
    local = support_of_triples(every[order], reached.repeat(shape[1])[order], shape[0] * shape[1])
    names = {
        "local": local, "states": None if isinstance(states, range) else states,
        "actions": tuple(actions), "name": name,
    }  # fmt: skip
    rewards = np.array([[reward(s, a) for a in actions] for s in states])
    return assemble(pair, following, p[None], shape, rewards, horizon, 0, names)


def check_listed(n_states: int, n_actions: int, n_successors: int) -> None:
    """Refuse an environment that is too large for a list of names, before one is made."""
    check_size(n_states, n_states * n_actions * n_successors, MAX_LISTED)


def normalize(weights: list[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Return outcomes with probabilities in proportion to their weights."""
    total = sum(w for _, w in weights)
    return [(s, w / total) for s, w in weights]


def indicator_features(task: Task, labels: Callable[[Any, Any, Any], Sequence[str]]) -> Features:
    """Make one feature per label, in alphabetical order: 1 where a triple has the label, else 0.

    `labels` is a function of the names (s, a, s'). A triple without labels has the zero vector; one
    successor of each pair should, since only differences within a pair matter in the model.
    """
    of, named, triples = task.state_names, task.action_names, zip(*task.triples, strict=True)
    found = [labels(of[s], named[a], of[s2]) for s, a, s2 in triples]
    names = sorted({name for each in found for name in each}) or ["nothing to learn"]
    matrix = np.array([[name in each for name in names] for each in found], np.float64)
    return Features(task, matrix, names)


def check_state_names(task: Task, kind: type, environment: str) -> None:
    """Refuse a task whose states do not have the names that the environment gives them."""
    if task.states is None or not all(isinstance(s, kind) for s in task.states):
        raise ValueError(
            f"these features are made for the states of {environment}; the task's are "
            f"{'numbers' if task.states is None else f'named {task.states[0]!r} and so on'}"
        )
