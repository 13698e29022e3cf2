"""Figures of the findings page that `plots` does not have: several panels of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.measured import Cell
from upriver.results.plots import (
    Band,
    Panel,
    columns_of,
    draw,
    finish,
    grid,
    styled,
)
from upriver.results.styles import styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOST = "episodes lost (regret / V*)"
FLOOR = 0.1
BEFORE, AFTER = "#767676", "#0072b2"


def lost_figure(
    panels: Mapping[str, Panel], xlabel: str, log_x: bool, width: str = "two", ylabel: str = LOST
) -> Figure:
    """Episodes lost against a number of the problem, on a log axis: one panel per entry.

    Points have few neighbours, so intervals are bars, and the first line of a panel is heavy.
    Less than FLOOR is drawn as FLOOR: nobody cares which part of nothing was lost.
    """
    with styled():
        figure, every = grid(len(panels), width, 0.85 if width == "two" else 0.72)
        look = styles(list(dict.fromkeys(label for panel in panels.values() for label in panel)))
        legend: dict[str, Any] = {}
        for i, (axes, (title, panel)) in enumerate(zip(every, panels.items(), strict=True)):
            panel = {
                label: Band(b.x, *(np.maximum(y, FLOOR) for y in b[1:]))
                for label, b in panel.items()
            }
            bare = {label: b._replace(low=b.mean, high=b.mean) for label, b in panel.items()}
            drawn = draw(axes, bare, look, markers=True)
            next(iter(drawn.values())).set_linewidth(2.2)
            for label, band in panel.items():
                axes.vlines(band.x, band.low, band.high, color=look[label].light, linewidth=0.8)
            legend |= {label: line for label, line in drawn.items() if label not in legend}
            axes.set(title=title, yscale="log", xlabel=xlabel)
            if log_x:
                axes.set_xscale("log")
                ticks(axes.xaxis, np.unique([np.asarray(b.x) for b in panel.values()]).tolist())
            if i % columns_of(len(panels), width) == 0:
                axes.set_ylabel(ylabel)
        same_limits(every)
        finish(figure, every, legend)
    return figure


def dots_figure(
    panels: Mapping[str, Mapping[str, Mapping[str, Cell]]],
    of: str,
    xlabel: str,
    log: bool = False,
    mark: float | None = None,
) -> Figure:
    """A row per agent with a dot and its interval; panels are {title: {group: {agent: cell}}}.

    of: the number of the cells that is drawn, "share" or "lost". mark: a dashed line.
    """
    agents = list(dict.fromkeys(a for p in panels.values() for g in p.values() for a in g))
    groups = list(dict.fromkeys(g for p in panels.values() for g in p))
    with styled():
        figure, every = grid(len(panels), "two", 0.1)
        figure.set_figheight(0.75 + 0.2 * len(agents))
        legend: dict[str, Any] = {}
        for axes, (title, panel) in zip(every, panels.items(), strict=True):
            if mark is not None:
                axes.axvline(mark, color="#1a1a1a", linewidth=0.8, linestyle=(0, (5, 1.6)))
            for g, (group, cells) in enumerate(panel.items()):
                shift = 0.3 * (g - (len(groups) - 1) / 2)
                y = [agents.index(agent) + shift for agent in cells]
                mean, low, high = (
                    np.array([getattr(c, of + end) for c in cells.values()])
                    for end in ("", "_low", "_high")
                )
                handle = axes.errorbar(
                    mean, y, xerr=[mean - low, high - mean], fmt="os"[g % 2], markersize=3.2,
                    linewidth=1.0, color=AFTER if g == len(groups) - 1 else BEFORE, label=group,
                )  # fmt: skip
                legend |= {group: handle} if group else {}
            axes.set(title=title, xlabel=xlabel, ylim=(len(agents) - 0.5, -0.5))
            axes.set_yticks(range(len(agents)), agents if axes is every[0] else [])
            if log:
                axes.set_xscale("log")
                ticks(axes.xaxis, between(*axes.get_xlim()))
            else:
                axes.set_xlim(-0.03, 1.03)
        finish(figure, every, legend) if legend else None
    return figure


def range_figure(
    panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]], xlabel: str
) -> Figure:
    """Bars from the least to the largest useful bonus; panels are {title: {row: {agent: ends}}}."""
    rows = list(dict.fromkeys(row for panel in panels.values() for row in panel))
    agents = list(dict.fromkeys(a for p in panels.values() for bars in p.values() for a in bars))
    with styled():
        figure, every = grid(len(panels), "two", 0.1)
        figure.set_figheight(0.75 + 0.26 * len(rows))
        look, legend = styles(agents), {}
        for axes, (title, panel) in zip(every, panels.items(), strict=True):
            for row, bars in panel.items():
                for agent, (low, high) in bars.items():
                    shift = 0.24 * (agents.index(agent) - (len(agents) - 1) / 2)
                    style = look[agent]
                    (legend[agent],) = axes.plot(
                        [low, high], [rows.index(row) + shift] * 2, color=style.light,
                        marker=style.marker, markersize=3.4, linewidth=2.2, label=agent,
                    )  # fmt: skip
            axes.set(title=f"{title} features", xlabel=xlabel, xscale="log")
            axes.minorticks_off()
            axes.set(ylim=(len(rows) - 0.5, -0.5))
            axes.set_yticks(range(len(rows)), rows if axes is every[0] else [])
        finish(figure, every, legend)
    return figure


def same_limits(every: Sequence[Any]) -> None:
    """One y axis for all panels, so that they can be compared, with plain numbers on it."""
    low = min(axes.get_ylim()[0] for axes in every)
    high = max(axes.get_ylim()[1] for axes in every)
    for axes in every:
        axes.set_ylim(low, high)
        ticks(axes.yaxis, between(low, high))


def between(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, ... from low to high; over more than three decades their powers only."""
    heads = (1, 2, 5) if high < 1000 * low else (1,)
    return [x for e in range(-3, 6) for m in heads if low <= (x := m * 10.0**e) <= high]


def ticks(axis: Any, at: Sequence[float]) -> None:
    """These numbers and no others, written plainly."""
    axis.set_ticks(at, [f"{x:g}" for x in at])
    axis.set_ticks([], minor=True)
