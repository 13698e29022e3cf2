"""What may come into an agent from outside: states, plans and episodes that fit its task.

The kernels trust the arrays that they are given. `guarded` stands at the door of every agent, so
that whatever a caller or a file hands to `plan` and `update` is refused with a sentence before a
kernel reads past its end. `simulate` makes all of it itself, looks once, and then goes past the
door (`unguarded`): an episode costs nothing more.

The door also lies between the user's units and the scale of the theory: inside, an agent plans with
rewards in [0, 1], learns from such, and its plans have such values; outside, all of these are in
the units of the task. An agent with IN_UNITS plans in the user's units.
"""

from __future__ import annotations

from functools import wraps
from types import MethodType
from typing import Any, TypeVar

import numpy as np

from upriver import kernels
from upriver.agents.protocol import Episode
from upriver.checks import Array, as_float, instance, shown
from upriver.display import displayed
from upriver.mdp import Task
from upriver.planning import Plan

Kind = TypeVar("Kind", bound=type)


def guarded(kind: Kind) -> Kind:
    """An agent whose `plan` and `update` look at what they are given, and that shows itself."""
    plan, update, init, make = kind.plan, kind.update, kind.init, kind.__init__

    @wraps(make)
    def checked_fields(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        if self.task.infinite_horizon and not hasattr(kind, "steps_until_replan"):
            raise ValueError(
                f"{kind.__name__} plans for a number of steps, and the task has no last step; use "
                "UCRLMNLSE, UCMNLK, UCRL2, PSRL or EpsilonGreedy"
            )

    @wraps(init)
    def noted_init(self: Any) -> Any:
        state = init(self)
        object.__setattr__(self, "first_layout", layout(state))
        return state

    @wraps(plan)
    def checked_plan(self: Any, state: Any, rng: Any) -> Any:
        check_state(self, state)
        return to_user_units(self, plan(self, state, instance("rng", rng, np.random.Generator)))

    @wraps(update)
    def checked_update(self: Any, state: Any, plan: Any, episode: Any) -> Any:
        check_state(self, state)
        if getattr(kind, "READS_PLAN", False):  # the others need none
            check_plan(self.task, plan)
            plan = plan.to_unit_scale(self.task)
        episode = checked_episode(self.task, episode)
        return update(self, state, plan, to_unit_scale(self.task, episode))

    kind.plan, kind.update = checked_plan, checked_update
    kind.init, kind.__init__ = noted_init, checked_fields
    return displayed(kind)


def to_user_units(agent: Any, plan: Any) -> Any:
    """An agent's plan in the user's units."""
    if getattr(agent, "IN_UNITS", False) or not isinstance(plan, Plan):
        return plan
    return plan.to_user_units(agent.task)


def to_unit_scale(task: Task, episode: Episode) -> Episode:
    """An episode as agents learn from it, its rewards on the scale of [0, 1]."""
    if task.units.is_identity:
        return episode
    return episode._replace(rewards=task.units.to_unit_scale(episode.rewards))


def unguarded(agent: Any) -> tuple[Any, Any]:
    """(plan, update) of an agent, without the checks and on the scale of [0, 1]."""
    plan, update = agent.plan, agent.update
    return (
        MethodType(plan.__wrapped__, agent) if hasattr(plan, "__wrapped__") else plan,
        MethodType(update.__wrapped__, agent) if hasattr(update, "__wrapped__") else update,
    )


def check_agent(agent: Any) -> None:
    for name in ("init", "plan", "update"):
        if not callable(getattr(agent, name, None)) or isinstance(agent, type):
            raise TypeError(f"agent is {shown(agent)}; it has no {name}")
    instance("agent.task", getattr(agent, "task", None), Task)


def check_state(agent: Any, state: Any, finite: bool = False) -> None:
    """Refuse a state that is not laid out as the agent's first one."""
    expected = vars(agent).get("first_layout") or layout(agent.init())
    different = first_difference(layout(state), expected)
    if different:
        raise ValueError(
            f"the state is not one of this {type(agent).__name__} and its task: it holds "
            f"{different}"
        )
    if finite and not all_finite(state):
        raise ValueError(
            f"the state of the {type(agent).__name__} holds numbers that are not finite"
        )


def layout(value: Any) -> Any:
    """The shape of a tree of arrays: what two states of one agent have in common."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.flags.c_contiguous
    if isinstance(value, tuple):
        return type(value).__name__, tuple(map(layout, value))
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | np.integer):
        return "whole number above 0" if value > 0 else "whole number"
    if isinstance(value, float | np.floating):  # lambda, and what else an agent counts with
        return "number above 0" if 0 < value < np.inf else "number"
    return type(value).__name__


def first_difference(found: Any, expected: Any) -> str:
    pairs = [(found, expected)]
    while pairs:
        x, y = pairs.pop(0)
        if (
            x == y or x == f"{y} above 0"
        ):  # what begins at 0 may grow, what begins above 0 stays there
            continue
        inside = (isinstance(z, tuple) and len(z) == 2 and isinstance(z[1], tuple) for z in (x, y))
        if all(inside) and x[0] == y[0] and len(x[1]) == len(y[1]):
            pairs += zip(x[1], y[1], strict=True)
        else:
            return f"{say(x)} where {say(y)} is needed"
    return ""


def say(shape: Any) -> str:
    if isinstance(shape, tuple) and len(shape) == 3:
        return f"an array {np.dtype(shape[0])} of shape {shape[1]}"
    return f"a {shape[0] if isinstance(shape, tuple) else shape}"


def all_finite(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(all_finite, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return not isinstance(value, float) or bool(np.isfinite(value))


def check_plan(task: Task, plan: Any) -> None:
    """Refuse a plan of another task: some learners regress on its values."""
    v: Any = getattr(plan, "v", None)
    shape = task.horizon + 1, task.n_states
    fits = isinstance(v, np.ndarray) and v.dtype == np.float64 and v.shape == shape
    if not fits or not v.flags.c_contiguous or not np.isfinite(v).all():
        raise ValueError(
            f"plan is not one of this task: its v must be finite numbers of shape {shape}"
        )


def checked_episode(task: Task, episode: Any) -> Episode:
    """The episode in the types that the kernels know, or a sentence about what is wrong in it."""
    try:
        states, actions, rewards = episode
    except (TypeError, ValueError):
        raise TypeError(
            f"episode is a {type(episode).__name__}; it must be (states, actions, rewards)"
        ) from None
    states, actions = whole_numbers("states", states), whole_numbers("actions", actions)
    rewards = as_float("rewards of the episode", rewards)
    fits = task.infinite_horizon or len(actions) <= task.horizon
    if not (fits and len(states) == len(actions) + 1) or (rewards.shape != actions.shape):
        raise ValueError(
            f"the episode has {len(states)} states, {len(actions)} actions and {rewards.size} "
            f"rewards; with horizon {task.horizon} it must have T + 1, T and T, T at most "
            f"{task.horizon}"
        )
    wrong = kernels.episodes.check_episode(
        states, actions, rewards, task.n_states, task.n_actions, task.indptr
    )
    if wrong >= 0:
        has = f"0 to {task.n_actions - 1}"
        if wrong % 3 == 1 and 0 <= actions[wrong // 3] < task.n_actions:
            at = states[wrong // 3]
            has = f"{', '.join(map(str, np.flatnonzero(task.available[at])))} in state {at}"
        name, given, allowed = (
            ("states", states, f"0 to {task.n_states - 1}"),
            ("actions", actions, has),
            ("rewards", rewards, "finite numbers"),
        )[wrong % 3]
        raise ValueError(
            f"{name}[{wrong // 3}] of the episode is {given[wrong // 3]}; {name} are {allowed}"
        )
    return Episode(states, actions, rewards)


def whole_numbers(name: str, values: Any) -> Array:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} of the episode must be a row of whole numbers")
    return np.ascontiguousarray(array, dtype=np.int64)
