"""`upriver reproduce`: the paper's table and figures, beside the printed numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from upriver.cli.run import keep_on_interrupt, print_outcome

if TYPE_CHECKING:
    from upriver.paper.table1 import Line


def reproduce(
    *,
    out: Path = Path("results/paper"),
    runs: int = 10,
    jobs: int | None = None,
    retune: bool = False,
    quiet: bool = False,
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
    retune
        Repeat the search for each method's settings on tuning seeds first.
    quiet
        Print plain lines instead of a progress bar.
    """
    from upriver.experiments.progress import make_reporter
    from upriver.paper.reproduce import reproduce as work

    done = keep_on_interrupt(lambda: work(out, runs, jobs, retune, make_reporter(quiet)), out)
    code = print_outcome(done.outcome, out)
    if code:
        return code
    from upriver.results.report import write_report

    done.files.append(write_report(out))
    print_table(done.lines)
    print("written (table1.md says where the numbers differ, and why):")
    for path in done.files:
        print(f"  {path}")
    return code


def print_table(lines: list[Line]) -> None:
    """Print our numbers, each with the printed value below it."""
    from rich.console import Console
    from rich.table import Table

    by = {(x.method, x.n_states): x for x in lines}
    sizes = sorted({(x.n_states, x.horizon) for x in lines})
    runs = lines[0].runs
    table = Table(title=f"Cumulative return, mean ± sd over {runs} runs; printed value and ratio")
    table.add_column("")
    for n, horizon in sizes:
        table.add_column(f"S = {n}, H = {horizon}", justify="right")
    for method in dict.fromkeys(x.method for x in lines):
        cells = []
        for n, _ in sizes:
            x = by[method, n]
            cell = f"{x.mean:.1f} ± {x.sd:.1f}"
            if x.paper_mean is not None:
                cell += f"\n[dim]{x.paper_mean:.1f} x {x.ratio:.2f}[/dim]"
            cells.append(cell)
        table.add_row(method, *cells)
    Console().print(table)
