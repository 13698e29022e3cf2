"""Play what is missing of an experiment; the store says what that is.

A run whose file exists is done. Everything else is tried; a run that raises an error is recorded
and does not stop the others; a worker that dies costs the run it was at, which is tried again.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from upriver.checks import check_instance, check_kinds, positive_integer, positive_number
from upriver.display import add_repr
from upriver.experiments.build import RunSpec
from upriver.experiments.executor import InProcess, open_executor
from upriver.experiments.progress import Reporter
from upriver.experiments.spec import Experiment
from upriver.experiments.store import BadFile, Store, read_run


@add_repr
class SweepResult(NamedTuple):
    """What became of the runs that were requested."""

    total: int
    stored: int
    """Runs that were stored before."""
    ran: int
    """Runs that were played and stored now."""
    failed: list[tuple[RunSpec, str]]
    """Runs that raised an error, with the error; their tracebacks lie in _failed."""
    broken: list[str]
    """Sentences about files in the place of a run that cannot be read."""

    @property
    def complete(self) -> bool:
        return not self.failed and not self.broken


@check_kinds
def execute(
    experiment: Experiment | list[RunSpec],
    out: str | Path,
    jobs: int | None = None,
    cluster: str | None = None,
    reporter: Reporter | None = None,
    run_timeout: float | None = None,
    command: str = "",
) -> SweepResult:
    """Play what is missing of `experiment`, or of a list of runs, in the folder `out`.

    The files do not depend on how the runs are played. Only one process at a time may write into
    the folder.

    Parameters
    ----------
    jobs
        Worker processes; by default one for each processor. 1 plays in this process.
    cluster
        The address of a Dask scheduler.
    reporter
        Shows the progress; by default nothing does.
    run_timeout
        Seconds after which a run counts as failed and its worker process is ended.
    command
        The command line that asks for this, which the report shows.
    """
    jobs = positive_integer("jobs", count_processors() if jobs is None else jobs)
    if run_timeout is not None:
        positive_number("run_timeout", run_timeout)
    if not isinstance(experiment, list):
        check_instance("experiment", experiment, Experiment)
    runs = experiment if isinstance(experiment, list) else experiment.runs()
    for run in runs:
        check_instance("a run of the experiment", run, RunSpec)
    store = Store.create(out)
    with store.lock():
        existing = set(store.files())
        pending = [run for run in runs if store.path(run) not in existing]
        broken = []
        for run in runs:
            if store.path(run) in existing:
                try:  # the digest covers all bytes; to read every table would make resuming slow
                    read_run(store.path(run), rows=False)
                except BadFile as error:
                    broken.append(str(error))
        store.record_request(None if isinstance(experiment, list) else experiment, runs, command)
        reporter = reporter or Reporter()
        reporter.begin(pending, len(runs) - len(pending))
        failed: list[tuple[RunSpec, str]] = []
        try:
            if pending:
                how = min(jobs, len(pending)), cluster, run_timeout
                with open_executor(*how) as executor:
                    failed = play_all(pending, store, executor, reporter)
        finally:
            reporter.end()
    # a folder that was removed in the meantime is no success
    known = {id(run) for run, _ in failed}
    gone = [r for r in pending if id(r) not in known and not store.path(r).is_file()]
    failed += [(run, f"it was played, and {store.path(run)} is missing") for run in gone]
    stored = len(runs) - len(pending)
    return SweepResult(len(runs), stored, len(pending) - len(failed), failed, broken)


def play_all(
    pending: list[RunSpec], store: Store, executor: InProcess, reporter: Reporter
) -> list[tuple[RunSpec, str]]:
    """Play runs until each is stored or has failed; return those that failed."""
    waiting = deque(pending)
    inbox: queue.Queue[Any] = queue.Queue()
    under_way: dict[int, tuple[RunSpec, Any]] = {}
    failed: list[tuple[RunSpec, str]] = []
    while waiting or under_way:
        while waiting and len(under_way) < executor.capacity:
            future = executor.submit(run := waiting.popleft())
            under_way[id(future)] = run, future
            future.add_done_callback(inbox.put)
        try:
            future = inbox.get(timeout=0.5)
        except queue.Empty:
            reporter.tick()
            executor.check_workers()
            continue
        run, _ = under_way.pop(id(future))
        result = executor.collect(future)
        if result.data is not None:
            store.save(run, result.data)
        else:
            store.record_failure(run, str(result.error), result.traceback)
            failed.append((run, str(result.error)))
        reporter.done(run, result.error)
    return failed


def count_processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on every platform
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
