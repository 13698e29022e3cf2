"""`upriver reproduce`: the paper's table and figures, beside the printed numbers."""

from __future__ import annotations

from pathlib import Path


def reproduce(
    *,
    out: Path = Path("results/paper"),
    runs: int = 10,
    jobs: int | None = None,
    retune: bool = False,
    quiet: bool = False,
) -> int:
    """Table 1 and Figures 2 and 3 of the paper, beside the printed values.

    Example: upriver reproduce --out results/paper --runs 10

    Parameters
    ----------
    out
        The results folder: table1.csv, table1.md, figure2 and figure3 (PNG and PDF), report.html,
        and one file per run. What is stored already is not run again.
    runs
        Runs of each method and river; the paper has 10.
    jobs
        Worker processes; one for each processor if absent.
    retune
        Repeat the search for each method's settings on tuning seeds first.
    quiet
        Plain lines instead of bars.
    """
    from upriver.cli.run import guarded, summarise
    from upriver.experiments.progress import reporter
    from upriver.reproduce import reproduce as work

    done = guarded(lambda: work(out, runs, jobs, retune, reporter(quiet)), out)
    if isinstance(done, int):
        return done
    code = summarise(done.outcome, out)
    from upriver.report import write_report

    done.files.append(write_report(out))
    print((out / "table1.md").read_text(encoding="utf-8"))
    print("written:")
    for path in done.files:
        print(f"  {path}")
    return code
