"""Windy grid: a shortest path around two walls, with a wind beyond the second.

Outcomes of a step are the cell itself and its free neighbours, drawn with weights that multiply:
DRIFT for leaving the cell, `strength` for going where one walks to, `wind` for going south in the
windy columns. A wall removes its direction, so three features are exact at any size.
"""

from __future__ import annotations

from typing import cast

from upriver.checks import check_kinds, positive_integer, positive_number
from upriver.envs.named import (
    build_mdp,
    check_listed,
    check_state_names,
    indicator_features,
    normalize,
)
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}
DRIFT = 0.05
"""Weight of leaving the cell to any side; staying has weight 1."""


@check_kinds
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
                weight = DRIFT * (strength if move == a else 1.0)
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


@check_kinds
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
