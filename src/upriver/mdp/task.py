"""Finite-horizon MDPs on one row per reachable triple, and the part of them a learner may see.

A triple is (s, a, s') with s' in the reachable set S_{s,a}. Triples are ordered by (s, a) and then
by s'; `indptr` (S*A + 1,) says where the rows of g = s * n_actions + a begin, and `successors` (n,)
holds s'. Probabilities, features, counts and widths are arrays aligned with these rows, so memory
is O(reachable triples) and never S x A x S.

`Task` is what the paper calls known: states, actions, horizon, reward and reachable sets.
`FiniteMDP` adds the true probabilities. Agents receive a Task, and so cannot look.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from upriver.checks import (
    Array,
    checked_support,
    positive_integer,
    readable,
    shown,
    support_from_sets,
)
from upriver.display import Card, displayed
from upriver.mdp import declaring, units
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
    """(S, A) or (H, S, A) in the user's units; None when rewards are unknown, to be learned."""
    support: str = "explicit"
    """Where the reachable sets come from: known, local, full or explicit."""
    states: Sequence[Hashable] | None = None
    """The user's name of each state, where the states are not just numbers."""
    actions: Sequence[Hashable] | None = None
    """The user's name of each action."""
    next_state_reward: Array | None = None
    """(1 or H, n) what each triple pays beside `reward`, where the reward depends on s'."""
    terminal: Array | None = None
    """(S,) what it is worth to be in each state after the last step."""
    reward_range: tuple[float, float] | None = None
    """Bounds of one reward, which learners count on; [0, 1] or those of the rewards unless given.
    Has to be said where rewards are unknown and leave [0, 1]."""
    discount: float | None = None
    """None where an episode ends after `horizon` steps. Else there is no last step, `horizon` is 1
    because all steps are alike, and 1 stands for the average reward."""

    from_successors = staticmethod(declaring.from_successors)
    from_seen = staticmethod(declaring.from_seen)

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        if self.horizon is None or (self.discount is not None and self.horizon != 1):
            put("discount", declaring.checked_discount(self.horizon, self.discount))
            put("horizon", 1)
        elif self.discount is not None and not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount is {self.discount!r}; it must be at least 0 and at most 1")
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
            put("reward", units.checked_rewards(self, self.reward))
        if self.next_state_reward is not None:
            if self.reward is None:
                raise ValueError(
                    "next_state_reward is part of the reward; it must be None where reward is"
                )
            put("next_state_reward", units.checked_next_state_reward(self, self.next_state_reward))
        if self.terminal is not None:
            if self.infinite_horizon:
                raise ValueError("terminal is given, and there is no last step; it must be None")
            put("terminal", units.checked_terminal(self, self.terminal))
        put("reward_range", units.checked_range(self, self.reward_range))

    def pair(self, group: int, step: int | None = None) -> str:
        """(s, a) of a group by name, as errors say it."""
        s, a = divmod(int(group), self.n_actions)
        at = "" if step is None else f"h={step}, "
        return f"({at}s={self.state_names[s]!r}, a={self.action_names[a]!r})"

    @cached_property
    def infinite_horizon(self) -> bool:
        """Whether there is no last step."""
        return self.discount is not None

    @cached_property
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
    def n_squares(self) -> int:
        """How many numbers these matrices have in all."""
        return int(self.square_start[-1])

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
        """(1 or H, S*A) the known reward as agents plan with it, on the scale of [0, 1]."""
        return self.units.to_unit_scale(self.paid_rows[0])

    @cached_property
    def next_state_reward_rows(self) -> Array:
        """(1 or H, n or 0) what triples pay beside it, on the scale of [0, 1]."""
        if self.reward is None or self.next_state_reward is None:
            return np.empty((1, 0))
        return self.next_state_reward / self.units.unit

    @cached_property
    def terminal_row(self) -> Array:
        """(S,) the terminal values from 0 on, on the scale of [0, 1]."""
        if self.terminal is None:
            return np.zeros(self.n_states)
        return (self.terminal - self.terminal.min()) / self.units.unit

    @cached_property
    def paid_rows(self) -> tuple[Array, Array]:
        """(1 or H, S*A) `reward` and (1 or H, n or 0) `next_state_reward` as kernels read them."""
        if self.reward is None:
            raise ValueError("this task has no known reward; it was made with reward=None")
        reward = readable(self.reward).reshape(-1, self.n_states * self.n_actions)
        return reward, np.empty((1, 0)) if self.next_state_reward is None else readable(
            self.next_state_reward
        )

    @cached_property
    def units(self) -> units.Units:
        """How the scale on which agents plan lies in the user's units."""
        return units.units_of(self)

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

    def refuse_step(self, h: int, s: int, a: int, s2: int) -> None:
        """Say that step h of an episode went where the task has nothing."""
        listed = [self.state_names[i] for i in self.successors[self.rows(s, a)]]
        raise ValueError(
            f"step {h} of the episode went from {self.pair(s * self.n_actions + a)} to "
            f"{self.state_names[s2]!r}, which is not among the declared successors "
            f"{shown(listed)}; `task.with_seen` declares what was met"
        )

    def with_seen(self, seen: Iterable[tuple[Any, Any, Any]]) -> Task:
        """The same task, in which the transitions (s, a, s') of `seen`, by name, can happen too."""
        sets = [set(self.successors[self.rows(s, a)].tolist()) for s, a in np.ndindex(
            self.n_states, self.n_actions)]  # fmt: skip
        for s, a, s2 in declaring.transitions_of(seen):
            g = self.state_names.number(s) * self.n_actions + self.action_names.number(a)
            sets[g].add(self.state_names.number(s2))
        support = support_from_sets(sets, self.n_states, self.n_actions)
        next_state_reward = units.realigned(self, support)
        return replace(
            self,
            indptr=support[0],
            successors=support[1],
            support="explicit",
            next_state_reward=next_state_reward,
        )

    def same_support(self, other: Task) -> bool:
        """Whether the rows of both tasks mean the same triples."""
        return self is other or (
            self.n_actions == other.n_actions
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.successors, other.successors)
        )

    def with_unknown_reward(self) -> Task:
        """The same task with its rewards hidden."""
        return replace(self, reward=None, next_state_reward=None)

    def describe(self) -> str:
        unknown = "" if self.reward is not None else ", unknown reward"
        ends = f"horizon {self.horizon}"
        if self.discount is not None:
            ends = f"discount {self.discount:g}" if self.discount < 1.0 else "average reward"
        return (
            f"{self.n_states} states, {self.n_actions} actions, {ends}, "
            f"{self.n_triples} triples, support {self.support}{unknown}"
        )

    def card(self) -> Card:
        facts = {
            "states": self.n_states,
            "actions": self.n_actions,
            **({"horizon": self.horizon} if self.discount is None else {"discount": self.discount}),
            "triples": self.n_triples,
            "support": self.support,
        }
        if self.reward is None:
            facts["reward"] = "unknown"
        for what in ("states", "actions"):
            if (names := getattr(self, what)) is not None:
                facts[f"{what} named"] = few(names)
        return Card(facts, brief=f"{self.n_states} states x {self.n_actions} actions")
