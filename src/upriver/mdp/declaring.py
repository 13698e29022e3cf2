"""Builders of tasks from functions that say where actions may lead.

The helpers that read the user's functions serve the builders of MDPs too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sized
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array, accepts, check_function, check_kinds, format_value, is_hashable
from upriver.mdp import validation
from upriver.mdp.validation import check_discount, check_size, support_of_triples

if TYPE_CHECKING:
    from upriver.mdp.task import Task

SAMPLE = 20
"""States after whose triples the number of all triples is estimated."""


@check_kinds
def from_successors(
    states: Iterable[Hashable], actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
    successors: Callable[[Any, Any], Iterable[Any]], horizon: int | None,
    reward: Callable[..., float] | None = None, terminal: Callable[[Any], float] | None = None,
    reward_range: tuple[float, float] | None = None, discount: float | None = None,
) -> Task:  # fmt: skip
    """Declare what is known of a simulator: states, actions and where each pair may lead.

    Parameters
    ----------
    states : iterable of hashable
        Names of all states. A state in which episodes end has itself as its only successor and a
        reward of 0.
    actions : list of hashable, or function
        Names of all actions, or a function from a state to the actions that it has.
    successors : function (s, a) -> states
        The states that can follow.
    horizon : int or None
        None is an infinite horizon: with a `discount`, or without one for the average reward.
    reward : function of (s, a) or (s, a, s'), optional
        None when the rewards are unknown and must be learned; a function may return None for the
        triples whose reward is unknown.
    terminal : function of s, optional
        Value of the state after the last step.
    reward_range : (low, high), optional
        Bounds of one reward, [0, 1] where rewards are unknown.
    """
    from upriver.mdp.task import Task

    listed = list_distinct("states", states, "a state")
    found = explore(listed, actions, successors)
    shape, pair = found.shape, found.pair
    order = np.lexsort((found.following, pair))
    support = support_of_triples(pair[order], found.following[order], shape[0] * shape[1])
    table = rewards = partial = None
    if reward is not None:
        rewards = tabulate_reward(reward, found, unknown=True)[order]
        if np.isnan(rewards).any():
            rewards, partial = None, rewards
        else:
            table, rewards = split_rewards(pair[order], rewards, shape)
    return Task(
        *shape, 1 if horizon is None else horizon, *support, table, states=listed,
        actions=found.actions, next_state_reward=rewards, reward_range=reward_range,
        terminal=None if terminal is None else tabulate_terminal(terminal, found),
        discount=check_discount(horizon, discount), partial_reward=partial,
    )  # fmt: skip


class Explored(NamedTuple):
    """The states, actions and triples that the user's functions name, in the order of listing."""

    states: list[Any]
    actions: list[Any]
    pair: Array
    """(n,) s * A + a of each triple."""
    following: Array
    """(n,) s' of each triple."""
    n_listed: int
    """The number of triples that the functions name; in those after them a state stays."""

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)"""
        return len(self.states), len(self.actions)

    def triples(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the names (s, a, s') of the triples that the functions name."""
        for pair, s2 in zip(self.pair[: self.n_listed], self.following, strict=False):
            s, a = divmod(pair, len(self.actions))
            yield self.states[s], self.actions[a], self.states[s2]


def explore(
    states: list[Any], actions: Any, successors: Callable[[Any, Any], Iterable[Any]],
    max_steps: int = 1, max_states: int | None = None,
) -> Explored:  # fmt: skip
    """List the triples of the states, and of those that they reach within `max_steps` steps.

    Without `max_states` no further states may be reached. A state that is first reached by the last
    action stays where it is.
    """
    actions_of = read_actions(actions)
    check_function("successors", successors, "s", "a")
    states, number = list(states), {s: i for i, s in enumerate(states)}
    action_number: dict[Any, int] = {}
    columns = array("q"), array("q"), array("q")  # s, a and s' of each triple

    def add(i: int, a: Any, following: list[int]) -> None:
        columns[0].extend([i] * len(following))
        columns[1].extend([action_number.setdefault(a, len(action_number))] * len(following))
        columns[2].extend(following)

    n_acting = 0
    for _ in range(max_steps):
        newest = range(n_acting, len(states))
        for i in newest:
            for a in actions_of(states[i]):
                name = f"successors({states[i]!r}, {a!r})"
                reached = list_distinct(name, successors(states[i], a), "a state")
                new = [s for s in reached if s not in number]
                if new and max_states is None:
                    raise ValueError(f"{name} names {format_value(new[0])}, which is no state")
                number.update(zip(new, range(len(states), len(states) + len(new)), strict=True))
                states += new
                if max_states is not None and len(states) > max_states:
                    found = f"more than max_states={max_states} states within {max_steps} steps"
                    raise ValueError(f"{found}; raise max_states or shorten the horizon")
                add(i, a, [number[s] for s in reached])
            if i + 1 >= SAMPLE or len(columns[0]) > validation.MAX_TRIPLES:
                check_size(len(states), len(columns[0]) / (i + 1) * len(states))
        n_acting = newest.stop
        if n_acting == len(states):
            break
    n_listed = len(columns[0])
    for i in range(n_acting, len(states)):
        for a in actions_of(states[i]):
            add(i, a, [i])
    s, a, following = (np.array(column) for column in columns)
    pair = s * len(action_number) + a
    return Explored(states, list(action_number), pair, following, n_listed)


def as_names(name: str, values: Any) -> list[Any]:
    """Return a list of values that can be names of states or actions."""
    # NumPy's arrays of no dimension say that they are iterable, sparse ones that they have a size
    shape = getattr(values, "shape", (1,))
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or len(shape) != 1:
        raise TypeError(f"{name} is {format_value(values)}; it must be a list")
    most = validation.MAX_TRIPLES
    size = len(values) if isinstance(values, Sized) else 0
    listed = [] if size > most else list(islice(values, most + 1))
    if max(size, len(listed)) > most:
        raise ValueError(f"{name} has more than {most:,} names, which are too many to list")
    for value in listed:
        if not is_hashable(value):
            raise TypeError(f"{name} holds {format_value(value)}; names must be hashable")
    return listed


def read_actions(actions: Any) -> Callable[[Any], list[Any]]:
    """Return a function from a state to its actions, from one or from a list for all states."""
    if callable(actions):
        check_function("actions", actions, "s")
        return lambda s: list_distinct(f"actions({s!r})", actions(s), "an action")
    listed = list_distinct("actions", actions, "an action")
    return lambda _: listed


def list_distinct(name: str, values: Any, each: str) -> list[Any]:
    listed = as_names(name, values)
    if not listed or len(set(listed)) != len(listed):
        wrong = f"names {each} twice" if listed else "is empty"
        raise ValueError(f"{name} {wrong}; its names must be distinct, and at least one")
    return listed


def call_for_number(
    name: str, function: Callable[..., Any], *arguments: Any, unknown: bool = False
) -> float:
    """Return the number that the user's function of that name gives.

    unknown: whether it may return None, which becomes NaN; it must not return NaN itself.
    """
    value = function(*arguments)
    if value is None and unknown:
        return np.nan
    with suppress(TypeError, ValueError, OverflowError):
        if not np.isnan(number := float(value)):  # pyright: ignore[reportArgumentType]
            return number
    call, more = ", ".join(map(repr, arguments)), ", or None for unknown" if unknown else ""
    raise TypeError(f"{name}({call}) is {format_value(value)}; it must be a number{more}")


def tabulate_calls(
    name: str, function: Callable[..., Any], arguments: Iterable[Any], unknown: bool = False
) -> Array:
    """Return the numbers that the user's function gives for each tuple of arguments."""
    called = (call_for_number(name, function, *given, unknown=unknown) for given in arguments)
    return np.fromiter(called, np.float64)


def tabulate_reward(reward: Callable[..., Any], found: Explored, unknown: bool = False) -> Array:
    """Return the reward (n,) of the triples from a function of (s, a, s') or of (s, a).

    unknown: whether the function may return None, which becomes NaN.
    """
    # where a state stays because it never acts, the reward is 0
    rewards, names, row = np.zeros(len(found.pair)), found.triples(), slice(None)
    three = takes_next_state(reward)
    check_function("reward", reward, "s", "a", *(["s2"] if three else []))
    if not three:
        pairs, row = np.unique(found.pair[: found.n_listed], return_inverse=True)
        at = zip(*divmod(pairs, found.shape[1]), strict=True)
        names = ((found.states[i], found.actions[j]) for i, j in at)
    rewards[: found.n_listed] = tabulate_calls("reward", reward, names, unknown)[row]
    return rewards


def tabulate_terminal(terminal: Callable[[Any], float], found: Explored) -> Array:
    check_function("terminal", terminal, "s")
    return tabulate_calls("terminal", terminal, zip(found.states, strict=True))


def split_rewards(
    pair: Array, rewards: Array, shape: tuple[int, int]
) -> tuple[Array, Array | None]:
    """Return (reward (S, A), None) where the rewards of ordered triples (n,) do not depend on the
    next state, else (zeros, rewards (1, n))."""
    table = np.zeros(shape)
    first = np.flatnonzero(np.r_[True, np.diff(pair) > 0])
    low, high = np.minimum.reduceat(rewards, first), np.maximum.reduceat(rewards, first)
    # one huge reward must not hide the differences of others
    if np.allclose(low, high, rtol=1e-12, atol=1e-12 * min(np.abs(rewards).max(), 1.0)):
        table.flat[pair[first]] = low
        return table, None
    return table, rewards[None]


def takes_next_state(function: Callable[..., Any]) -> bool:
    """Return whether a function is one of (s, a, s'): whether two arguments are too few."""
    return not accepts(function, "s", "a")
