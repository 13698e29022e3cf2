"""Deep sea: a grid where only going right at every step reaches the large reward.

A finite-horizon form of the deep sea of Osband et al. (bsuite). An episode falls one row a step,
from the top left cell to the bottom, so H = size; a step goes one column left or right.
"""

from __future__ import annotations

from math import isqrt

from upriver.checks import check_kinds, positive_integer
from upriver.envs.named import build_mdp, check_listed, check_state_names, indicator_features
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

LEFT, RIGHT = "left", "right"
INCOME = 0.05
"""Sum of the rewards of an episode that always goes left."""
Cell = tuple[int, int]


@check_kinds
def deep_sea(size: int = 10) -> FiniteMDP:
    """Make the deep sea of size x size cells, named (row, column); S = size^2 and H = size.

    The action right slips to the left with probability 1 / size; the action left always goes left.
    The first and last columns are boundaries, and the last row stays where it is. Going left has a
    reward of 0.05 / size, and going right of 1 in the bottom right cell, else 0. The local support
    has both cells below, for both actions.
    """
    size = positive_integer("size", size, 2)
    check_listed(size**2, 2, 2)
    slip = 1.0 / size

    def outcomes(cell: Cell, a: str) -> list[tuple[Cell, float]]:
        left, right = cells_below(cell, size)
        return [(left, 1.0)] if a == LEFT else [(left, slip), (right, 1.0 - slip)]

    def reward(cell: Cell, a: str) -> float:
        return INCOME / size if a == LEFT else float(cell == (size - 1, size - 1))

    cells = [(row, column) for row in range(size) for column in range(size)]
    return build_mdp(f"deep-sea-{size}", cells, (LEFT, RIGHT), outcomes, reward, size)


@check_kinds
def deep_sea_features(task: Task) -> Features:
    """Make indicators of (action, goes right) and of any other next state.

    With local support d = 2. The model is exact for the action right; for left, which never slips,
    it is exact in the limit of a large coefficient.
    """
    check_state_names(task, tuple, "deep_sea")
    size = isqrt(task.n_states)

    def labels(s: Cell, a: str, s2: Cell) -> tuple[str, ...]:
        left, right = cells_below(s, size)
        if s2 == left:
            return ()
        return (f"{a}: goes right",) if s2 == right else (f"{a}: elsewhere",)

    return indicator_features(task, labels)


def cells_below(cell: Cell, size: int) -> tuple[Cell, Cell]:
    """Return the cells to the left and right in the next row; the last row stays."""
    row, column = cell
    if row == size - 1:
        return cell, cell
    return (row + 1, max(column - 1, 0)), (row + 1, min(column + 1, size - 1))
