"""What valid data is: each check returns it in canonical types or raises one clear sentence.

A sentence names the field, the first offending index, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from upriver.mdp import Task

Array = NDArray[Any]
Support = tuple[Array, Array]
"""Reachable sets as (indptr, successors)."""

new_tuple = tuple.__new__
"""new_tuple(Kind, fields) is Kind(*fields) of a named tuple in a third of the time: for those of
every episode."""

ROW_TOLERANCE = 1e-8
TINY = 5e-324  # the smallest number above 0


def initial_distribution(initial_state: Any, n_states: int) -> tuple[Array, Array]:
    """(states, probabilities) from a state or a distribution (S,)."""
    given = np.asarray(initial_state)
    if given.ndim == 0:
        if not np.issubdtype(given.dtype, np.integer) or not 0 <= given < n_states:
            raise ValueError(
                f"initial_state is {shown(initial_state)}; it must be a state from 0 to "
                f"{n_states - 1} or a distribution of shape ({n_states},)"
            )
        return np.array([int(given)]), np.ones(1)
    weights = as_float("initial_state", given)
    if weights.shape != (n_states,):
        raise ValueError(
            f"initial_state has shape {weights.shape}; a distribution must be ({n_states},)"
        )
    if not (weights >= 0).all():
        s = int(np.argmin(weights >= 0))
        raise ValueError(f"initial_state[{s}] is {weights[s]}; probabilities must be >= 0")
    starts = np.flatnonzero(weights)
    return starts, weights[starts]


def support_from_sets(sets: Iterable[Iterable[int]], n_states: int, n_actions: int) -> Support:
    """(indptr, successors) from one set of states for each (s, a); an empty one: no such action."""
    listed = [sorted(each) for each in sets]
    if len(listed) != n_states * n_actions:
        raise ValueError(
            f"support has {len(listed)} sets; there must be {n_states * n_actions}, one for each "
            "(s, a) in the order s * n_actions + a"
        )
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in listed])])
    flat = np.array([s for each in listed for s in each], dtype=None if indptr[-1] else np.int64)
    return checked_support((indptr, flat), n_states, n_actions)


def checked_support(
    support: Support, n_states: int, n_actions: int, say: Callable[[int], str] | None = None
) -> Support:
    """The support as owned arrays, or a ValueError that names the first bad pair; say: g -> it.

    A pair without successors does not exist: the state does not have that action.
    """
    say = say or (lambda g: "(s={}, a={})".format(*divmod(g, n_actions)))
    given = []
    for name, values in zip(("indptr", "successors"), support, strict=True):
        wide = np.asarray(values)
        if wide.ndim != 1 or (wide.size and wide.dtype.kind not in "iu"):
            raise ValueError(f"{name} must be a one-dimensional array of whole numbers")
        given.append(wide)
    indptr, wide = owned(given[0], np.int64), given[1]
    groups = n_states * n_actions
    if indptr.shape != (groups + 1,) or indptr[0] != 0 or indptr[-1] != len(wide):
        raise ValueError(
            f"indptr must have {groups + 1} entries from 0 to {len(wide)}, the number of successors"
        )
    sizes = np.diff(indptr)
    if (sizes < 0).any():
        raise ValueError(f"indptr falls at {say(int(np.argmax(sizes < 0)))}; it must not")
    idle = ~(sizes > 0).reshape(n_states, n_actions).any(axis=1)
    if idle.any():
        state = say(int(np.argmax(idle)) * n_actions).removeprefix("(s=").rpartition(", a=")[0]
        raise ValueError(
            f"state {state} has no action; every state needs one, if only to stay where it is"
        )
    outside = (wide < 0) | (wide >= n_states)
    if outside.any():
        i = int(np.argmax(outside))
        raise ValueError(
            f"successor {wide[i]} of {say(int(np.searchsorted(indptr, i, side='right')) - 1)} is "
            f"out of range; states are 0 to {n_states - 1}"
        )
    rising = np.diff(wide.astype(np.int64)) > 0
    starts = indptr[(indptr > 0) & (indptr < len(wide))]
    rising[starts - 1] = True
    if not rising.all():
        i = int(np.argmin(rising)) + 1
        raise ValueError(
            f"successor {wide[i]} of {say(int(np.searchsorted(indptr, i, side='right')) - 1)} is "
            "repeated or out of order; successors must be distinct and ascending"
        )
    return indptr, owned(wide, np.int32)


def check_covers(support: Support, task: Task, name: str) -> None:
    """Refuse a support that leaves out a reachable state, or has actions that are not there."""
    indptr, successors = support
    extra = (np.diff(indptr) > 0) & (task.sizes == 0)
    if extra.any():
        pair = task.pair(int(np.argmax(extra)))
        raise ValueError(
            f"{name} has successors for {pair}, an action that the state does not have"
        )
    groups = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    s, a, s2 = task.triples
    wanted = (s * task.n_actions + a) * task.n_states + s2
    given = groups * task.n_states + successors  # ascending, as every support is
    at = np.minimum(np.searchsorted(given, wanted), len(given) - 1)
    missing = given[at] != wanted
    if missing.any():
        i = int(np.argmax(missing))
        raise ValueError(
            f"{name} leaves out successor {task.state_names[s2[i]]!r} of "
            f"{task.pair(s[i] * task.n_actions + a[i])}, which has a positive probability"
        )


def check_probabilities(probability: Array, task: Task) -> None:
    """Refuse a row (1 | H, n) of the task's triples that is no distribution."""
    bad = ~(np.isfinite(probability) & (probability >= 0))
    if bad.any():
        step, i = np.unravel_index(int(np.argmax(bad)), bad.shape)
        g = int(np.searchsorted(task.indptr, i, side="right")) - 1
        raise ValueError(
            f"transition row {task.pair(g)} holds {probability[step, i]}; probabilities must be "
            "between 0 and 1"
        )
    totals = task.by_pair(probability)
    wrong = (np.abs(totals - 1.0) > ROW_TOLERANCE) & (task.sizes > 0)
    if wrong.any():
        step, g = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        at = task.pair(int(g), None if len(probability) == 1 else int(step))
        raise ValueError(f"transition row {at} sums to {totals[step, g]:.9g}; it must sum to 1")


def check_initial(states: Array, weights: Array, n_states: int) -> None:
    if states.shape != weights.shape or states.ndim != 1 or not len(states):
        raise ValueError(
            "initial_states and initial_probability must be of one and the same length"
        )
    if ((states < 0) | (states >= n_states)).any():
        raise ValueError(f"initial_states must lie between 0 and {n_states - 1}")
    if not (weights >= 0).all() or abs(weights.sum() - 1.0) > ROW_TOLERANCE:
        raise ValueError(
            f"initial probabilities sum to {weights.sum():.9g}; they must be >= 0 and sum to 1"
        )


def instance(name: str, value: Any, kind: type) -> Any:
    """The value itself, if it is of that kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a {kind.__name__}")
    return value


def owned(values: Any, kind: Any = None) -> Array:
    """A contiguous copy that nobody can write to; `readable` is for kernels."""
    locked = np.array(values, dtype=kind, order="C", copy=True)[...]
    locked.flags.writeable = False
    return locked


def readable(array: Array) -> Array:
    """An `owned` array as kernels read it, not copied; they do not write to it.

    Kernels are compiled once more for arrays that cannot be written to.
    """
    base = array.base
    if isinstance(base, np.ndarray) and base.flags.writeable and base.shape == array.shape:
        return base
    return array.copy()


def as_float(name: str, values: Any, kind: Any = np.float64) -> Array:
    try:
        if np.asarray(values).dtype.kind in "biufO":  # neither complex numbers nor text
            return np.ascontiguousarray(values, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be an array of numbers without gaps")


def shown(value: Any) -> str:
    """A value as errors show it: on one line, and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def positive_integer(name: str, value: Any, least: int = 1, most: int = 10**10) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")
    if number > most:
        raise ValueError(f"{name} is {number}; it must be at most {most}")
    return number


def finite_number(name: str, value: Any, least: float, allowed: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not (number >= least and np.isfinite(number)):
        raise ValueError(f"{name} is {shown(value)}; it must be a finite number {allowed}")
    return number


def positive_number(name: str, value: Any) -> float:
    return finite_number(name, value, TINY, "above 0")


def nonnegative_number(name: str, value: Any) -> float:
    return finite_number(name, value, 0.0, "of at least 0")


def checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {shown(seed)}; it must be a whole number of at least 0")
    return int(seed)
