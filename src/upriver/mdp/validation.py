"""Checks of tasks and MDPs: supports, probabilities, initial states, rewards and their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import (
    WHOLE,
    Array,
    Support,
    as_float,
    format_value,
    nonnegative_number,
    read_only_copy,
)

if TYPE_CHECKING:
    from upriver.mdp.task import Task

ROW_TOLERANCE = 1e-8
"""How far the sum of a row of probabilities may be from 1."""
ROUNDING = 1e-13
"""Rows whose sums are nearer to 1 stay as they are."""
MAX_REWARD = 1e150
"""No reward may be larger in absolute value, so that sums of squares stay finite."""
MAX_TRIPLES = 100_000_000
"""How many triples (s, a, s') a task may have, and how many names a list of them."""
TRIPLE_BYTES = 64
"""About what each takes while it is listed; features and a learner's arrays come on top."""


def initial_distribution(initial_state: Any, n_states: int) -> tuple[Array, Array]:
    """Return (states, probabilities) of a state number or a distribution (S,)."""
    if isinstance(initial_state, WHOLE):
        if 0 <= initial_state < n_states:
            return np.array([initial_state]), np.ones(1)
    elif (given := as_float("initial_state", initial_state)).shape == (n_states,):
        starts = np.flatnonzero(given)
        return starts, given[starts]
    raise ValueError(
        f"initial_state is {format_value(initial_state)}; it must be a state from 0 to "
        f"{n_states - 1} or a distribution of shape ({n_states},)"
    )


def support_of_triples(pair: Array, successors: Array, n_pairs: int) -> Support:
    """Return (indptr, successors) of triples in the order of their pairs s * A + a."""
    return np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=n_pairs))]), successors


def check_support(support: Support, task: Task) -> Support:
    """Return the support as read-only arrays, or raise an error that names the first bad pair.

    A pair without successors does not exist: the state does not have that action.
    """
    if not isinstance(support, tuple | list) or len(support) != 2:
        raise TypeError(f"support is {format_value(support)}; it must be (indptr, successors)")
    given = [as_float("indptr", support[0], None), as_float("successors", support[1], None)]
    if any(x.ndim != 1 or (x.size and x.dtype.kind not in "iu") for x in given):
        raise ValueError("indptr and successors must be one-dimensional arrays of whole numbers")
    check_size(task.n_states, len(given[1]))
    indptr, successors = read_only_copy(given[0], np.int64), given[1].astype(np.int64)
    n, n_pairs, sizes = len(successors), task.n_states * task.n_actions, np.diff(indptr)
    ends = indptr.shape == (n_pairs + 1,) and (indptr[0], indptr[-1]) == (0, n)
    if not ends or (sizes < 0).any():
        last = f"{n}, the number of successors"
        raise ValueError(f"indptr must have {n_pairs + 1} entries that ascend from 0 to {last}")
    for s in np.flatnonzero(~(sizes > 0).reshape(task.n_states, -1).any(axis=1))[:1]:
        name = repr(task.state_names[s])
        raise ValueError(f"state {name} has no action; it needs one, if only to stay there")
    ascending = np.diff(successors, prepend=-1) > 0
    ascending[indptr[:-1][sizes > 0]] = True  # a new pair begins
    for row in np.flatnonzero(~ascending | (successors < 0) | (successors >= task.n_states))[:1]:
        pair = task.describe_pair(int(np.searchsorted(indptr, row, side="right")) - 1)
        wrong = f"successor {successors[row]} of {pair} is out of range or order"
        raise ValueError(f"{wrong}; they must be distinct and ascend, up to {task.n_states - 1}")
    return indptr, read_only_copy(successors, np.int32)


def triple_keys(indptr: Array, successors: Array, n_states: int) -> Array:
    """Return (n,) the number (s * A + a) * S + s' of every row of a support, ascending."""
    pairs = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return pairs * n_states + successors


def check_covers(support: Support, task: Task, name: str) -> None:
    """Refuse a support that lacks a reachable state or has actions that the task does not have."""
    for pair in np.flatnonzero((np.diff(support[0]) > 0) & (task.sizes == 0))[:1]:
        lacking = f"{task.describe_pair(pair)}, an action that the state lacks"
        raise ValueError(f"{name} has successors for {lacking}")
    # not task.triple_keys, which would stay in memory
    needed = triple_keys(task.indptr, task.successors, task.n_states)
    missing = np.setdiff1d(needed, triple_keys(*support, task.n_states))
    for pair, s2 in np.stack(np.divmod(missing[:1], task.n_states), axis=1):
        left_out = f"successor {task.state_names[s2]!r} of {task.describe_pair(pair)}"
        raise ValueError(f"{name} leaves out {left_out}, which has a positive probability")


def normalize_probabilities(probability: Array, task: Task) -> Array:
    """Return probabilities (1 or H, n) that sum to 1 over each pair's successors.

    Over many steps a row that sums to 1 - 1e-8 would lose that share of the value at each of them.
    Raise ValueError if a row is no distribution.
    """
    for step, i in np.argwhere(~(np.isfinite(probability) & (probability >= 0)))[:1]:
        row = task.describe_pair(int(np.searchsorted(task.indptr, i, side="right")) - 1)
        what = f"transition row {row} holds {probability[step, i]}"
        raise ValueError(f"{what}; probabilities must be between 0 and 1")
    totals = task.by_pair(probability)
    wrong = (np.abs(totals - 1.0) > ROW_TOLERANCE) & (task.sizes > 0)
    for step, pair in np.argwhere(wrong)[:1].tolist():
        row = task.describe_pair(pair, None if len(probability) == 1 else step)
        raise ValueError(f"transition row {row} sums to {totals[step, pair]:.9g}; it must sum to 1")
    inexact = (np.abs(totals - 1.0) > ROUNDING) & (task.sizes > 0)
    if not inexact.any():
        return probability
    return probability / np.repeat(np.where(inexact, totals, 1.0), task.sizes, axis=-1)


def check_distribution(name: str, weights: Array) -> None:
    if not ((weights >= 0).all() and abs(weights.sum() - 1.0) <= ROW_TOLERANCE):
        least = f", and the least is {weights.min():g}" if weights.size else ""
        numbers = f"sum to {weights.sum():.9g}{least}"
        raise ValueError(f"{name} {numbers}; they must be at least 0 and sum to 1")


def check_rewards(task: Task, name: str) -> Array:
    """Return a field of rewards or values as a read-only array of finite numbers.

    `reward` (S, A) or (H, S, A), where actions that a state does not have get 0;
    `next_state_reward` (1 or H, n); `partial_reward` (n,), NaN where unknown; `terminal` (S,).
    """
    n, pairs = task.n_triples, (task.n_states, task.n_actions)
    shapes: Any = {
        "reward": (pairs, (task.horizon, *pairs)),
        "next_state_reward": ((n,), (1, n), (task.horizon, n)),
        "partial_reward": ((n,),),
        "terminal": ((task.n_states,),),
    }[name]
    values = as_float(name, getattr(task, name), shapes=shapes)
    if name == "reward":
        values = np.where(task.available, values, 0.0)
    elif name == "next_state_reward":
        values = np.atleast_2d(values)
    bad = ~(np.abs(values) <= MAX_REWARD)
    if name == "partial_reward":
        bad &= ~np.isnan(values)
    for at in map(tuple, np.argwhere(bad)[:1].tolist()):
        if name == "terminal":
            where = repr(task.state_names[at[0]])
        elif name == "reward":
            where = task.describe_pair(at[-2] * task.n_actions + at[-1], *at[:-2])
        else:
            s, a, s2 = (x[at[-1]] for x in task.triples)
            pair = task.describe_pair(int(s * task.n_actions + a))
            where = f"{pair} with next state {task.state_names[s2]!r}"
        what = name.removeprefix("next_state_").removeprefix("partial_")
        allowed = f"it must be a finite number of at most {MAX_REWARD:g}"
        raise ValueError(f"{what} of {where} is {values[at]}; {allowed}")
    return read_only_copy(values)


def reward_bounds(task: Task) -> tuple[float, float]:
    """Return the smallest and the largest reward of a task; (0, 1) where they are unknown."""
    if task.reward is None:
        partial = task.partial_reward
        known = np.empty(0) if partial is None else partial[~np.isnan(partial)]
        return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    rewards = task.reward.reshape(-1, task.available.size)
    if task.next_state_reward is None:
        rewards = rewards[:, task.available.ravel()]
    else:
        rewards = rewards.repeat(task.sizes, axis=1) + task.next_state_reward
    return float(rewards.min()), float(rewards.max())


def check_reward_range(task: Task, given: Any) -> tuple[float, float]:
    """Return the bounds of one reward: as given, or [0, 1] where all known rewards lie in it, else
    the smallest and the largest reward."""
    low, high = reward_bounds(task)
    if given is None:
        if low >= 0.0 and high <= 1.0:
            return 0.0, 1.0
        return low, high if low < high else low + max(1.0, 1e-9 * abs(low))
    try:
        lower, upper = map(float, given)
    except (TypeError, ValueError):
        lower = upper = np.nan
    if not (np.isfinite([lower, upper]).all() and lower < upper):
        allowed = "it must be (low, high), low below high"
        raise ValueError(f"reward_range is {format_value(given)}; {allowed}")
    slack = 1e-9 * (upper - lower)
    if (task.reward is not None or task.partial_reward is not None) and not (
        lower - slack <= low and high <= upper + slack
    ):
        rewards = f"rewards lie between {low:g} and {high:g}"
        raise ValueError(f"{rewards}, outside reward_range ({lower:g}, {upper:g})")
    return lower, upper


def check_discount(horizon: Any, discount: Any) -> float | None:
    """Return the discount of a task: None with a horizon, 1 for the average reward."""
    if discount is None:
        return None if horizon is not None else 1.0
    if horizon is not None:
        given = f"horizon is {format_value(horizon)} and discount is {format_value(discount)}"
        raise ValueError(f"{given}; it must be one of them, with horizon=None for a discount")
    if isinstance(discount, bool) or nonnegative_number("discount", discount) >= 1.0:
        raise ValueError(f"discount is {discount!r}; it must be at least 0 and less than 1")
    return float(discount)


def check_size(n_states: int, n_triples: float, max_triples: int | None = None) -> None:
    """Refuse a problem of so many triples (s, a, s'), or about so many, before it fills memory."""
    max_triples = max_triples or MAX_TRIPLES
    if n_triples > max_triples:
        raise ValueError(
            f"{n_states:,} states have about {n_triples:,.0f} triples (s, a, s'), which take "
            f"{n_triples * TRIPLE_BYTES / 1e9:,.2g} GB to list; at most {max_triples:,} are "
            "listed: merge states, declare fewer successors, or describe the states by components"
        )
