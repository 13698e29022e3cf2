"""Numbers to figures of single objects, in the style of all figures; nothing here computes.

A figure has no window and no global state: it shows itself in a notebook, and `savefig` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = {"one": 3.35, "two": 6.9}
"""Inches of a figure over one column of a paper, or two."""

BLUE, SKY, INK, PALE = "#0072b2", "#8fd0f5", "#1a1a1a", "#e4e4e4"
ACTIONS = ("#0072b2", "#f0b429", "#009e73", "#d55e00", "#b5578e", "#8fd0f5", "#7a5230", "#a3a3a3")
"""Colours of actions, of different lightness too; those of Okabe and Ito."""
SCREEN = 110
"""Dots per inch in a notebook."""
MANY = 40
"""States or coefficients of which each has a label of its own."""

RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "#1a1a1a",
    "ytick.labelcolor": "#1a1a1a",
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # TrueType, embedded: publishers refuse the default
    "ps.fonttype": 42,
    "svg.fonttype": "none",
}


@contextmanager
def styled():
    """matplotlib with our settings and nobody else's."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def blank(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure and its axes (rows, columns); no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            file = BytesIO()
            with styled():
                self.savefig(file, format="png", dpi=SCREEN)
            return file.getvalue()

    figure = Picture(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def learning(panels: Mapping[str, Mapping[str, Array]], first: int = 1) -> Figure:
    """{label of the axis: {curve: (K,)}} against the episode; the first curve is the object's."""
    with styled():
        figure, axes = blank(WIDTHS["two"], 2.5, columns=len(panels))
        looks = ({"color": BLUE}, {"color": INK, "linestyle": (0, (5, 1.6)), "linewidth": 0.9})
        for ax, (label, curves) in zip(axes[0], panels.items(), strict=True):
            for (name, y), look in zip(curves.items(), looks, strict=False):
                ax.plot(np.arange(first, first + len(y)), y, label=name, **look)
            ax.set(xlabel="episode", ylabel=label)
            ax.set_ylim(bottom=min(0.0, *(float(y.min()) for y in curves.values())))
            if len(curves) > 1:
                ax.legend(loc="lower right")
    return figure


def policy_map(table: Array, states: Sequence[Any], actions: Sequence[Any]) -> Figure:
    """What to do, (H, S) numbers of actions: states to the right, steps downwards."""
    n_steps, n_states = table.shape
    with styled():
        height = 1.1 + min(max(n_steps, 4), 40) * 0.09
        figure, axes = blank(min(WIDTHS["two"], 2.0 + 0.22 * n_states), height)
        ax = axes[0, 0]
        paint(ax, table, actions)
        ax.set(xlabel="state", ylabel="step")
        ax.set_xticks(*ticks(states))
        if any(len(str(s)) > 3 for s in states[:MANY]):
            ax.tick_params(axis="x", rotation=90)
        legend(ax, np.unique(table), actions)
    return figure


def policy_line(
    table: Array, states: Sequence[Any], actions: Sequence[Any], values: Array | None
) -> Figure:
    """What to do in states on a line, (S,), and what they are worth where that is known."""
    with styled():
        figure, axes = blank(WIDTHS["two"], 2.4 if values is not None else 1.5)
        ax = axes[0, 0]
        x = np.arange(len(table))
        height = np.ones(len(table)) if values is None else values
        shades = colours(actions)
        for a in np.unique(table):
            there = table == a
            ax.bar(x[there], height[there], 0.86, color=shades[a], label=str(actions[a]))
        ax.set(xlabel="state", ylabel="" if values is None else "value")
        ax.set_xticks(*ticks(states))
        if values is None:
            ax.set_yticks([])
            ax.grid(visible=False)
        legend(ax, np.unique(table), actions)
    return figure


def policy_grid(
    table: Array, places: Array, actions: Sequence[Any], values: Array | None
) -> Figure:
    """What to do in states on a grid, (S,), and what they are worth; places (S, 2)."""
    low, high = places.min(axis=0), places.max(axis=0)
    shape = high - low + 1
    extent = (low[0] - 0.5, high[0] + 0.5, low[1] - 0.5, high[1] + 0.5)
    at = tuple((places - low).T)
    panels = 1 if values is None else 2
    with styled():
        wide, tall = np.clip(0.3 * shape, 1.4, 3.0)
        figure, axes = blank(panels * wide + 1.6, tall + 0.8, columns=panels)
        board = np.full(shape, -1)
        board[at] = table
        paint(axes[0, 0], board.T, actions, origin="lower", extent=extent)
        if values is not None:
            worth = np.full(shape, np.nan)
            worth[at] = values
            image = axes[0, 1].imshow(
                worth.T, cmap="Blues", origin="lower", extent=extent, aspect="auto"
            )
            figure.colorbar(image, ax=axes[0, 1], label="value")
        for ax in axes[0]:
            ax.set(xlabel="first coordinate", ylabel="second coordinate")
            ax.grid(visible=False)
            whole(ax)
        legend(axes[0, 0], np.unique(table), actions)
    return figure


def forest(rows: Sequence[Mapping[str, Any]], label: str = "log-odds") -> Figure:
    """Estimates with their intervals, one below the other: name, estimate, low, high."""
    with styled():
        figure, axes = blank(WIDTHS["two"] * 0.75, 0.8 + 0.2 * len(rows))
        ax = axes[0, 0]
        y = np.arange(len(rows))
        middle, low, high = (np.array([r[k] for r in rows]) for k in ("estimate", "low", "high"))
        sure = (low > 0) | (high < 0)
        ax.axvline(0.0, color=INK, linewidth=0.8)
        for which, face in ((sure, BLUE), (~sure, "white")):
            reach = np.array([middle - low, high - middle])[:, which]
            ax.errorbar(
                middle[which], y[which], xerr=reach, fmt="o", color=BLUE, markersize=4.5,
                markerfacecolor=face, linewidth=1.1,
            )  # fmt: skip
        ax.set_yticks(y, [str(r["name"]) for r in rows])
        ax.set(xlabel=f"{label}, with its 95% interval", ylim=(len(rows) - 0.4, -0.6))
        ax.grid(axis="y", visible=False)
    return figure


def probabilities(rows: Sequence[Mapping[str, Any]], state: Any, action: Any) -> Figure:
    """Where a pair leads: next_state, probability, and low and high where they are estimates."""
    with styled():
        figure, axes = blank(min(WIDTHS["two"], 2.2 + 0.3 * len(rows)), 2.4)
        ax = axes[0, 0]
        x = np.arange(len(rows))
        p = np.array([r["probability"] for r in rows])
        ax.bar(x, p, 0.7, color=SKY)
        if rows and "low" in rows[0]:
            low, high = (np.array([r[k] for r in rows]) for k in ("low", "high"))
            ax.errorbar(
                x, p, yerr=[p - low, high - p], fmt="o", color=BLUE, markersize=4.5, linewidth=1.3
            )
        ax.set(
            xlabel="next state",
            ylabel="probability",
            ylim=(0, 1.02),
            title=f"from {state} with {action}",
        )
        ax.set_xticks(*ticks([r["next_state"] for r in rows]))
        ax.grid(axis="x", visible=False)
    return figure


def policy(
    table: Array, states: Any, actions: Any, step: int | None = None, v: Array | None = None
) -> Figure:
    """A policy (H, S) over all steps, or where the states lie at one of them.

    states and actions: their names, if they have any; v (H + 1, S): what the states are worth.
    """
    n_steps, n_states = table.shape
    listed = range(n_states) if states is None else states
    words = range(int(table.max()) + 1) if actions is None else actions
    if step is None:
        return policy_map(table, listed, words)
    if not (isinstance(step, int | np.integer) and 0 <= step < n_steps):
        raise ValueError(f"step is {step!r}; steps are 0 to {n_steps - 1}")
    values = None if v is None else v[step]
    places = coordinates(states)
    if places is None:
        return policy_line(table[step], listed, words, values)
    return policy_grid(table[step], places, words, values)


def coordinates(states: Sequence[Any] | None) -> Array | None:
    """(S, 2) where the states are places on a grid: pairs of whole numbers; else None."""
    if states is None or not all(
        isinstance(s, tuple) and len(s) == 2 and all(isinstance(x, int | np.integer) for x in s)
        for s in states
    ):
        return None
    return np.array(states)


def colours(actions: Sequence[Any]) -> list[Any]:
    """One colour per action: distinct ones, or where there are many, from dark to light."""
    if len(actions) <= len(ACTIONS):
        return list(ACTIONS)
    from matplotlib import colormaps

    return list(colormaps["viridis"](np.linspace(0.0, 1.0, len(actions))))


def paint(ax: Axes, board: Array, actions: Sequence[Any], **where: Any) -> None:
    """A board of actions as coloured squares; -1 is nothing."""
    from matplotlib.colors import to_rgb

    shades = np.array([to_rgb(c) for c in (*colours(actions), "#ffffff")])
    ax.imshow(shades[board], aspect="auto", **where)
    ax.grid(visible=False)
    whole(ax)


def whole(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))


def ticks(names: Sequence[Any]) -> tuple[Array, list[str]]:
    """Where labels stand and what they say; with many states only some have one."""
    every = max(1, -(-len(names) // MANY))
    at = np.arange(0, len(names), every)
    return at, [str(names[int(i)]) for i in at]


def legend(ax: Axes, played: Array, actions: Sequence[Any]) -> None:
    from matplotlib.patches import Patch

    shades = colours(actions)
    handles = [Patch(color=shades[a], label=str(actions[a])) for a in played[played >= 0]]
    above: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    ax.legend(handles=handles, ncols=4, handlelength=1.0, columnspacing=1.2, **above)
