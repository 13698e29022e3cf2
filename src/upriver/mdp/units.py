"""The user's units of reward and the unit scale on which agents plan.

Write low and high for the bounds of one reward, unit = high - low and n for the number of steps
left. An agent plans with the rewards (r - low) / unit in [0, 1] and with terminal values from 0 on,
as the papers do. Its values V' are

    V_h = n low + smallest terminal value + unit V'_h

in the user's units. Rewards in [0, 1] stay as they are. With an infinite horizon n is
1 / (1 - discount); for the average reward, where V is the bias, n is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from upriver.checks import Array

if TYPE_CHECKING:
    from upriver.mdp.task import Task


class Units(NamedTuple):
    """How the unit scale [0, 1] lies in the user's units."""

    low: float
    """The smallest reward, in the user's units."""
    unit: float
    """The difference between the largest and the smallest reward."""
    floor: Array
    """(H + 1,) the smallest value at each step, in the user's units."""
    value_range: Array
    """(H + 1,) the largest value above `floor`, on the unit scale: without terminal values the
    number of steps left."""
    next_value_range: Array
    """(H,) the range of what follows a pair (s, a): that of V_{h+1}, and of a reward that depends
    on s'."""
    max_value: float
    """The range of all values: H, or more where there are terminal values."""

    @property
    def is_identity(self) -> bool:
        """Whether the user's units are the unit scale."""
        return self.unit == 1.0 and self.low == 0.0 and not self.floor.any()

    def to_unit_scale(self, rewards: Array) -> Array:
        """Return rewards in the user's units on the unit scale."""
        return rewards if self.is_identity else (rewards - self.low) / self.unit


def make_units(task: Task) -> Units:
    low, high = task.reward_range or (0.0, 1.0)
    unit = high - low
    if task.discount is not None:  # of the average reward only differences of values count
        steps = 1.0 if task.discount == 1.0 else 1.0 / (1.0 - task.discount)
        floor = 0.0 if task.discount == 1.0 else low * steps
        value_range = np.array([steps, 0.0])
        return Units(low, unit, np.array([floor, 0.0]), value_range, value_range[:1], steps)
    steps_left = np.arange(task.horizon, -1, -1, dtype=np.float64)
    terminal = np.zeros(1) if task.terminal is None else task.terminal
    least, most = float(terminal.min()), float(terminal.max())
    value_range = steps_left + (most - least) / unit
    next_value_range = value_range[1:] + (0.0 if task.next_state_reward is None else 1.0)
    floor = steps_left * low + least
    return Units(low, unit, floor, value_range, next_value_range, float(value_range[0]))
