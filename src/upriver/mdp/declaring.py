"""Builders of tasks from functions that say where actions may lead.

The helpers that read the user's functions serve the builders of MDPs too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array, accepts, check_function, check_kinds, format_value
from upriver.mdp import validation
from upriver.mdp.names import list_distinct
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
        None when the rewards are unknown and must be learned.
    terminal : function of s, optional
        Value of the state after the last step.
    reward_range : (low, high), optional
        Bounds of one reward, [0, 1] where rewards are unknown.
    """
    from upriver.mdp.task import Task

    listed = list_distinct("states", states)
    found = explore(listed, actions, successors)
    shape, pair = found.shape, found.pair
    order = np.lexsort((found.following, pair))
    support = support_of_triples(pair[order], found.following[order], shape[0] * shape[1])
    table = rewards = None
    if reward is not None:
        table, rewards = split_rewards(pair[order], tabulate_reward(reward, found)[order], shape)
    return Task(
        *shape, 1 if horizon is None else horizon, *support, table, states=listed,
        actions=found.actions, next_state_reward=rewards, reward_range=reward_range,
        terminal=None if terminal is None else tabulate_terminal(terminal, found),
        discount=check_discount(horizon, discount),
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
    if callable(actions):
        check_function("actions", actions, "s")
    listed = [] if callable(actions) else list_distinct("actions", actions)
    check_function("successors", successors, "s", "a")
    states, number = list(states), {s: i for i, s in enumerate(states)}
    action_number: dict[Any, int] = {}
    triples = array("q")  # s, a, s' of one after the other
    most = len(states) if max_states is None else max_states
    n_done = n_listed = 0
    for step in range(max_steps + 1):
        new, n_listed = states[n_done:], len(triples) // 3
        for i, s in enumerate(new, n_done):
            for a in list_distinct(f"actions({s!r})", actions(s)) if callable(actions) else listed:
                following = [i]  # where no step is left
                if step < max_steps:
                    name = f"successors({s!r}, {a!r})"
                    reached = list_distinct(name, successors(s, a))
                    following = [number.setdefault(s2, len(number)) for s2 in reached]
                    states += [
                        s2 for s2, k in zip(reached, following, strict=True) if k >= len(states)
                    ]
                    if len(states) > most and max_states is None:
                        unknown = format_value(states[most])
                        raise ValueError(f"{name} names {unknown}, which is no state")
                    if len(states) > most:
                        found = f"more than max_states={max_states} states within {max_steps} steps"
                        raise ValueError(f"{found}; raise max_states or shorten the horizon")
                j = action_number.setdefault(a, len(action_number))
                for s2 in following:
                    triples.extend((i, j, s2))
            if i + 1 >= SAMPLE or len(triples) > 3 * validation.MAX_TRIPLES:
                check_size(len(states), len(triples) / 3 / (i + 1) * len(states))
        n_done += len(new)
        if not new:
            break
    s, a, following = np.array(triples).reshape(-1, 3).T
    pair = s * len(action_number) + a
    return Explored(states, list(action_number), pair, np.array(following), n_listed)


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


def tabulate_calls(name: str, function: Callable[..., Any], arguments: Iterable[Any]) -> Array:
    """Return the numbers that the user's function gives for each tuple of arguments."""
    return np.fromiter((call_for_number(name, function, *x) for x in arguments), np.float64)


def tabulate_reward(reward: Callable[..., Any], found: Explored) -> Array:
    """Return the reward (n,) of the triples from a function of (s, a, s') or of (s, a)."""
    takes = ("s", "a", "s2") if takes_next_state(reward) else ("s", "a")
    check_function("reward", reward, *takes)
    called = (triple[: len(takes)] for triple in found.triples())
    rewards = tabulate_calls("reward", reward, called)
    # where a state stays because it never acts, the reward is 0
    return np.append(rewards, np.zeros(len(found.pair) - found.n_listed))


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
