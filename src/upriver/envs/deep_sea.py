"""Deep sea: a grid where only diving right all the way, against a sure income, finds the treasure.

A finite-horizon form of the deep sea of Osband et al. (bsuite). An episode falls one row a step,
from the top left cell to the bottom, so H = size; a step goes one column left or right.
"""

from __future__ import annotations

from math import isqrt

from upriver.checks import nonnegative_number, positive_integer
from upriver.envs.named import check_named, from_outcomes, indicators
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

LEFT, RIGHT = "left", "right"
Cell = tuple[int, int]


def deep_sea(size: int = 10, slip: float | None = None, income: float = 0.05) -> FiniteMDP:
    """Deep sea of size x size cells, named (row, column); S = size^2 and H = size.

    Action right goes one column right with probability 1 - slip, else left; action left always
    goes left. Columns are held at the banks, the last row at itself. slip is 1 / size unless given.
    Going left pays income / size at every step, so `income` an episode; going right pays nothing,
    except 1 at the bottom right cell. The local support holds both cells below, for both actions.
    """
    size = positive_integer("size", size, 2)
    slip = 1.0 / size if slip is None else nonnegative_number("slip", slip)
    if not slip < 1.0:
        raise ValueError(f"slip is {slip}; it must be less than 1")
    wage = nonnegative_number("income", income) / size

    def outcomes(cell: Cell, a: str) -> list[tuple[Cell, float]]:
        left, right = below(cell, size)
        return [(left, 1.0)] if a == LEFT else [(left, slip), (right, 1.0 - slip)]

    def reward(cell: Cell, a: str) -> float:
        return wage if a == LEFT else float(cell == (size - 1, size - 1))

    cells = [(row, column) for row in range(size) for column in range(size)]
    return from_outcomes(f"deep-sea-{size}", cells, (LEFT, RIGHT), outcomes, reward, size)


def deep_sea_features(task: Task) -> Features:
    """Indicators of (action, went right), and of going anywhere else: d = 2 with local support.

    The right action is exactly of this form; the left one, which never slips, in the limit.
    """
    check_named(task, tuple, "deep_sea")
    size = isqrt(task.n_states)

    def labels(s: Cell, a: str, s2: Cell) -> tuple[str, ...]:
        left, right = below(s, size)
        if s2 == left:
            return ()
        return (f"{a}: goes right",) if s2 == right else (f"{a}: elsewhere",)

    return indicators(task, labels)


def below(cell: Cell, size: int) -> tuple[Cell, Cell]:
    """The cells to the left and right in the next row, held at the banks; the last row stays."""
    row, column = cell
    if row == size - 1:
        return cell, cell
    return (row + 1, max(column - 1, 0)), (row + 1, min(column + 1, size - 1))
