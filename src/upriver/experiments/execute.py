"""Play what is missing of an experiment; the store says what that is.

A run whose file exists is done. Everything else is tried; a run that raises an error is recorded
and does not stop the others; a worker that dies costs the run it was at, which is tried again.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from upriver.checks import check_instance, check_kinds, positive_integer, positive_number
from upriver.display import add_repr
from upriver.experiments.build import RunSpec
from upriver.experiments.executor import InProcess, open_executor
from upriver.experiments.spec import Experiment
from upriver.experiments.store import BadFile, Store, read_run

MAX_REPORTED = 5  # failures that are reported one by one; the rest are counted


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
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jobs = positive_integer("jobs", jobs)
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
        stored = [run for run in runs if store.path(run) in existing]
        broken = []
        for run in stored:
            try:  # the digest covers all bytes; to read every table would make resuming slow
                read_run(store.path(run), rows=False)
            except BadFile as error:
                broken.append(str(error))
        if not isinstance(experiment, list):
            store.record("_specs", experiment.to_toml(), experiment.name, ".toml")
        if command:
            store.record("_commands", command)
        reporter = reporter or Reporter()
        reporter.begin(pending, len(stored))
        failed: list[tuple[RunSpec, str]] = []
        try:
            if pending:
                how = min(jobs, len(pending)), cluster, run_timeout
                with closing(open_executor(*how)) as executor:
                    failed = play_all(pending, store, executor, reporter)
        finally:
            reporter.end()
    # a folder that was removed in the meantime is no success
    known = {id(run) for run, _ in failed}
    gone = [r for r in pending if id(r) not in known and not store.path(r).is_file()]
    failed += [(run, f"it was played, and {store.path(run)} is missing") for run in gone]
    return SweepResult(len(runs), len(stored), len(pending) - len(failed), failed, broken)


def play_all(
    pending: list[RunSpec], store: Store, executor: InProcess, reporter: Reporter
) -> list[tuple[RunSpec, str]]:
    """Play runs until each is stored or has failed; return those that failed."""
    waiting = deque(pending)
    inbox: queue.Queue[Any] = queue.Queue()
    under_way: dict[Any, RunSpec] = {}
    failed: list[tuple[RunSpec, str]] = []
    while waiting or under_way:
        while waiting and len(under_way) < executor.capacity:
            future = executor.submit(waiting[0])
            under_way[future] = waiting.popleft()
            future.add_done_callback(inbox.put)
        try:
            future = inbox.get(timeout=0.5)
        except queue.Empty:
            reporter.tick()
            executor.check_workers()
            continue
        run = under_way.pop(future)
        result = executor.collect(future)
        if result.data is not None:
            store.save(run, result.data)
        else:
            store.record_failure(run, str(result.error), result.traceback)
            failed.append((run, str(result.error)))
        reporter.done(run, result.error)
    return failed


class Reporter:
    """Counts what becomes of the runs of a sweep, and says so.

    It prints a line at the start, every `interval` seconds, for each of the first failures, and at
    the end. With `live` the line of now replaces the one before. Without a stream it says nothing.
    """

    def __init__(
        self, stream: TextIO | None = None, interval: float = 10.0, live: bool = False
    ) -> None:
        self.stream, self.interval, self.live = stream, interval, live

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        self.total, self.finished, self.failures = len(pending), 0, 0
        self.began = self.last_line = time.monotonic()
        self.say(f"{len(pending)} runs to do, {stored} already stored")

    def done(self, run: RunSpec, error: str | None = None) -> None:
        """Count a run, which failed if there is an error."""
        self.finished += 1
        if error is not None:
            self.failures += 1
            if self.failures <= MAX_REPORTED:
                self.say(f"failed: {run.env}, {run.label}, seed {run.seed}: {error}")
        self.tick()

    def tick(self) -> None:
        """Show what was counted, if it is time to."""
        now = time.monotonic()
        if now - self.last_line >= (0.2 if self.live else self.interval):
            self.last_line, left = now, ""
            if self.finished:
                seconds = (now - self.began) / self.finished * (self.total - self.finished)
                left = f", about {seconds:.0f} s left"
            text = f"{self.finished}/{self.total} runs, {self.failures} failed{left}"
            self.say(text, end="" if self.live else "\n")

    def end(self) -> None:
        if self.total:
            failed = f", {self.failures} failed" if self.failures else ""
            seconds = time.monotonic() - self.began
            self.say(f"{self.finished}/{self.total} runs{failed}, {seconds:.1f} s")

    def say(self, text: str, end: str = "\n") -> None:
        if self.stream is not None:
            clear = "\r\x1b[K" if self.live else ""
            print(f"{clear}{text}", file=self.stream, end=end, flush=True)


def make_reporter() -> Reporter:
    return Reporter(sys.stderr, live=sys.stderr.isatty())
