"""Local worker processes: plain Python processes that are sent runs and answer, one line each.

They are started by command, not forked, and share nothing but the store, so a script needs no
guard around its main part, and a process killed at any moment costs only the run it was at.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from threading import Thread
from typing import Any

from upriver.experiments.execute import Tally
from upriver.experiments.runspec import RunSpec
from upriver.experiments.store import Store

ATTEMPTS = 3
"""How many workers may die at a run before it counts as failed."""
BATCH = 32
"""Runs sent to a worker at once, at most."""
ONE_THREAD = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


class WorkersFailed(ChildProcessError):
    """No worker process gets as far as its first run."""


class Worker:
    """One process, and the runs it was sent and has not answered, the first being played."""

    def __init__(self, store: Store, inbox: queue.Queue[tuple[Worker, Any]]) -> None:
        self.assigned: deque[RunSpec] = deque()
        self.group: tuple[str, str] | None = None
        self.ready = False
        self.since = time.monotonic()
        self.late = False
        # -P: a file of the current folder hides no module; a group of its own: Ctrl-C is for us
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "upriver.experiments.worker", str(store.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_environment(),
            process_group=0 if os.name == "posix" else None,
        )
        Thread(target=self.listen, args=(inbox,), daemon=True).start()

    def listen(self, inbox: queue.Queue[tuple[Worker, Any]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # else it died while answering
                inbox.put((self, json.loads(line)))
        inbox.put((self, None))

    def send(self, runs: list[RunSpec]) -> None:
        self.assigned.extend(runs)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # dead: its last word is on the way
            self.process.stdin.write("".join(f"{r.to_json()}\n" for r in runs).encode())
            self.process.stdin.flush()

    def stop(self, kill: bool) -> None:
        if kill:
            self.process.kill()
        with suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.process.wait()


def worker_environment() -> dict[str, str]:
    """One thread each, and modules found where this process finds them."""
    path = os.pathsep.join(p for p in sys.path if p)
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": path}


class Waiting:
    """Runs not yet sent, in groups of one agent on one environment."""

    def __init__(self, runs: list[RunSpec], jobs: int) -> None:
        self.groups: dict[tuple[str, str], deque[RunSpec]] = {}
        for run in runs:
            self.groups.setdefault((run.env, run.label), deque()).append(run)
        self.left = len(runs)
        self.jobs = jobs

    def batch(self, worker: Worker, busy: set[tuple[str, str] | None]) -> list[RunSpec]:
        """More of the worker's own group if there is any, else of the largest that nobody has.

        Batches shrink towards the end, so that the workers finish together.
        """
        rest = {g: len(runs) for g, runs in self.groups.items() if runs}
        if not rest:
            return []
        free = {g: n for g, n in rest.items() if g not in busy} or rest
        group = worker.group if worker.group in rest else max(free, key=free.__getitem__)
        worker.group = group
        assert group is not None
        size = min(BATCH, rest[group], max(1, self.left // (4 * self.jobs)))
        self.left -= size
        return [self.groups[group].popleft() for _ in range(size)]

    def back(self, runs: list[RunSpec]) -> None:
        for run in reversed(runs):
            self.groups[run.env, run.label].appendleft(run)
        self.left += len(runs)


class Crew:
    """The worker processes of a folder; between two lists of runs they wait."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inbox: queue.Queue[tuple[Worker, Any]] = queue.Queue()
        self.workers: set[Worker] = set()

    def play(
        self, runs: list[RunSpec], jobs: int, progress: Tally, timeout: float | None = None
    ) -> None:
        """Play `runs` in `jobs` processes until each is stored or has failed."""
        waiting, workers = Waiting(runs, jobs), self.workers
        deaths: Counter[Any] = Counter()
        finished = False
        try:
            while waiting.left or any(w.assigned for w in workers):
                busy = sum(bool(w.assigned) for w in workers)
                while len(workers) < min(jobs, waiting.left + busy):
                    workers.add(Worker(self.store, self.inbox))
                for worker in workers:
                    if not worker.assigned and waiting.left:
                        worker.send(waiting.batch(worker, {w.group for w in workers - {worker}}))
                        worker.since = time.monotonic()
                        progress.reporter.running(worker.assigned[0])
                    elif timeout is not None and worker.ready and worker.assigned:
                        worker.late = time.monotonic() - worker.since > timeout
                        if worker.late:
                            worker.process.kill()  # it is buried like any other
                try:
                    wait = 0.5 if timeout is None else min(0.5, timeout)
                    worker, reply = self.inbox.get(timeout=wait)
                except queue.Empty:
                    progress.reporter.tick()
                    continue
                if reply is None:
                    workers.discard(worker)
                    waiting.back(self.bury(worker, deaths, progress, timeout))
                elif "ready" in reply:
                    worker.ready, worker.since = True, time.monotonic()
                elif "storage" in reply:
                    raise OSError(reply["storage"])
                else:
                    progress.settle(worker.assigned.popleft(), reply["error"])
                    worker.since = time.monotonic()
                    if worker.assigned:
                        progress.reporter.running(worker.assigned[0])
            finished = True
        finally:
            if not finished:
                self.dismiss(kill=True)

    def bury(
        self, worker: Worker, deaths: Counter[Any], progress: Tally, timeout: float | None
    ) -> list[RunSpec]:
        """A worker is gone: the runs to try again, without one that has cost too many."""
        with suppress(subprocess.TimeoutExpired):  # how it ended, before anybody ends it
            worker.process.wait(timeout=2.0)
        worker.stop(kill=True)
        code = worker.process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        rest = list(worker.assigned)
        worker.assigned.clear()
        if not worker.ready:
            deaths[None] += 1
            if deaths[None] >= ATTEMPTS:
                raise WorkersFailed(f"worker processes end before their first run ({how})")
        elif rest:
            run = rest[0]
            deaths[run.key, run.env, run.label] += 1
            error = None
            if worker.late:
                error = f"it took longer than {timeout:g} s"
            elif deaths[run.key, run.env, run.label] >= ATTEMPTS:
                error = f"the worker process died {ATTEMPTS} times at this run ({how})"
            if self.store.has(run):  # it died between storing the run and saying so
                progress.settle(rest.pop(0), None)
            elif error is not None:
                self.store.record_failure(run, error, "")
                progress.settle(rest.pop(0), error)
        return rest

    def dismiss(self, kill: bool = False) -> None:
        """Let the workers go, by their end of the pipe or by force."""
        while self.workers:
            self.workers.pop().stop(kill)
