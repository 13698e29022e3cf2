"""Finite-horizon MDPs on one row per reachable triple, and the part of them a learner may see.

A triple is (s, a, s') with s' in the reachable set S_{s,a}. Triples are ordered by (s, a) and then
by s'; `indptr` (S*A + 1,) says where the rows of g = s * n_actions + a begin, and `successors` (n,)
holds s'. Probabilities, features, counts and widths are arrays aligned with these rows, so memory
is O(reachable triples) and never S x A x S.

`Task` is what the paper calls known: states, actions, horizon, reward and reachable sets.
`FiniteMDP` adds the true probabilities. Agents receive a Task, and so cannot look.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    Array,
    Support,
    as_float,
    check_covers,
    check_entries,
    check_initial,
    check_probabilities,
    checked_reward,
    checked_support,
    initial_distribution,
    positive_integer,
    support_from_sets,
)


@dataclass(frozen=True, eq=False)
class Task:
    """What a learner is told about an MDP. Build one with `FiniteMDP.task`, or directly."""

    n_states: int
    n_actions: int
    horizon: int
    indptr: Array
    """(S*A + 1,) where the successors of each (s, a) begin."""
    successors: Array
    """(n,) the states believed reachable, ascending within each (s, a)."""
    reward: Array | None = None
    """(S, A) or (H, S, A) in [0, 1]; None when the rewards are unknown and must be learned."""
    support: str = "explicit"
    """Where the reachable sets come from: known, local, full or explicit."""
    states: Sequence[Hashable] | None = None
    """The user's name of each state, where the states are not just numbers."""
    actions: Sequence[Hashable] | None = None
    """The user's name of each action."""

    def __post_init__(self) -> None:
        for name in ("n_states", "n_actions", "horizon"):
            object.__setattr__(self, name, positive_integer(name, getattr(self, name)))
        indptr, successors = checked_support(
            (self.indptr, self.successors), self.n_states, self.n_actions
        )
        object.__setattr__(self, "indptr", indptr)
        object.__setattr__(self, "successors", successors)
        if self.reward is not None:
            reward = checked_reward(self.reward, self.n_states, self.n_actions, self.horizon)
            object.__setattr__(self, "reward", reward)
        for name, size in (("states", self.n_states), ("actions", self.n_actions)):
            labels = getattr(self, name)
            if labels is not None and len(labels) != size:
                raise ValueError(f"{name} has {len(labels)} names; there must be {size}")

    @property
    def n_triples(self) -> int:
        return len(self.successors)

    @cached_property
    def sizes(self) -> Array:
        """(S*A,) the number of successors of each (s, a)."""
        return np.diff(self.indptr)

    @cached_property
    def square_start(self) -> Array:
        """(S*A + 1,) where a flat U x U matrix for each (s, a) begins, U its successors."""
        return np.concatenate([[0], np.cumsum(self.sizes**2)])

    @cached_property
    def max_successors(self) -> int:
        """U, the largest reachable set."""
        return int(self.sizes.max())

    @cached_property
    def triples(self) -> tuple[Array, Array, Array]:
        """(s, a, s') of every row, three arrays (n,)."""
        group = np.repeat(np.arange(self.n_states * self.n_actions), self.sizes)
        return group // self.n_actions, group % self.n_actions, self.successors

    @cached_property
    def reward_rows(self) -> Array:
        """(1 or H, S*A) the known reward, as the planning kernels read it."""
        if self.reward is None:
            raise ValueError("this task has no known reward; it was made with reward=None")
        return self.reward.reshape(-1, self.n_states * self.n_actions)

    def rows(self, state: int, action: int) -> slice:
        """The rows of the triples of (state, action)."""
        if not (0 <= state < self.n_states and 0 <= action < self.n_actions):
            raise ValueError(
                f"(s={state}, a={action}) is not in a task with {self.n_states} states and "
                f"{self.n_actions} actions"
            )
        g = state * self.n_actions + action
        return slice(int(self.indptr[g]), int(self.indptr[g + 1]))

    def same_support(self, other: Task) -> bool:
        """Whether the rows of both tasks mean the same triples."""
        return self is other or (
            self.n_actions == other.n_actions
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.successors, other.successors)
        )

    def with_unknown_reward(self) -> Task:
        """The same task with its rewards hidden."""
        return replace(self, reward=None)

    @staticmethod
    def from_successors(
        states: Iterable[Hashable],
        actions: Iterable[Hashable],
        successors: Callable[[Any, Any], Iterable[Any]],
        horizon: int,
        reward: Callable[[Any, Any], float] | None = None,
    ) -> Task:
        """What is known of a simulator: its states, its actions and where each pair may lead.

        reward: a function (s, a) -> [0, 1]; None when the rewards must be learned. A state where
        episodes end is its own only successor and pays nothing.
        """
        states, actions = list(states), list(actions)
        number = {s: i for i, s in enumerate(states)}
        for name, given in (("states", states), ("actions", actions)):
            if len(set(given)) != len(given) or not given:
                raise ValueError(f"{name} must be distinct, and at least one")
        sets = []
        for s in states:
            for a in actions:
                reached = list(successors(s, a))
                for s2 in reached:
                    if s2 not in number:
                        raise ValueError(
                            f"successors({s!r}, {a!r}) names {s2!r}, which is not among the states"
                        )
                sets.append({number[s2] for s2 in reached})
        indptr, flat = support_from_sets(sets, len(states), len(actions))
        table = None
        if reward is not None:
            table = np.array([[reward(s, a) for a in actions] for s in states])
        return Task(
            len(states), len(actions), horizon, indptr, flat, table, states=states, actions=actions
        )

    def describe(self) -> str:
        return (
            f"{self.n_states} states, {self.n_actions} actions, horizon {self.horizon}, "
            f"{self.n_triples} triples, support {self.support}"
        )


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite-horizon MDP: a task whose support is the true one, and the probabilities."""

    known: Task
    """The task with the true reachable sets."""
    probability: Array
    """(1 or H, n) probability of every triple of `known`."""
    initial_states: Array
    """(m,) states where an episode may start."""
    initial_probability: Array
    """(m,) their probabilities."""
    local: Support | None = None
    """The reachable sets a person would write down, a superset of the true ones."""
    name: str = "mdp"
    reward_range: tuple[float, float] = (0.0, 1.0)
    """What the rewards 0 and 1 are in the user's own units, see `in_units`."""

    def __post_init__(self) -> None:
        task = self.known
        probability = np.ascontiguousarray(np.atleast_2d(self.probability), dtype=np.float64)
        if probability.shape not in {(1, task.n_triples), (task.horizon, task.n_triples)}:
            raise ValueError(
                f"probability has shape {probability.shape}; with {task.n_triples} triples and "
                f"horizon {task.horizon} it must be (1, {task.n_triples}) or "
                f"({task.horizon}, {task.n_triples})"
            )
        check_probabilities(probability, task)
        object.__setattr__(self, "probability", probability)
        states = np.ascontiguousarray(self.initial_states, dtype=np.int64)
        weights = np.ascontiguousarray(self.initial_probability, dtype=np.float64)
        check_initial(states, weights, task.n_states)
        object.__setattr__(self, "initial_states", states)
        object.__setattr__(self, "initial_probability", weights)
        if self.local is not None:
            local = checked_support(self.local, task.n_states, task.n_actions)
            check_covers(local, task, "local")
            object.__setattr__(self, "local", local)
        low, high = map(float, self.reward_range)
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"reward_range is {self.reward_range!r}; it must be (low, high)")
        object.__setattr__(self, "reward_range", (low, high))

    @property
    def n_states(self) -> int:
        return self.known.n_states

    @property
    def n_actions(self) -> int:
        return self.known.n_actions

    @property
    def horizon(self) -> int:
        return self.known.horizon

    @property
    def reward(self) -> Array:
        """(S, A) or (H, S, A)."""
        assert self.known.reward is not None
        return self.known.reward

    def task(self, support: str | Iterable[Iterable[int]] = "known") -> Task:
        """The learner's view, with no way to the probabilities.

        support: "known", the true reachable sets; "local", the superset that the environment
        declares; "full", all states; or explicit sets, one for each (s, a) in the order
        s * n_actions + a, each a superset of the true one.
        """
        task = self.known
        if not isinstance(support, str):
            explicit = support_from_sets(support, task.n_states, task.n_actions)
            check_covers(explicit, task, "support")
            return replace(task, indptr=explicit[0], successors=explicit[1], support="explicit")
        if support == "known":
            return task
        if support == "full":
            groups = task.n_states * task.n_actions
            return replace(
                task,
                indptr=np.arange(groups + 1, dtype=np.int64) * task.n_states,
                successors=np.tile(np.arange(task.n_states, dtype=np.int32), groups),
                support="full",
            )
        if support == "local":
            if self.local is None:
                raise ValueError(
                    f"{self.name} declares no local support; use 'known', 'full' or explicit sets"
                )
            return replace(task, indptr=self.local[0], successors=self.local[1], support="local")
        raise ValueError(
            f"support {support!r} is unknown; it must be 'known', 'local', 'full' or explicit sets"
        )

    def in_units(self, total: ArrayLike) -> Any:
        """Sums of the H rewards of an episode, such as returns and values, in the user's units."""
        low, high = self.reward_range
        return self.horizon * low + (high - low) * np.asarray(total)

    def save(self, path: Any) -> None:
        """Write the MDP to a file: .npz, or .toml with a .csv of its transitions beside it."""
        from upriver.saving import save_mdp

        save_mdp(self, path)

    @staticmethod
    def load(path: Any) -> FiniteMDP:
        """Read what `save` wrote, or what a person wrote in the same .toml and .csv form."""
        from upriver.saving import load_mdp

        return load_mdp(path)

    @staticmethod
    def from_arrays(
        transition: ArrayLike,
        reward: ArrayLike,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From dense probabilities, (S, A, S) or (H, S, A, S); zeros are not reachable.

        initial_state is a state, or a distribution (S,). `names` are `local`, `name`, `states`,
        `actions` and `reward_range` of the fields.
        """
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

    @staticmethod
    def from_sparse(
        transition: Any,
        reward: ArrayLike,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From a scipy.sparse matrix (S*A, S) whose row s*A + a is P(. | s, a)."""
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

    @staticmethod
    def from_rows(
        rows: Mapping[tuple[int, int], Mapping[int, float]],
        reward: Any,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From {(s, a): {s2: p}}; reward is an array (S, A) or {(s, a): r}, absent meaning 0."""
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

    @staticmethod
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
        """From functions of the user's own states, any hashable values.

        Only the closure is listed: what can be reached from the start within `horizon` steps, so
        the state space itself may be far too large to list. A state first met after the last
        action never acts; its rows stay where they are and pay nothing. `start` is a state, or a
        mapping from states to probabilities.
        """
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
        return FiniteMDP.from_rows(
            rows, rewards, horizon, initial, states=states, actions=actions, name=name
        )


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
