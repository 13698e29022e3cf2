"""Numbers to figures for papers: matplotlib in one consistent, colour-blind-safe style.

Every function takes numbers and returns a `Figure`; nothing here reads runs or computes statistics.
A panel is {label of an agent: band}, and panels are {title: panel}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.display.figures import WIDTHS, figure_style, new_figure, write_at_ends
from upriver.mdp.writing import replacing
from upriver.results.statistics import Band
from upriver.results.styles import Style, assign_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Panel = Mapping[str, Any]
"""{label: band}; a band is any object with x, mean, low and high."""

MAX_LABELLED = 6
"""Agents of a figure that have a name and a look of their own."""
MAX_LETTERS = 24
"""Letters of the longest name that is written at the end of its line."""
REST = Style("#b8b8b8", "#5c6166", "solid", "")
"""The look of all other agents."""

DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (5, 1.6)), "dot": (0, (1.2, 1.2))}
DASHES["dashdot"] = (0, (5, 1.4, 1.2, 1.4))


def plot_curves(
    panels: Mapping[str, Panel],
    ylabel: str = "cumulative regret",
    optimal: Mapping[str, float] | None = None,
    log: bool = False,
    width: str = "two",
    unit: str = "episode",
) -> Figure:
    """Draw a quantity against the episode: one panel per environment.

    The lines of a single panel have their names at their ends, several panels share a legend. Only
    the first MAX_LABELLED agents are named; the others are thin and grey.

    optimal: {title: V*}, drawn as a dashed line in place of the runs of the optimal policy.
    log: both axes are logarithmic; a line begins where its mean first exceeds rounding errors, and
    a line that never does, such as the regret of the optimal policy, is left out.
    width: "one" or "two" columns of a paper. unit: "step" for an infinite horizon.
    """
    if not panels:
        raise ValueError("there are no curves to draw: panels is empty")
    optimal = optimal or {}
    # the exact value replaces the runs of the optimal policy
    panels = {
        title: {k: band for k, band in panel.items() if k != "optimal" or title not in optimal}
        for title, panel in panels.items()
    }
    if log:
        panels = {title: keep_positive(panel) for title, panel in panels.items()}
    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    named = ["optimal", *[label for label in labels if label != "optimal"][:MAX_LABELLED]]
    look = dict.fromkeys(labels, REST) | assign_styles(named)
    best: Any = {"color": look["optimal"].light, "linestyle": DASHES[look["optimal"].dash]}
    with figure_style():
        figure, every = make_axes(len(panels), width)
        legend: dict[str, Any] = {}
        columns = count_columns(len(panels), width)
        for i, (axes, (title, panel)) in enumerate(zip(every, panels.items(), strict=True)):
            lines = draw_bands(axes, panel, look)
            if title in optimal:
                lines["optimal"] = axes.axhline(optimal[title], **best, linewidth=1.0)
            for label, line in lines.items():
                legend.setdefault(label if look[label] is not REST else "others", line)
            axes.set_title(title, parse_math=False)
            if log:
                axes.set(xscale="log", yscale="log")
            else:
                axes.margins(x=0)
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            if i % columns == 0:
                axes.set_ylabel(ylabel)
            if i + columns >= len(panels):
                axes.set_xlabel(unit)
        if len(every) == 1 and max(map(len, legend), default=0) <= MAX_LETTERS:
            use_round_ticks(every)
            ys = {name: np.asarray(line.get_ydata(), float) for name, line in legend.items()}
            last = {name: float(y[np.isfinite(y)][-1]) for name, y in ys.items()}
            write_at_ends(every[0], {k: (last[k], x.get_color()) for k, x in legend.items()})
        else:
            add_legend(figure, every, legend)
    return figure


def count_columns(n: int, width: str) -> int:
    """Return the number of columns in which n panels are arranged."""
    if width not in WIDTHS:
        raise ValueError(f"width is {width!r}; it must be 'one' or 'two' columns")
    return 1 if width == "one" else n if n <= 3 else 2 if n == 4 else 3


def make_axes(n: int, width: str, ratio: float = 0.62) -> tuple[Figure, list[Axes]]:
    """Create a figure with n panels of one size; it has no window and no global state."""
    columns = count_columns(n, width)
    rows, inches = ceil(n / columns), WIDTHS[width]
    height = min(inches / columns * ratio, 3.0) + 0.35
    figure, axes = new_figure(inches, rows * height, rows, columns)
    cells = axes.ravel()
    for unused in cells[n:]:
        unused.remove()
    return figure, list(cells[:n])


def draw_bands(
    axes: Axes, panel: Panel, look: Mapping[str, Style] | None = None, markers: bool = False
) -> dict[str, Any]:
    """Draw lines with their bands and return {label: line}.

    markers: draw one at each point; without it only so many that lines can be told apart.
    """
    look = look or assign_styles(list(panel))
    lines = {}
    for order, (label, band) in enumerate(panel.items()):
        style, rest = look[label], look[label] is REST
        colour, place = style.light, (len(panel) - order) / len(panel)
        # The first entry of the panel lies on top, and broken lines lie above solid ones, so that
        # two coinciding lines are both visible; the optimum hides no line, nor does the rest.
        above = 2.2 if rest else 2.5 if label == "optimal" else 3 + (style.dash != "solid") + place
        if not rest:
            shade: Any = {"alpha": 0.16, "linewidth": 0, "zorder": 2}
            axes.fill_between(band.x, band.low, band.high, color=colour, **shade)
        form: Any = {"linestyle": DASHES[style.dash], "zorder": above, "label": label}
        form |= {"markersize": 3.6, "markeredgewidth": 0.5, "markeredgecolor": "white"}
        form |= {"linewidth": 0.7} if rest else {}
        spaced = None if markers else (0.02 + 0.13 * place, 0.13)  # in shares of the panel
        (lines[label],) = axes.plot(
            band.x, band.mean, color=colour, marker=style.marker, markevery=spaced, **form
        )
    return lines


def use_round_ticks(every: Sequence[Axes]) -> None:
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    for axes in every:
        for axis in (axes.xaxis, axes.yaxis):
            plain = isinstance(axis.get_major_formatter(), ScalarFormatter)
            if plain and axis.get_scale() == "linear":
                axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def add_legend(
    figure: Figure, every: Sequence[Axes], legend: Mapping[str, Any], columns: int | None = None
) -> None:
    """Add one legend for all panels below them, in as many columns as the width holds."""
    use_round_ticks(every)
    longest = max((len(label) for label in legend), default=0)
    fits = int(figure.get_figwidth() / (0.5 + 0.068 * longest)) if longest else 1
    wide = columns or max(1, min(len(legend), fits))
    rows = ceil(len(legend) / wide)
    figure.set_figheight(figure.get_figheight() + 0.17 * rows + 0.05)
    form: Any = {"loc": "outside lower center", "columnspacing": 1.4, "handletextpad": 0.6}
    ncols = ceil(len(legend) / rows)
    added = figure.legend(list(legend.values()), list(legend), ncols=ncols, **form)
    for text in added.get_texts():
        text.set_parse_math(False)  # a label is a name, also where it holds a dollar sign


def keep_positive(panel: Panel) -> dict[str, Band]:
    """Replace means below a millionth of the largest by gaps; a log axis cannot show them."""
    means = {label: np.asarray(band.mean, float) for label, band in panel.items()}
    least = 1e-6 * max((float(mean.max()) for mean in means.values()), default=0.0)
    found = {}
    for label, band in panel.items():
        large = means[label] > least
        if large.any():
            ys = (np.where(large, y, np.nan) for y in (band.mean, band.low, band.high))
            found[label] = Band(band.x, *ys)
    return found


def save_figure(
    figure: Figure, path: str | Path, formats: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """Write `path`.png and `path`.pdf without a date, so that equal figures are equal files."""
    written = []
    with figure_style():
        for suffix in formats:
            file = Path(f"{path}.{suffix}")
            file.parent.mkdir(parents=True, exist_ok=True)
            metadata: Any = {"CreationDate": None} if suffix == "pdf" else None
            with replacing(file) as part:
                figure.savefig(part, metadata=metadata)
            written.append(file)
    return written
