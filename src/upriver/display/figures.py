"""Figures of single objects, in the style of all figures; nothing is computed here.

A figure has no window and no global state: a notebook displays it, and `savefig` writes it.
States, actions and steps are called by their names, or numbered from 0 as in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
SCREEN_DPI = 110
"""Dots per inch in a notebook."""
STYLE_FILE = Path(__file__).with_name("figures.mplstyle")
MAX_LABELS = 40
"""Labels on an axis; of more states only some are labelled."""


@contextmanager
def figure_style() -> Iterator[None]:
    """Use figures.mplstyle in matplotlib; a context manager or a decorator."""
    from matplotlib import style

    with style.context(STYLE_FILE, after_reset=True):
        yield


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """Return a figure and its axes (rows, columns); sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            file = BytesIO()
            with figure_style():
                self.savefig(file, format="png", dpi=SCREEN_DPI)
            return file.getvalue()

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
        ax.set_ylim(bottom=min(0.0, *(float(y.min()) for y in curves.values())))
        if len(curves) > 1:
            ax.legend(loc="lower right")
    ax.set_xlabel("episode")
    return figure


@figure_style()
def plot_policy(table: Array, states: Any, actions: Any, ties: Array | None = None) -> Figure:
    """Plot the actions of a policy (H, S): states to the right, steps downwards.

    Where states are pairs of whole numbers, a map of the first step. ties: (H, S) where several
    actions are equally good, which is grey.
    """
    from upriver.display import maps

    ties = np.zeros(table.shape, bool) if ties is None else ties
    if actions is not None and maps.find_grid(states) is not None:
        return maps.plot_policy_map(table[0], states, actions, ties[0])
    from matplotlib.ticker import MaxNLocator

    n_steps, n_states = table.shape
    state_names = range(n_states) if states is None else states
    action_names = range(int(table.max()) + 1) if actions is None else actions
    height = 1.1 + min(max(n_steps, 4), 40) * 0.09
    figure, axes = new_figure(min(WIDTHS["two"], 2.0 + 0.22 * n_states), height)
    ax: Axes = axes[0, 0]
    ax.imshow(action_colours(table, action_names, ties), aspect="auto")
    ax.grid(visible=False)
    ax.set(xlabel="state", ylabel="step")
    label_states(ax, state_names)
    if any(len(str(s)) > 3 for s in state_names[:MAX_LABELS]):
        ax.tick_params(axis="x", rotation=90)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    add_action_legend(ax, table, action_names, ties)
    return figure


def action_colours(table: Array, actions: Sequence[Any], ties: Array) -> Array:
    """Return (..., 3) the colour of each action of a table, grey where actions tie."""
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(c) for c in pick_colours(actions)])[table]
    return np.where(ties[..., None], to_rgb(PALE), colours)


def add_action_legend(ax: Axes, table: Array, actions: Sequence[Any], ties: Array) -> None:
    """Name the colours of the actions of a table above the axes; many numbers get a colour bar."""
    from matplotlib.patches import Patch

    colours = pick_colours(actions)
    values = sorted({x for x in actions if isinstance(x, int | float)})
    if len(values) == len(actions) > len(ACTIONS) and list(actions) == values:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize
        from matplotlib.ticker import MaxNLocator

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
    shown = find_informative(low, high)
    without_zero = (low > 0) | (high < 0)
    ax.axvline(0.0, color=INK, linewidth=0.8)
    look: Any = {"fmt": "o", "color": BLUE, "markersize": 4.5, "linewidth": 1.1}
    for which, face in ((shown & without_zero, BLUE), (shown & ~without_zero, "white")):
        errors = np.array([middle - low, high - middle])[:, which]
        ax.errorbar(middle[which], y[which], xerr=errors, markerfacecolor=face, **look)
    least, most = ax.get_xlim()
    for ends, edge, marker in ((low < least, 0.02, "<"), (high > most, 0.98, ">")):
        at = y[~shown & (ends | ~(np.isfinite(low) & np.isfinite(high)))]
        place: Any = {"transform": ax.get_yaxis_transform(), "clip_on": False}
        ax.plot(np.full(len(at), edge), at, marker, color="#767676", markersize=5, **place)
    ax.set_xlim(least, most)
    names = [str(r["name"]) for r in rows]
    ax.set_yticks(y, [as_label(x if len(x) <= 36 else f"{x[:20]}…{x[-15:]}") for x in names])
    beyond = "" if shown.all() else "; arrows: no data"
    ax.set(xlabel=f"log-odds, with its 95% interval{beyond}", ylim=(len(rows) - 0.4, -0.6))
    ax.grid(axis="y", visible=False)
    return figure


def find_informative(low: Array, high: Array) -> Array:
    """Return which intervals are finite and not 50 times as wide as the usual narrow ones.

    Without data a coefficient is determined by the ridge alone, or not at all.
    """
    width = high - low
    finite = np.isfinite(width)
    if not finite.any():
        return finite
    narrow = np.sort(width[finite])[: max(1, int(finite.sum()) // 2)]
    return finite & (width <= 50.0 * max(float(np.median(narrow)), 1e-12))


@figure_style()
def plot_probabilities(rows: Sequence[Mapping[str, Any]], state: Any, action: Any) -> Figure:
    """Plot next_state, probability, low and high of a pair (s, a)."""
    figure, axes = new_figure(min(WIDTHS["two"], 2.2 + 0.3 * len(rows)), 2.4)
    ax, x = axes[0, 0], np.arange(len(rows))
    p, low, high = (np.array([r[k] for r in rows]) for k in ("probability", "low", "high"))
    ax.bar(x, p, 0.7, color=SKY)
    ax.errorbar(x, p, yerr=[p - low, high - p], fmt="o", color=BLUE, markersize=4.5, linewidth=1.3)
    title = f"from {as_label(state)} with {as_label(action)}"
    ax.set(xlabel="next state", ylabel="probability", ylim=(0, 1.02), title=title)
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
    from matplotlib import colormaps

    return list(colormaps["viridis"](np.linspace(0.0, 1.0, len(actions))))
