"""The paper's Table 1 and Figures 2 and 3, from the runs to the files, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from upriver.checks import positive_integer
from upriver.experiments import SweepResult, execute, load
from upriver.experiments.execute import Reporter
from upriver.experiments.spec import TUNING_SEEDS
from upriver.mdp.writing import write_file
from upriver.paper import table1 as paper
from upriver.results import plots
from upriver.results.runs import Sample, read_results
from upriver.results.statistics import compute_curve
from upriver.results.tables import to_csv
from upriver.tuning import tune

EXPERIMENTS = ("paper", "paper-tuned")
WINDOW = 10  # episodes over which Figure 2 is smoothed; the paper does not print its own


class Reproduced(NamedTuple):
    """The table of the paper beside ours, what became of the runs, and the files written."""

    lines: list[paper.Line]
    outcome: SweepResult
    files: list[Path]


def reproduce(
    out: str | Path,
    runs: int = 10,
    jobs: int | None = None,
    retune: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
) -> Reproduced:
    """Play both settings of Table 1, `runs` runs of each method in each column, and write them.

    With `retune`, the settings are searched for on tuning seeds first, instead of using those that
    come with the package.
    """
    positive_integer("runs", runs, most=TUNING_SEEDS)
    folder, how = Path(out), {"jobs": jobs, "reporter": reporter, "command": command}
    experiments = [load(name) for name in EXPERIMENTS]
    if retune:
        experiments = [tune(e, folder / "tuning" / e.name, **how).experiment for e in experiments]
    experiments = [e.with_seeds(runs) for e in experiments]
    wanted = [run for e in experiments for run in e.runs()]
    outcome = execute(wanted, folder, **how)
    if not outcome.complete:  # a table with gaps would mislead
        return Reproduced([], outcome, [])
    settings = {run.setting for run in wanted}
    seeds = {run.seed for run in wanted}
    found = read_results(folder).samples
    samples = [s.select_seeds(seeds) for s in found if s.setting in settings]
    lines = paper.compare(samples)
    texts = {"csv": to_csv(paper.Line._fields, lines, digits=6), "md": paper.write_markdown(lines)}
    files = [write_file(folder / f"table1.{suffix}", text) for suffix, text in texts.items()]
    for name, window in (("figure2", WINDOW), ("figure3", 1)):
        for methods, suffix in ((paper.METHODS, ""), (paper.TUNED_METHODS, "-tuned")):
            figure = draw_learning(samples, methods, window)
            files += plots.save_figure(figure, folder / f"{name}{suffix}")
    return Reproduced(lines, outcome, files)


def draw_learning(samples: Sequence[Sample], methods: Sequence[str], window: int) -> Any:
    """Draw four panels: the return of each episode, mean and 95% band, and the optimal value."""
    panels: dict[str, dict[str, Any]] = {}
    optimal, found = {}, {(s.env, s.agent): s for s in samples}
    for env, (n_states, horizon) in paper.COLUMNS.items():
        title = f"S = {n_states}, H = {horizon}"
        for method in methods:
            if (sample := found.get((env, method))) and method != "Optimal":  # that is a line
                optimal[title] = float(sample.optimal_values.mean())
                curve = compute_curve(sample, "return", cumulative=False, window=window)
                panels.setdefault(title, {})[method.removesuffix(paper.TUNED)] = curve
    of = f" (mean of the last {window})" if window > 1 else ""
    return plots.plot_curves(panels, f"return of an episode{of}", optimal)
