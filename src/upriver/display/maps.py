"""Pictures of a problem: its transitions as a diagram, as arrows on a grid, or as a heat map.

An animation shows an agent that learns it, with a frame for each episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array
from upriver.display.figures import (
    BLUE,
    INK,
    PALE,
    WIDTHS,
    action_colours,
    add_action_legend,
    as_label,
    figure_style,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DIAGRAM = 12
"""States up to which transitions are drawn one by one."""
MAX_PANELS = 4
"""Actions that have a panel of their own."""
MAX_STATES = 400
"""States of a heat map, or of an animation."""
COMPASS = {
    "left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0),
    "west": (0, -1), "east": (0, 1), "north": (-1, 0), "south": (1, 0),
}  # fmt: skip
"""Change of row and column of actions whose name is a direction."""


def find_grid(states: Sequence[Any] | None) -> Array | None:
    """Return (S, 2) rows and columns where every state is a pair of integers, else None."""
    if states is None or not all(
        isinstance(s, tuple) and len(s) == 2 and all(isinstance(x, int | np.integer) for x in s)
        for s in states
    ):
        return None
    return np.array(list(states), np.int64)


def find_places(states: Sequence[Any] | None, n_states: int) -> Array:
    """Return (S, 2) rows and columns; states that are no pairs lie in one row, in their order."""
    grid = find_grid(states)
    return np.stack([np.zeros(n_states, int), np.arange(n_states)], 1) if grid is None else grid


def expected_moves(mdp: Any) -> Array:
    """Return (A, S, 2) the expected change of row and column after each action."""
    task = mdp.true_task
    grid = find_places(task.states, task.n_states)
    s, a, s2 = task.triples
    moves = np.zeros((task.n_actions, task.n_states, 2))
    np.add.at(moves, (a, s), mdp.probability[0][:, None] * (grid[s2] - grid[s]))
    return moves


@figure_style()
def plot_transitions(mdp: Any) -> Figure:
    """Plot the probabilities of next states, one panel for each of the first actions.

    In the tables of probabilities, and of expected moves, a row of nan is a state that does not
    have the action.
    """
    task, states = mdp.true_task, list(mdp.true_task.state_names)
    grid = find_grid(states)
    if grid is not None:
        matrices = expected_moves(mdp)
    elif len(states) <= MAX_STATES:
        s, a, s2 = task.triples
        matrices = np.zeros((task.n_actions, len(states), len(states)))
        matrices[a, s, s2] = mdp.probability[0]
    else:
        most = f"a picture has at most {MAX_STATES}, use to_frame()"
        raise ValueError(f"{mdp.name} has {len(states)} states; {most}")
    matrices[~task.available.T] = np.nan
    more, matrices = max(0, task.n_actions - MAX_PANELS), matrices[:MAX_PANELS]
    is_diagram = grid is None and len(states) <= MAX_DIAGRAM
    columns = 1 if is_diagram else min(len(matrices), 2)
    rows = -(-len(matrices) // columns)
    width, height = WIDTHS["two"] / 2, 2.9
    if is_diagram:  # a state takes 0.85 inches, or less where there are many
        reach = max(arc_height(find_span(matrix)) for matrix in matrices) + 0.45
        width = min(WIDTHS["two"], 0.85 * (len(states) + 0.2))
        height = 2.0 * reach * width / (len(states) + 0.2) + 0.25
    figure, axes = new_figure(columns * width, rows * height, rows, columns)
    panels = axes.ravel()
    for ax in panels[len(matrices) :]:
        ax.set_axis_off()
    for ax, matrix, action in zip(panels, matrices, task.action_names, strict=False):
        ax.set_title(as_label(action), loc="left")
        if grid is not None:
            set_limits(ax, grid, xlabel="column", ylabel="row")
            size = np.hypot(*matrix.T)
            still, moving = size < 1e-9, size >= 1e-9
            ax.plot(*grid[still, ::-1].T, ".", color=INK, markersize=4)
            longest = max(1.0, float(size[moving].max(initial=0.0)))  # arrows end in their cells
            draw_arrows(ax, grid[moving], 0.8 * matrix[moving] / longest, BLUE)
        elif is_diagram:
            draw_diagram(ax, matrix, states)
        else:
            ax.imshow(np.nan_to_num(matrix), cmap="Blues", vmin=0.0, vmax=1.0)
            ax.set(xlabel="next state", ylabel="state")
            ax.grid(visible=False)
    if more:
        figure.supxlabel(f"{more} more actions are not drawn", fontsize=7, color=INK)
    return figure


def set_limits(ax: Axes, grid: Array, **labels: str) -> None:
    """Let the axes hold all cells (n, 2), rows from top to bottom."""
    (top, left), (bottom, right) = grid.min(axis=0), grid.max(axis=0)
    limits = {"xlim": (left - 0.6, right + 0.6), "ylim": (bottom + 0.6, top - 0.6)}
    ax.set(aspect="equal", **limits, **labels)  # pyright: ignore[reportArgumentType]
    ax.locator_params(integer=True, min_n_ticks=1)
    ax.grid(visible=False)


def draw_arrows(ax: Axes, grid: Array, moves: Array, colour: str, width: float = 0.07) -> None:
    """Draw a move (n, 2) of rows and columns at the centre of each cell (n, 2)."""
    ax.quiver(
        *grid[:, ::-1].T, *moves[:, ::-1].T, color=colour, angles="xy", units="xy",
        scale_units="xy", scale=1.0, pivot="mid", width=width, headwidth=4.5, minlength=0.1,
    )  # fmt: skip


def find_span(matrix: Array) -> int:
    """Return the largest distance between the places of a state and of a next state."""
    s, t = np.nonzero(np.nan_to_num(matrix))
    return int(np.abs(s - t).max(initial=1))


def arc_height(span: int) -> float:
    """Return how far the arc of a transition is from the line, in distances of two states."""
    return float(0.13 + 0.375 * span**0.5)


def draw_diagram(ax: Axes, matrix: Array, states: Sequence[Any]) -> None:
    """Draw states on a line and an arc for each transition, its width the probability.

    Arcs to the right are above the line, arcs to the left below; a state that may stay has its
    probability over it.
    """
    from matplotlib.patches import FancyArrowPatch

    n, reach = len(states), arc_height(find_span(matrix)) + 0.45
    ax.set(xlim=(-0.6, n - 0.4), ylim=(-reach, reach), aspect="equal")
    ax.set_axis_off()
    for s, t in zip(*np.nonzero(np.nan_to_num(matrix)), strict=True):
        p = matrix[s, t]
        text = f"{p:.2g}".removeprefix("0")
        if s == t:
            ax.annotate(text, (s, 0.3), ha="center", color=INK, fontsize=6.5)
            continue
        side, span = (1.0 if t > s else -1.0), abs(int(t) - int(s))
        ax.add_patch(
            FancyArrowPatch(
                (s, 0.13 * side), (t, 0.13 * side), arrowstyle="-|>", mutation_scale=7,
                connectionstyle=f"arc3,rad={-0.75 / span**0.5}", color=BLUE, shrinkA=4, shrinkB=4,
                linewidth=0.4 + 2.0 * p,
            )
        )  # fmt: skip
        ax.annotate(
            text, ((s + t) / 2, side * (arc_height(span) + 0.15)), ha="center", va="center",
            color=BLUE, fontsize=6.5,
        )  # fmt: skip
    for s, name in enumerate(states):
        lacks = not np.isfinite(matrix[s]).all()
        ax.plot(s, 0.0, "o", color="white" if lacks else PALE, markeredgecolor=INK, markersize=13)
        ax.annotate(as_label(name), (s, 0.0), ha="center", va="center", fontsize=6.5)


@figure_style()
def plot_policy_map(
    table: Array, states: Sequence[Any], actions: Sequence[Any], ties: Array
) -> Figure:
    """Plot the actions (S,) of states that are pairs: colours, and arrows of named directions.

    Where several actions are equally good, which `ties` (S,) says, the cell is grey.
    """
    grid = find_grid(states)
    assert grid is not None
    n_rows, n_columns = np.ptp(grid, axis=0) + 1
    side = min(WIDTHS["two"] / n_columns, 0.45)
    figure, axes = new_figure(max(3.0, (n_columns + 1) * side), (n_rows + 1) * side + 0.4)
    ax: Axes = axes[0, 0]
    set_limits(ax, grid, xlabel="column", ylabel="row")
    cells: Any = {"marker": "s", "s": (side * 60.0) ** 2}
    ax.scatter(*grid[:, ::-1].T, c=action_colours(table, actions, ties), **cells)
    moves = np.array([COMPASS.get(str(a).lower(), (0, 0)) for a in actions])[table]
    named = moves.any(axis=1) & ~ties
    draw_arrows(ax, grid[named], 0.6 * moves[named], "white")
    add_action_legend(ax, table, actions, ties)
    return figure


@figure_style()
def animate_episodes(
    path: Path,
    states: Sequence[Any] | None,
    lines: Mapping[str, Sequence[tuple[Array, Array, str]]],
    seconds: float,
) -> None:
    """Write a GIF with a row for each name and a frame for each episode.

    lines: by name, for each episode the share of its time in each state (S,), the direction of
    the policy there (S, 2), and a text. states: their names, whose pairs are rows and columns.
    """
    from matplotlib.animation import FuncAnimation, PillowWriter

    episodes = next(iter(lines.values()))
    place = find_places(states, len(episodes[0][0]))
    n_rows, n_columns = np.ptp(place, axis=0) + 1
    side, longest = min(WIDTHS["two"] / n_columns, 0.45), max(map(len, lines))
    shape = (len(lines), 1) if n_columns > 2 * n_rows else (1, len(lines))
    width, height = max(3.4, (n_columns + 0.5) * side), (n_rows + 0.5) * side + 0.35
    figure, axes = new_figure(width * shape[1], height * shape[0], *shape)

    def draw(k: int) -> None:
        for ax, (name, episodes) in zip(axes.ravel(), lines.items(), strict=True):
            share, moves, text = episodes[k]
            ax.clear()
            ax.set_axis_off()
            set_limits(ax, place)
            title = f"{name:{longest}}  {text}"
            ax.set_title(title, loc="left", family="DejaVu Sans Mono", fontsize=7)
            ax.scatter(
                *place[:, ::-1].T, c=share, cmap="Blues", vmin=0.0, vmax=0.4, marker="s",
                s=(side * 62.0) ** 2, edgecolors=PALE, linewidths=0.6,
            )  # fmt: skip
            size = np.hypot(*moves.T)
            moving = size >= 1e-9
            step = 0.6 * moves[moving] / size[moving, None]
            draw_arrows(ax, place[moving], step, INK, width=0.05)

    animation = FuncAnimation(figure, draw, frames=len(episodes))  # pyright: ignore[reportArgumentType]
    animation.save(str(path), writer=PillowWriter(fps=max(1, round(1.0 / seconds))), dpi=110)
