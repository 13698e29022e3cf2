"""`upriver plot`: draw the figures of a results folder, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from upriver.cli.table import report_omissions

Kind = Literal["learning", "regret", "regret-log"]


def plot(
    folder: Path,
    *kinds: Kind,
    out: Path | None = None,
    columns: Literal["one", "two"] = "two",
) -> int:
    """Draw figures as PNG and PDF, with embedded fonts and one colour for each agent.

    **Example:** `upriver plot results/quick learning regret --columns one`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    kinds
        learning (the exact value of the policy played), regret or regret-log. The default is all
        of them.
    out
        The folder to write to. The default is `figures` inside the results folder.
    columns
        Draw for one column of a paper or for two.
    """
    from upriver.results import plots
    from upriver.results.runs import find_optimal_values, keep_best_settings, read_results

    results = read_results(folder)
    samples, _ = keep_best_settings(results.samples)
    unit = " or ".join(sorted({s.unit for s in samples}))
    for kind in kinds or ("learning", "regret", "regret-log"):
        options: dict[str, Any] = {"log": kind == "regret-log", "width": columns, "unit": unit}
        if kind == "learning":
            options["ylabel"] = f"exact value of each {unit}"
            options["optimal"] = find_optimal_values(samples)
        figure = plots.plot_curves(make_panels(samples, kind != "learning"), **options)
        for file in plots.save_figure(figure, (out or folder / "figures") / kind):
            print(file)
    return report_omissions(results.problems, [])


def make_panels(samples: list[Any], regret: bool) -> dict[str, dict[str, Any]]:
    """Return {environment: {agent: band}}, thinned to what a page can show, in a fixed order."""
    from upriver.results.report.data import choose_positions
    from upriver.results.runs import label_samples, natural_key, order_agents
    from upriver.results.statistics import compute_curve

    labels = label_samples(samples)
    order = order_agents(samples, labels)
    labelled = sorted(zip(labels, samples, strict=True), key=lambda pair: order.index(pair[0]))
    panels: dict[str, dict[str, Any]] = {}
    for label, sample in sorted(labelled, key=lambda pair: natural_key(pair[1].env)):
        curve = compute_curve(sample, "regret" if regret else "value", cumulative=regret)
        at = choose_positions(len(curve.x), 400)
        panels.setdefault(sample.env, {})[label] = curve.at(at)
    return panels
