"""What an agent is, and what all agents share: how fields are validated, and how arguments are.

An agent is a frozen dataclass of the paper's inputs, with three functions of its state. A field of
one name means the same in every agent, so `CHECKS` says once what it may hold.

The compiled loops trust the arrays that they are given. `guarded` wraps `plan` and `update` of an
agent, so that whatever a caller or a file hands to them is refused with one sentence before a loop
reads past the end of an array. `simulate` and `learn` make these arrays themselves and call the
methods without the checks (`unguarded`), so that an episode costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from itertools import chain, zip_longest
from math import inf
from types import MethodType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from upriver import kernels
from upriver.checks import (
    Array,
    as_float,
    check_instance,
    format_value,
    nonnegative_number,
    open_fraction,
    positive_integer,
    positive_number,
)
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mnl.radii import scaled_radius
from upriver.planning import Plan

Kind = TypeVar("Kind", bound=type)
Check = Callable[[str, Any], Any]
"""(name, value) -> the value in canonical form, or an error of one sentence."""

SLACK = 1e-6
"""How far beyond [0, 1] a reward may lie by rounding."""


@add_repr
class Episode(NamedTuple):
    """What happened in T steps; T = H unless the environment ended early."""

    states: Array
    """(T + 1,)"""
    actions: Array
    """(T,)"""
    rewards: Array
    """(T,) on the unit scale where an agent learns from them."""


class Agent(Protocol):
    """A learner. No method changes the agent, the state or the plan it is given.

    An agent works on the unit scale throughout: `update` receives rewards in [0, 1], and `plan`
    returns values on that scale. `simulate` and `learn` convert from and to the user's units
    (`Task.units`), so an agent that wraps another one passes everything on as it is. A plan whose
    values are already in the user's units says so: `Plan.in_user_units`.

    `plan` goes back to `update` because some learners regress on the values they planned with.
    Randomness comes only from `rng`.

    For an infinite horizon an agent also has `steps_until_replan(state, plan, episode)`, which says
    for how many steps of an episode, a stretch of the stream, the plan is kept; at most all.
    """

    @property
    def task(self) -> Task:
        """What the agent knows of the problem."""
        ...

    def init(self) -> Any:
        """Return the state before the first episode."""
        ...

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        """Return the policy of the next episode."""
        ...

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        """Return the state after an episode."""
        ...


def function_or_number(make: Callable[[float], Any], check: Check = nonnegative_number) -> Check:
    """Return a check that keeps a function as it is and replaces a number c by make(c)."""
    return lambda name, value: value if callable(value) else make(check(name, value))


def with_default(default: Any, check: Check) -> Check:
    """Return a check that replaces None by `default`."""
    return lambda name, value: default if value is None else check(name, value)


def optional_bound(name: str, value: Any) -> float | None:
    """Check a positive number; None and infinity both mean that there is no bound."""
    no_bound = value is None or (isinstance(value, float) and value == inf)
    return None if no_bound else positive_number(name, value)


CHECKS: dict[str, Check] = {
    "task": lambda name, value: check_instance(name, value, Task),
    "mdp": lambda name, value: check_instance(name, value, FiniteMDP),
    "features": lambda name, value: check_instance(name, value, Features),
    "radius": function_or_number(scaled_radius),
    "regularization": positive_number,
    "kappa": positive_number,
    "step_size": positive_number,
    "theta_bound": optional_bound,
    "bonus": nonnegative_number,
    "reward_bonus": nonnegative_number,
    "inflation": positive_number,
    "delta": open_fraction,
    "scale": nonnegative_number,
    "n_episodes": positive_integer,
    "n_steps": positive_integer,
    "diameter": positive_number,
    "prior": positive_number,
    "epsilon": nonnegative_number,
    "decay": nonnegative_number,
    "ensemble": positive_integer,
    "shared_errors": nonnegative_number,
    "own_errors": nonnegative_number,
}
"""What a field of each name may hold."""


class Validated:
    """The base of agents, and of radius and bonus rules, whose fields are their constants."""

    OWN_CHECKS: ClassVar[dict[str, Check]] = {}
    """Checks of fields that `CHECKS` does not name, or names otherwise."""

    def __post_init__(self) -> None:
        validate_fields(self, **self.OWN_CHECKS)


def validate_fields(agent: Any, **checks: Check) -> None:
    """Check the fields of a frozen dataclass, an agent or a rule, and keep them in canonical form.

    `checks` are for fields that `CHECKS` does not name, or that it names otherwise. Features of
    another task are refused, and an infinite horizon where the agent cannot plan for it.
    """
    checks = CHECKS | checks
    for name in (field.name for field in fields(agent) if field.name in checks):
        object.__setattr__(agent, name, checks[name](name, getattr(agent, name)))
    task, features = getattr(agent, "task", None), getattr(agent, "features", None)
    if features is not None:
        features.check_task(task)
    if task is not None and task.infinite_horizon and not hasattr(agent, "steps_until_replan"):
        raise ValueError(
            f"{type(agent).__name__} plans for a number of steps, and the task has an infinite "
            "horizon; use an agent with steps_until_replan, such as UCRLMNLSE"
        )


def guarded(kind: Kind) -> Kind:
    """Return the class with `plan` and `update` that check their arguments, and with a display."""
    plan, update = kind.plan, kind.update

    @wraps(plan)
    def checked_plan(self: Any, state: Any, rng: Any) -> Any:
        check_state(self, state)
        return plan(self, state, check_instance("rng", rng, np.random.Generator))

    @wraps(update)
    def checked_update(self: Any, state: Any, plan: Any, episode: Any) -> Any:
        check_state(self, state)
        if getattr(kind, "READS_PLAN", False):  # the others ignore the plan
            check_plan(self.task, plan)
        return update(self, state, plan, checked_episode(self.task, episode))

    # A method that a guarded class passes on is guarded already.
    kind.plan = plan if hasattr(plan, "__wrapped__") else checked_plan
    kind.update = update if hasattr(update, "__wrapped__") else checked_update
    return add_repr(kind)


def unguarded(agent: Any) -> tuple[Any, Any]:
    """Return `plan` and `update` of an agent without the checks."""

    def unwrap(method: Any) -> Any:
        inner = getattr(method, "__wrapped__", None)
        return method if inner is None else MethodType(inner, agent)

    return unwrap(agent.plan), unwrap(agent.update)


def check_agent(agent: Any) -> None:
    """Refuse an object that lacks a method of an agent, or whose task is not a Task."""
    needed = ["init", "plan", "update"]
    if getattr(getattr(agent, "task", None), "infinite_horizon", False):
        needed.append("steps_until_replan")
    for name in needed:
        if not callable(getattr(agent, name, None)) or isinstance(agent, type):
            raise TypeError(f"agent is {format_value(agent)}; it has no {name}")
    check_instance("agent.task", getattr(agent, "task", None), Task)


def check_state(agent: Any, state: Any, finite: bool = False) -> None:
    """Refuse a state that is not laid out as the agent's first one."""
    known = vars(agent)
    if "first_layout" not in known:
        object.__setattr__(agent, "first_layout", describe_parts(agent.init()))
    name = type(agent).__name__
    parts, first = describe_parts(state), known["first_layout"]
    for found, expected in zip_longest(parts, first, fillvalue="nothing"):
        if found not in (expected, f"{expected} above 0"):  # what begins at 0 may grow
            raise ValueError(
                f"the state is not one of this {name} and its task: it holds {found} where "
                f"{expected} is needed"
            )
    if finite and not is_finite(state):
        raise ValueError(f"the state of the {name} holds numbers that are not finite")


def describe_parts(value: Any) -> list[str]:
    """Return the types and shapes of a tree of arrays: what two states of an agent share."""
    if isinstance(value, tuple):
        return [f"a {type(value).__name__}", *chain.from_iterable(map(describe_parts, value))]
    if isinstance(value, np.ndarray):
        order = "" if value.flags.c_contiguous else " that is not contiguous"
        return [f"an array {value.dtype} of shape {value.shape}{order}"]
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return ["a whole number above 0" if value > 0 else "a whole number"]
    if isinstance(value, float | np.floating):  # such as lambda
        return ["a number above 0" if 0 < value < np.inf else "a number"]
    return [f"a {type(value).__name__}"]


def is_finite(value: Any) -> bool:
    """Return whether all numbers of a tree of arrays are finite."""
    if isinstance(value, tuple):
        return all(map(is_finite, value))
    return np.asarray(value).dtype.kind != "f" or bool(np.isfinite(value).all())


def check_plan(task: Task, plan: Any) -> None:
    """Refuse a plan of another task: some learners regress on its values."""
    v: Any = getattr(plan, "v", None)
    shape = task.horizon + 1, task.n_states
    fits = isinstance(v, np.ndarray) and v.dtype == np.float64 and v.shape == shape
    if not fits or not v.flags.c_contiguous or not np.isfinite(v).all():
        raise ValueError(f"plan is not one of this task: its v must be finite, of shape {shape}")
    if getattr(plan, "in_user_units", False) is True and not task.units.is_identity:
        raise ValueError("plan is in the user's units; update needs the plan as the agent made it")


def checked_episode(task: Task, episode: Any) -> Episode:
    """Return the episode in the types that the compiled loops know, or refuse it."""
    try:
        states, actions = (np.asarray(x, np.int64) for x in episode[:2] if is_row(x))
        rewards = as_float("rewards of the episode", episode[2])
    except (TypeError, ValueError, IndexError):
        raise ValueError(
            f"episode is {format_value(episode)}; it must be (states, actions, rewards), rows of "
            "whole numbers and numbers"
        ) from None
    fits = task.infinite_horizon or len(actions) <= task.horizon
    if not (fits and len(states) == len(actions) + 1) or rewards.shape != actions.shape:
        raise ValueError(
            f"the episode has {len(states)} states, {len(actions)} actions and {rewards.size} "
            f"rewards; with horizon {task.horizon} it must have T + 1, T and T, T at most "
            f"{task.horizon}"
        )
    episode = Episode(states, actions, rewards)
    fault = kernels.episodes.check_episode(*episode, task.n_states, task.n_actions, task.indptr)
    if fault < 0 and task.reward is None:  # only rewards that are learned from must be in range
        outside = (rewards < -SLACK) | (rewards > 1.0 + SLACK)
        fault = 3 * int(np.argmax(outside)) + 2 if outside.any() else -1
    if fault < 0:
        return episode
    step, what = divmod(fault, 3)
    allowed = [
        f"0 to {task.n_states - 1}", f"0 to {task.n_actions - 1}",
        "finite numbers on the unit scale, 0 to 1 (task.units converts)",
    ][what]  # fmt: skip
    if what == 1 and 0 <= actions[step] < task.n_actions:
        available = np.flatnonzero(task.available[states[step]])
        allowed = f"{', '.join(map(str, available))} in state {states[step]}"
    name, value = Episode._fields[what], episode[what][step]
    raise ValueError(f"{name}[{step}] of the episode is {value}; {name} are {allowed}")


def is_row(values: Any) -> bool:
    """Return whether values are a row of whole numbers."""
    array = np.asarray(values)
    return array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
