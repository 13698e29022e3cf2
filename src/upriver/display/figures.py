"""Figures of single objects, in the style of all figures; nothing is computed here.

A figure has no window and no global state: a notebook displays it, and `savefig` writes it.
States, actions and steps are called by their names, or numbered from 0 as in Python. Where states
are pairs of whole numbers, they are the rows and columns of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib import colormaps, style
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.ticker import MaxNLocator

from upriver.checks import Array

WIDTHS = {"one": 3.35, "two": 6.9}
"""Inches of a figure over one column of a paper, or two."""
BLUE, SKY, INK, PALE = "#0072b2", "#8fd0f5", "#1a1a1a", "#e4e4e4"
ACTIONS = ("#0072b2", "#f0b429", "#009e73", "#d55e00", "#b5578e", "#8fd0f5", "#7a5230", "#a3a3a3")
"""Colours of actions, of different lightness too; those of Okabe and Ito."""
SCREEN_DPI = 110
"""Dots per inch in a notebook."""
STYLE_FILE = Path(__file__).with_name("figures.mplstyle")
figure_style = partial(style.context, STYLE_FILE, after_reset=True)
"""Use figures.mplstyle in matplotlib; makes a context manager that is a decorator as well."""
MAX_LABELS = 40
"""Labels on an axis; of more states only some are labelled."""
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


class NotebookFigure(Figure):
    """A figure that a notebook displays in the style of all figures."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        with figure_style():
            self.savefig(file, format="png", dpi=SCREEN_DPI)
        return file.getvalue()


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """Return a figure and its axes (rows, columns); sizes are in inches."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


@figure_style()
def plot_learning(panels: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Plot {label of the axis: {curve: (K,)}} against the episode, one below the other."""
    looks = ({"color": BLUE}, {"color": INK, "linestyle": (0, (5, 1.6)), "linewidth": 0.9})
    figure, axes = new_figure(4.6, 2.1 * len(panels), len(panels))
    for ax, (label, curves) in zip(axes[:, 0], panels.items(), strict=True):
        for (name, y), look in zip(curves.items(), looks, strict=False):
            ax.plot(np.arange(1, len(y) + 1), y, label=name, **look)
        ax.set_ylabel(label)
        low, high = (float(f([f(y) for y in curves.values()])) for f in (np.min, np.max))
        room = 1.06 * max(high - low, 0.05 * abs(high)) or 1.0
        ax.set_ylim(0.0 if 0.0 <= low < room else high - room, low + room)
        if len(curves) > 1:
            ax.legend(loc="lower right")
    ax.set_xlabel("episode")
    return figure


@figure_style()
def plot_policy(table: Array, states: Any, actions: Any, ties: Array | None = None) -> Figure:
    """Plot the actions of a policy (H, S): states to the right, steps downwards.

    Where states are pairs of whole numbers, a map of the first step, with arrows of actions that
    are named directions. ties: (H, S) where several actions are equally good, which is grey.
    """
    tied: Array = np.zeros(table.shape, bool) if ties is None else ties
    grid = None if actions is None else find_grid(states)
    if grid is not None:
        table, tied = table[0], tied[0]
        n_rows, n_columns = np.ptp(grid, axis=0) + 1
        side = min(WIDTHS["two"] / n_columns, 0.45)
        width, height = max(3.0, (n_columns + 1) * side), (n_rows + 1) * side + 0.4
    else:
        width = min(WIDTHS["two"], 2.0 + 0.22 * table.shape[1])
        height = 1.1 + min(max(len(table), 4), 40) * 0.09
    figure, axes = new_figure(width, height)
    ax: Axes = axes[0, 0]
    action_names = range(int(table.max()) + 1) if actions is None else actions
    colours = action_colours(table, action_names, tied)
    if grid is not None:
        set_limits(ax, grid, xlabel="column", ylabel="row")
        ax.scatter(*grid[:, ::-1].T, c=colours, marker="s", s=(side * 60.0) ** 2)
        moves = np.array([COMPASS.get(str(a).lower(), (0, 0)) for a in action_names])[table]
        named = moves.any(axis=1) & ~tied
        draw_arrows(ax, grid[named], 0.6 * moves[named], "white")
    else:
        state_names = range(table.shape[1]) if states is None else states
        ax.imshow(colours, aspect="auto")
        ax.grid(visible=False)
        ax.set(xlabel="state", ylabel="step")
        label_states(ax, state_names)
        if any(len(str(s)) > 3 for s in state_names[:MAX_LABELS]):
            ax.tick_params(axis="x", rotation=90)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    add_action_legend(ax, table, action_names, tied)
    return figure


def action_colours(table: Array, actions: Sequence[Any], ties: Array) -> Array:
    """Return (..., 3) the colour of each action of a table, grey where actions tie."""
    colours = np.array([to_rgb(c) for c in pick_colours(actions)])[table]
    return np.where(ties[..., None], to_rgb(PALE), colours)


def add_action_legend(ax: Axes, table: Array, actions: Sequence[Any], ties: Array) -> None:
    """Name the colours of the actions of a table above the axes; many numbers get a colour bar."""
    colours = pick_colours(actions)
    values = sorted({x for x in actions if isinstance(x, int | float)})
    if len(values) == len(actions) > len(ACTIONS) and list(actions) == values:
        scale = ScalarMappable(Normalize(values[0], values[-1]), "viridis")
        ticks = MaxNLocator(integer=True)
        label = "action (grey: several are best)" if ties.any() else "action"
        ax.figure.colorbar(scale, ax=ax, label=label, pad=0.02, ticks=ticks)
        return
    shown = np.unique(table[~ties]) if not ties.all() else []
    handles = [Patch(color=colours[a], label=as_label(actions[a])) for a in shown]
    handles += [Patch(color=PALE, label="several are best")] if ties.any() else []
    width = cast("Figure", ax.figure).get_figwidth()
    n_columns = int(min(4, max(1, width)))  # about an inch for each name
    above: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    ax.legend(handles=handles, ncols=n_columns, handlelength=1.0, columnspacing=1.2, **above)


@figure_style()
def plot_coefficients(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot estimates with their intervals, one below the other: name, estimate, low, high.

    Those that the data say nothing about are arrows at the edges and do not stretch the axis.
    """
    figure, axes = new_figure(WIDTHS["two"] * 0.75, 0.8 + 0.2 * len(rows))
    ax, y = axes[0, 0], np.arange(len(rows))
    middle, low, high = (np.array([r[k] for r in rows], float) for k in ("estimate", "low", "high"))
    # without data a coefficient is determined by the ridge alone, or not at all: its interval is
    # infinite, or 50 times as wide as the usual narrow ones
    finite = np.isfinite(low) & np.isfinite(high)
    width = np.where(finite, high - low, np.inf)
    usual = np.median(np.sort(width)[: max(1, int(finite.sum()) // 2)])
    shown = finite & (width <= 50.0 * max(float(usual), 1e-12))
    without_zero = (low > 0) | (high < 0)
    ax.axvline(0.0, color=INK, linewidth=0.8)
    look: Any = {"fmt": "o", "color": BLUE, "markersize": 4.5, "linewidth": 1.1}
    for which, face in ((shown & without_zero, BLUE), (shown & ~without_zero, "white")):
        errors = np.array([middle - low, high - middle])[:, which]
        ax.errorbar(middle[which], y[which], xerr=errors, markerfacecolor=face, **look)
    least, most = ax.get_xlim()
    for ends, edge, marker in ((low < least, 0.02, "<"), (high > most, 0.98, ">")):
        at = y[~shown & (ends | ~finite)]
        place: Any = {"transform": ax.get_yaxis_transform(), "clip_on": False}
        ax.plot(np.full(len(at), edge), at, marker, color="#767676", markersize=5, **place)
    ax.set_xlim(least, most)
    names = [str(r["name"]) for r in rows]
    ax.set_yticks(y, [as_label(x if len(x) <= 36 else f"{x[:20]}…{x[-15:]}") for x in names])
    beyond = "" if shown.all() else "; arrows: no data"
    ax.set(xlabel=f"log-odds, with its 95% interval{beyond}", ylim=(len(rows) - 0.4, -0.6))
    ax.grid(axis="y", visible=False)
    return figure


@figure_style()
def plot_probabilities(rows: Sequence[Mapping[str, Any]], state: Any, action: Any) -> Figure:
    """Plot next_state, probability, low and high of a pair (s, a)."""
    figure, axes = new_figure(min(WIDTHS["two"], 2.2 + 0.3 * len(rows)), 2.4)
    ax, x = axes[0, 0], np.arange(len(rows))
    p, low, high = (np.array([r[k] for r in rows]) for k in ("probability", "low", "high"))
    ax.bar(x, p, 0.7, color=SKY)
    ax.errorbar(x, p, yerr=[p - low, high - p], fmt="o", color=BLUE, markersize=2.5, capsize=2.5)
    title = f"from {as_label(state)} with {as_label(action)}"
    top = min(1.02, 1.15 * float(max(high.max(), p.max())))
    ax.set(xlabel="next state", ylabel="probability", ylim=(0, top), title=title)
    label_states(ax, [r["next_state"] for r in rows])
    ax.grid(axis="x", visible=False)
    return figure


@figure_style()
def plot_choices(
    lines: Mapping[Any, Array], at: Mapping[Any, Sequence[Any]], states: Sequence[Any]
) -> Figure:
    """Plot (n, 3) probability, low and high of each action over the states that have it."""
    figure, axes = new_figure(WIDTHS["one"] * 1.3, 2.6)
    ax, number = axes[0, 0], {state: i for i, state in enumerate(states)}
    for (action, rows), colour in zip(lines.items(), pick_colours(list(lines)), strict=False):
        x = [number[state] for state in at[action]]
        ax.fill_between(x, rows[:, 1], rows[:, 2], color=colour, alpha=0.25, linewidth=0)
        ax.plot(x, rows[:, 0], color=colour, linewidth=1.4, label=as_label(action))
    ax.set(xlabel="state", ylabel="probability of the choice", ylim=(0, 1.02))
    if len(lines) > 1:
        ax.legend(title="action")
    label_states(ax, states)
    return figure


def write_at_ends(ax: Axes, ends: Mapping[str, tuple[float, Any]]) -> None:
    """Write each name to the right of the axes, near its height and in its colour: (y, colour).

    Names keep their distance, and none stands above the axes unless there are too many.
    """
    gap = 0.13 * ax.figure.get_dpi() / ax.get_window_extent().height  # in shares of the height
    corners = [(ax.get_xlim()[1], y) for y, _ in ends.values()]
    wanted = (ax.transData - ax.transAxes).transform(corners)[:, 1]
    order = np.argsort(wanted, kind="stable")
    lowest = np.arange(len(order)) * gap
    places = np.maximum.accumulate(wanted[order] - lowest) + lowest
    ceiling = np.maximum(1.0, lowest[-1:]) - lowest[::-1]
    for at, y in zip(order, np.minimum(places, ceiling), strict=True):
        name, (_, colour) = list(ends.items())[at]
        ax.annotate(
            name, (1.0, float(y)), xycoords="axes fraction", xytext=(5, 0), color=colour,
            textcoords="offset points", va="center", annotation_clip=False, parse_math=False,
        )  # fmt: skip


def as_label(name: Any) -> str:
    """Return a name as text that matplotlib does not read as a formula."""
    return str(name).replace("$", r"\$")


def label_states(ax: Axes, names: Sequence[Any]) -> None:
    """Label the x axis with names of states, or with as many of them as there is room for."""
    longest, figure = max(len(str(name)) for name in names), cast("Figure", ax.figure)
    room = figure.get_figwidth() / (0.09 if longest <= 3 else 0.05)  # long ones stand
    most = min(MAX_LABELS, int(room / (min(longest, 3) + 0.5)))
    at = np.arange(0, len(names), max(1, -(-len(names) // most)))
    ax.set_xticks(at, [as_label(names[int(i)]) for i in at])


def pick_colours(actions: Sequence[Any]) -> list[Any]:
    """Return one colour per action: distinct ones, or where there are many, dark to light."""
    if len(actions) <= len(ACTIONS):
        return list(ACTIONS)
    return list(colormaps["viridis"](np.linspace(0.0, 1.0, len(actions))))


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
