"""Tidal river: a river near the sea, whose current turns with the tide, so dynamics change with h.

One swims left or right, or lies at anchor. Outcomes are the neighbours and the place itself:

    P_h(s' | s, a) proportional to exp(theta_h . varphi(s, a, s')),

with features for going left, going right, going where one swims to, and moving at anchor. Only the
first two of their weights change, by the tide: log DRIFT -/+ current * cos(2 pi h / period). So the
model is exactly eq. (1) with a parameter for each step, and with no single parameter.
"""

from __future__ import annotations

import numpy as np

from upriver.checks import check_kinds, nonnegative_number, positive_integer, positive_number
from upriver.envs.named import indicator_features
from upriver.envs.riverswim import neighbours
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.validation import check_size

ACTIONS = LEFT, RIGHT, ANCHOR = "left", "right", "anchor"
DRIFT, ANCHOR_FACTOR = 0.3, 0.1
"""Weight of a step to either side at slack water, and the factor of an anchor; staying has 1."""


@check_kinds
def tidal_river(
    n_states: int = 10, horizon: int | None = None, current: float = 1.5, period: float = 12.0,
    strength: float = 4.0, small_reward: float = 0.005,
) -> FiniteMDP:  # fmt: skip
    """Make a tidal river that starts in its first state, at high tide.

    Swimming right in the last state has a reward of 1. The true support is local.

    Parameters
    ----------
    n_states, horizon : int
        At least 2 states; the default horizon is 4 * n_states.
    current : float
        What high tide adds to the log-odds of a step right, and low tide takes away.
    period : float
        Steps from one high tide to the next.
    strength : float
        Factor by which swimming to a side raises its weight.
    small_reward : float
        Reward for swimming left in the first state.
    """
    n_states = positive_integer("n_states", n_states, 2)
    horizon = positive_integer("horizon", 4 * n_states if horizon is None else horizon)
    check_size(n_states, 9 * n_states * horizon)  # the probabilities change with the step
    reward = np.zeros((n_states, len(ACTIONS)))
    reward[0, 0], reward[-1, 1] = small_reward, 1.0
    sets = neighbours(n_states, len(ACTIONS))
    task = Task(n_states, 3, horizon, *sets, reward, support="known", actions=ACTIONS)
    angle = 2.0 * np.pi * np.arange(horizon) / positive_number("period", period)
    tide = nonnegative_number("current", current) * np.cos(angle)
    theta = np.empty((horizon, 4))  # in the order of the features, which is alphabetical
    theta[:, 0], theta[:, 3] = np.log(ANCHOR_FACTOR), np.log(positive_number("strength", strength))
    theta[:, 1], theta[:, 2] = np.log(DRIFT) - tide, np.log(DRIFT) + tide
    weights = np.exp(theta @ tidal_river_features(task).matrix.T)
    totals = np.add.reduceat(weights, task.indptr[:-1], axis=1)
    prob = weights / totals.repeat(task.sizes, axis=1)
    name = f"tidal-river-{n_states}"
    return FiniteMDP(task, prob, np.zeros(1, int), np.ones(1), sets, name)


@check_kinds
def tidal_river_features(task: Task) -> Features:
    """Make indicators of going left, right, in the direction of swimming, and at anchor: d = 4.

    Any other next state is a fifth feature, which occurs with full support only.
    """

    def labels(s: int, a: str, s2: int) -> tuple[str, ...]:
        if s2 == s:
            return ()
        if abs(s2 - s) > 1:
            return ("elsewhere",)
        side = LEFT if s2 < s else RIGHT
        how = {side: ("swum for",), ANCHOR: ("at anchor",)}.get(a, ())
        return (f"goes {side}", *how)

    return indicator_features(task, labels)
