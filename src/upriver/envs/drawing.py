"""Small pictures of a state space: text, and RGB arrays made with numpy alone."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from upriver.checks import Array
from upriver.mdp import FiniteMDP

PAPER, WATER, GOLD, HERE = (250, 250, 247), (214, 228, 240), (232, 180, 60), (178, 40, 60)
PIXELS = 480
"""About the longer side of a picture."""


def state_places(mdp: FiniteMDP) -> Array:
    """Return (S, 2) row and column of every state: its name, if that is a pair of whole numbers. Up
    to 30 other states are on one line, more fill a square."""
    names = mdp.true_task.states
    if names is not None and all(
        isinstance(x, tuple) and len(x) == 2 and all(isinstance(i, int) for i in x) for x in names
    ):
        at = np.array(names)
        return at - at.min(axis=0)
    columns = mdp.n_states if mdp.n_states <= 30 else ceil(sqrt(mdp.n_states))
    return np.stack(np.divmod(np.arange(mdp.n_states), columns), axis=1)


def best_rewards(mdp: FiniteMDP) -> Array:
    """Return (S,) the largest reward of each state at any step."""
    return mdp.reward.reshape(-1, mdp.n_states, mdp.n_actions).max(axis=(0, 2))


def draw_text(mdp: FiniteMDP, state: int, step: int, last: str) -> str:
    """Return the states as dots, those with large rewards as +, the present one as @."""
    at, best = state_places(mdp), best_rewards(mdp)
    board = np.full(at.max(axis=0) + 1, " ")
    board[*at.T] = np.where(best > best.max() / 2, "+", ".")
    board[*at[state]] = "@"
    name = mdp.true_task.state_names[state]
    head = f"{mdp.name}  step {step}/{mdp.horizon}  state {name}"
    lines = [head + (f"  ({last})" if last else ""), *(" ".join(row) for row in board)]
    return "\n".join(lines) + "\n"


def draw_picture(mdp: FiniteMDP, state: int) -> Array:
    """Return (height, width, 3) uint8: rewards are gold, the present state has a red disc."""
    at, best = state_places(mdp), best_rewards(mdp)
    shape = at.max(axis=0) + 1
    size = max(PIXELS // int(shape.max()), 3)
    cells = np.empty((*shape, 3))
    cells[:] = PAPER
    shade = (best / max(best.max(), 1e-12))[:, None] ** 0.5  # small rewards should be visible too
    cells[*at.T] = np.array(WATER) * (1 - shade) + np.array(GOLD) * shade
    image = cells.repeat(size, axis=0).repeat(size, axis=1).astype(np.uint8)
    image[::size] = image[:, ::size] = PAPER
    row, column = at[state] * size
    y, x = np.ogrid[:size, :size]
    disc = (y - size / 2) ** 2 + (x - size / 2) ** 2 <= (0.35 * size) ** 2
    image[row : row + size, column : column + size][disc] = HERE
    return image
