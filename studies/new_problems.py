"""Six problems that chose nothing: they came after all rules and constants were fixed.

In four of them the variables of a state describe how it changes. In the other two its number says
nothing: a river whose states are numbered at random, and a drawn problem in which every state can
follow on every other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from typing import NamedTuple

import numpy as np

from upriver import envs, features
from upriver.envs.named import build_mdp, indicator_features, normalize
from upriver.features import Features, from_function
from upriver.mdp import FiniteMDP, Task

# -- a room that is heated -------------------------------------------------------------------------


class Room(NamedTuple):
    temperature: int
    weather: str


HEATING = {
    ("heat", "mild"): {-1: -2.0, 1: 1.2, 2: 0.3},
    ("heat", "cold"): {-1: -0.6, 1: 0.6, 2: -0.8},
    ("idle", "mild"): {-1: 0.2, 1: -1.8, 2: -4.0},
    ("idle", "cold"): {-1: 1.5, 1: -3.0, 2: -5.0},
}
"""Log-odds of a change of the temperature against none."""
TURNS, WARMEST, BEST = -2.2, 15, 9


def heated_room(horizon: int = 40) -> FiniteMDP:
    """Make a room of 0 to 15 degrees and a weather that turns; heating costs, comfort pays."""

    def outcomes(room: Room, action: str) -> list[tuple[Room, float]]:
        other = "cold" if room.weather == "mild" else "mild"
        found = []
        for change, x in {0: 0.0, **HEATING[action, room.weather]}.items():
            if 0 <= room.temperature + change <= WARMEST:
                after = room.temperature + change
                found += [(Room(after, room.weather), exp(x)), (Room(after, other), exp(x + TURNS))]
        return normalize(found)

    def reward(room: Room, action: str) -> float:
        return 1.0 - abs(room.temperature - BEST) / BEST - (0.15 if action == "heat" else 0.0)

    rooms = [Room(t, weather) for t in range(WARMEST + 1) for weather in ("mild", "cold")]
    return build_mdp("heated room", rooms, ("heat", "idle"), outcomes, reward, horizon)


def heated_room_features(task: Task) -> Features:
    """Make indicators of (action, weather, change) and of a turn of the weather: exact."""

    def labels(room: Room, action: str, after: Room) -> list[str]:
        change = after.temperature - room.temperature
        found = [f"{action} {room.weather} {change:+d}"] if change else []
        return found + ["turns"] * (room.weather != after.weather)

    return indicator_features(task, labels)


# -- an epidemic -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Town:
    susceptible: int
    infected: int


PEOPLE = 8
SPREADS = {"open": 0.5, "distance": 0.1}
"""Rate at which an infected person infects a susceptible one."""
RECOVERY = 0.7


def epidemic(horizon: int = 40) -> FiniteMDP:
    """Make a town where each step is an infection, a recovery, or a day without either."""

    def outcomes(town: Town, action: str) -> list[tuple[Town, float]]:
        s, i = town.susceptible, town.infected
        events = [(town, 1.0)]
        if s and i:
            events.append((Town(s - 1, i + 1), SPREADS[action] * s * i))
        if i:
            events.append((Town(s, i - 1), RECOVERY * i))
        return normalize(events)

    def reward(town: Town, action: str) -> float:
        return 1.0 - town.infected / PEOPLE - (0.12 if action == "distance" else 0.0)

    towns = [Town(s, i) for s in range(PEOPLE, -1, -1) for i in range(PEOPLE + 1 - s)]
    towns.sort(key=lambda town: town != Town(PEOPLE - 2, 2))  # it starts in the first
    return build_mdp("epidemic", towns, tuple(SPREADS), outcomes, reward, horizon)


def epidemic_features(task: Task) -> Features:
    """Make indicators of (infection, action) and recovery, and the logarithms of numbers: exact."""
    actions = list(SPREADS)

    def row(town: Town, action: str, after: Town) -> list[float]:
        found = [0.0] * 5
        if after.infected > town.infected:
            found[actions.index(action)] = 1.0
            found[3] = log(town.susceptible * town.infected)
        elif after.infected < town.infected:
            found[2], found[4] = 1.0, log(town.infected)
        return found

    return from_function(task, row)


# -- a key and a door ------------------------------------------------------------------------------


class Walker(NamedTuple):
    x: int
    y: int
    has_key: bool


STEPS = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}
SIZE, WALL, DOOR, KEY, GOAL = 6, 3, (3, 4), (1, 5), (5, 0)
SUCCEEDS = 0.8


def key_and_door(horizon: int = 60) -> FiniteMDP:
    """Make two rooms with a door that opens with a key; a step fails in one of five cases."""

    def is_free(x: int, y: int, has_key: bool) -> bool:
        inside = 0 <= x < SIZE and 0 <= y < SIZE
        return inside and (x != WALL or ((x, y) == DOOR and has_key))

    def outcomes(walker: Walker, action: str) -> list[tuple[Walker, float]]:
        x, y, has_key = walker
        if (x, y) == GOAL:
            return [(walker, 1.0)]
        found = []
        for step, (dx, dy) in STEPS.items():
            if is_free(x + dx, y + dy, has_key):
                there = Walker(x + dx, y + dy, has_key or (x + dx, y + dy) == KEY)
                found.append((there, SUCCEEDS if step == action else 0.05))
        return normalize([(walker, 0.15), *found])

    walkers = [
        Walker(x, y, has_key) for has_key in (False, True) for x in range(SIZE) for y in range(SIZE)
        if is_free(x, y, has_key) and ((x, y) != KEY or has_key)
    ]  # fmt: skip
    return build_mdp("key and door", walkers, tuple(STEPS), outcomes,
                     lambda walker, _: float(walker[:2] == GOAL), horizon)  # fmt: skip


def key_and_door_features(task: Task) -> Features:
    """Make indicators of a step and of a step in the direction that is walked: exact."""

    def labels(walker: Walker, action: str, after: Walker) -> list[str]:
        if after == walker:
            return []
        meant = (after.x - walker.x, after.y - walker.y) == STEPS[action]
        return ["steps", *["as meant"] * meant]

    return indicator_features(task, labels)


# -- two queues with one server --------------------------------------------------------------------

ROOM = 5
ARRIVALS = 0.5, 0.3


def two_queues(horizon: int = 50) -> FiniteMDP:
    """Make two queues with one server, who serves the first or the second; both cost to wait in."""

    def outcomes(queues: tuple[int, int], action: str) -> list[tuple[tuple[int, int], float]]:
        first, second = queues
        events = [(queues, 0.6)]
        if first < ROOM:
            events.append(((first + 1, second), ARRIVALS[0]))
        if second < ROOM:
            events.append(((first, second + 1), ARRIVALS[1]))
        if action == "first" and first:
            events.append(((first - 1, second), 1.4))
        if action == "second" and second:
            events.append(((first, second - 1), 0.7))
        return normalize(events)

    def reward(queues: tuple[int, int], action: str) -> float:
        return 1.0 - (0.4 * queues[0] + 0.6 * queues[1]) / ROOM

    states = [(i, j) for i in range(ROOM + 1) for j in range(ROOM + 1)]
    return build_mdp("two queues", states, ("first", "second"), outcomes, reward, horizon)


def two_queues_features(task: Task) -> Features:
    """Make indicators of either arrival and of what is served, as meant or not: exact."""

    def labels(queues: tuple[int, int], action: str, after: tuple[int, int]) -> list[str]:
        which = "first" if after[0] != queues[0] else "second"
        if sum(after) > sum(queues):
            return [f"arrives in {which}"]
        return [f"leaves {which} of {action}"] if sum(after) < sum(queues) else []

    return indicator_features(task, labels)


# -- numbers without a meaning ---------------------------------------------------------------------

LENGTH = 12
NUMBERS = [int(x) for x in np.random.default_rng(20).permutation(LENGTH)]


def renumbered_river() -> FiniteMDP:
    """Make a river of twelve states that are numbered at random."""
    river = envs.riverswim(LENGTH)
    return replace(river, true_task=replace(river.true_task, states=NUMBERS))


def renumbered_river_features(task: Task) -> Features:
    """Make the features of a river from the true places: exact."""
    made = features.shared(replace(task, states=None))
    return Features(task, made.matrix, made.names)


def dense_drawn() -> FiniteMDP:
    """Make a drawn problem of six states that all can follow on each other."""
    return envs.random_mnl(6, 3, max_successors=6, distance=0.5, seed=604)
