"""Policies as tables: matched by name to a task, and checked against the actions it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from upriver.checks import Array, as_float, check_instance
from upriver.display import name_column
from upriver.mdp import Task
from upriver.mdp.names import Names, same_names

FEW, MANY = np.dtype(np.int8), np.dtype(np.int32)


def policy_type(task: Task) -> np.dtype[np.signedinteger[Any]]:
    """Return the smallest integer type that holds every action and -1."""
    return FEW if task.n_actions <= 127 else MANY


def names_of(task: Task | None) -> tuple[Any, Any]:
    """Return the names of the states and of the actions of a task; None where there are none."""
    return (None, None) if task is None else (task.states, task.actions)


def policy_columns(states: Any, actions: Any, table: Array) -> dict[str, Array]:
    """Return the columns of the states and actions of a policy (..., S), or of its states and
    probabilities (..., S, A)."""
    if table.dtype.kind != "f":
        columns = {"action": name_column(actions, table.ravel())}
    else:
        labels = name_column(actions, np.arange(table.shape[-1]))
        columns = {f"P({a})": table[..., i].ravel() for i, a in enumerate(labels)}
        table = table[..., 0]
    return {"state": name_column(states, np.indices(table.shape)[-1].ravel()), **columns}


def reordered(table: Array, states: Names, actions: Names, task: Task) -> Array:
    """Return a policy (..., S) or (..., S, A) with these names in the order of a task.

    Raise ValueError if the task has a state that the policy does not know, or the policy plays an
    action that the task does not have.
    """
    is_mixture = table.dtype.kind == "f"
    columns = task.state_names.numbers_in(states, "the policy")
    if columns is not None:
        table = table.take(columns, axis=-2 if is_mixture else -1)
    if same_names(actions.given, task.action_names.given) and actions.size == task.n_actions:
        return table
    played = np.unique(table.nonzero()[-1] if is_mixture else table)
    numbers = np.full(actions.size, -1)
    for a in played:
        numbers[a] = task.action_names.number(actions[a], "the policy's action")
    if not is_mixture:
        return numbers[table]
    mixture = np.zeros((*table.shape[:-1], task.n_actions))
    mixture[..., numbers[played]] = table[..., played]
    return mixture


def by_name(table: Array, source: Task | None, task: Task) -> Array:
    """Return a policy (S,), (S, A), (H, S) or (H, S, A) of one task in the order of another."""
    if source is None or source is task:
        return table
    check_instance("plan.task", source, Task)
    check_instance("plan.policy", table, np.ndarray)
    return reordered(table, source.state_names, source.action_names, task)


def stationary_table(task: Task, policy: Any) -> Array:
    """Return a stationary policy (S,) or (S, A); one of several steps must be the same at all."""
    table = match_table(task, policy)
    kind = 2 if table.dtype.kind in "iu" else 3
    if table.ndim == kind and len(table) and (table == table[0]).all():
        return table[0]
    return table


def match_table(task: Task, policy: Any) -> Array:
    """Return the table of a policy in the order of the task: by name where it has names.

    The name of an action stands for that action in every state; {state: action} names one for each.
    """
    is_table = hasattr(policy, "__iter__") or hasattr(policy, "on")
    if isinstance(policy, str) or not is_table:
        policy = dict.fromkeys(task.state_names, policy)
    if isinstance(policy, Mapping):
        actions, numbers = list(task.action_names), []
        for s in task.state_names:
            if s not in policy:
                raise ValueError(f"policy does not name state {s!r}; it must name every state")
            if policy[s] not in actions:
                allowed = ", ".join(map(repr, actions))
                raise ValueError(f"policy names {policy[s]!r}; the actions are {allowed}")
            numbers.append(actions.index(policy[s]))
        return np.array(numbers)
    table = policy.on(task) if hasattr(policy, "on") else policy
    try:
        return np.asarray(table)
    except (TypeError, ValueError):
        raise ValueError("policy must be a table without gaps") from None


def mixture_or_actions(task: Task, policy: Any) -> Array:
    """Return actions (H, S), in the kernels' integer type, or probabilities (H, S, A), by name.

    With an infinite horizon a policy of several steps must be the same at all.
    """
    table = (stationary_table if task.infinite_horizon else match_table)(task, policy)
    table = check_policy_table(task, table, (task.horizon,))
    shape = task.horizon, task.n_states, task.n_actions
    shape = shape if table.dtype.kind == "f" else shape[:2]
    return np.ascontiguousarray(np.broadcast_to(table, shape))


def check_policy_table(task: Task, table: Array, steps: tuple[int, ...] = ()) -> Array:
    """Return actions (*steps, S) or probabilities (*steps, S, A); `steps` may be left out.

    Rows of probabilities must sum to 1, and then do so up to rounding: what is off by more would
    grow with the steps.
    """
    is_mixture = table.dtype.kind not in "iu"
    stationary = task.available.shape if is_mixture else (task.n_states,)
    shapes = dict.fromkeys([(*steps, *stationary), stationary])
    if table.shape not in shapes:
        allowed = " or ".join(map(str, shapes))
        raise ValueError(f"policy has shape {table.shape}; it must be {allowed}")
    if not is_mixture:
        check_available("policy", table, task)
        return table.astype(policy_type(task))
    weights = as_float("policy", table)
    total = weights.sum(axis=-1, keepdims=True)
    if not ((weights >= 0).all() and np.allclose(total, 1.0, atol=1e-8)):
        raise ValueError("policy must hold whole numbers, or probabilities that sum to 1")
    lacking = np.where(task.available, 0.0, weights)
    for *h, s, a in np.argwhere(lacking)[:1].tolist():
        raise ValueError(
            f"policy has probability {lacking[(*h, s, a)]:.6g} where state {task.state_names[s]!r} "
            f"does not have the action {task.action_names[a]!r}"
        )
    return np.where(np.abs(total - 1.0) > 1e-12, weights / total, weights)


def check_actions(name: str, table: Array, n_actions: int) -> None:
    """Raise ValueError if a table has actions that are not 0 to n_actions - 1."""
    for where in map(tuple, np.argwhere((table < 0) | (table >= n_actions))[:1].tolist()):
        raise ValueError(
            f"{name}[{', '.join(map(str, where))}] is {table[where]}; "
            f"actions are 0 to {n_actions - 1}"
        )


def check_available(name: str, table: Array, task: Task) -> None:
    """Raise ValueError if a table (..., S) plays an action that its state does not have."""
    check_actions(name, table, task.n_actions)
    bad = ~task.available[np.arange(task.n_states), table]
    for where in map(tuple, np.argwhere(bad)[:1].tolist()):
        s, a = where[-1], int(table[where])
        raise ValueError(
            f"{name}[{', '.join(map(str, where))}] is {a}; state {task.state_names[s]!r} does not "
            f"have the action {task.action_names[a]!r}"
        )
