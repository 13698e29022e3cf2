"""Builders of tasks: from functions that say where actions may lead, or from observed transitions.

The helpers that read the user's functions serve the builders of MDPs too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, format_value
from upriver.mdp.validation import check_discount, check_size

if TYPE_CHECKING:
    from upriver.mdp.task import Task

SAMPLE = 20
"""States after whose triples the number of all triples is estimated."""


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

    states, actions_of = list(states), read_actions(actions)
    number = {s: i for i, s in enumerate(states)}
    if len(number) != len(states) or not states:
        raise ValueError("states must be distinct, and at least one")
    action_number: dict[Any, int] = {}
    columns = array("q"), array("q"), array("q")
    for i, s in enumerate(states):
        for a in actions_of(s):
            reached = list_successors(successors, s, a)
            for s2 in reached:
                if s2 not in number:
                    raise ValueError(f"successors({s!r}, {a!r}) names {s2!r}, which is no state")
            new = sorted({number[s2] for s2 in reached})
            columns[0].extend([i] * len(new))
            columns[1].extend([action_number.setdefault(a, len(action_number))] * len(new))
            columns[2].extend(new)
        if i + 1 >= SAMPLE:
            check_size(len(states), len(columns[2]) / (i + 1) * len(states))
    s, a, s2 = (np.array(column) for column in columns)
    pairs = s * len(action_number) + a
    counts = np.bincount(pairs, minlength=len(states) * len(action_number))
    last = None if terminal is None else np.array([call_for_number(terminal, s) for s in states])
    task = Task(
        len(states), len(action_number), 1 if horizon is None else horizon,
        np.concatenate([[0], np.cumsum(counts)]), s2[np.argsort(pairs, kind="stable")],
        states=states, actions=list(action_number), terminal=last, reward_range=reward_range,
        discount=check_discount(horizon, discount),
    )  # fmt: skip
    if reward is None:
        return task
    table, rewards = tabulate_reward(reward, task)
    return replace(task, reward=table, next_state_reward=rewards, reward_range=reward_range)


def from_transitions(
    transitions: Iterable[tuple[Any, Any, Any]], horizon: int | None,
    neighbours: Callable[[Any, Any], Iterable[Any]] | None = None,
    reward: Callable[..., float] | None = None, reward_range: tuple[float, float] | None = None,
    discount: float | None = None,
) -> Task:  # fmt: skip
    """Make a task of unknown support from observed transitions and a declared neighbourhood.

    Episodes that leave the support are refused with a message that names the transition;
    `Task.with_transitions` declares it.

    Parameters
    ----------
    transitions : iterable of (state, action, next state)
        States and actions are numbered in the order in which they appear. A state without an
        observed action stays where it is.
    horizon : int or None
        As in `from_successors`, and so are `reward`, `reward_range` and `discount`.
    neighbours : function (s, a) -> states, optional
        States that can be reached as well; those that never appear are left out. With it every
        state has all actions, without it only those that were observed.
    """
    rows = list_transitions(transitions)
    states = list(dict.fromkeys(x for s, _, s2 in rows for x in (s, s2)))
    observed: dict[Any, dict[Any, set[Any]]] = {s: {} for s in states}
    for s, a, s2 in rows:
        observed[s].setdefault(a, set()).add(s2)
    actions = list(dict.fromkeys(a for _, a, _ in rows))

    def successors(s: Any, a: Any) -> set[Any]:
        more = set(neighbours(s, a)) & set(states) if neighbours is not None else set()
        return (observed[s].get(a, set()) | more) or {s}

    def observed_actions(s: Any) -> list[Any]:
        return [a for a in actions if a in observed[s]] or actions

    return from_successors(
        states, actions if neighbours is not None else observed_actions, successors, horizon,
        reward, reward_range=reward_range, discount=discount,
    )  # fmt: skip


def list_transitions(transitions: Any) -> list[tuple[Any, Any, Any]]:
    """Return the transitions as a list of (s, a, s')."""
    rows = as_list("transitions", transitions)
    for i, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Iterable) or len(tuple(row)) != 3:
            raise ValueError(
                f"transitions[{i}] is {format_value(row)}; it must be a transition (s, a, s')"
            )
    return [tuple(row) for row in rows]


def list_successors(successors: Callable[[Any, Any], Iterable[Any]], s: Any, a: Any) -> list[Any]:
    """Return the successors that the user's function names, at least one."""
    reached = as_list(f"successors({s!r}, {a!r})", successors(s, a))
    if not reached:
        raise ValueError(f"successors({s!r}, {a!r}) is empty; every action must lead somewhere")
    return reached


def as_list(name: str, values: Any) -> list[Any]:
    """Return a list of the values; a single value or text is refused."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {format_value(values)}; it must be a list")
    return list(values)


def read_actions(actions: Any) -> Callable[[Any], list[Any]]:
    """Return a function from a state to its actions, from one or from a list for all states."""
    if callable(actions):
        return lambda s: check_actions(f"actions({s!r})", actions(s))
    listed = check_actions("actions", actions)
    return lambda _: listed


def check_actions(name: str, actions: Any) -> list[Any]:
    """Return distinct actions, at least one, as a list."""
    listed = as_list(name, actions)
    if not listed or len(set(listed)) != len(listed):
        wrong = "names an action twice" if listed else "is empty"
        raise ValueError(f"{name} {wrong}; actions must be distinct, and at least one")
    return listed


def call_for_number(function: Callable[..., float], *arguments: Any) -> float:
    """Return the number that the user's function gives."""
    value = function(*arguments)
    try:
        return float(value)
    except (TypeError, ValueError):
        name = getattr(function, "__name__", "the function")
        text = ", ".join(map(repr, arguments))
        raise TypeError(f"{name}({text}) is {format_value(value)}; it must be a number") from None


def tabulate_reward(reward: Callable[..., float], task: Task) -> tuple[Array, Array | None]:
    """Return (reward (S, A), None) of a function of (s, a), or (zeros, rewards of triples (n,))."""
    s, a, s2 = task.triples
    states, actions = task.state_names, task.action_names
    table = np.zeros((task.n_states, task.n_actions))
    if takes_next_state(reward):
        triples = zip(s, a, s2, strict=True)
        rewards = [call_for_number(reward, states[i], actions[j], states[k]) for i, j, k in triples]
        return table, np.array(rewards)
    for i, j in np.argwhere(task.available):
        table[i, j] = call_for_number(reward, states[i], actions[j])
    return table, None


def takes_next_state(function: Callable[..., Any]) -> bool:
    """Return whether a function is one of (s, a, s'): whether it needs more than two arguments."""
    try:
        given = signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    plain = [x for x in given if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return len([x for x in plain if x.default is x.empty]) > 2
