"""The part of an MDP that a learner may see, stored with one row per reachable triple.

A triple is (s, a, s') with s' in the reachable set S_{s,a}. Triples are ordered by (s, a) and then
by s'. The pair (s, a) has the number s * n_actions + a; `indptr` (S*A + 1,) says where its rows
begin, and `successors` (n,) holds s'. Probabilities, features and counts are arrays aligned with
these rows, so that memory is O(reachable triples) and never S x A x S.

`Task` is what the paper calls known: states, actions, horizon, reward and reachable sets.
`FiniteMDP` adds the true probabilities. Agents receive a Task, which does not contain them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from upriver.checks import Array, check_kinds, format_value, kernel_view, positive_integer
from upriver.display import Card, add_repr
from upriver.mdp import declaring, validation
from upriver.mdp.names import Names, abbreviate, check_names
from upriver.mdp.units import Units, make_units

MAX_PLAN_SIZE = 10**10
"""The largest number of steps times states: 80 GB of values."""


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """What a learner may know about an MDP.

    Build one with `FiniteMDP.task` or `Task.from_successors`. Rewards are in the user's units; n is
    the number of triples.
    """

    n_states: int
    n_actions: int
    horizon: int
    """Steps of an episode; 1 with an infinite horizon, because all steps are alike."""
    indptr: Array
    """(S*A + 1,) where the successors of each pair begin; a pair without successors does not
    exist: the state does not have that action."""
    successors: Array
    """(n,) the states that are declared reachable, ascending within each pair."""
    reward: Array | None = None
    """(S, A) or (H, S, A) reward; None when rewards are unknown and must be learned."""
    support: str = "explicit"
    """Where the reachable sets come from: "known", "local", "full" or "explicit"."""
    states: Sequence[Hashable] | None = None
    """The user's name of each state; None where the states are just numbers."""
    actions: Sequence[Hashable] | None = None
    """The user's name of each action."""
    next_state_reward: Array | None = None
    """(1 or H, n) reward of each triple in addition to `reward`, where it depends on s'."""
    terminal: Array | None = None
    """(S,) value of being in each state after the last step."""
    reward_range: tuple[float, float] | None = None
    """Bounds of one reward, which learners rely on. The default is [0, 1], or the range of the
    known rewards where they leave it. Unknown rewards outside [0, 1] need it."""
    discount: float | None = None
    """None where an episode ends after `horizon` steps. Otherwise the horizon is infinite; 1 stands
    for the average reward."""

    partial_reward: Array | None = None
    """(n,) the rewards of single triples that are known although `reward` is None; NaN where they
    must be learned."""

    from_successors = staticmethod(declaring.from_successors)

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        if self.horizon is None or (self.discount is not None and self.horizon != 1):
            put("discount", validation.check_discount(self.horizon, self.discount))
            put("horizon", 1)
        elif self.discount is not None and not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount is {self.discount!r}; it must be at least 0 and at most 1")
        for name in ("n_states", "n_actions", "horizon"):
            put(name, positive_integer(name, getattr(self, name)))
        if self.horizon * max(self.n_states, self.n_actions) > MAX_PLAN_SIZE:
            size = f"horizon {self.horizon}, {self.n_states} states and {self.n_actions} actions"
            raise ValueError(f"no plan can hold {size}: more than {MAX_PLAN_SIZE:.0e} entries")
        for name, size in (("states", self.n_states), ("actions", self.n_actions)):
            put(name, check_names(name, getattr(self, name), size))
        indptr, successors = validation.check_support((self.indptr, self.successors), self)
        put("indptr", indptr)
        put("successors", successors)
        if self.next_state_reward is not None and self.reward is None:
            raise ValueError("next_state_reward must be None where reward is None")
        if self.partial_reward is not None and self.reward is not None:
            raise ValueError("partial_reward must be None where reward is known")
        if self.terminal is not None and self.infinite_horizon:
            raise ValueError("terminal is given, but the horizon is infinite; it must be None")
        for name in ("reward", "next_state_reward", "partial_reward", "terminal"):
            if getattr(self, name) is not None:
                put(name, validation.check_rewards(self, name))
        put("reward_range", validation.check_reward_range(self, self.reward_range))

    def describe_pair(self, pair: int, step: int | None = None) -> str:
        """Return the names of pair number s * n_actions + a as errors show them."""
        s, a = divmod(int(pair), self.n_actions)
        at = "" if step is None else f"h={step}, "
        return f"({at}s={self.state_names[s]!r}, a={self.action_names[a]!r})"

    @cached_property
    def infinite_horizon(self) -> bool:
        """Whether the horizon is infinite: a discount, or the average reward."""
        return self.discount is not None

    @cached_property
    def n_triples(self) -> int:
        """The number n of reachable triples (s, a, s')."""
        return len(self.successors)

    @cached_property
    def sizes(self) -> Array:
        """(S*A,) the number of successors of each pair."""
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
        """Return the sum, or `reduce`, of rows (..., n) over each pair (..., S*A); 0 for none."""
        found = reduce.reduceat(rows, self.first_rows, axis=-1)
        if len(self.first_rows) == len(self.sizes):
            return found
        every = np.zeros((*found.shape[:-1], len(self.sizes)), found.dtype)
        every[..., self.sizes > 0] = found
        return every

    @cached_property
    def square_start(self) -> Array:
        """(S*A + 1,) where the flat matrix of each pair begins, one row and column a successor."""
        return np.concatenate([[0], np.cumsum(self.sizes**2)])

    @cached_property
    def kernel_rows(self) -> tuple[Array, Array]:
        """`indptr` and `successors` as unsigned numbers, see `kernels.planning`."""
        return self.indptr.astype(np.uint32), kernel_view(self.successors).view(np.uint32)

    @cached_property
    def max_successors(self) -> int:
        """U, the size of the largest reachable set."""
        return int(self.sizes.max())

    @cached_property
    def triples(self) -> tuple[Array, Array, Array]:
        """(s, a, s') of every row, three arrays (n,)."""
        pairs = np.repeat(np.arange(self.n_states * self.n_actions), self.sizes)
        return pairs // self.n_actions, pairs % self.n_actions, self.successors

    @cached_property
    def triple_keys(self) -> Array:
        """(n,) the number (s * A + a) * S + s' of every row, ascending."""
        return validation.triple_keys(self.indptr, self.successors, self.n_states)

    @cached_property
    def units(self) -> Units:
        """How the unit scale on which agents plan lies in the user's units."""
        return make_units(self)

    @cached_property
    def user_rewards(self) -> tuple[Array, Array]:
        """(1 or H, S*A) `reward` and (1 or H, n or 0) `next_state_reward` as kernels read them.

        They are in the user's units; the second has no columns where the reward is r(s, a).
        """
        if self.reward is None:
            raise ValueError("this task has no known reward; it was made with reward=None")
        reward = kernel_view(self.reward).reshape(-1, self.n_states * self.n_actions)
        if self.next_state_reward is None:
            return reward, np.empty((1, 0))
        return reward, kernel_view(self.next_state_reward)

    @cached_property
    def ends(self) -> Array:
        """(S,) the states where episodes end: no action leaves them, and all known rewards are 0.

        False everywhere where rewards are unknown, since a state that is never left may pay.
        """
        if self.reward is None or self.infinite_horizon:
            return np.zeros(self.n_states, bool)
        reward, extra = self.user_rewards
        rewards = np.repeat(reward, self.sizes, axis=1)
        if extra.size:
            rewards = rewards + extra
        most = np.abs(rewards, out=rewards).max(axis=0)
        paid = most > 1e-12 * most.max()
        numbers = np.arange(self.n_states, dtype=np.int32)  # half of the memory of row numbers
        state = np.repeat(numbers, np.diff(self.indptr[:: self.n_actions]))
        ends = np.ones(self.n_states, bool)
        ends[state[(state != self.successors) | paid]] = False
        return ends

    @cached_property
    def least_addition(self) -> Array:
        """(1 or H, S*A) the least of `next_state_reward` in each pair.

        Agents have it in `reward_rows`: what is left for the triples is then the same whatever
        constant the rewards contain, and so is the play of learners that regress on it.
        """
        assert self.next_state_reward is not None
        return self.by_pair(self.next_state_reward, np.minimum)

    @cached_property
    def reward_rows(self) -> Array:
        """(1 or H, S*A) the known reward as agents plan with it, on the unit scale."""
        reward = self.user_rewards[0]
        if self.next_state_reward is not None:
            reward = reward + self.least_addition
        return self.units.to_unit_scale(reward)

    @cached_property
    def next_state_reward_rows(self) -> Array:
        """(1 or H, n or 0) what each triple adds to `reward_rows`, at least 0."""
        if self.reward is None or self.next_state_reward is None:
            return np.empty((1, 0))
        least = np.repeat(self.least_addition, self.sizes, axis=1)
        return (self.next_state_reward - least) / self.units.unit

    @cached_property
    def terminal_row(self) -> Array:
        """(S,) the terminal values on the unit scale; the smallest is 0."""
        if self.terminal is None:
            return np.zeros(self.n_states)
        return (self.terminal - self.terminal.min()) / self.units.unit

    @cached_property
    def state_names(self) -> Names:
        """The names of the states."""
        return Names("state", self.n_states, self.states)

    @cached_property
    def action_names(self) -> Names:
        """The names of the actions."""
        return Names("action", self.n_actions, self.actions)

    @check_kinds
    def rows(self, state: int, action: int) -> slice:
        """Return the rows of the triples of (state, action), which are numbers."""
        if not (0 <= state < self.n_states and 0 <= action < self.n_actions):
            raise ValueError(f"(s={state}, a={action}) is not in a task with {self.describe()}")
        pair = state * self.n_actions + action
        return slice(int(self.indptr[pair]), int(self.indptr[pair + 1]))

    def rows_of(self, state: Any, action: Any) -> slice:
        """Return the rows of the triples of (state, action), which are names."""
        return self.rows(self.state_names.number(state), self.action_names.number(action))

    def refuse_step(self, h: int, states: Array, actions: Array) -> None:
        """Raise the error for step h of an episode that left the declared support."""
        s, a, s2 = int(states[h]), int(actions[h]), int(states[h + 1])
        listed = [self.state_names[i] for i in self.successors[self.rows(s, a)]]
        raise ValueError(
            f"step {h} of the episode went from {self.describe_pair(s * self.n_actions + a)} to "
            f"{self.state_names[s2]!r}, which is not among the declared successors "
            f"{format_value(listed)}; declare it as one of them"
        )

    def with_support(self, support: tuple[Array, Array], source: str) -> Task:
        """Return the same task with a larger support (indptr, successors) that `source` declares.

        The reward of a triple that the old support does not have is the mean over those of its
        pair.
        """
        triple_reward = self.next_state_reward
        if triple_reward is not None:
            wanted = validation.triple_keys(*support, self.n_states)
            known = self.triple_keys
            position = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            mean = self.by_pair(triple_reward) / np.maximum(self.sizes, 1)
            mean = mean[:, wanted // self.n_states]
            triple_reward = np.where(known[position] == wanted, triple_reward[:, position], mean)
        indptr, successors = support
        return replace(
            self, indptr=indptr, successors=successors, support=source,
            next_state_reward=triple_reward,
        )  # fmt: skip

    @check_kinds
    def same_support(self, other: Task) -> bool:
        """Return whether the rows of both tasks are the same triples."""
        return self is other or (
            self.n_actions == other.n_actions
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.successors, other.successors)
        )

    def with_unknown_reward(self) -> Task:
        """Return the same task with its rewards hidden; their range stays known."""
        return replace(self, reward=None, next_state_reward=None, partial_reward=None)

    def describe(self) -> str:
        """Return one line about the size of the task."""
        return repr(self).removeprefix("Task(").removesuffix(")")

    def card(self) -> Card:
        facts = {"states": self.n_states, "actions": self.n_actions}
        limit = "horizon" if self.discount is None else "discount"
        facts |= {limit: getattr(self, limit), "triples": self.n_triples, "support": self.support}
        if self.reward is None:
            facts["reward"] = "unknown" if self.partial_reward is None else "known in part"
        for what in ("states", "actions"):
            if (names := getattr(self, what)) is not None:
                facts[f"{what} named"] = abbreviate(names)
        return Card(facts, brief=f"{self.n_states} states x {self.n_actions} actions")
