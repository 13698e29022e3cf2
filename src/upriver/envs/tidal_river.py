"""Tidal river: a river near the sea, whose current turns with the tide, so dynamics change with h.

One swims left or right, or lies at anchor. Outcomes are the neighbours and the place itself:

    P_h(s' | s, a) proportional to exp(theta_h . varphi(s, a, s')),

with features for going left, going right, going where one swims to, and moving at anchor. Only the
first two of their weights change, by the tide: log DRIFT -/+ current * cos(2 pi h / period). So the
model is exactly (1) with a core for each step, and with no single one.
"""

from __future__ import annotations

import numpy as np

from upriver.checks import nonnegative_number, positive_integer, positive_number
from upriver.envs.named import indicators
from upriver.envs.riverswim import neighbours
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

ACTIONS = LEFT, RIGHT, ANCHOR = "left", "right", "anchor"
DRIFT, HELD = 0.3, 0.1
"""Weight of a step to either side at slack water; what an anchor leaves of it. Staying has 1."""


def tidal_river(
    n_states: int = 10,
    horizon: int | None = None,
    current: float = 1.5,
    period: float = 12.0,
    strength: float = 4.0,
    small_reward: float = 0.005,
) -> FiniteMDP:
    """A river of `n_states` places; the horizon is 4 * n_states unless given.

    current: the most that the tide adds to the log-odds of a step right, at high tide, and takes
    from them at low tide. period: steps from one high tide to the next; an episode starts at one.
    strength: how much more likely a side is when it is swum for. Swimming left at the first place,
    the start, pays `small_reward`, swimming right at the last one pays 1. The true support is
    local.
    """
    n_states = positive_integer("n_states", n_states, 2)
    horizon = positive_integer("horizon", 4 * n_states if horizon is None else horizon)
    reward = np.zeros((n_states, len(ACTIONS)))
    reward[0, 0], reward[-1, 1] = small_reward, 1.0
    sets = neighbours(n_states, len(ACTIONS))
    task = Task(
        n_states, len(ACTIONS), horizon, *sets, reward, support="known", actions=ACTIONS
    )  # fmt: skip
    angle = 2.0 * np.pi * np.arange(horizon) / positive_number("period", period)
    tide = nonnegative_number("current", current) * np.cos(angle)
    at_anchor, swum_for = np.log(HELD), np.log(positive_number("strength", strength))
    core = np.empty((horizon, 4))  # in the order of the features, which is alphabetical
    core[:, 0], core[:, 3] = at_anchor, swum_for
    core[:, 1], core[:, 2] = np.log(DRIFT) - tide, np.log(DRIFT) + tide
    weights = np.exp(core @ tidal_river_features(task).matrix.T)
    totals = np.add.reduceat(weights, task.indptr[:-1], axis=1)
    prob = weights / totals.repeat(task.sizes, axis=1)
    name = f"tidal-river-{n_states}"
    return FiniteMDP(task, prob, np.zeros(1, int), np.ones(1), sets, name)


def tidal_river_features(task: Task) -> Features:
    """Goes left, goes right, and whether it is swum for, or done at anchor: d = 4.

    Anywhere else is a fifth feature, which occurs with full support only.
    """

    def labels(s: int, a: str, s2: int) -> tuple[str, ...]:
        if s2 == s:
            return ()
        if abs(s2 - s) > 1:
            return ("elsewhere",)
        side = LEFT if s2 < s else RIGHT
        how = {side: ("swum for",), ANCHOR: ("at anchor",)}.get(a, ())
        return (f"goes {side}", *how)

    return indicators(task, labels)
