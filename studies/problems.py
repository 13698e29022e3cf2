"""Problems with natural features: those that chose the default agent's constants, and those that
judge it.

An experiment names any of them as `problems:problem` with `which`, and the features that an expert
made as `problems:shared` or `problems:pooled`. *Exact* features can give the true probabilities
with some parameter; the others cannot. No constant of the package was chosen on a problem of the
judging set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import exp
from typing import Any, NamedTuple

import numpy as np

from studies import new_problems as new
from studies.environments import find, make
from upriver import envs, features
from upriver.envs.named import build_mdp, indicator_features, normalize
from upriver.features import Features, from_function
from upriver.mdp import FiniteMDP, Task


class Problem(NamedTuple):
    """A problem and its shared features."""

    make: Callable[[], FiniteMDP]
    shared: Callable[[Task], Features]
    exact: bool
    """Whether the shared features can give the true probabilities."""


class Named(NamedTuple):
    """The name of a state: the problem, by which features are found, and the state's own name."""

    problem: str
    state: Any


# -- a help desk -----------------------------------------------------------------------------------


def help_desk(
    lines: int, slots: int, calls: tuple[float, ...], helped: tuple[float, float], waiting: float,
    operator: float,
) -> FiniteMDP:  # fmt: skip
    """Make the desk of the tutorial: one operator or two, a queue of at most `lines` people."""

    def outcomes(n: int, operators: str) -> list[tuple[int, float]]:
        p = helped[operators == "two"] if n else 0.0
        pairs = ((calls[c] * q, n - done + c) for c in range(3) for done, q in ((0, 1 - p), (1, p)))
        return [(min(after, lines), q) for q, after in pairs if q > 0]

    def reward(n: int, operators: str) -> float:
        return 1.0 - waiting * n - (operator if operators == "two" else 0.0)

    return build_mdp("help desk", range(lines + 1), ("one", "two"), outcomes, reward, slots)


def desk_features(task: Task) -> Features:
    """Make indicators of the change by action; full and nearly full desks have their own."""
    lines = task.n_states - 1

    def labels(n: int, operators: str, after: int) -> tuple[str, ...]:
        where = {0: "empty", lines - 1: "one free", lines: "full"}.get(n, "busy")
        return () if n == after else (f"{where} {operators if n else 'any'} {after - n:+d}",)

    return indicator_features(task, labels)


def rough_desk_features(task: Task) -> Features:
    """Make indicators of the change by action, whatever the queue: wrong at both ends."""
    return indicator_features(task, lambda n, a, m: () if n == m else (f"{a} {m - n:+d}",))


# -- machine maintenance ---------------------------------------------------------------------------

WEAR = {"run": {1: -0.4, 2: -1.2, 3: -2.5}, "oil": {-1: -0.5, 1: -1.0, 2: -3.0}}
"""Log-odds of a change of wear against none."""


def machine(worst: int = 9, horizon: int = 40) -> FiniteMDP:
    """Make a machine that wears out: run it, oil it, or replace it; a broken one earns nothing."""

    def outcomes(wear: int, action: str) -> list[tuple[int, float]]:
        if action == "replace":
            return [(0, 1.0)]
        return normalize([(wear, 1.0), *((wear + c, exp(x)) for c, x in WEAR[action].items()
                                         if 0 <= wear + c <= worst)])  # fmt: skip

    def reward(wear: int, action: str) -> float:
        cost = {"run": 0.0, "oil": 0.3, "replace": 1.5}[action]
        return (0.0 if wear == worst else 1.0 - 0.04 * wear) - cost

    made = build_mdp("machine", range(worst + 1), (*WEAR, "replace"), outcomes, reward, horizon)
    return replace(made, local=None)  # what an action can do is known


def machine_features(task: Task) -> Features:
    """Make indicators of (action, change of wear): exact."""

    def labels(wear: int, action: str, after: int) -> tuple[str, ...]:
        return () if after == wear or action == "replace" else (f"{action} {after - wear:+d}",)

    return indicator_features(task, labels)


# -- a clinic --------------------------------------------------------------------------------------

TREATMENTS = {"watch": (-0.6, -0.6, 0.0), "drug": (0.5, -0.9, 0.12), "ward": (1.1, -1.6, 0.4)}
"""Log-odds of improving and of worsening at severity 0, and the cost of a day."""
CLINIC = 8


def clinic(horizon: int = 30) -> FiniteMDP:
    """Make a patient whose severity is 0 (home) to 8 (dead); both ends are absorbing."""

    def outcomes(severity: int, action: str) -> list[tuple[int, float]]:
        if severity in (0, CLINIC):
            return [(severity, 1.0)]
        better, worse, _ = TREATMENTS[action]
        odds = exp(better - 0.25 * severity), exp(worse + 0.1 * severity)
        return normalize([(severity, 1.0), (severity - 1, odds[0]), (severity + 1, odds[1])])

    def reward(severity: int, action: str) -> float:
        return 1.0 - severity / CLINIC - (TREATMENTS[action][2] if 0 < severity < CLINIC else 0.0)

    states = [4, *(s for s in range(CLINIC + 1) if s != 4)]  # it starts in the first
    return build_mdp("clinic", states, tuple(TREATMENTS), outcomes, reward, horizon)


def clinic_features(task: Task) -> Features:
    """Make indicators of (action, better or worse) and severity for each of the two: exact."""
    actions = list(TREATMENTS)

    def row(severity: int, action: str, after: int) -> list[float]:
        found = [0.0] * 8
        if after != severity:
            worse = after > severity
            found[actions.index(action) + 3 * worse] = 1.0
            found[6 + worse] = float(severity)
        return found

    return from_function(task, row)


# -- an inventory ----------------------------------------------------------------------------------

DEMAND = (0.15, 0.25, 0.3, 0.2, 0.1)
CAPACITY, ORDERS = 8, (0, 2, 4)


def inventory(horizon: int = 30) -> FiniteMDP:
    """Make a shop that orders 0, 2 or 4 pieces; demand that finds no stock is lost."""

    def outcomes(stock: int, order: int) -> list[tuple[int, float]]:
        full = min(stock + order, CAPACITY)
        return [(max(full - d, 0), p) for d, p in enumerate(DEMAND)]

    def reward(stock: int, order: int) -> float:
        full = min(stock + order, CAPACITY)
        sold = sum(p * min(full, d) for d, p in enumerate(DEMAND))
        return 1.0 * sold - 0.08 * full - 0.25 * order - (0.3 if order else 0.0)

    made = build_mdp("inventory", range(CAPACITY + 1), ORDERS, outcomes, reward, horizon)
    return replace(made, local=None)  # what an order can lead to is known


def inventory_features(task: Task, rough: bool = False) -> Features:
    """Make indicators of what was sold, and of selling out by stock; `rough` has one for all."""

    def labels(stock: int, order: int, after: int) -> tuple[str, ...]:
        full = min(stock + order, CAPACITY)
        if after == 0 and full < len(DEMAND):
            return ("sold out",) if rough else (f"sold out {full}",) if full else ()
        return (f"sold {full - after}",) if after != full else ()

    return indicator_features(task, labels)


# -- Gymnasium's tables ----------------------------------------------------------------------------


MOVES = (0, -1), (1, 0), (0, 1), (-1, 0)
"""Rows and columns of the lake's actions: left, down, right, up."""
CLIFF_MOVES = (-1, 0), (0, 1), (1, 0), (0, -1)
"""Those of the cliff's: up, right, down, left."""


def slip_features(
    task: Task, columns: int, moves: tuple[tuple[int, int], ...], back: int | None = None,
    rough: bool = False,
) -> Features:  # fmt: skip
    """Make indicators of moving as meant, or slipping to the left or to the right of it.

    A cell to which several of the three lead has the sum of their indicators, which is exact if all
    three are as likely. `rough` has one indicator for every cell in which one stays, as at a wall,
    which is not. `back` is the state to which the cliff sends whoever falls.
    """
    rows = task.n_states // columns

    def target(cell: int, move: tuple[int, int]) -> int:
        row = min(max(cell // columns + move[0], 0), rows - 1)
        column = min(max(cell % columns + move[1], 0), columns - 1)
        falls = row == rows - 1 and 0 < column < columns - 1
        return back if falls and back is not None else row * columns + column

    def row(cell: int, action: int, after: int) -> list[float]:
        turns = (moves[(action + turn) % 4] for turn in (0, -1, 1))
        there = [float(target(cell, move) == after) for move in turns]
        if rough:
            stays = after == cell
            return [float(stays), *(0.0 if stays else x for x in there)]
        return there

    return from_function(task, row)


# -- the two sets ----------------------------------------------------------------------------------


def drawn(distance: float, seed: int) -> Problem:
    make = partial(envs.random_mnl, 10, distance=distance, seed=seed)
    return Problem(make, envs.random_mnl_features, distance == 0.0)


def catalogue(name: str, exact: bool = True) -> Problem:
    return Problem(partial(make, name), find(name.rpartition("-")[0]).shared, exact)


def table(name: str, slip: Callable[[Task], Features], exact: bool, **arguments: Any) -> Problem:
    return Problem(partial(envs.from_gymnasium, name, 100, **arguments), slip, exact)


ROUGH_INVENTORY = partial(inventory_features, rough=True)
LAKE_8 = partial(slip_features, columns=8, moves=MOVES)
LAKE_4 = partial(slip_features, columns=4, moves=MOVES, rough=True)
CLIFF = partial(slip_features, columns=12, moves=CLIFF_MOVES, back=36)
DESK = partial(help_desk, 10, 48, (0.6, 0.3, 0.1), (0.3, 0.65), 0.06, 0.25)
OTHER_DESK = partial(help_desk, 14, 60, (0.45, 0.35, 0.2), (0.45, 0.8), 0.04, 0.3)

CHOOSING: dict[str, Problem] = {
    "desk": Problem(DESK, desk_features, True),
    "deep-sea-20": catalogue("deep-sea-20"),
    "riverswim-20": catalogue("riverswim-20"),
    "river-grid-6": catalogue("river-grid-6"),
    "two-state-4": catalogue("two-state-4"),
    "drawn 0.1": drawn(0.1, 1),
}
"""The problems on which constants were chosen."""

JUDGING: dict[str, Problem] = {
    "other desk": Problem(OTHER_DESK, desk_features, True),
    "machine": Problem(machine, machine_features, True),
    "clinic": Problem(clinic, clinic_features, True),
    "inventory": Problem(inventory, inventory_features, True),
    "queue-10": catalogue("queue-10"),
    "windy-grid-5": catalogue("windy-grid-5"),
    "riverswim-40": catalogue("riverswim-40"),
    "deep-sea-10": catalogue("deep-sea-10"),
    "bus-engine-90": catalogue("bus-engine-90"),
    "drawn 0": drawn(0.0, 501),
    "slippery cliff": table("CliffWalking-v1", CLIFF, True, is_slippery=True),
    "frozen lake 8x8": table("FrozenLake8x8-v1", LAKE_8, True),
    "rough desk": Problem(OTHER_DESK, rough_desk_features, False),
    "rough inventory": Problem(inventory, ROUGH_INVENTORY, False),
    "frozen lake 4x4": table("FrozenLake-v1", LAKE_4, False),
    "uneven-river-20": catalogue("uneven-river-20", exact=False),
    "drawn 0.2": drawn(0.2, 502),
    "drawn 1": drawn(1.0, 503),
}
"""The problems on which it is judged: the first twelve have exact features, the others not."""

NEW: dict[str, Problem] = {
    "heated room": Problem(new.heated_room, new.heated_room_features, True),
    "epidemic": Problem(new.epidemic, new.epidemic_features, True),
    "key and door": Problem(new.key_and_door, new.key_and_door_features, True),
    "two queues": Problem(new.two_queues, new.two_queues_features, True),
    "renumbered river": Problem(new.renumbered_river, new.renumbered_river_features, True),
    "dense drawn": Problem(new.dense_drawn, envs.random_mnl_features, False),
}
"""Further problems that judge automatic features."""

MEANINGLESS = ("drawn 0", "drawn 0.2", "drawn 1", "renumbered river", "dense drawn")
"""Problems where the number of a state says nothing."""

STREAMS: dict[str, Problem] = {
    "two-state-3": catalogue("two-state-3"),
    "riverswim-6": catalogue("riverswim-6"),
    "queue-20": catalogue("queue-20"),
}
"""The other problems that are played as one stream."""

PROBLEMS = CHOOSING | JUDGING | NEW | STREAMS


def problem(which: str) -> FiniteMDP:
    """Make a problem of the table. Its local support is the true one where it declares none."""
    if which not in PROBLEMS:
        raise ValueError(f"which is {which!r}; it must be one of {', '.join(PROBLEMS)}")
    mdp = PROBLEMS[which].make()
    task = mdp.true_task
    names = [Named(which, s) for s in task.state_names]
    local = (task.indptr, task.successors) if mdp.local is None else mdp.local
    return replace(mdp, true_task=replace(task, states=names), local=local, name=which)


def shared(task: Task) -> Features:
    """Make the shared features of a task of `problem`, or of `noisy`."""
    names: Any = task.states
    if not isinstance(names[0], Named):
        return envs.random_mnl_features(task)
    states = [name.state for name in names]
    plain = None if states == list(range(len(states))) else states
    made = PROBLEMS[names[0].problem].shared(replace(task, states=plain))
    return Features(task, made.matrix, made.names)


def pooled(task: Task) -> Features:
    """Make the shared features and a triple effect for each triple."""
    return features.pooled(shared(task))


def pooled_03(task: Task) -> Features:
    """Make pooled features with a spread of 0.3."""
    return features.pooled(shared(task), 0.3)


def pooled_1(task: Task) -> Features:
    """Make pooled features with a spread of 1."""
    return features.pooled(shared(task), 1.0)


def columns_times(task: Task, factors: tuple[float, ...]) -> Features:
    """Make the shared features with their columns multiplied by `factors`, in turn."""
    made = shared(task)
    return Features(task, made.matrix * np.resize(factors, made.dimension))


def hundredth(task: Task) -> Features:
    """Make the shared features in units that are a hundred times as large."""
    return columns_times(task, (0.01,))


def mixed_units(task: Task) -> Features:
    """Make the shared features in different units."""
    return columns_times(task, (0.01, 100.0, 1.0, 0.1, 10.0))


# -- a family with a knob for the variance of the next value ---------------------------------------


def noisy(noise: float, seed: int) -> FiniteMDP:
    """Make a drawn problem with P proportional to exp(x / noise): deterministic as noise goes to 0.

    Its shared features are exact, and the same for every noise.
    """
    return envs.random_mnl(10, 3, seed=seed, theta_norm=1.0 / noise)
