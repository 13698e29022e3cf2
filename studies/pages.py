"""One function for each experiment of the findings page: its numbers, its table, its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from typing import TYPE_CHECKING

import numpy as np

from studies.automatic import automatic, automatic_long
from studies.changing import changing
from studies.default_agent import (
    ablation,
    default_agent,
    default_agent_long,
    feature_scale,
    streams,
    stuck,
    variance,
)
from studies.figures import LOST, dots_figure, lost_figure, plot_bonus_scale, plot_regret_rate
from studies.kappa import kappa
from studies.measured import (
    Cell,
    Found,
    Measured,
    Page,
    log_spaced,
    lost_text,
    measure,
    pivot,
    power,
    runs_text,
    share_text,
)
from studies.successors import cho_figure_1
from upriver.checks import Array
from upriver.results import plots
from upriver.results.runs import Sample
from upriver.results.statistics import bootstrap_interval, compute_curve
from upriver.results.tables import to_markdown

if TYPE_CHECKING:
    import pyarrow as pa

    from upriver.experiments.spec import Experiment

KEEPS = 0.9
"""The share of the optimum that counts as solved."""
OPTIMISMS = {"closed-form": "closed form (6)", "exact-maximum": "exact maximum (4)"}
"""How the figures call them, with the paper's equations."""
FIT = 1_000
"""The episode from which a rate of regret is fitted."""


def find(experiment: Experiment, table: pa.Table) -> Found:
    """Numbers, table and figures of an experiment of the page, from its runs."""
    if experiment.name not in FINDINGS:
        raise ValueError(
            f"experiment {experiment.name!r} has no finding (allowed: {', '.join(FINDINGS)})"
        )
    measured = measure(experiment, table)
    return Found([m.cell for m in measured], *FINDINGS[experiment.name](measured))


def scaling(measured: Sequence[Measured]) -> Page:
    """Episodes lost against the number of states; the first agent stands in both panels."""
    cells = [m.cell for m in measured]
    size = {m.cell.env: f"S = {size_of(m)}" for m in measured}
    table = pivot(cells, lambda c: (c.agent, size[c.env]), lost_text)
    first = cells[0].agent
    panels = {
        "with features of transitions": lines([m for m in measured if m.run.features], size_of),
        "tabular and linear, one-hot": lines(
            [m for m in measured if not m.run.features or m.cell.agent == first], size_of
        ),
    }
    figure = lost_figure({k: p for k, p in panels.items() if p}, "number of states", log_x=True)
    return table, {"scaling": figure}


def equal_information(measured: Sequence[Measured]) -> Page:
    """Episodes lost against the number of states: a panel and a table for each support."""
    size = {m.cell.env: f"S = {size_of(m)}" for m in measured}
    panels, tables = {}, []
    for support in dict.fromkeys(m.cell.support for m in measured):
        here = [
            m._replace(cell=m.cell._replace(agent=m.cell.agent.removesuffix(f"-{support}")))
            for m in measured
            if m.cell.support == support
        ]
        panels[f"support {support}"] = lines(here, size_of)
        table = pivot([m.cell for m in here], lambda c: (c.agent, size[c.env]), lost_text)
        tables.append(f"Support {support}:\n\n{table}")
    figure = lost_figure(panels, "number of states", log_x=True)
    return "\n".join(tables), {"equal-information": figure}


def how_much_bonus(measured: Sequence[Measured]) -> Page:
    """The share of the optimum against c, and the range of c that keeps 90% of it."""
    figures, rows = {}, []
    for env, features in dict.fromkeys((m.cell.env, m.cell.features) for m in measured):
        here = [m for m in measured if (m.cell.env, m.cell.features) == (env, features)]
        greedy = [m.cell for m in here if scale_of(m) == 0.0]
        panel = {}
        for optimism in dict.fromkeys(m.run.settings["optimism"] for m in here):
            points = sorted(
                (m for m in here if m.run.settings["optimism"] == optimism and scale_of(m) > 0.0),
                key=scale_of,
            )
            scales, cells = [scale_of(m) for m in points], [m.cell for m in points]
            name = OPTIMISMS.get(optimism, optimism)
            panel[name] = band_of([0.0, *scales], [*greedy, *cells], "share")
            text = solved_text(scales, [c.share for c in cells])
            rows.append([env, features, name, *text])
        rows.append([env, features, "none, c = 0", "", "", "", f"{greedy[0].share:.3f}"])
        figure = plot_bonus_scale(panel, ylabel="share of the optimum")
        figure.axes[0].set_title(f"{env}, {features} features", fontsize=8)
        figure.axes[0].axhline(KEEPS, color="#767676", linewidth=0.7, linestyle=":", zorder=1)
        figures[f"how-much-bonus-{env}-{features}"] = figure
    head = ["environment", "features", "use of the set", "least c", "largest c", "decades", "best"]
    return to_markdown([head, *rows]), figures


def misspecification(measured: Sequence[Measured]) -> Page:
    """Episodes lost against the distance from the family: a panel and two tables for each size.

    Where problems are drawn the intervals resample them, which differ more than the runs on one of
    them; the second table has the differences to the first learner on the same problems and seeds.
    """
    by: dict[int, dict[str, dict[float, list[Array]]]] = {}
    for m in measured:
        distance = m.run.environment["settings"]["distance"]
        at = by.setdefault(size_of(m), {}).setdefault(m.cell.agent, {})
        at.setdefault(distance, []).append(m.sample.totals("episodes lost"))
    panels, tables = {}, []
    for size, agents in by.items():
        panel, first = {}, next(iter(agents))
        head = [*(f"distance {d:g}" for d in agents[first])]
        lost, more = [["agent", *head]], [[f"more than {first}", *head]]
        for agent, at in agents.items():
            found = [over_draws(runs) for runs in at.values()]
            panel[agent] = plots.Band(list(at), *zip(*found, strict=True))
            lost.append([agent, *("{:.1f} [{:.1f}, {:.1f}]".format(*x) for x in found)])
            pairs = (
                over_draws([x - y for x, y in zip(runs, agents[first][d], strict=True)])
                for d, runs in at.items()
            )
            if agent != first:
                more.append([agent, *("{:+.1f} [{:+.1f}, {:+.1f}]".format(*x) for x in pairs)])
        title = f"S = {size}" if len(by) > 1 else ""
        panels[title] = panel
        tables += [f"{title}\n\n" if title else "", to_markdown(lost), "\n", to_markdown(more)]
    many = max(len(runs) for at in next(iter(by.values())).values() for runs in at.values())
    tables.append(f"\nProblems of each kind: {many}. {runs_text([m.cell for m in measured])}")
    width = "two" if len(panels) > 1 else "one"
    figure = lost_figure(panels, "distance from the MNL family", log_x=False, width=width)
    return "".join(tables), {"misspecification": figure}


def under(name: str, page: Callable[[Sequence[Measured]], Page]) -> Callable[..., Page]:
    """The page of another experiment of the same form, its figure under this name."""

    def renamed(measured: Sequence[Measured]) -> Page:
        table, figures = page(measured)
        (figure,) = figures.values()
        return table, {name: figure}

    return renamed


def over_draws(runs: Sequence[Array]) -> tuple[float, float, float]:
    """(mean, low, high) over drawn problems, or over the runs where there is one problem only."""
    x = np.array([r.mean() for r in runs]) if len(runs) > 1 else runs[0]
    return (float(x.mean()), *bootstrap_interval(x))


def regret_rate(measured: Sequence[Measured]) -> Page:
    """Cumulative regret against the episode on log axes, with the slope of the last decade."""
    panel, slopes, rows, first = {}, {}, [], 1
    for m in measured:
        curve = compute_curve(m.sample, "regret")
        last = len(curve.x)
        first = min(FIT, last // 10)
        panel[m.cell.agent] = curve.at(log_spaced(1, last, 80) - 1)
        slope = slopes[m.cell.agent] = slope_of(m.sample, first)
        rows.append(
            [m.cell.agent, f"{curve.mean[-1]:.1f} [{curve.low[-1]:.1f}, {curve.high[-1]:.1f}]",
             f"{m.cell.lost:.1f}", f"{slope[0]:.2f} [{slope[1]:.2f}, {slope[2]:.2f}]"]
        )  # fmt: skip
    head = ["agent", "regret", "episodes lost", "slope"]
    figure = plot_regret_rate(panel, slopes, first)
    return to_markdown([head, *rows]), {"regret-rate": figure}


def unknown_reward(measured: Sequence[Measured]) -> Page:
    """Episodes lost with known and with unknown rewards."""
    cells = [
        m.cell._replace(agent=m.cell.agent.removesuffix(f" {m.cell.reward}")) for m in measured
    ]
    table = pivot(cells, lambda c: (c.agent, f"{c.env}, {c.reward}"), lost_text)
    panels: dict[str, dict[str, dict[str, Cell]]] = {}
    for c in cells:
        panels.setdefault(c.env, {}).setdefault(f"reward {c.reward}", {})[c.agent] = c
    figure = dots_figure(panels, "lost", LOST, log=True)
    return table, {"unknown-reward": figure}


def exploration_needed(measured: Sequence[Measured]) -> Page:
    """The share of the optimum that is earned with a bonus and without."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (c.agent, c.env), share_text)
    panels: dict[str, dict[str, dict[str, Cell]]] = {}
    for c in cells:
        panels.setdefault(c.env, {}).setdefault("", {})[c.agent] = c
    figure = dots_figure(panels, "share", "share of the optimum", mark=KEEPS)
    return table, {"exploration-needed": figure}


FINDINGS: dict[str, Callable[[Sequence[Measured]], Page]] = {
    "scaling": scaling,
    "equal-information": equal_information,
    "how-much-bonus": how_much_bonus,
    "misspecification": misspecification,
    "uneven-rivers": under("uneven-rivers", misspecification),
    "regret-rate": regret_rate,
    "unknown-reward": unknown_reward,
    "exploration-needed": exploration_needed,
    "automatic": automatic,
    "automatic-long": automatic_long,
    "default-agent": default_agent,
    "default-agent-long": default_agent_long,
    "ablation": ablation,
    "stuck": stuck,
    "feature-scale": feature_scale,
    "variance": variance,
    "streams": streams,
    "cho-figure-1": cho_figure_1,
    "kappa": kappa,
    "changing": changing,
}
"""The experiments of the page, by their name in the catalogue."""


def size_of(m: Measured) -> int:
    return m.run.environment["settings"]["n_states"]


def scale_of(m: Measured) -> float:
    return float(m.run.settings["radius"])


def lines(measured: Sequence[Measured], x: Callable[[Measured], float]) -> dict[str, plots.Band]:
    """{agent: episodes lost against x}."""
    by: dict[str, list[Measured]] = {}
    for m in measured:
        by.setdefault(m.cell.agent, []).append(m)
    return {
        agent: band_of([x(m) for m in here], [m.cell for m in here], "lost")
        for agent, here in by.items()
    }


def band_of(x: Sequence[float], cells: Sequence[Cell], of: str) -> plots.Band:
    return plots.Band(x, *([getattr(c, of + end) for c in cells] for end in ("", "_low", "_high")))


def solved_range(scales: Sequence[float], share: Sequence[float]) -> tuple[float, float] | None:
    """(least, largest) of the longest run of neighbouring scales that keep 90% of the optimum."""
    best: list[float] = []
    run: list[float] = []
    for c, x in zip(scales, share, strict=True):
        run = [*run, c] if x >= KEEPS else []
        best = run if len(run) > len(best) else best
    return (best[0], best[-1]) if best else None


def solved_text(scales: Sequence[float], share: Sequence[float]) -> list[str]:
    kept, best = solved_range(scales, share), f"{max(share):.3f}"
    if kept is None:
        return ["", "", "nowhere", best]
    return [f"{kept[0]:.0e}", f"{kept[1]:.0e}", f"{log10(kept[1] / kept[0]):.1f}", best]


def slope_of(sample: Sample, first: int) -> tuple[float, float, float]:
    """(slope, low, high) of log mean cumulative regret on log k from `first` on.

    At points evenly spaced in log k; the 95% interval resamples runs.
    """
    at = log_spaced(first, sample.values.shape[1], 50)
    return power(at, np.cumsum(sample.regret, axis=1)[:, at - 1])
