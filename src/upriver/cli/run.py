"""`upriver run`: an experiment, from the catalogue or a TOML file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from upriver.experiments import Outcome


@Parameter(name="*")
@dataclass(frozen=True)
class How:
    """How the runs of an experiment are played."""

    jobs: int | None = None
    """Worker processes; one for each processor if absent."""
    cluster: str | None = None
    """The address of a running Dask scheduler, such as tcp://host:8786, or `local`."""
    shared_store: bool = False
    """Let the workers of the cluster write the results; all must see the folder."""
    run_timeout: float | None = None
    """Seconds after which a run counts as failed and its process is ended."""
    trust: bool = False
    """Let the spec name code that lies neither beside it nor in the current folder."""
    quiet: bool = False
    """Plain lines instead of bars."""

    def options(self) -> dict[str, Any]:
        """The arguments of `execute`."""
        from upriver.experiments.progress import reporter

        return {
            "jobs": self.jobs,
            "cluster": self.cluster,
            "shared_store": self.shared_store,
            "run_timeout": self.run_timeout,
            "reporter": reporter(self.quiet),
        }


USUALLY = How()


def run(experiment: str, *, out: Path | None = None, how: How = USUALLY) -> int:
    """Run an experiment; what is stored already is not run again.

    **Example:** `upriver run quick --out results/quick --jobs 2`

    Parameters
    ----------
    experiment
        A name of the catalogue (see `upriver list`), or a TOML file.
    out
        The results folder; results/NAME if absent.
    """
    from upriver.experiments import execute, load

    spec = load(experiment, how.trust)
    folder = out or Path("results") / spec.name
    outcome = guarded(lambda: execute(spec, folder, **how.options()), folder)
    return summarise(outcome, folder)


def guarded(work: Callable[[], Any], folder: Path) -> Any:
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
