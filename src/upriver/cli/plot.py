"""`upriver plot`: draw the figures of a results folder, for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from upriver.cli.table import report_omissions

if TYPE_CHECKING:
    from upriver.results.runs import Sample

Kind = Literal["learning", "regret", "regret-log"]
Labelled = list[tuple[str, "Sample"]]
"""Samples with the label that figures give their agent."""


def plot(
    folder: Path,
    *kinds: Kind,
    out: Path | None = None,
    columns: Literal["one", "two"] = "two",
    of: Literal["value", "return"] = "value",
    window: int = 1,
    env: list[str] | None = None,
    agent: list[str] | None = None,
) -> int:
    """Draw figures as PNG and PDF, with embedded fonts and one colour for each agent.

    **Example:** `upriver plot results/quick learning regret --columns one`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    kinds
        learning, regret or regret-log. The default is all of them.
    out
        The folder to write to. The default is `figures` inside the results folder.
    columns
        Draw for one column of a paper or for two.
    of
        What learning curves show: the exact value of the policy played, or the return received.
    window
        Number of episodes over which learning curves are averaged; the figure says so.
    env
        Draw only this environment; may be given several times.
    agent
        Draw only this agent; may be given several times.
    """
    from upriver.results import plots
    from upriver.results.runs import keep_best_settings, label_samples, read_results

    results = read_results(folder)
    samples, _ = keep_best_settings(results.samples)
    labelled = list(zip(label_samples(samples), samples, strict=True))
    labelled = select(select(labelled, env, "environment"), agent, "agent")
    target = out or folder / "figures"
    for kind in kinds or ("learning", "regret", "regret-log"):
        figure = draw(kind, labelled, columns, of, window)
        for file in plots.save_figure(figure, target / kind):
            print(file)
    return report_omissions(results.problems, [])


def draw(kind: str, labelled: Labelled, columns: str, of: str, window: int) -> Any:
    from upriver.results import plots

    unit = "step" if all(s.unit == "step" for _, s in labelled) else "episode"
    if kind == "learning":
        best = {s.env: float(s.optimal_values.mean()) for _, s in labelled}
        name = "exact value" if of == "value" else "return"
        panels = make_panels(labelled, of, False, window)
        return plots.plot_learning(panels, best, window, columns, f"{name} of each {unit}", unit)
    panels = make_panels(labelled, "regret", True)
    return plots.plot_regret(panels, kind == "regret-log", columns, unit)


def make_panels(labelled: Labelled, quantity: str, cumulative: bool, window: int = 1) -> Any:
    """Return {environment: {agent: band}}, thinned to what a page can show, in a fixed order."""
    from upriver.results.report.data import choose_positions
    from upriver.results.runs import natural_key, order_agents
    from upriver.results.statistics import compute_curve

    labels, samples = zip(*labelled, strict=True)
    panels: dict[str, dict[str, Any]] = {}
    for env in sorted({s.env for s in samples}, key=natural_key):
        inside = {label: s for label, s in labelled if s.env == env}
        for label in order_agents(samples, labels):
            if label in inside:
                curve = compute_curve(inside[label], quantity, cumulative, window)
                panels.setdefault(env, {})[label] = curve.at(choose_positions(len(curve.x), 400))
    return panels


def select(labelled: Labelled, names: Sequence[str] | None, kind: str) -> Labelled:
    """Return the samples of the named environments or agents; an unknown name is an error."""
    if not names:
        return labelled

    def name_of(label: str, sample: Sample) -> str:
        return sample.env if kind == "environment" else label

    there = sorted({name_of(*pair) for pair in labelled})
    for name in names:
        if name not in there:
            from upriver.experiments.registry import unknown

            raise unknown(kind, name, there)
    return [pair for pair in labelled if name_of(*pair) in names]
