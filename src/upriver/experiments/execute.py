"""Running a list of runs: here, in worker processes or on a cluster; the store says what is left.

A run that exists in the store is done. Everything else is tried; a run that raises is recorded and
does not stop the others; a worker that dies costs the run it was at, which is tried again.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from upriver.display import displayed
from upriver.experiments.build import build, run_one
from upriver.experiments.progress import Reporter
from upriver.experiments.runspec import RunSpec
from upriver.experiments.spec import Experiment
from upriver.experiments.store import Store

LONGEST = 500
"""Characters of an error that are told and kept, at most; its traceback is kept too."""


@displayed
class Outcome(NamedTuple):
    """What became of the runs that were asked for."""

    total: int
    stored: int
    """Runs that were there before."""
    ran: int
    """Runs that were played and stored now."""
    failed: list[tuple[RunSpec, str]]
    """Runs that raised, with the error; their tracebacks lie in _failed."""
    broken: list[str]
    """Sentences about files that stand where a run should and cannot be read."""

    @property
    def complete(self) -> bool:
        return not self.failed and not self.broken


def execute(
    experiment: Experiment | Iterable[RunSpec],
    out: str | Path,
    jobs: int | None = None,
    cluster: str | None = None,
    shared_store: bool = False,
    reporter: Reporter | None = None,
    run_timeout: float | None = None,
) -> Outcome:
    """Run what is missing of an experiment, or of a list of runs, in the folder `out`.

    jobs: worker processes, as many as there are processors by default; 1 runs in this process.
    cluster: the address of a Dask scheduler, or "local"; shared_store lets its workers write into
    `out` themselves. run_timeout: seconds after which a run counts as failed and its worker process
    is ended. The files do not depend on any of these.
    """
    jobs = usable_processors() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; it must be at least 1")
    if shared_store and cluster is None:
        raise ValueError("shared_store is for a cluster; give its address too")
    if run_timeout is not None and not run_timeout > 0.0:
        raise ValueError(f"run_timeout is {run_timeout!r}; it must be a positive number of seconds")
    runs = experiment.runs() if isinstance(experiment, Experiment) else list(experiment)
    store = Store.create(out)
    existing = set(store.files())
    broken = [s for r in runs if store.path(r) in existing and (s := store.check(r))]
    pending = [r for r in runs if store.path(r) not in existing]
    check_buildable(pending)
    if isinstance(experiment, Experiment):
        store.record_spec(experiment)
    store.record_runs(runs)
    told = reporter or Reporter()
    progress = Tally(told, [])
    told.begin(pending, len(runs) - len(pending))
    try:
        if pending and cluster is not None:
            from upriver.experiments.cluster import run_on_cluster

            how = shared_store, run_timeout
            run_on_cluster(pending, store, cluster, jobs, progress, *how)
        elif pending and (jobs > 1 or run_timeout is not None):
            from upriver.experiments.workers import Crew

            crew = Crew(store)
            crew.play(pending, min(jobs, len(pending)), progress, run_timeout)
            crew.dismiss()
        else:
            for run in pending:
                told.running(run)
                progress.settle(run, attempt(run, store))
    finally:
        told.end()
    # success is what lies in the folder, not what was reported on the way
    known = {id(run) for run, _ in progress.failures}
    gone = [r for r in pending if id(r) not in known and not store.has(r)]
    progress.failures.extend((r, f"it was played, and {store.path(r)} is not there") for r in gone)
    ran = len(pending) - len(progress.failures)
    return Outcome(len(runs), len(runs) - len(pending), ran, progress.failures, broken)


class Tally(NamedTuple):
    """Failures so far, and who is told."""

    reporter: Reporter
    failures: list[tuple[RunSpec, str]]

    def settle(self, run: RunSpec, error: str | None) -> None:
        if error is None:
            self.reporter.done(run)
        else:
            self.failures.append((run, error))
            self.reporter.failed(run, error)


def attempt(run: RunSpec, store: Store) -> str | None:
    """Play and store a run unless it is there; the error where it raised, which is recorded.

    Only the run may fail here: a folder that cannot be written raises StorageFailed.
    """
    if store.has(run):
        return None
    try:
        table = run_one(run)
    except (Exception, SystemExit) as error:  # an agent that exits ends its run, not the sweep
        sentence = describe(error)
        store.record_failure(run, sentence, traceback.format_exc())
        return sentence
    store.save(run, table)
    return None


def describe(error: BaseException) -> str:
    text = " ".join(str(error)[: 2 * LONGEST].split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check_buildable(runs: list[RunSpec]) -> None:
    """Build every setting once, so that a wrong number is an error now and not in every run."""
    seen = set()
    for run in runs:
        if run.setting not in seen:
            seen.add(run.setting)
            try:
                build(run)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{run.label} on {run.env}: {error}") from error
            except (Exception, SystemExit) as error:  # numbers too large, or code of somebody else
                raise ValueError(f"{run.label} on {run.env}: {describe(error)}") from error


def usable_processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1
