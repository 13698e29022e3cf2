"""River grid: a two-dimensional river with a current.

States are (x, y): x counts upstream from the mouth, y across. One swims upstream, downstream, or to
either side. Outcomes are the cell itself and its neighbours, drawn with a weight that depends on
the direction, multiplied by `STRENGTH` where it is the one swum for:

    P(s' | s, a) proportional to weight(direction of s') * STRENGTH^[direction is a's],

over the neighbours that exist. The probability is thus exactly multinomial-logistic in four
features, whatever the size of the river.
"""

from __future__ import annotations

from upriver.checks import check_kinds, positive_integer
from upriver.envs import named
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

Cell = tuple[int, int]
MOVES = {"upstream": (1, 0), "downstream": (-1, 0), "right": (0, 1), "left": (0, -1)}
WEIGHTS = {"upstream": 0.05, "downstream": 0.25, "right": 0.12, "left": 0.12}
"""Weights of being carried in a direction; staying has weight 1."""
STRENGTH = 20.0
"""Factor by which swimming in a direction raises its weight."""


@check_kinds
def river_grid(length: int = 6, width: int = 3, horizon: int | None = None) -> FiniteMDP:
    """Make a river of length x width cells that starts at the mouth, (0, 0).

    Swimming upstream in the far corner (length - 1, width - 1) has a reward of 1, and swimming
    downstream at the mouth of 0.1. The true support is local.

    Parameters
    ----------
    length, width, horizon : int
        At least 2 and 1; the default horizon is 4 * (length + width).
    """
    length, width = positive_integer("length", length, 2), positive_integer("width", width)
    named.check_listed(length * width, len(MOVES), 5)
    cells = [(x, y) for x in range(length) for y in range(width)]
    inside = set(cells)

    def outcomes(cell: Cell, a: str) -> list[tuple[Cell, float]]:
        found = [(cell, 1.0)]
        for move, (dx, dy) in MOVES.items():
            if (there := (cell[0] + dx, cell[1] + dy)) in inside:
                found.append((there, WEIGHTS[move] * (STRENGTH if move == a else 1.0)))
        return named.normalize(found)

    rewards = {(cells[0], "downstream"): 0.1, (cells[-1], "upstream"): 1.0}
    horizon = 4 * (length + width) if horizon is None else horizon
    return named.build_mdp(
        f"river-grid-{length}", cells, tuple(MOVES), outcomes,
        lambda cell, a: rewards.get((cell, a), 0.0), horizon,
    )  # fmt: skip


@check_kinds
def river_grid_features(task: Task) -> Features:
    """Make indicators of upstream, downstream, across, and the direction of swimming: d = 4.

    Any other next state is a fifth feature, which occurs with full support only.
    """
    named.check_state_names(task, tuple, "river_grid")
    direction = {move: name for name, move in MOVES.items()}

    def labels(s: Cell, a: str, s2: Cell) -> tuple[str, ...]:
        if s2 == s:
            return ()
        way = direction.get((s2[0] - s[0], s2[1] - s[1]), "elsewhere")
        kind = "across" if way in ("left", "right") else way
        return (kind, "swum for") if way == a else (kind,)

    return named.indicator_features(task, labels)
