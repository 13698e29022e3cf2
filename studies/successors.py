"""The successors of UCRL-MNL: Figure 1 of Cho et al. (2024)."""

from __future__ import annotations

from collections.abc import Sequence

from studies.measured import Measured, Page, log_spaced, lost_text
from upriver.results import plots
from upriver.results.statistics import Band, compute_curve
from upriver.results.tables import to_markdown

PUBLISHED = {"RRL-MNL": 20.3, "UCRL-MNL": 4302.3, "ORRL-MNL": 76.2, "UCRL-MNL+": 70.1}
"""Seconds for the first 1,000 episodes in Figure 1c, on the authors' hardware."""
LAST = 1_000
WINDOW = 200
LEARNING = f"return of an episode (mean of the last {WINDOW})"


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
        "cho-figure-1": plots.plot_curves(panels, LEARNING, optimal),
        "cho-figure-1-regret": plots.plot_curves(regret, log=True),
    }
    return to_markdown(rows), figures


def thinned(curve: Band) -> Band:
    """A curve at some 200 episodes, evenly spaced on a log axis."""
    return curve.at(log_spaced(1, len(curve.x), 200) - 1)
