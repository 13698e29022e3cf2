"""Numbers to figures for papers: matplotlib in one consistent, colour-blind-safe style.

Every function takes numbers and returns a `Figure`; nothing here reads runs or computes statistics.
A panel is {agent's label: band}, and panels are {title: panel}.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.display.figures import WIDTHS, blank, styled
from upriver.mdp.writing import replacing
from upriver.results.statistics import Band
from upriver.results.styles import Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Panel = Mapping[str, Any]
"""{label: Band}; anything with x, mean, low and high will do."""

DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 1.6)),
    "dot": (0, (1.2, 1.2)),
    "dashdot": (0, (5, 1.4, 1.2, 1.4)),
}


def learning_curves(
    panels: Mapping[str, Panel],
    optimal: Mapping[str, float] | None = None,
    window: int = 1,
    width: str = "two",
    ylabel: str = "return of an episode",
) -> Figure:
    """What an episode earns against its number: one panel per environment, mean and band.

    optimal: {title: V*}, a dashed line. window: how many episodes the numbers were averaged over
    before they came here; it is named on the axis, so that no reader takes them for raw.
    """
    if (unit := unit_of(panels)) == "step":
        ylabel = ylabel.replace("an episode", "a step")
    if window > 1:
        ylabel += f" (mean of the last {window})"
    return curves(panels, unit, ylabel, width, optimal or {})


def regret_curves(panels: Mapping[str, Panel], log: bool = False, width: str = "two") -> Figure:
    """Cumulative regret against the episode: one panel per environment; log: both axes.

    On log axes a line begins where its mean is first above rounding, and one that never is, such as
    that of the optimal policy, is left out.
    """
    if log:
        panels = {title: positive_part(panel) for title, panel in panels.items()}
    scale = "log" if log else "linear"
    return curves(panels, unit_of(panels), "cumulative regret", width, {}, scale)


def unit_of(environments: Iterable[str]) -> str:
    """What is counted: steps where all are streams, whose names end in a discount."""
    streams = [re.search(r"-discount-[\d.e-]+$", env) is not None for env in environments]
    return "step" if streams and all(streams) else "episode"


def scaling_figure(panel: Panel, xlabel: str = "number of states", width: str = "one") -> Figure:
    """Episodes lost, regret divided by V*, against the size of the problem: a line per agent."""
    with styled():
        figure, (axes,) = grid(1, width, 0.72)
        drawn = draw(axes, panel, markers=True)
        axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="episodes lost (regret / V*)")
        plain_ticks(axes.xaxis, sorted({float(x) for b in panel.values() for x in b.x}))
        axes.grid(which="minor", visible=False)
        finish(figure, [axes], drawn)
    return figure


def bonus_sweep_figure(
    panel: Panel,
    xlabel: str = "bonus scale c",
    ylabel: str = "return / optimum",
    width: str = "one",
) -> Figure:
    """The fraction of the optimum that is earned against the scale of the bonus, on a log axis.

    A point at c = 0 has no place on a log axis; it stands at the left, and its tick says 0.
    """
    with styled():
        figure, (axes,) = grid(1, width, 0.72)
        axes.axhline(1.0, color="#1a1a1a", linewidth=0.8, linestyle=DASHES["dash"], zorder=1)
        positive = [float(x) for b in panel.values() for x in b.x if x > 0]
        least, most = (min(positive), max(positive)) if positive else (1e-3, 1.0)
        zero = least / 10 ** max(1.0, np.log10(most / least) / 7)
        moved = {label: replaced(band, zero) for label, band in panel.items()}
        drawn = draw(axes, moved, markers=True)
        axes.set(xscale="log", ylim=(-0.03, 1.06), xlabel=xlabel, ylabel=ylabel)
        decades = np.arange(np.ceil(np.log10(least) - 1e-9), np.floor(np.log10(most) + 1e-9) + 1)
        ticks = 10.0 ** decades[:: max(1, ceil(len(decades) / 6))]
        at = list(ticks) or [least]
        names = [f"$10^{{{round(np.log10(t))}}}$" for t in at]
        if any(0 in np.asarray(b.x) for b in panel.values()):
            at, names = [zero, *at], ["0", *names]
        axes.set_xticks(at, names)
        axes.minorticks_off()
        finish(figure, [axes], drawn)
    return figure


def profile_figure(
    panels: Mapping[str, Panel], xlabel: str, ylabel: str, width: str = "two"
) -> Figure:
    """A share that grows with a factor on a log axis: one panel per entry, steps with bands."""
    figure = curves(panels, xlabel, ylabel, width, {}, "linear")
    for axes in figure.axes:
        axes.set(xscale="log", ylim=(-0.02, 1.02))
        low, high = (round(x) for x in axes.get_xlim())
        plain_ticks(axes.xaxis, [2.0**i for i in range(12) if low <= 2**i <= high])
    return figure


def rate_figure(
    panel: Panel, slopes: Mapping[str, Any], first: float | None = None, width: str = "one"
) -> Figure:
    """Log regret against log K, with the fitted slope of each agent in the legend.

    slopes: {label: (slope, low, high)} or {label: slope}. first: where the fit begins; the thin
    line is the fit, drawn from there through the middle of the fitted points.
    """
    with styled():
        figure, (axes,) = grid(1, width, 0.78)
        drawn = draw(axes, panel)
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
        finish(figure, [axes], {h.get_label(): h for h in drawn.values()}, columns=1)
    return figure


def curves(
    panels: Mapping[str, Panel],
    xlabel: str,
    ylabel: str,
    width: str,
    optimal: Mapping[str, float],
    scale: str = "linear",
) -> Figure:
    """One panel per entry with a shared legend below."""
    if not panels:
        raise ValueError("there are no curves to draw: panels is empty")
    with styled():
        figure, every = grid(len(panels), width)
        look = styles(list(dict.fromkeys(label for panel in panels.values() for label in panel)))
        legend: dict[str, Any] = {}
        columns = columns_of(len(panels), width)
        for i, (axes, (title, panel)) in enumerate(zip(every, panels.items(), strict=True)):
            if title in optimal:  # its value is known: no need to draw how lucky its runs were
                panel = {label: band for label, band in panel.items() if label != "optimal"}
            drawn = draw(axes, panel, look)
            if title in optimal:
                best = look_of("optimal")
                drawn["optimal"] = axes.axhline(
                    optimal[title], color=best.light, linestyle=DASHES[best.dash], linewidth=1.0
                )
            legend |= {label: h for label, h in drawn.items() if label not in legend}
            axes.set(title=title, xscale=scale, yscale=scale)
            if scale == "linear":
                axes.margins(x=0)
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            if i % columns == 0:
                axes.set_ylabel(ylabel)
            if i + columns >= len(panels):
                axes.set_xlabel(xlabel)
        finish(figure, every, legend)
    return figure


def columns_of(n: int, width: str) -> int:
    if width not in WIDTHS:
        raise ValueError(f"width is {width!r}; it must be 'one' or 'two' columns")
    return 1 if width == "one" else n if n <= 3 else 2 if n == 4 else 3


def grid(n: int, width: str, ratio: float = 0.62) -> tuple[Figure, list[Axes]]:
    """A figure with n panels of one size, and its axes; no window, no global state."""
    columns = columns_of(n, width)
    rows = ceil(n / columns)
    inches = WIDTHS[width]
    tall = min(inches / columns * ratio, 3.0) + 0.35
    figure, axes = blank(inches, rows * tall, rows, columns)
    cells = axes.ravel()
    for spare in cells[n:]:
        spare.remove()
    return figure, list(cells[:n])


def draw(
    axes: Axes, panel: Panel, look: Mapping[str, Style] | None = None, markers: bool = False
) -> dict[str, Any]:
    """Lines with their bands; {label: line}."""
    look = look or styles(list(panel))
    drawn = {}
    for order, (label, band) in enumerate(panel.items()):
        style = look[label]
        # What comes first in the panel lies on top, and broken lines above whole ones, so that two
        # that coincide are both seen; the optimum hides nobody.
        above = 3 + (style.dash != "solid") + (len(panel) - order) / len(panel)
        above = above if label != "optimal" else 2.5
        axes.fill_between(
            band.x, band.low, band.high, color=style.light, alpha=0.16, linewidth=0, zorder=2
        )
        (drawn[label],) = axes.plot(
            band.x, band.mean, color=style.light, linestyle=DASHES[style.dash], zorder=above,
            marker=style.marker if markers else "", markersize=3.6, markeredgewidth=0.7,
            label=label,
        )  # fmt: skip
    return drawn


def finish(
    figure: Figure, every: Sequence[Axes], legend: Mapping[str, Any], columns: int | None = None
) -> None:
    """One legend for all panels, below them; as many columns as the width holds."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    for axes in every:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "linear" and isinstance(
                axis.get_major_formatter(), ScalarFormatter
            ):
                axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    longest = max((len(label) for label in legend), default=0)
    fits = int(figure.get_figwidth() / (0.5 + 0.068 * longest)) if longest else 1
    wide = columns or max(1, min(len(legend), fits))
    rows = ceil(len(legend) / wide)
    figure.set_figheight(figure.get_figheight() + 0.17 * rows + 0.05)
    figure.legend(
        list(legend.values()), list(legend), loc="outside lower center",
        ncols=ceil(len(legend) / rows), columnspacing=1.4, handletextpad=0.6,
    )  # fmt: skip


def replaced(band: Any, zero: float) -> Band:
    x = np.asarray(band.x, float)
    return Band(np.where(x > 0, x, zero), band.mean, band.low, band.high)


def positive_part(panel: Panel) -> dict[str, Band]:
    """Means that a log axis can show, down to a millionth of the largest; the others are gaps."""
    means = {label: np.asarray(band.mean, float) for label, band in panel.items()}
    least = 1e-6 * max((float(mean.max()) for mean in means.values()), default=0.0)
    return {
        label: Band(band.x, *(np.where(mean > least, y, np.nan) for y in band[1:]))
        for (label, band), mean in zip(panel.items(), means.values(), strict=True)
        if (mean > least).any()
    }


def look_of(label: str) -> Style:
    return styles([label])[label]


def plain_ticks(axis: Any, at: Sequence[float]) -> None:
    """Ticks at the sizes that were measured, as plain numbers, where there is room for them."""
    shown: list[float] = []
    for x in at:
        if not shown or x / shown[-1] > 1.25:
            shown.append(x)
    axis.set_ticks(shown, [f"{x:g}" for x in shown])
    axis.set_ticks([], minor=True)


def save(figure: Figure, path: str | Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write `path`.png and `path`.pdf, without a date, so that equal figures are equal files."""
    written = []
    with styled():
        for suffix in formats:
            file = Path(f"{path}.{suffix}")
            file.parent.mkdir(parents=True, exist_ok=True)
            about: dict[str, Any] = {"CreationDate": None} if suffix == "pdf" else {}
            with replacing(file) as part:
                figure.savefig(part, metadata=about or None)
            written.append(file)
    return written
