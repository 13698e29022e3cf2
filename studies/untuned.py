"""Learners as they come, beside the best tuned ones: what tuning is worth, and what it risks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.figures import dots_figure, plot_profile, range_figure
from studies.measured import (
    Cell,
    Measured,
    Page,
    log_spaced,
    lost_text,
    minus,
    pivot,
    runs_text,
)
from upriver.checks import Array
from upriver.results import plots
from upriver.results.statistics import compute_curve, resample_positions, resampling_weights
from upriver.results.styles import TUNED
from upriver.results.tables import to_markdown

SLACK = 0.5
"""Episodes added to both sides of a multiple: nobody cares how many times nothing was lost."""
FACTORS = np.geomspace(1.0, 32.0, 60)
LINES = 8
"""Learners of a panel of the profile, at most: the recommended one, and the best of the others."""
MEANT = 0.85
"""The share of the optimum that half and double of the standard errors are meant to keep."""
KEEPS = 0.9
"""The share of the best that a useful bonus keeps."""


def untuned(measured: Sequence[Measured]) -> Page:
    """Episodes lost as multiples of the best tuned learner with the same features, a profile."""
    places = list(dict.fromkeys(m.cell.env for m in measured))
    tables, panels = [], {}
    for sharing, title in ((True, "shared features"), (False, "one-hot features and tables")):
        here = [m for m in measured if shares(m) == sharing]
        first = next(m for m in here if not tuned(m))
        lost = both(here)
        head = f"{title[0].upper()}{title[1:]}: episodes lost as it comes / tuned"
        tables += [f"{head}\n\n{lost}", verdict(here, first.run.agent)]
        panels[title] = foremost(profile(here, places), first.cell.agent.split()[0])
    tables.append(runs_text([m.cell for m in measured]))
    tables.append(
        "Percentages are shares of locked-in runs. *Close*: at most 1.25 times the best tuned, or "
        "half an episode more.\n"
    )
    xlabel = "factor: (lost + 0.5) / (best tuned + 0.5)"
    figure = plot_profile(panels, xlabel, "environments within the factor")
    return "\n".join(tables), {"untuned": figure}


def both(measured: Sequence[Measured]) -> str:
    """A row for each learner: what it loses as it comes, and what tuned."""
    at: dict[tuple[str, str], dict[bool, str]] = {}
    for m in measured:
        name = m.cell.agent.removesuffix(TUNED).rstrip(), m.cell.env
        locked = f" ({100 * m.cell.locked:.0f}%)" if m.cell.locked else ""
        at.setdefault(name, {})[tuned(m)] = f"{m.cell.lost:.1f}{locked}"
    agents, places = (list(dict.fromkeys(name[i] for name in at)) for i in (0, 1))
    rows = [
        [agent, *(" / ".join(at[agent, env].get(x, "-") for x in (False, True)) for env in places)]
        for agent in agents
    ]
    return to_markdown([["agent", *places], *rows])


def tuned(m: Measured) -> bool:
    return m.cell.agent.endswith(TUNED)


def shares(m: Measured) -> bool:
    return m.cell.features not in ("", "one-hot")


def verdict(measured: Sequence[Measured], agent: str, slack: float = SLACK) -> str:
    """`agent` as it comes beside the best tuned learner on each environment."""
    rows = [["environment", "best tuned", "loses", "as it comes", "loses", "more", "close"]]
    for m in measured:
        if m.run.agent == agent and not tuned(m):
            best = best_tuned(measured, m.cell.env)
            rows.append(
                [m.cell.env, best.cell.agent, lost_text(best.cell), m.cell.agent, lost_text(m.cell),
                 minus(m, best), "yes" if keeps_up(m.cell.lost, best.cell.lost, slack) else "no"]
            )  # fmt: skip
    return to_markdown(rows)


def keeps_up(lost: float, best: float, slack: float = SLACK) -> bool:
    """At most 1.25 times the best, or `slack` more."""
    return lost <= max(1.25 * best, best + slack)


def best_tuned(measured: Sequence[Measured], env: str) -> Measured:
    return min((m for m in measured if m.cell.env == env and tuned(m)), key=lambda m: m.cell.lost)


def profile(measured: Sequence[Measured], places: Sequence[str]) -> dict[str, plots.Band]:
    """{agent: share of the environments on which it stays within each factor of the best tuned}.

    The band resamples the runs within each environment, the same ones for every learner.
    """
    lost: dict[str, list[Array]] = {}
    for i, env in enumerate(places):
        here = [m for m in measured if m.cell.env == env]
        totals = {m.cell.agent: m.sample.totals("episodes lost") for m in here}
        size = len(next(iter(totals.values())))
        weights = np.vstack(
            [np.full(size, 1 / size), resampling_weights(resample_positions(size, 500, i))]
        )
        means = {agent: weights @ x for agent, x in totals.items()}
        best = np.min([x for agent, x in means.items() if agent.endswith(TUNED)], axis=0)
        for agent, x in means.items():
            lost.setdefault(agent, []).append((x + SLACK) / (best + SLACK))
    panel = {}
    for agent, multiples in lost.items():
        if not agent.endswith(TUNED):
            within = (np.array(multiples)[:, :, None] <= FACTORS + 1e-9).mean(axis=0)
            low, high = np.quantile(within[1:], [0.025, 0.975], axis=0)
            panel[agent] = plots.Band(FACTORS, within[0], low, high)
    return panel


def foremost(panel: dict[str, plots.Band], first: str) -> dict[str, plots.Band]:
    """LINES of a profile: those of the learner `first`, then by the share within all factors."""
    ranked = sorted(
        panel, key=lambda a: (not a.startswith(first), -np.mean(np.asarray(panel[a].mean, float)))
    )
    return {agent: band for agent, band in panel.items() if agent in ranked[:LINES]}


def useful_range(measured: Sequence[Measured]) -> Page:
    """The bonuses that keep 90% of what the best of them earns, all on one axis."""
    bars: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    rows = [["environment", "features", "learner", "from", "to", "best share of the optimum"]]
    for env, features, agent in dict.fromkeys(
        (m.cell.env, m.cell.features, name_of(m)) for m in measured
    ):
        here = sorted(
            (m for m in measured if (m.cell.env, m.cell.features, name_of(m))
             == (env, features, agent)), key=scale_of,
        )  # fmt: skip
        share = [m.cell.share for m in here]
        kept = [scale_of(m) for m, x in zip(here, share, strict=True) if x >= KEEPS * max(share)]
        bars.setdefault(features, {}).setdefault(env, {})[agent] = kept[0], kept[-1]
        rows.append([env, features, agent, f"{kept[0]:g}", f"{kept[-1]:g}", f"{max(share):.3f}"])
    figure = range_figure(bars, "bonus: c, or standard errors")
    text = f"{to_markdown(rows, words=3)}\n{runs_text([m.cell for m in measured])}"
    return text, {"useful-range": figure}


def name_of(m: Measured) -> str:
    return "UCRL-MNL-SE" if m.run.agent == "ucrl-mnl-se" else "UCRL-MNL"


def scale_of(m: Measured) -> float:
    return float(m.run.numbers["radius"])


def untuned_long(measured: Sequence[Measured]) -> Page:
    """Cumulative regret over many episodes: who stops exploring too early is seen to go up."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (c.agent, c.env), lost_text)
    return f"{table}\n{runs_text(cells)}", {"untuned-long": regret_figure(measured)}


def regret_figure(measured: Sequence[Measured], unit: str = "episode") -> Any:
    """Cumulative regret on log axes, a panel for each environment."""
    panels: dict[str, dict[str, Any]] = {}
    for m in measured:
        curve = compute_curve(m.sample, "regret")
        at = log_spaced(1, len(curve.x), 80) - 1
        panels.setdefault(m.cell.env, {})[m.cell.agent] = curve.at(at)
    return plots.plot_regret(panels, log=True, unit=unit)


def streams(measured: Sequence[Measured]) -> Page:
    """Steps lost in one stream, and the cumulative regret of the first learner and tuned ones."""
    cells = [m.cell for m in measured]
    first = measured[0]
    lost = pivot(cells, lambda c: (c.agent, c.env), lost_text)
    drawn = [m for m in measured if m.cell.agent == first.cell.agent or tuned(m)]
    text = f"Steps lost\n\n{lost}\n{verdict(measured, first.run.agent, 0.0)}\n{runs_text(cells)}"
    return text, {"streams": regret_figure(drawn, "step")}


def how_many_errors(measured: Sequence[Measured]) -> Page:
    """Episodes lost with at least b standard errors, and the share earned with half and double."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (c.agent, c.env), lost_text)
    panels: dict[str, dict[str, dict[str, Cell]]] = {}
    for name, title in {"half": "half", "1.5": "as it comes", "double": "double"}.items():
        for c in cells:
            if c.agent.endswith(f"shared {name}"):
                panels.setdefault(title, {}).setdefault("", {})[c.env] = c
    figure = dots_figure(panels, "share", "share of the optimum", mark=MEANT) if panels else None
    return f"{table}\n{runs_text(cells)}", {"how-many-errors": figure} if figure else {}
