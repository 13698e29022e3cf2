"""Environments of the studies that are no part of the package: four, beside those of `up.envs`.

*Tidal river*: a river near the sea, whose current turns with the tide, so dynamics change with h.
One swims left or right, or lies at anchor. Outcomes are the neighbours and the place itself:

    P_h(s' | s, a) proportional to exp(theta_h . varphi(s, a, s')),

with features for going left, going right, going where one swims to, and moving at anchor. Only the
first two of their weights change, by the tide: log DRIFT -/+ current * cos(2 pi h / period). So the
model is exactly eq. (1) with a parameter for each step, and with no single parameter.

*Two states* and many actions that hardly differ: the hard instance of Park, Kwon and Lee,
"Infinite-horizon reinforcement learning with multinomial logit function approximation", 2024. From
state 0 one crosses to state 1, which has a reward of 1, and falls back with probability 1/4. An
action is a row of signs, and each sign changes the log-odds of crossing a little.

*Uneven river*: RiverSwim where swimming right is a little different in every state. Features that
are shared between states are then wrong by a chosen distance.

*Windy grid*: a shortest path around two walls, with a wind beyond the second. Outcomes of a step
are the cell itself and its free neighbours, drawn with weights that multiply: LEAVE for leaving the
cell, `strength` for going where one walks to, `wind` for going south in the windy columns. A wall
removes its direction, so three features are exact at any size.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import exp
from typing import Any, cast

import numpy as np

from upriver import envs, features
from upriver.checks import open_fraction, positive_integer, positive_number
from upriver.envs import Environment
from upriver.envs.bus_engine import KEEP
from upriver.envs.named import (
    build_mdp,
    check_listed,
    check_state_names,
    indicator_features,
    normalize,
)
from upriver.envs.queue import ADMIT
from upriver.envs.random_mnl import stream
from upriver.envs.riverswim import neighbours, riverswim
from upriver.features import Features, from_function
from upriver.mdp import FiniteMDP, Task

ACTIONS = LEFT, RIGHT, ANCHOR = "left", "right", "anchor"
DRIFT, ANCHOR_FACTOR = 0.3, 0.1
"""Weight of a step to either side at slack water, and the factor of an anchor; staying has 1."""


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
    reward = np.zeros((n_states, len(ACTIONS)))
    reward[0, 0], reward[-1, 1] = small_reward, 1.0
    sets = neighbours(n_states, len(ACTIONS))
    task = Task(n_states, 3, horizon, *sets, reward, support="known", actions=ACTIONS)
    angle = 2.0 * np.pi * np.arange(horizon) / positive_number("period", period)
    tide = current * np.cos(angle)
    theta = np.empty((horizon, 4))  # in the order of the features, which is alphabetical
    theta[:, 0], theta[:, 3] = np.log(ANCHOR_FACTOR), np.log(positive_number("strength", strength))
    theta[:, 1], theta[:, 2] = np.log(DRIFT) - tide, np.log(DRIFT) + tide
    weights = np.exp(theta @ tidal_river_features(task).matrix.T)
    totals = np.add.reduceat(weights, task.indptr[:-1], axis=1)
    prob = weights / totals.repeat(task.sizes, axis=1)
    name = f"tidal-river-{n_states}"
    return FiniteMDP(task, prob, np.zeros(1, int), np.ones(1), sets, name)


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


BACK = 0.25


def two_state(dimension: int = 3, horizon: int = 20, gap: float = 0.01) -> FiniteMDP:
    """Make the instance with 2^dimension actions, rows of signs -1 and 1; it starts in state 0.

    State 1 has a reward of 1 for every action. The log-odds of crossing are
    log(1/3) + gap / (3/16) * (sum of the signs), so the signs are exact features. Deviations: a
    finite horizon; the public code of the paper has the probability 1/4 + gap * (sum of the signs),
    which differs by less than 0.002 and is not of the form (1).

    Parameters
    ----------
    gap : float
        About what a sign adds to the probability of crossing.
    """
    dimension = positive_integer("dimension", dimension, most=1000)
    check_listed(2, 2**dimension, 2)
    slope = open_fraction("gap", gap) / (BACK * (1.0 - BACK))

    def outcomes(s: int, a: tuple[int, ...]) -> list[tuple[int, float]]:
        if s == 1:
            return [(0, BACK), (1, 1.0 - BACK)]
        return normalize([(0, 1.0 - BACK), (1, BACK * exp(slope * sum(a)))])

    actions = list(product((-1, 1), repeat=dimension))
    name = f"two-state-{dimension}"
    return build_mdp(name, range(2), actions, outcomes, lambda s, a: float(s), horizon)


def two_state_features(task: Task) -> Features:
    """Make indicators of crossing and falling back, and for a crossing the signs of the action.

    d = dimension + 2.
    """
    dimension = task.n_actions.bit_length() - 1
    names = ["crosses", "falls back", *(f"sign {i + 1}" for i in range(dimension))]

    if list(task.action_names) != list(product((-1, 1), repeat=dimension)):
        raise ValueError("the actions of the task are no rows of signs; make it with two_state")

    def vector(s: int, a: tuple[int, ...], s2: int) -> list[float]:
        if s == s2:
            return [0.0] * len(names)
        return [1.0, 0.0, *a] if s2 == 1 else [0.0, 1.0, *[0] * len(a)]

    return from_function(task, vector, names)


UNEVEN = 4  # a stream of the seed beside those of random_mnl


def uneven_river(
    n_states: int = 20, distance: float = 0.1, seed: int = 0, horizon: int | None = None
) -> FiniteMDP:
    """Make `riverswim` with every row of swimming right changed by `distance`.

    In each state a random sign says whether swimming moves right more often and stays less, or the
    reverse (in the last state: whether it stays more or less often). The reachable states stay the
    same and the average river is `riverswim`, as is the river at distance 0. The distance is the
    total variation, from 0 to 0.3. The task does not depend on the seed.
    """
    if not 0.0 <= distance <= 0.3:
        raise ValueError(f"distance is {distance!r}; it must lie between 0 and 0.3")
    river = riverswim(n_states, horizon)
    pairs = np.flatnonzero(river.true_task.sizes > 1)
    ahead = river.true_task.indptr[pairs + 1] - 1
    change = distance * stream(seed, UNEVEN).choice([-1.0, 1.0], len(pairs))
    probability = river.probability.copy()
    probability[0, ahead] += change
    probability[0, ahead - 1] -= change
    return replace(river, probability=probability, name=f"uneven-river-{n_states}")


def shared(task: Task) -> Features:
    """Make the features of a river, for specifications of uneven rivers."""
    return features.shared(task)


def pooled(task: Task) -> Features:
    """Make the features of a river and a triple effect for each triple."""
    return features.pooled(features.shared(task))


Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}
LEAVE = 0.05
"""Weight of leaving the cell to any side; staying has weight 1."""


def windy_grid(
    size: int = 6, horizon: int | None = None, wind: float = 20.0, strength: float = 60.0
) -> FiniteMDP:
    """Make a stochastic shortest path over size x size cells (x, y), from the south-west corner.

    The goal, in the north-east corner, is never left and has a reward of 1 a step; all other
    rewards are 0. So the value is the horizon less the expected number of steps to the goal, where
    a walk that does not arrive counts as the horizon. The true support is local.

    Parameters
    ----------
    size, horizon : int
        At least 5 x 5 cells; the default horizon is 8 * size.
    wind, strength : float
        Factors by which the wind raises the weight of going south, and walking that of a direction.
    """
    size = positive_integer("size", size, 5)
    check_listed(size**2, len(MOVES), 5)
    wind, strength = positive_number("wind", wind), positive_number("strength", strength)
    cells = free_cells(size)
    goal, free = cells[-1], set(cells)

    def outcomes(cell: Cell, a: str) -> list[tuple[Cell, float]]:
        if cell == goal:
            return [(goal, 1.0)]
        found = [(cell, 1.0)]
        for move, (dx, dy) in MOVES.items():
            if (there := (cell[0] + dx, cell[1] + dy)) in free:
                weight = LEAVE * (strength if move == a else 1.0)
                found.append((there, weight * (wind if wind_helps(cell, move, size) else 1.0)))
        return normalize(found)

    name, horizon = f"windy-grid-{size}", 8 * size if horizon is None else horizon
    return build_mdp(name, cells, tuple(MOVES), outcomes, lambda s, _: float(s == goal), horizon)


def free_cells(size: int) -> list[Cell]:
    """Return all cells but two walls: the first is open in the north, the second in the south."""
    first, second = size // 3, 2 * size // 3
    walls = {(first, y) for y in range(size - 1)} | {(second, y) for y in range(1, size)}
    return [(x, y) for x in range(size) for y in range(size) if (x, y) not in walls]


def wind_helps(cell: Cell, move: str, size: int) -> bool:
    """Return whether the wind helps a move: southwards, in the columns from the second wall on."""
    return move == "south" and cell[0] >= 2 * size // 3


def windy_grid_features(task: Task) -> Features:
    """Make indicators of leaving the cell, of the direction of walking, and of the wind: d = 3.

    Any other next state is a fourth feature, which occurs with full support only.
    """
    check_state_names(task, tuple, "windy_grid")
    size = 1 + max(cell[0] for cell in cast(list[Cell], task.states))
    way = {move: name for name, move in MOVES.items()}

    def labels(s: Cell, a: str, s2: Cell) -> tuple[str, ...]:
        if s2 == s:
            return ()
        move = way.get((s2[0] - s[0], s2[1] - s[1]))
        if move is None:
            return ("elsewhere",)
        true = {"leaves": True, "walked for": move == a, "with the wind": wind_helps(s, move, size)}
        return tuple(label for label, holds in true.items() if holds)

    return indicator_features(task, labels)


def queue_features(task: Task) -> Features:
    """Make indicators of an arrival, of one that is rejected and of the end of a service: d = 3.

    Their coefficients are log rates. Any other next state is a fourth feature, which occurs with
    full support only.
    """

    def labels(n: int, a: str, n2: int) -> tuple[str, ...]:
        if n2 == n + 1:
            return ("arrival",) if a == ADMIT else ("arrival", "door shut")
        return {n: (), n - 1: ("service",)}.get(n2, ("elsewhere",))

    return indicator_features(task, labels)


def bus_engine_features(task: Task) -> Features:
    """Make indicators of an increment of 1 and of 2 bins, the same for both actions: d = 3.

    The third is for the last bin but one, where 1 and 2 are the same. With another support than the
    true one there is one more for each action, for any other next state.
    """
    last = task.n_states - 1

    def labels(s: int, a: str, s2: int) -> tuple[str, ...]:
        origin = s if a == KEEP else 0
        if s2 == origin:
            return ()
        if s2 - origin == 1 and s2 == last:
            return ("+1 or more",)
        return (f"+{s2 - origin}",) if s2 - origin in (1, 2) else (f"{a}: elsewhere",)

    return indicator_features(task, labels)


def directions(task: Task) -> Features:
    """Return `features.shared` with staying as a direction too: a river as a linear mixture.

    Every triple has exactly one indicator, of (action, where on the line, direction), and the
    probabilities of a river are linear in them: what a linear learner needs to share as much as an
    MNL model with the shared features does. d = 14 with two actions and local support.
    """
    base = features.shared(task).matrix
    left_out = np.flatnonzero(~base.any(axis=1))
    s, a, _ = task.triples
    code = a * 3 + np.where(s == 0, 0, np.where(s == task.n_states - 1, 2, 1))
    _, column = np.unique(code[left_out], return_inverse=True)
    extra = np.zeros((task.n_triples, column.max() + 1))
    extra[left_out, column] = 1.0
    return Features(task, np.hstack([base, extra]))


ENVIRONMENTS = {
    "bus-engine": Environment(envs.bus_engine, "n_bins", bus_engine_features),
    "queue": Environment(envs.queue, "buffer", queue_features),
    "tidal-river": Environment(tidal_river, "n_states", tidal_river_features),
    "two-state": Environment(two_state, "dimension", two_state_features),
    "uneven-river": Environment(uneven_river, "n_states", features.shared),
    "windy-grid": Environment(windy_grid, "size", windy_grid_features),
}
"""The environments of this file, as `up.envs.ENVIRONMENTS` has those of the package, and two of the
package with features made by hand."""


def find(name: str) -> Environment:
    """Return the entry of a name without a size, from this file or from the package."""
    return ENVIRONMENTS[name] if name in ENVIRONMENTS else envs.find(name)


def make(name: str, **numbers: Any) -> FiniteMDP:
    """Make an environment of this file, such as "two-state" or "two-state-4", or of the package."""
    base, _, number = name.rpartition("-")
    if base in ENVIRONMENTS and number.isdigit():
        return ENVIRONMENTS[base].make(int(number), **numbers)
    return find(name).make(**numbers) if name in ENVIRONMENTS else envs.make(name, **numbers)
