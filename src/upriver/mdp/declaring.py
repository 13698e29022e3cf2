"""How tasks are declared: from functions that say where actions may lead, or from what was seen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from inspect import signature
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, shown, support_from_sets

if TYPE_CHECKING:
    from upriver.mdp.task import Task


def from_successors(
    states: Iterable[Hashable],
    actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
    successors: Callable[[Any, Any], Iterable[Any]],
    horizon: int | None,
    reward: Callable[..., float] | None = None,
    terminal: Callable[[Any], float] | None = None,
    reward_range: tuple[float, float] | None = None,
    discount: float | None = None,
) -> Task:
    """What is known of a simulator: its states, its actions and where each pair may lead.

    horizon: None where there is no last step, with a discount or, without, for the average.
    actions: a list, or a function from a state to the actions that it has.
    reward: a function of (s, a) or (s, a, s'); None when the rewards must be learned, between
    the bounds `reward_range`, [0, 1] unless given. terminal: a function of the state after the
    last step. A state where episodes end is its own only successor and pays nothing.
    """
    from upriver.mdp.task import Task

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
            raise ValueError(f"successors({s!r}, {a!r}) is empty; every action must lead somewhere")
        for s2 in reached:
            if s2 not in number:
                raise ValueError(
                    f"successors({s!r}, {a!r}) names {s2!r}, which is not among the states"
                )
        sets.append({number[s2] for s2 in reached})
    indptr, flat = support_from_sets(sets, len(states), len(actions))
    discount = checked_discount(horizon, discount)
    task = Task(
        len(states), len(actions), 1 if horizon is None else horizon, indptr, flat, states=states,
        actions=actions, reward_range=reward_range, discount=discount,
        terminal=None if terminal is None else np.array([terminal(s) for s in states]),
    )  # fmt: skip
    if reward is None:
        return task
    table, next_state_reward = tabulated(reward, task)
    return replace(
        task, reward=table, next_state_reward=next_state_reward, reward_range=reward_range
    )


def from_seen(
    seen: Iterable[tuple[Any, Any, Any]],
    horizon: int | None,
    neighbours: Callable[[Any, Any], Iterable[Any]] | None = None,
    reward: Callable[..., float] | None = None,
    reward_range: tuple[float, float] | None = None,
    discount: float | None = None,
) -> Task:
    """A task where the support is not known: what was seen, and a declared neighbourhood.

    seen: transitions (s, a, s') by name, of which the states and actions are taken, in the
    order in which they appear. neighbours: a function (s, a) -> states that can be reached as
    well; those never seen are left out. A state that was seen only at the end stays there, and
    so does one in which nothing was done. Episodes that leave the support are refused and say
    where; `with_seen` declares it.
    """
    rows = transitions_of(seen)
    states = list(dict.fromkeys(x for s, _, s2 in rows for x in (s, s2)))
    has: dict[Any, dict[Any, set[Any]]] = {s: {} for s in states}
    for s, a, s2 in rows:
        has[s].setdefault(a, set()).add(s2)
    actions = list(dict.fromkeys(a for _, a, _ in rows))

    def reached(s: Any, a: Any) -> set[Any]:
        more = set(neighbours(s, a)) & set(states) if neighbours is not None else set()
        return (has[s].get(a, set()) | more) or {s}

    def tried(s: Any) -> list[Any]:
        return [a for a in actions if a in has[s]] or actions

    return from_successors(
        states, actions if neighbours is not None else tried, reached, horizon, reward,
        reward_range=reward_range, discount=discount,
    )  # fmt: skip


def transitions_of(seen: Any) -> list[tuple[Any, Any, Any]]:
    """The transitions (s, a, s') of `seen`, each of which has three names."""
    rows = listed("seen", seen)
    for i, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Iterable) or len(tuple(row)) != 3:
            raise ValueError(f"seen[{i}] is {shown(row)}; it must be a transition (s, a, s')")
    return [tuple(row) for row in rows]


def listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {shown(values)}; it must be a list")
    return list(values)


def checked_discount(horizon: Any, discount: Any) -> float | None:
    """The discount of a task that ends after `horizon` steps, or, where that is None, never."""
    if discount is None:
        return None if horizon is not None else 1.0
    if horizon is not None:
        raise ValueError(
            f"horizon is {horizon!r} and discount is {discount!r}; it must be one of them, with "
            "horizon=None for a discount"
        )
    if isinstance(discount, bool) or not 0.0 <= discount < 1.0:
        raise ValueError(f"discount is {discount!r}; it must be at least 0 and less than 1")
    return float(discount)


def actions_of(actions: Any) -> Callable[[Any], list[Any]]:
    """A function from a state to its actions, from one, or from a list that is for all states."""
    everywhere = [] if callable(actions) else listed("actions", actions)
    function: Any = actions if callable(actions) else lambda _: everywhere

    def of_state(state: Any) -> list[Any]:
        found = listed(f"actions({state!r})", function(state))
        if not found or len(set(found)) != len(found):
            name = "actions" if function is not actions else f"actions({state!r})"
            wrong = "names an action twice" if found else "is empty"
            raise ValueError(f"{name} {wrong}; actions must be distinct, and at least one")
        return found

    return of_state


def tabulated(reward: Callable[..., float], task: Task) -> tuple[Array, Array | None]:
    """(S, A) of a function of (s, a); zeros and (n,) of one that takes the next state as well."""
    s, a, s2 = task.triples
    states, actions = task.state_names, task.action_names
    if takes_next(reward):
        triples = zip(s, a, s2, strict=True)
        paid = [float(reward(states[i], actions[j], states[k])) for i, j, k in triples]
        return np.zeros((task.n_states, task.n_actions)), np.array(paid)
    table = np.zeros((task.n_states, task.n_actions))
    for i, j in np.argwhere(task.available):
        table[i, j] = float(reward(states[i], actions[j]))
    return table, None


def takes_next(function: Callable[..., Any]) -> bool:
    """Whether a function wants (s, a, s') rather than (s, a): by how many arguments it needs."""
    try:
        given = signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins do not say
        return False
    plain = [x for x in given if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return len([x for x in plain if x.default is x.empty]) > 2
