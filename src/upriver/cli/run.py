"""`upriver run`: an experiment, from the catalogue or a TOML file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upriver.experiments import Outcome


def run(
    experiment: str,
    *,
    out: Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    shared_store: bool = False,
    quiet: bool = False,
) -> int:
    """Run an experiment; what is stored already is not run again.

    **Example:** `upriver run quick --out results/quick --jobs 2`

    Parameters
    ----------
    experiment
        A name of the catalogue (see `upriver list`), or a TOML file.
    out
        The results folder; results/NAME if absent.
    jobs
        Worker processes; one for each processor if absent.
    cluster
        The address of a running Dask scheduler, such as tcp://host:8786, or `local`.
    shared_store
        Let the workers of the cluster write the results; all must see the folder.
    quiet
        Plain lines instead of bars.
    """
    from upriver.experiments import execute, load
    from upriver.experiments.progress import reporter

    spec = load(experiment)
    folder = out or Path("results") / spec.name
    outcome = guarded(
        lambda: execute(spec, folder, jobs, cluster, shared_store, reporter(quiet)), folder
    )
    return summarise(outcome, folder)


def guarded(work, folder: Path):
    """Do the work; on Ctrl-C say that nothing is lost and how to go on."""
    try:
        return work()
    except KeyboardInterrupt:
        again = shlex.join(["upriver", *sys.argv[1:]])
        print(
            f"stopped; finished runs are kept in {folder}. Continue with: {again}",
            file=sys.stderr,
        )
        raise


def summarise(outcome: Outcome, folder: Path) -> int:
    """Say what became of the runs; the exit code."""
    print(
        f"{outcome.total} runs in {folder}: {outcome.stored} were stored, {outcome.ran} ran, "
        f"{len(outcome.failed)} failed"
    )
    for sentence in outcome.broken:
        print(
            f"upriver: {sentence}; it was left alone: move it away and run again", file=sys.stderr
        )
    if outcome.failed:
        run, error = outcome.failed[0]
        print(
            f"upriver: {len(outcome.failed)} runs failed, first {run.env}, {run.label}, seed "
            f"{run.seed}: {error} (tracebacks in {folder / '_failed'})",
            file=sys.stderr,
        )
    return 0 if outcome.complete else 1
