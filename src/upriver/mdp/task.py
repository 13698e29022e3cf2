"""Finite-horizon MDPs on one row per reachable triple, and the part of them a learner may see.

A triple is (s, a, s') with s' in the reachable set S_{s,a}. Triples are ordered by (s, a) and then
by s'; `indptr` (S*A + 1,) says where the rows of g = s * n_actions + a begin, and `successors` (n,)
holds s'. Probabilities, features, counts and widths are arrays aligned with these rows, so memory
is O(reachable triples) and never S x A x S.

`Task` is what the paper calls known: states, actions, horizon, reward and reachable sets.
`FiniteMDP` adds the true probabilities. Agents receive a Task, and so cannot look.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from upriver.checks import (
    Array,
    checked_reward,
    checked_support,
    positive_integer,
    support_from_sets,
)
from upriver.display import Card, displayed
from upriver.mdp.names import Names, checked_names, few

MOST = 10**10  # steps times states: 80 GB of values


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """What a learner is told about an MDP. Build one with `FiniteMDP.task`, or directly."""

    n_states: int
    n_actions: int
    horizon: int
    indptr: Array
    """(S*A + 1,) where the successors of each (s, a) begin; an action that a state does not have
    has none."""
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
        put = partial(object.__setattr__, self)
        for name in ("n_states", "n_actions", "horizon"):
            put(name, positive_integer(name, getattr(self, name)))
        if self.horizon * max(self.n_states, self.n_actions) > MOST:
            raise ValueError(
                f"horizon {self.horizon} times {self.n_states} states and {self.n_actions} actions "
                f"is more than {MOST:.0e} steps and states, which no plan can hold"
            )
        for name, size in (("states", self.n_states), ("actions", self.n_actions)):
            put(name, checked_names(name, getattr(self, name), size))
        support = checked_support(
            (self.indptr, self.successors), self.n_states, self.n_actions, self.pair
        )
        put("indptr", support[0])
        put("successors", support[1])
        if self.reward is not None:
            named = None if self.states is None and self.actions is None else self.pair
            put("reward", checked_reward(
                self.reward, self.n_states, self.n_actions, self.horizon, self.available, named
            ))  # fmt: skip

    def pair(self, group: int, step: int | None = None) -> str:
        """(s, a) of a group by name, as errors say it."""
        s, a = divmod(int(group), self.n_actions)
        at = "" if step is None else f"h={step}, "
        return f"({at}s={self.state_names[s]!r}, a={self.action_names[a]!r})"

    @property
    def n_triples(self) -> int:
        return len(self.successors)

    @cached_property
    def sizes(self) -> Array:
        """(S*A,) the number of successors of each (s, a)."""
        return np.diff(self.indptr)

    @cached_property
    def available(self) -> Array:
        """(S, A) which actions each state has."""
        return (self.sizes > 0).reshape(self.n_states, self.n_actions)

    @cached_property
    def first_rows(self) -> Array:
        """The first row of each pair that exists."""
        return self.indptr[:-1][self.sizes > 0]

    def by_pair(self, rows: Array, reduce: np.ufunc = np.add) -> Array:
        """(..., S*A) the sum, or another `reduce`, of rows (..., n) over each pair; 0 for none."""
        found = reduce.reduceat(rows, self.first_rows, axis=-1)
        if len(self.first_rows) == len(self.sizes):
            return found
        whole = np.zeros((*found.shape[:-1], len(self.sizes)), found.dtype)
        whole[..., self.sizes > 0] = found
        return whole

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
        # A copy that could be written to: kernels are compiled once more for arrays that cannot.
        return self.reward.reshape(-1, self.n_states * self.n_actions).copy()

    @cached_property
    def state_names(self) -> Names:
        return Names("state", self.n_states, self.states)

    @cached_property
    def action_names(self) -> Names:
        return Names("action", self.n_actions, self.actions)

    def rows(self, state: int, action: int) -> slice:
        """The rows of the triples of (state, action)."""
        if not (0 <= state < self.n_states and 0 <= action < self.n_actions):
            raise ValueError(
                f"(s={state}, a={action}) is not in a task with {self.n_states} states and "
                f"{self.n_actions} actions"
            )
        g = state * self.n_actions + action
        return slice(int(self.indptr[g]), int(self.indptr[g + 1]))

    def rows_of(self, state: Any, action: Any) -> slice:
        """The rows of the triples of (state, action), by their names."""
        return self.rows(self.state_names.number(state), self.action_names.number(action))

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
        actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
        successors: Callable[[Any, Any], Iterable[Any]],
        horizon: int,
        reward: Callable[[Any, Any], float] | None = None,
    ) -> Task:
        """What is known of a simulator: its states, its actions and where each pair may lead.

        actions: a list, or a function from a state to the actions that it has.
        reward: a function (s, a) -> [0, 1]; None when the rewards must be learned. A state where
        episodes end is its own only successor and pays nothing.
        """
        states, of_state = list(states), actions_of(actions)
        if len(set(states)) != len(states) or not states:
            raise ValueError("states must be distinct, and at least one")
        number = {s: i for i, s in enumerate(states)}
        has = [set(of_state(s)) for s in states]
        actions = list(dict.fromkeys(a for s in states for a in of_state(s)))
        sets: list[set[int]] = []
        for s, a in product(states, actions):
            reached = list(successors(s, a)) if a in has[number[s]] else []
            if a in has[number[s]] and not reached:
                raise ValueError(
                    f"successors({s!r}, {a!r}) is empty; every action must lead somewhere"
                )
            for s2 in reached:
                if s2 not in number:
                    raise ValueError(
                        f"successors({s!r}, {a!r}) names {s2!r}, which is not among the states"
                    )
            sets.append({number[s2] for s2 in reached})
        indptr, flat = support_from_sets(sets, len(states), len(actions))
        table = None
        if reward is not None:
            table = np.array([
                [reward(s, a) if a in has[i] else 0.0 for a in actions]
                for i, s in enumerate(states)
            ])  # fmt: skip
        return Task(
            len(states), len(actions), horizon, indptr, flat, table, states=states, actions=actions
        )

    def describe(self) -> str:
        unknown = "" if self.reward is not None else ", unknown reward"
        return (
            f"{self.n_states} states, {self.n_actions} actions, horizon {self.horizon}, "
            f"{self.n_triples} triples, support {self.support}{unknown}"
        )

    def card(self) -> Card:
        facts = {
            "states": self.n_states,
            "actions": self.n_actions,
            "horizon": self.horizon,
            "triples": self.n_triples,
            "support": self.support,
        }
        if self.reward is None:
            facts["reward"] = "unknown"
        for what in ("states", "actions"):
            if (names := getattr(self, what)) is not None:
                facts[f"{what} named"] = few(names)
        return Card(facts, brief=f"{self.n_states} states x {self.n_actions} actions")


def actions_of(actions: Any) -> Callable[[Any], list[Any]]:
    """A function from a state to its actions, from one, or from a list that is for all states."""
    everywhere = [] if callable(actions) else list(actions)
    function: Any = actions if callable(actions) else lambda _: everywhere

    def of_state(state: Any) -> list[Any]:
        found = list(function(state))
        if not found or len(set(found)) != len(found):
            name = "actions" if function is not actions else f"actions({state!r})"
            wrong = "names an action twice" if found else "is empty"
            raise ValueError(f"{name} {wrong}; actions must be distinct, and at least one")
        return found

    return of_state
