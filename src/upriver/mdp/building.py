"""How MDPs are made: from dense arrays, sparse matrices, rows, or functions of one's own states.

The methods `FiniteMDP.from_*` lead here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    Array,
    as_float,
    check_entries,
    checked_reward,
    initial_distribution,
    positive_integer,
)
from upriver.mdp import FiniteMDP, Task


def from_arrays(
    transition: ArrayLike,
    reward: ArrayLike,
    horizon: int,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """See `FiniteMDP.from_arrays`."""
    dense = as_float("transition", transition)
    if dense.ndim not in (3, 4) or dense.shape[-1] != dense.shape[-3]:
        raise ValueError(
            f"transition has shape {dense.shape}; it must be (S, A, S) or (H, S, A, S)"
        )
    stacked = dense if dense.ndim == 4 else dense[None]
    n_states, n_actions = stacked.shape[1:3]
    if dense.ndim == 4 and len(dense) != positive_integer("horizon", horizon):
        raise ValueError(
            f"transition has {len(dense)} steps; with horizon {horizon} it must have {horizon}"
        )
    if n_states == 0 or n_actions == 0:
        raise ValueError(f"transition has shape {dense.shape}; it needs a state and an action")
    flat = stacked.reshape(len(stacked), n_states * n_actions, n_states)
    check_entries(flat, n_actions)
    group, successors = np.nonzero(flat.any(axis=0))
    return assemble(
        group, successors, flat[:, group, successors], n_states, n_actions, reward, horizon,
        initial_state, names,
    )  # fmt: skip


def from_sparse(
    transition: Any,
    reward: ArrayLike,
    horizon: int,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """See `FiniteMDP.from_sparse`."""
    from scipy import sparse

    if not sparse.issparse(transition):
        raise TypeError(
            f"transition is a {type(transition).__name__}; it must be a scipy.sparse matrix "
            "(for a dense array use from_arrays)"
        )
    matrix: Any = sparse.csr_array(transition, dtype=np.float64, copy=True)
    n_states = matrix.shape[1]
    if n_states == 0 or matrix.shape[0] == 0 or matrix.shape[0] % n_states:
        raise ValueError(
            f"transition has shape {matrix.shape}; it must be (S*A, S) with row s*A + a"
        )
    n_actions = matrix.shape[0] // n_states
    matrix.sum_duplicates()
    group = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    check_entries(matrix.data[None], n_actions, group)
    keep = matrix.data != 0
    return assemble(
        group[keep], matrix.indices[keep], matrix.data[None, keep], n_states, n_actions,
        reward, horizon, initial_state, names,
    )  # fmt: skip


def from_rows(
    rows: Mapping[tuple[int, int], Mapping[int, float]],
    reward: Any,
    horizon: int,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """See `FiniteMDP.from_rows`."""
    if not isinstance(rows, Mapping) or not rows:
        raise ValueError("rows must be a non-empty mapping {(s, a): {s2: p}}")
    group, successors, weights, n_states, n_actions = flatten_rows(rows)
    check_entries(weights[None], n_actions, group)
    if isinstance(reward, Mapping):
        table = np.zeros((n_states, n_actions))
        for (s, a), r in reward.items():
            if not (0 <= s < n_states and 0 <= a < n_actions):
                raise ValueError(f"reward names (s={s}, a={a}), which has no row")
            table[s, a] = r
        reward = table
    keep = weights != 0
    return assemble(
        group[keep], successors[keep], weights[None, keep], n_states, n_actions, reward,
        horizon, initial_state, names,
    )  # fmt: skip


def from_functions(
    start: Hashable | Mapping[Any, float],
    actions: Sequence[Hashable],
    successors: Callable[[Any, Any], Iterable[Any]],
    probability: Callable[[Any, Any, Any], float],
    reward: Callable[[Any, Any], float],
    horizon: int,
    max_states: int = 1_000_000,
    name: str = "mdp",
) -> FiniteMDP:
    """See `FiniteMDP.from_functions`."""
    horizon = positive_integer("horizon", horizon)
    actions = list(actions)
    if not actions:
        raise ValueError("actions is empty; there must be at least one action")
    starts = dict(start) if isinstance(start, Mapping) else {start: 1.0}
    states, frontier, table = close(list(starts), actions, successors, horizon, max_states)
    number = {s: i for i, s in enumerate(states)}
    rows: dict[tuple[int, int], dict[int, float]] = {}
    rewards = np.zeros((len(states), len(actions)))
    for i, s in enumerate(states):
        for a, label in enumerate(actions):
            if i >= frontier:
                rows[i, a] = {i: 1.0}
                continue
            rows[i, a] = {}
            for s2 in table[i][a]:
                if number[s2] in rows[i, a]:
                    raise ValueError(
                        f"successors({s!r}, {label!r}) names {s2!r} twice; each at most once"
                    )
                rows[i, a][number[s2]] = float(probability(s, label, s2))
            rewards[i, a] = float(reward(s, label))
    initial = np.zeros(len(states))
    initial[: len(starts)] = list(starts.values())
    return from_rows(rows, rewards, horizon, initial, states=states, actions=actions, name=name)


def close(
    starts: list[Any],
    actions: list[Any],
    successors: Callable[[Any, Any], Iterable[Any]],
    horizon: int,
    max_states: int,
) -> tuple[list[Any], int, list[list[list[Any]]]]:
    """Breadth-first: (states, how many of them can act, successors of those by action)."""
    states = list(starts)
    seen = set(states)
    table: list[list[list[Any]]] = []
    acting = 0
    for _ in range(horizon):
        first, acting = acting, len(states)
        if first == acting:
            break
        for i in range(first, acting):
            table.append([list(successors(states[i], a)) for a in actions])
            for a, reached in zip(actions, table[i], strict=True):
                if not reached:
                    raise ValueError(
                        f"successors({states[i]!r}, {a!r}) is empty; "
                        "every action must lead somewhere"
                    )
                for s in reached:
                    if s not in seen:
                        seen.add(s)
                        states.append(s)
            if len(states) > max_states:
                raise ValueError(
                    f"more than max_states={max_states} states are reachable within "
                    f"{horizon} steps; raise max_states or shorten the horizon"
                )
    return states, acting, table


def flatten_rows(
    rows: Mapping[tuple[int, int], Mapping[int, float]],
) -> tuple[Array, Array, Array, int, int]:
    """(group, successor, probability, n_states, n_actions) of a dict of rows."""
    for key, row in rows.items():
        if not (isinstance(key, tuple) and len(key) == 2):
            raise ValueError(f"rows has the key {key!r}; keys must be pairs (s, a)")
        if not row:
            raise ValueError(f"transition row (s={key[0]}, a={key[1]}) is empty")
        for number in (*key, *row):
            try:
                bad = index(number) < 0
            except TypeError:
                bad = True
            if bad:
                raise ValueError(
                    f"transition row {key!r} names {number!r}; states and actions must be "
                    "whole numbers from 0 (for other states use from_functions)"
                )
    n_actions = 1 + max(a for _, a in rows)
    n_states = 1 + max(max(s, *row) if len(row) else s for (s, _), row in rows.items())
    for s in range(n_states):
        for a in range(n_actions):
            if (s, a) not in rows:
                raise ValueError(f"transition row (s={s}, a={a}) is missing")
    triples = [
        (s * n_actions + a, s2, float(rows[s, a][s2]))
        for s in range(n_states)
        for a in range(n_actions)
        for s2 in sorted(rows[s, a])
    ]
    group, successors, weights = zip(*triples, strict=True)
    return np.array(group), np.array(successors), np.array(weights), n_states, n_actions


def assemble(
    group: Array,
    successors: Array,
    probability: Array,
    n_states: int,
    n_actions: int,
    reward: Any,
    horizon: int,
    initial_state: Any,
    names: dict[str, Any],
) -> FiniteMDP:
    """A FiniteMDP from sorted triples; `names` may hold further fields."""
    allowed = {"local", "name", "states", "actions", "reward_range"}
    if extra := set(names) - allowed:
        raise TypeError(f"unknown argument {min(extra)!r}; allowed are {sorted(allowed)}")
    sizes = np.bincount(group, minlength=n_states * n_actions)
    if (sizes == 0).any():
        s, a = divmod(int(np.argmax(sizes == 0)), n_actions)
        raise ValueError(f"transition row (s={s}, a={a}) sums to 0; it must sum to 1")
    task = Task(
        n_states=n_states,
        n_actions=n_actions,
        horizon=horizon,
        indptr=np.concatenate([[0], np.cumsum(sizes)]),
        successors=successors,
        reward=checked_reward(reward, n_states, n_actions, horizon).copy(),
        support="known",
        states=names.get("states"),
        actions=names.get("actions"),
    )
    starts, weights = initial_distribution(initial_state, n_states)
    return FiniteMDP(
        task, probability, starts, weights, names.get("local"), names.get("name", "mdp"),
        names.get("reward_range", (0.0, 1.0)),
    )  # fmt: skip
