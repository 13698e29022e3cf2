"""`upriver reproduce`: the paper's table and figures, beside the printed numbers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upriver.cli import CALL
from upriver.cli.results import report
from upriver.cli.run import keep_on_interrupt, print_outcome

if TYPE_CHECKING:
    from upriver.paper.table1 import Line
    from upriver.results.runs import Sample

WINDOW = 10
"""Episodes over which Figure 2 is smoothed; the paper does not print its own."""


def reproduce(
    *,
    out: Path = Path("results/paper"),
    runs: int = 10,
    jobs: int | None = None,
) -> int:
    """Compute Table 1 and Figures 2 and 3 of the paper, beside the printed values.

    **Example:** `upriver reproduce --out results/paper --runs 10`

    Parameters
    ----------
    out
        The results folder. It gets table1.csv, table1.md, figure2 and figure3 (PNG and PDF),
        report.html, and one file per run. Runs that are stored are not played again.
    runs
        Number of runs of each method on each river; the paper has 10.
    jobs
        Number of worker processes. The default is one for each processor.
    """
    from upriver.checks import positive_integer
    from upriver.experiments import execute, load
    from upriver.experiments.execute import make_reporter
    from upriver.experiments.spec import TUNING_SEEDS
    from upriver.mdp.writing import write_file
    from upriver.paper import table1 as paper
    from upriver.results import plots
    from upriver.results.runs import read_results
    from upriver.results.tables import to_csv

    positive_integer("runs", runs, most=TUNING_SEEDS)
    how: Any = {"jobs": jobs, "reporter": make_reporter(), "command": shlex.join(CALL)}
    with keep_on_interrupt(out):
        wanted = [r for name in paper.EXPERIMENTS for r in load(name).with_seeds(runs).runs()]
        outcome = execute(wanted, out, **how)
        if print_outcome(outcome, out):  # a table with gaps would mislead
            return 1
        settings, seeds = {run.setting for run in wanted}, {run.seed for run in wanted}
        found = [s for s in read_results(out).samples if s.setting in settings]
        samples = [sample.select_seeds(seeds) for sample in found]
        lines = paper.compare(samples)
        table = to_csv(paper.Line._fields, lines, digits=6)
        files = [write_file(out / "table1.csv", table)]
        files.append(write_file(out / "table1.md", paper.write_markdown(lines)))
        for name, window in (("figure2", WINDOW), ("figure3", 1)):
            for methods, suffix in ((paper.METHODS, ""), (paper.TUNED_METHODS, "-tuned")):
                figure = draw_learning(samples, methods, window)
                files += plots.save_figure(figure, out / f"{name}{suffix}")
    print_table(lines)
    print("written (table1.md says where the numbers differ, and why):", *files, sep="\n  ")
    return report(out)


def draw_learning(samples: Sequence[Sample], methods: Sequence[str], window: int) -> Any:
    """Draw four panels: the return of each episode, mean and 95% band, and the optimal value."""
    from upriver.paper import table1 as paper
    from upriver.results import plots
    from upriver.results.statistics import compute_curve

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


def print_table(lines: list[Line]) -> None:
    """Print our numbers above the printed ones, for each setting, within 80 columns."""
    from upriver.paper.table1 import METHODS, TUNED_METHODS, make_rows
    from upriver.results.tables import format_numbers, to_text

    def write(*numbers: Any) -> str:
        return " ± ".join(format_numbers(numbers, 4 if numbers[0] >= 100.0 > numbers[-1] else 3))

    print(f"Cumulative return, mean ± sd over {lines[0].runs} runs, and as printed in the paper")
    for title, methods in (("As in the paper", METHODS), ("Tuned", TUNED_METHODS)):
        print(f"\n{title}\n{to_text(make_rows(lines, methods, write), words=2)}", end="")
    print()
