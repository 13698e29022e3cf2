"""Checks of input. Each returns the input in canonical types or raises one clear sentence.

A sentence names the field, the first offending index, the value and what is allowed.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Support = tuple[Array, Array]
"""Reachable sets in compressed form: (indptr, successors)."""

new_tuple = tuple.__new__
"""new_tuple(Kind, fields) makes the named tuple Kind(*fields) in a third of the time. It is meant
for the tuples that are made in every episode."""

TINY = 5e-324
"""The smallest floating-point number above 0."""


def check_instance(name: str, value: Any, kind: type) -> Any:
    """Return the value if it is of that kind; an MDP in place of its task has its own sentence."""
    if not isinstance(value, kind):
        allowed = f"it must be a {kind.__name__}"
        if kind.__name__ == "Task" and hasattr(value, "true_task"):
            allowed = "use mdp.task()"
        raise TypeError(f"{name} is a {type(value).__name__}; {allowed}")
    return value


def read_only_copy(values: Any, kind: Any = None) -> Array:
    """Return a contiguous copy that cannot be written to; `kernel_view` is for kernels."""
    locked = np.array(values, dtype=kind, order="C", copy=True)[...]
    locked.flags.writeable = False
    return locked


def kernel_view(array: Array) -> Array:
    """Return the writable base of a `read_only_copy`, without copying; kernels only read it.

    Numba would compile every kernel once more for arrays that cannot be written to.
    """
    base = array.base
    if isinstance(base, np.ndarray) and base.flags.writeable and base.shape == array.shape:
        return base
    return array.copy()


def as_float(name: str, values: Any, kind: Any = np.float64) -> Array:
    """Return an array of numbers; text, complex numbers and ragged lists are refused."""
    if callable(values):
        raise ValueError(f"{name} is {format_value(values)}; it must be an array of numbers")
    try:
        if np.asarray(values).dtype.kind in "biufO":
            return np.ascontiguousarray(values, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be an array of numbers without gaps")


def format_value(value: Any) -> str:
    """Return the text of a value as errors show it: one line of at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def positive_integer(name: str, value: Any, least: int = 1, most: int = 10**10) -> int:
    """Return a whole number between `least` and `most`."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        allowed = f"it must be a whole number of at least {least}"
        raise ValueError(f"{name} is {format_value(value)}; {allowed}")
    if number > most:
        raise ValueError(f"{name} is {number}; it must be at most {most}")
    return number


def finite_number(name: str, value: Any, least: float, allowed: str) -> float:
    """Return a finite number of at least `least`; `allowed` says that in words."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not (number >= least and np.isfinite(number)):
        raise ValueError(f"{name} is {format_value(value)}; it must be a finite number {allowed}")
    return number


def positive_number(name: str, value: Any) -> float:
    """Return a finite number above 0."""
    return finite_number(name, value, TINY, "above 0")


def nonnegative_number(name: str, value: Any) -> float:
    """Return a finite number of at least 0."""
    return finite_number(name, value, 0.0, "of at least 0")


def check_seed(seed: Any) -> int:
    """Return a seed as an int; truth values are refused."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {format_value(seed)}; it must be a whole number of at least 0")
    return int(seed)
