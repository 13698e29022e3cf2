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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    Array,
    Support,
    check_covers,
    check_initial,
    check_probabilities,
    checked_reward,
    checked_support,
    positive_integer,
    support_from_sets,
)


@dataclass(frozen=True, eq=False, repr=False)
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
        unknown = "" if self.reward is not None else ", unknown reward"
        return (
            f"{self.n_states} states, {self.n_actions} actions, horizon {self.horizon}, "
            f"{self.n_triples} triples, support {self.support}{unknown}"
        )

    def __repr__(self) -> str:
        return f"Task({self.describe()})"


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        return f"FiniteMDP({self.name}: {self.known.describe()})"

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
        from upriver import building

        return building.from_arrays(transition, reward, horizon, initial_state, **names)

    @staticmethod
    def from_sparse(
        transition: Any,
        reward: ArrayLike,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From a scipy.sparse matrix (S*A, S) whose row s*A + a is P(. | s, a)."""
        from upriver import building

        return building.from_sparse(transition, reward, horizon, initial_state, **names)

    @staticmethod
    def from_rows(
        rows: Mapping[tuple[int, int], Mapping[int, float]],
        reward: Any,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From {(s, a): {s2: p}}; reward is an array (S, A) or {(s, a): r}, absent meaning 0."""
        from upriver import building

        return building.from_rows(rows, reward, horizon, initial_state, **names)

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
        from upriver import building

        return building.from_functions(
            start, actions, successors, probability, reward, horizon, max_states, name
        )
