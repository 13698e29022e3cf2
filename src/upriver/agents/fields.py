"""The fields of an agent: checked once, kept in canonical form."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from upriver.checks import nonnegative_number, positive_number
from upriver.mnl.radii import scaled_radius

Check = Callable[[str, Any], Any]
"""(name, value) -> the value in canonical form, or a ValueError."""


def settle(agent: Any, **checks: Check) -> None:
    """Check the named fields of a frozen dataclass and keep what the checks return."""
    for name, check in checks.items():
        object.__setattr__(agent, name, check(name, getattr(agent, name)))


def rule(make: Callable[[float], Any], check: Check = nonnegative_number) -> Check:
    """A function stays as it is; a number c stands for make(c)."""
    return lambda name, value: value if callable(value) else make(check(name, value))


def optional(default: Any, check: Check) -> Check:
    """None stands for the default."""
    return lambda name, value: default if value is None else check(name, value)


def bound(name: str, value: Any) -> float | None:
    """A positive number; None, like infinity, means no bound."""
    return None if value is None or value == inf else positive_number(name, value)


def fraction(name: str, value: float) -> float:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value!r}; it must lie strictly between 0 and 1")
    return value


MNL = {
    "radius": rule(scaled_radius),
    "regularization": positive_number,
    "kappa": positive_number,
    "step_size": positive_number,
    "theta_bound": bound,
    "reward_bonus": nonnegative_number,
}
"""What fields of these names hold in the learners of the MNL model."""


def validate_mnl_fields(agent: Any, **checks: Check) -> None:
    """`settle` by `MNL`, and by `checks` where they say otherwise; features must fit the task."""
    agent.features.check_task(agent.task)
    own = {name: check for name, check in MNL.items() if hasattr(agent, name)}
    settle(agent, **{**own, **checks})
