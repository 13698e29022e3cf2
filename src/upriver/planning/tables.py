"""Policies as tables: matched by name to a task, and checked against the actions it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from upriver.checks import Array, as_float, check_instance
from upriver.display.frames import name_column
from upriver.mdp import Task
from upriver.mdp.names import Names, same_names

FEW, MANY = np.dtype(np.int8), np.dtype(np.int32)


def policy_type(task: Task) -> np.dtype[np.signedinteger[Any]]:
    """Return the smallest integer type that holds every action and -1."""
    return FEW if task.n_actions <= 127 else MANY


def action_columns(task: Task | None, table: Array) -> dict[str, Array]:
    """Return the actions (..., S) of a policy, or its probabilities (..., S, A), as columns."""
    actions = None if task is None else task.actions
    if table.dtype.kind != "f":
        return {"action": name_column(actions, table.ravel())}
    labels = name_column(actions, np.arange(table.shape[-1]))
    return {f"P({a})": table[..., i].ravel() for i, a in enumerate(labels)}


def reordered(table: Array, states: Names, actions: Names, task: Task) -> Array:
    """Return a policy (H, S) or (H, S, A) with these names in the order of a task.

    Raise ValueError if the task has a state that the policy does not know, or the policy plays an
    action that the task does not have.
    """
    columns = task.state_names.numbers_in(states, "the policy")
    if columns is not None:
        table = table[:, columns]
    if same_names(actions.given, task.action_names.given) and actions.size == task.n_actions:
        return table
    played = np.unique(table) if table.ndim == 2 else np.flatnonzero(table.any(axis=(0, 1)))
    numbers = np.full(actions.size, -1)
    for a in played:
        numbers[a] = task.action_names.number(actions[a], "the policy's action")
    if table.ndim == 2:
        return numbers[table]
    mixture = np.zeros((*table.shape[:2], task.n_actions))
    mixture[:, :, numbers[played]] = table[:, :, played]
    return mixture


def by_name(table: Array, source: Task | None, task: Task) -> Array:
    """Return a policy (S,), (S, A), (H, S) or (H, S, A) of one task in the order of another."""
    if source is None or source is task:
        return table
    check_instance("plan.task", source, Task)
    check_instance("plan.policy", table, np.ndarray)
    stepless = table.ndim == 1 or (table.dtype.kind == "f" and table.ndim == 2)
    whole = reordered(table[None] if stepless else table, source.state_names,
                      source.action_names, task)  # fmt: skip
    return whole[0] if stepless else whole


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
        return np.array([named_action(task, policy, s) for s in task.state_names])
    table = policy.on(task) if hasattr(policy, "on") else policy
    try:
        return np.asarray(table)
    except (TypeError, ValueError):
        raise ValueError("policy must be a table without gaps") from None


def named_action(task: Task, named: Mapping[Any, Any], state: Any) -> int:
    """Return the number of the action that a policy {state: action} has in a state."""
    if state not in named:
        raise ValueError(f"policy does not name state {state!r}; it must name every state")
    actions = list(task.action_names)
    if named[state] not in actions:
        raise ValueError(
            f"policy names {named[state]!r}; the actions are {', '.join(map(repr, actions))}"
        )
    return actions.index(named[state])


def mixture_or_actions(task: Task, policy: Any) -> Array:
    """Return actions (H, S), in the kernels' integer type, or probabilities (H, S, A), by name."""
    table = check_policy_table(task, match_table(task, policy), (task.horizon,))
    shape = task.horizon, task.n_states, task.n_actions
    shape = shape if table.dtype.kind == "f" else shape[:2]
    return np.ascontiguousarray(np.broadcast_to(table, shape))


def check_policy_table(task: Task, table: Array, steps: tuple[int, ...] = ()) -> Array:
    """Return actions (*steps, S) or probabilities (*steps, S, A); `steps` may be left out."""
    is_mixture = table.dtype.kind not in "iu"
    stationary = task.available.shape if is_mixture else (task.n_states,)
    shapes = dict.fromkeys([(*steps, *stationary), stationary])
    if table.shape not in shapes:
        allowed = " or ".join(map(str, shapes))
        raise ValueError(f"policy has shape {table.shape}; it must be {allowed}")
    if is_mixture:
        return check_mixture(as_float("policy", table), task)
    check_available("policy", table, task)
    return table.astype(policy_type(task))


def check_actions(name: str, table: Array, n_actions: int) -> None:
    """Raise ValueError if a table has actions that are not 0 to n_actions - 1."""
    bad = (table < 0) | (table >= n_actions)
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), table.shape)
        raise ValueError(
            f"{name}[{', '.join(map(str, where))}] is {table[where]}; "
            f"actions are 0 to {n_actions - 1}"
        )


def check_available(name: str, table: Array, task: Task) -> None:
    """Raise ValueError if a table (..., S) plays an action that its state does not have."""
    check_actions(name, table, task.n_actions)
    bad = ~task.available[np.arange(task.n_states), table]
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), bad.shape)
        s, a = int(where[-1]), int(table[where])
        raise ValueError(
            f"{name}[{', '.join(map(str, where))}] is {a}; state {task.state_names[s]!r} does not "
            f"have the action {task.action_names[a]!r}"
        )


def check_mixture(weights: Array, task: Task) -> Array:
    """Return action probabilities (..., S, A), with rows that sum to 1 up to rounding.

    Raise ValueError if they are none. What is off by more than rounding would grow with the steps.
    """
    total = weights.sum(axis=-1, keepdims=True)
    if not ((weights >= 0).all() and np.allclose(total, 1.0, atol=1e-8)):
        raise ValueError("policy must hold whole numbers, or probabilities that sum to 1")
    lacking = np.where(task.available, 0.0, weights)
    if lacking.any():
        *_, s, a = np.unravel_index(int(np.argmax(lacking)), lacking.shape)
        raise ValueError(
            f"policy has probability {lacking.max():.6g} where state {task.state_names[int(s)]!r} "
            f"does not have the action {task.action_names[int(a)]!r}"
        )
    return np.where(np.abs(total - 1.0) > 1e-12, weights / total, weights)
