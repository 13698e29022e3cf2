"""Figures of the findings page that `plots` does not have: several panels of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.measured import Cell
from upriver.display.figures import new_figure
from upriver.results.plots import (
    DASHES,
    Band,
    Panel,
    add_legend,
    count_columns,
    draw_bands,
    figure_style,
    make_axes,
)
from upriver.results.styles import assign_styles

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
    with figure_style():
        figure, every = make_axes(len(panels), width, 0.85 if width == "two" else 0.72)
        look = assign_styles(
            list(dict.fromkeys(label for panel in panels.values() for label in panel))
        )
        legend: dict[str, Any] = {}
        for i, (axes, (title, panel)) in enumerate(zip(every, panels.items(), strict=True)):
            panel = {
                label: Band(b.x, *(np.maximum(y, FLOOR) for y in b[1:]))
                for label, b in panel.items()
            }
            bare = {label: b._replace(low=b.mean, high=b.mean) for label, b in panel.items()}
            drawn = draw_bands(axes, bare, look, markers=True)
            next(iter(drawn.values())).set_linewidth(2.2)
            for label, band in panel.items():
                axes.vlines(band.x, band.low, band.high, color=look[label].light, linewidth=0.8)
            legend |= {label: line for label, line in drawn.items() if label not in legend}
            axes.set(title=title, yscale="log", xlabel=xlabel)
            if log_x:
                axes.set_xscale("log")
                ticks(axes.xaxis, np.unique([np.asarray(b.x) for b in panel.values()]).tolist())
            if i % count_columns(len(panels), width) == 0:
                axes.set_ylabel(ylabel)
        same_limits(every)
        add_legend(figure, every, legend)
    return figure


def heat_figure(table: Mapping[tuple[str, str], Cell]) -> Figure:
    """Episodes lost by problem and learner: the paler, the less. In brackets: stuck runs.

    The colour is the logarithm of the loss beside that of the best learner of the same row, so
    that rows can be compared although some problems are harder than others.
    """
    problems = list(dict.fromkeys(problem for problem, _ in table))
    learners = list(dict.fromkeys(learner for _, learner in table))
    lost = np.array([[table[p, x].lost for x in learners] for p in problems])
    beside = np.log10(np.maximum(lost, FLOOR) / np.maximum(lost.min(axis=1), FLOOR)[:, None])
    with figure_style():
        figure, axes = new_figure(6.9, 0.6 + 0.24 * len(problems))
        ax = axes[0, 0]
        ax.imshow(beside, cmap="Blues", vmin=0.0, vmax=2.5, aspect="auto")
        for (i, problem), (j, learner) in product(enumerate(problems), enumerate(learners)):
            x, ink = lost[i, j], "white" if beside[i, j] > 1.5 else "#1a1a1a"
            text = f"{x:.2f}" if x < 9.995 else f"{x:.0f}"
            if (share := table[problem, learner].stuck) >= 0.005:
                text += f"  ({100 * share:.0f}%)"
            ax.annotate(text, (j, i), ha="center", va="center", fontsize=6.5, color=ink)
        ax.set_xticks(range(len(learners)), [x.replace(" ", "\n", 1) for x in learners])
        ax.set_yticks(range(len(problems)), problems)
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.grid(visible=False)
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
    with figure_style():
        figure, every = make_axes(len(panels), "two", 0.1)
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
        add_legend(figure, every, legend) if legend else None
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


def plot_bonus_scale(
    panel: Panel,
    xlabel: str = "bonus scale c",
    ylabel: str = "return / optimum",
    width: str = "one",
) -> Figure:
    """Draw the fraction of the optimum that is earned against the scale of the bonus.

    A point at c = 0 has no place on a log axis; it stands at the left, and its tick says 0.
    """
    with figure_style():
        figure, (axes,) = make_axes(1, width, 0.72)
        axes.axhline(1.0, color="#1a1a1a", linewidth=0.8, linestyle=DASHES["dash"], zorder=1)
        positive = [float(x) for b in panel.values() for x in b.x if x > 0]
        least, most = (min(positive), max(positive)) if positive else (1e-3, 1.0)
        zero = least / 10 ** max(1.0, np.log10(most / least) / 7)
        moved = {label: replace_zero(band, zero) for label, band in panel.items()}
        drawn = draw_bands(axes, moved, markers=True)
        axes.set(xscale="log", ylim=(-0.03, 1.06), xlabel=xlabel, ylabel=ylabel)
        decades = np.arange(np.ceil(np.log10(least) - 1e-9), np.floor(np.log10(most) + 1e-9) + 1)
        ticks = 10.0 ** decades[:: max(1, ceil(len(decades) / 6))]
        at = list(ticks) or [least]
        names = [f"$10^{{{round(np.log10(t))}}}$" for t in at]
        if any(0 in np.asarray(b.x) for b in panel.values()):
            at, names = [zero, *at], ["0", *names]
        axes.set_xticks(at, names)
        axes.minorticks_off()
        add_legend(figure, [axes], drawn)
    return figure


def plot_regret_rate(
    panel: Panel, slopes: Mapping[str, Any], first: float | None = None, width: str = "one"
) -> Figure:
    """Draw log regret against log K, with the fitted slope of each agent in the legend.

    slopes: {label: (slope, low, high)} or {label: slope}. first: where the fit begins; the thin
    line is the fit, drawn from there through the middle of the fitted points.
    """
    with figure_style():
        figure, (axes,) = make_axes(1, width, 0.78)
        drawn = draw_bands(axes, panel)
        for label, handle in drawn.items():
            slope = np.atleast_1d(np.asarray(slopes[label], float))
            band = panel[label]
            x, y = np.asarray(band.x, float), np.asarray(band.mean, float)
            keep = (x >= (first or x[0])) & (y > 0)
            if keep.any():
                log_x, log_y = np.log(x[keep]), np.log(y[keep])
                fit = np.exp(log_y.mean() + slope[0] * (log_x - log_x.mean()))
                axes.plot(x[keep], fit, color=handle.get_color(), linewidth=0.6, alpha=0.8)
            interval = f" [{slope[1]:.2f}, {slope[2]:.2f}]" if len(slope) == 3 else ""
            handle.set_label(f"{label}: slope {slope[0]:.2f}{interval}")
        axes.set(xscale="log", yscale="log", xlabel="episode", ylabel="cumulative regret")
        add_legend(figure, [axes], {h.get_label(): h for h in drawn.values()}, columns=1)
    return figure


def replace_zero(band: Any, zero: float) -> Band:
    """Move the points at x = 0 to `zero`."""
    x = np.asarray(band.x, float)
    return Band(np.where(x > 0, x, zero), band.mean, band.low, band.high)
