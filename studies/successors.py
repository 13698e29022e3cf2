"""The successors of UCRL-MNL: Figure 1 of Cho et al. (2024), and every environment."""

from __future__ import annotations

from collections.abc import Sequence

from studies.measured import (
    Measured,
    Page,
    log_spaced,
    lost_text,
    minus,
    pivot,
    runs_text,
)
from studies.untuned import shares
from upriver.results import plots
from upriver.results.statistics import Band, compute_curve
from upriver.results.tables import to_markdown

PUBLISHED = {"RRL-MNL": 20.3, "UCRL-MNL": 4302.3, "ORRL-MNL": 76.2, "UCRL-MNL+": 70.1}
"""Seconds for the first 1,000 episodes in Figure 1c, on the authors' hardware."""
LAST = 1_000
WINDOW = 200


def cho_figure_1(measured: Sequence[Measured]) -> Page:
    """What the last policies are worth, and seconds per 1,000 episodes, published ones beside."""
    panels: dict[str, dict[str, plots.Band]] = {}
    regret: dict[str, dict[str, plots.Band]] = {}
    optimal: dict[str, float] = {}
    rows = [["", "learner", "last 1,000 episodes / V*", "episodes lost",
             "seconds per 1,000 episodes", "published", "published / ours"]]  # fmt: skip
    for m in measured:
        sample = m.sample
        best = float(sample.optimal_values.mean())
        share = float(sample.values[:, -LAST:].mean()) / best
        published = PUBLISHED.get(sample.agent)
        rows.append(
            [
                sample.env,
                sample.agent,
                f"{share:.4f}",
                lost_text(m.cell),
                f"{m.seconds:.3f}",
                "" if published is None else f"{published:.1f}",
                "" if published is None else f"{published / m.seconds:,.0f}",
            ]
        )
        optimal[sample.env] = best
        if sample.agent != "Optimal":
            curve = compute_curve(sample, "return", cumulative=False, window=WINDOW)
            panels.setdefault(sample.env, {})[sample.agent] = thinned(curve)
            regret.setdefault(sample.env, {})[sample.agent] = thinned(compute_curve(sample))
    figures = {
        "cho-figure-1": plots.plot_learning(panels, optimal, WINDOW),
        "cho-figure-1-regret": plots.plot_regret(regret, log=True),
    }
    return to_markdown(rows), figures


def thinned(curve: Band) -> Band:
    """A curve at some 200 episodes, evenly spaced on a log axis."""
    return curve.at(log_spaced(1, len(curve.x), 200) - 1)


def all_mnl(measured: Sequence[Measured]) -> Page:
    """Episodes lost by the first learner as it comes and by tuned ones, and how many more."""
    tables = []
    for sharing, title in ((True, "Shared features"), (False, "One-hot features")):
        here = {(m.cell.env, name_in(m)): m for m in measured if shares(m) == sharing}
        if not here:
            continue
        cells = [m.cell._replace(agent=name) for (_, name), m in here.items()]
        first, *others = dict.fromkeys(c.agent for c in cells)
        lost = pivot(cells, lambda c: (c.env, c.agent), lost_text, "environment")
        more = [["environment", *others]]
        for env in dict.fromkeys(c.env for c in cells):
            more.append([env, *(minus(here[env, a], here[env, first]) for a in others)])
        tables += [f"{title}: episodes lost, {first} as it comes, the others tuned\n\n{lost}"]
        tables += [f"{title}: more than {first}, on the same seeds\n\n{to_markdown(more)}"]
    tables.append(runs_text([m.cell for m in measured]))
    return "\n".join(tables), {}


def name_in(m: Measured) -> str:
    """The learner, without what its label says of features and tuning."""
    return m.cell.agent.split()[0]
