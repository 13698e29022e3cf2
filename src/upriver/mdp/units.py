"""The user's units and the theory's: outside rewards are what they are, inside they lie in [0, 1].

Write low and high for the bounds of one reward, unit = high - low, n for the steps left. An agent
plans with (r - low) / unit and terminal values from 0 on, as papers do, and

    V_h = n low + least terminal value + unit V'_h

are its values in the user's units. Rewards in [0, 1] are left as they are. Without a last step n is
1 / (1 - discount), and of the average reward, where V is the bias, 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array, Support, as_float, owned, shown

if TYPE_CHECKING:
    from upriver.mdp.task import Task

LARGE = 1e150
"""No reward is larger, so that sums of them and their squares are numbers."""


class Units(NamedTuple):
    """How the theory's scale lies in the user's units."""

    low: float
    unit: float
    floor: Array
    """(H + 1,) the least value at each step, in the user's units."""
    value_range: Array
    """(H + 1,) how far values range above it, on the theory's scale: without terminal values the
    number of steps left."""
    next_value_range: Array
    """(H,) how far what follows (s, a) ranges: that of V_{h+1}, and of a reward that depends on
    s'."""
    max_value: float
    """H, or more where there are terminal values: the range of all values."""

    @property
    def is_identity(self) -> bool:
        """Whether the two are the same."""
        return self.unit == 1.0 and self.low == 0.0 and not self.floor.any()

    def to_unit_scale(self, rewards: Array) -> Array:
        """Rewards on the theory's scale."""
        return rewards if self.is_identity else (rewards - self.low) / self.unit


def units_of(task: Task) -> Units:
    low, high = task.reward_range or (0.0, 1.0)
    unit = high - low
    if task.discount is not None:  # values lie in [0, steps], of the average only differences count
        steps = 1.0 if task.discount == 1.0 else 1.0 / (1.0 - task.discount)
        least = 0.0 if task.discount == 1.0 else low * steps
        room = np.array([steps, 0.0])
        return Units(low, unit, np.array([least, 0.0]), room, room[:1], steps)
    left = np.arange(task.horizon, -1, -1, dtype=np.float64)
    least, most = 0.0, 0.0
    if task.terminal is not None:
        least, most = float(task.terminal.min()), float(task.terminal.max())
    room = left + (most - least) / unit
    ahead = room[1:] if task.next_state_reward is None else room[1:] + 1.0
    return Units(low, unit, left * low + least, room, ahead, float(room[0]))


def checked_rewards(task: Task, reward: Any) -> Array:
    """(S, A) or (H, S, A) of finite numbers, or a ValueError that names the first bad entry.

    Actions that a state does not have pay 0, whatever the table says.
    """
    table, shape = as_float("reward", reward), (task.n_states, task.n_actions)
    if table.shape not in {shape, (task.horizon, *shape)}:
        raise ValueError(
            f"reward has shape {table.shape}; it must be {shape} or {(task.horizon, *shape)}"
        )
    table = np.where(task.available, table, 0.0)
    bad = ~(np.abs(table) <= LARGE)
    if bad.any():
        *step, s, a = (int(i) for i in np.unravel_index(int(np.argmax(bad)), table.shape))
        raise ValueError(
            f"reward of {task.pair(s * task.n_actions + a, *step)} is {table[(*step, s, a)]}; "
            f"rewards must be finite numbers, of at most {LARGE:g}"
        )
    return owned(table)


def checked_next_state_reward(task: Task, next_state_reward: Any) -> Array:
    """(1 | H, n) of finite numbers."""
    rows = np.atleast_2d(as_float("next_state_reward", next_state_reward))
    shapes = (1, task.n_triples), (task.horizon, task.n_triples)
    if rows.shape not in shapes:
        raise ValueError(
            f"next_state_reward has shape {np.shape(next_state_reward)}; it must be ({task.n_triples},) or {shapes[1]}"
        )
    bad = ~(np.abs(rows) <= LARGE)
    if bad.any():
        h, i = np.unravel_index(int(np.argmax(bad)), rows.shape)
        s, a, s2 = (x[i] for x in task.triples)
        raise ValueError(
            f"reward of {task.pair(s * task.n_actions + a)} with next state "
            f"{task.state_names[s2]!r} is {rows[h, i]}; rewards must be finite numbers, of at most "
            f"{LARGE:g}"
        )
    return owned(rows)


def checked_terminal(task: Task, terminal: Any) -> Array:
    """(S,) of finite numbers."""
    values = as_float("terminal", terminal)
    if values.shape != (task.n_states,):
        raise ValueError(f"terminal has shape {values.shape}; it must be ({task.n_states},)")
    bad = ~(np.abs(values) <= LARGE)
    if bad.any():
        s = int(np.argmax(bad))
        raise ValueError(
            f"terminal of {task.state_names[s]!r} is {values[s]}; it must be a finite number, of "
            f"at most {LARGE:g}"
        )
    return owned(values)


def checked_range(task: Task, given: Any) -> tuple[float, float]:
    """The bounds of one reward: as given, [0, 1] where all are in it, else least and largest."""
    least, most = 0.0, 1.0
    if task.reward is not None:
        paid = task.reward.reshape(-1, task.available.size)[:, task.available.ravel()]
        if task.next_state_reward is not None:
            paid = task.reward.reshape(-1, task.available.size).repeat(task.sizes, axis=1)
            paid = paid + task.next_state_reward
        least, most = float(paid.min()), float(paid.max())
    if given is None:
        inside = least >= 0.0 and most <= 1.0
        return (0.0, 1.0) if inside else (least, most if least < most else least + 1.0)
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"reward_range is {shown(given)}; it must be (low, high), low below high")
    slack = 1e-9 * (high - low)
    if task.reward is not None and not (low - slack <= least and most <= high + slack):
        raise ValueError(
            f"rewards lie between {least:g} and {most:g}, outside reward_range ({low:g}, {high:g})"
        )
    return low, high


def expected_reward(task: Task, prob: Array) -> Array:
    """(1 | H, S*A) what each pair pays on average in the user's units, prob (1 | H, n)."""
    reward, next_state_reward = task.paid_rows
    return reward + task.by_pair(prob * next_state_reward) if next_state_reward.size else reward


def realigned(task: Task, support: Support) -> Array | None:
    """`next_state_reward` on the triples of a larger support.

    A next state that never comes would pay what the others of its pair pay on average.
    """
    if task.next_state_reward is None:
        return None
    sizes = np.diff(support[0])
    group = np.repeat(np.arange(len(sizes)), sizes)
    wanted = group * task.n_states + support[1]
    s, a, s2 = task.triples
    given = (s * task.n_actions + a) * task.n_states + s2
    at = np.minimum(np.searchsorted(given, wanted), len(given) - 1)
    mean = task.by_pair(task.next_state_reward) / np.maximum(task.sizes, 1)
    return np.where(given[at] == wanted, task.next_state_reward[:, at], mean[:, group])
