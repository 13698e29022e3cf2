"""`upriver reproduce`: the paper's table and figures, beside the printed numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upriver.cli import CALL
from upriver.cli.results import report
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
        Print lines from time to time, also on a terminal.
    """
    from upriver.experiments.execute import make_reporter
    from upriver.paper.reproduce import reproduce as work

    how = make_reporter(quiet), shlex.join(CALL)
    done = keep_on_interrupt(lambda: work(out, runs, jobs, retune, *how), out)
    code = print_outcome(done.outcome, out)
    if code:
        return code
    print_table(done.lines)
    print("written (table1.md says where the numbers differ, and why):")
    for path in done.files:
        print(f"  {path}")
    return report(out)


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
