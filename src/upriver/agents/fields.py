"""Validation of the fields of an agent, by the name of the field.

A field of one name means the same in every agent, so `CHECKS` says once what it may hold. An agent
calls `validate_fields(self)` in `__post_init__`, with checks of its own where they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import inf
from typing import Any

from upriver.checks import (
    check_instance,
    nonnegative_number,
    open_fraction,
    positive_integer,
    positive_number,
)
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mnl.radii import scaled_radius

Check = Callable[[str, Any], Any]
"""(name, value) -> the value in canonical form, or an error of one sentence."""


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
}
"""What a field of each name may hold."""


class Rule:
    """The base of radius and bonus rules: frozen dataclasses whose fields are their constants."""

    def __post_init__(self) -> None:
        validate_fields(self)


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
