"""River grid: a river with a width, where the current sweeps downstream and the banks block.

States are (x, y): x counts upstream from the mouth, y across. One swims upstream, downstream, or to
either side. Outcomes are the cell itself and its neighbours, drawn with a weight that depends on
the direction, multiplied by `strength` where it is the one swum for:

    P(s' | s, a) proportional to weight(direction of s') * strength^[direction is a's],

over the neighbours that exist: a bank shares its part among the other outcomes. The probability is
thus exactly multinomial-logistic in four features, whatever the size of the river.
"""

from __future__ import annotations

import numpy as np

from upriver.checks import positive_integer, positive_number, support_from_sets
from upriver.envs.indicators import check_named, indicators
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

MOVES: dict[str, tuple[int, int]] = {
    "upstream": (1, 0),
    "downstream": (-1, 0),
    "right": (0, 1),
    "left": (0, -1),
}
UPSTREAM, ACROSS = 0.05, 0.12
"""Weights of being carried upstream or to a side; staying has weight 1."""


def river_grid(
    length: int = 6,
    width: int = 3,
    horizon: int | None = None,
    current: float = 0.25,
    strength: float = 20.0,
    small_reward: float = 0.1,
) -> FiniteMDP:
    """A river of length x width cells; the horizon is 4 * (length + width) unless given.

    current: weight of being carried downstream. strength: how much more likely a direction is when
    it is swum for. Starts at the mouth, (0, 0), where swimming downstream pays `small_reward`;
    swimming upstream at the far corner, (length - 1, width - 1), pays 1. The true support is local.
    """
    length, width = positive_integer("length", length), positive_integer("width", width)
    if length < 2:
        raise ValueError(f"length is {length}; a river has at least 2 cells along it")
    cells = [(x, y) for x in range(length) for y in range(width)]
    number = {cell: s for s, cell in enumerate(cells)}
    weight = {
        "stay": 1.0,
        "upstream": UPSTREAM,
        "downstream": positive_number("current", current),
        "right": ACROSS,
        "left": ACROSS,
    }
    strength = positive_number("strength", strength)
    rows: dict[tuple[int, int], dict[int, float]] = {}
    for (x, y), s in number.items():
        for a, action in enumerate(MOVES):
            row = {s: weight["stay"]}
            for move, (dx, dy) in MOVES.items():
                if (x + dx, y + dy) in number:
                    row[number[x + dx, y + dy]] = weight[move] * (
                        strength if move == action else 1.0
                    )
            total = sum(row.values())
            rows[s, a] = {s2: w / total for s2, w in row.items()}
    reward = np.zeros((len(cells), len(MOVES)))
    reward[0, list(MOVES).index("downstream")] = small_reward
    reward[-1, list(MOVES).index("upstream")] = 1.0
    sets = [sorted(rows[s, a]) for s in range(len(cells)) for a in range(len(MOVES))]
    return FiniteMDP.from_rows(
        rows,
        reward,
        4 * (length + width) if horizon is None else horizon,
        local=support_from_sets(sets, len(cells), len(MOVES)),
        states=cells,
        actions=tuple(MOVES),
        name=f"river-grid-{length}",
    )


def features(task: Task) -> Features:
    """Upstream, downstream, across, and whether that is the direction swum for: d = 4.

    Anywhere else is a fifth feature, which occurs with full support only.
    """
    check_named(task, tuple, "river_grid")
    direction = {move: name for name, move in MOVES.items()}

    def labels(s: tuple[int, int], a: str, s2: tuple[int, int]) -> tuple[str, ...]:
        if s2 == s:
            return ()
        way = direction.get((s2[0] - s[0], s2[1] - s[1]), "elsewhere")
        kind = "across" if way in ("left", "right") else way
        return (kind, "swum for") if way == a else (kind,)

    return indicators(task, labels)
