"""Where runs are played: in this process, in worker processes, or on a Dask cluster.

The three classes have the same methods. `submit` starts a run and returns a future; `collect` turns
a finished future into a `Result`; `close` ends all workers. A worker is a fresh Python process with
one thread for linear algebra. It knows nothing but the imported files and the runs it is sent, so
that scripts need no guard around their main part, and a process that is killed costs only the run
it was at.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Thread, Timer, get_ident
from typing import Any, NamedTuple

from upriver.experiments.build import RunSpec, describe_error, run_one
from upriver.experiments.registry import IMPORTED, ImportedFile, import_code
from upriver.experiments.store import to_bytes

ATTEMPTS = 3
"""How many worker processes may die at a run before it counts as failed."""
CONNECT_TIMEOUT = 10
"""Seconds that a Dask scheduler has to answer."""
NO_WORKERS_TIMEOUT = 30
"""Seconds that a cluster may be without workers."""
LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMBA_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{library}_THREADS": "1" for library in LIBRARIES}
"""Environment variables of every worker process."""
KEPT = "finished runs are kept, and the same command continues"


class Result(NamedTuple):
    """What became of a run: the bytes of its file, or why there is none."""

    data: bytes | None
    error: str | None = None
    traceback: str = ""


def play_run(run: RunSpec) -> Result:
    try:
        return Result(to_bytes(run, run_one(run)))
    except (Exception, SystemExit) as error:  # an agent that exits ends its run, not the sweep
        return Result(None, describe_error(error), traceback.format_exc())


class InProcess:
    """Plays each run in this process, when it is submitted."""

    capacity = 1
    """How many runs should be under way at once."""

    def submit(self, run: RunSpec) -> Any:
        future: Future[Result] = Future()
        future.set_result(play_run(run))
        return future

    def collect(self, future: Any) -> Result:
        return future.result()

    def check_workers(self) -> None:
        """Raise an error if nobody is left to play the runs that were submitted."""

    def close(self) -> None: ...


def work() -> None:
    """Answer each run that arrives on standard input with its result, until there are no more.

    The first message is the files to import; its answer says that the process is ready.
    """
    runs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # what an agent prints is no output of the command, and it has nothing to read
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with suppress(EOFError, BrokenPipeError):  # the process that started this one has ended
        answer: Any = [import_code(*file).__name__ for file in pickle.load(runs)]
        while True:
            pickle.dump(answer, answers)
            answers.flush()
            answer = play_run(pickle.load(runs))


class WorkerProcess:
    """A fresh Python process that plays one run after another; it is started when it is needed.

    Its standard input and output are the only connection, so that its end is noticed however it
    comes about: the output then ends, too.
    """

    def __init__(self, timeout: float | None, imported: Mapping[str, ImportedFile]) -> None:
        self.timeout, self.imported = timeout, list(imported.values())
        self.process: subprocess.Popen[bytes] | None = None
        self.closed = False

    def play(self, run: RunSpec, attempt: int = 1) -> Result:
        """Play one run; if the process dies, whatever its exit code, play it in another."""
        if self.process is None or self.process.poll() is not None:
            self.process = self.start()
        process, began = self.process, time.monotonic()
        timer = Timer(self.timeout or 0.0, process.kill)
        if self.timeout is not None:
            timer.start()
        result = ask(process, run)
        timer.cancel()
        if result is not None:
            return result
        code = process.wait()
        if self.timeout is not None and time.monotonic() - began >= self.timeout:
            return Result(None, f"it took longer than {self.timeout:g} s")
        if attempt < ATTEMPTS:
            return self.play(run, attempt + 1)
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Result(None, f"the worker process died {ATTEMPTS} times at this run ({end})")

    def start(self, attempt: int = 1) -> subprocess.Popen[bytes]:
        """Start the process, and wait until it has imported what it needs.

        One that is killed meanwhile is started again; one that ends by itself cannot work.
        """
        path = [os.path.abspath(folder) for folder in sys.path]
        code = f"import sys; sys.path[:] = {path!r}; from {__name__} import work; work()"
        # Ctrl-C is for the caller, which then ends this process
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD, start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )  # fmt: skip
        if self.closed:
            process.kill()
        if ask(process, self.imported) is not None:
            return process
        if process.wait() < 0 and attempt < ATTEMPTS and not self.closed:
            return self.start(attempt + 1)
        end = f"worker processes end before their first run: {process.returncode}"
        raise ChildProcessError(end)

    def close(self) -> None:
        """End the process, also one that is just being started."""
        self.closed = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def ask(process: subprocess.Popen[bytes], message: Any) -> Any:
    """Send a message to a worker process and return its answer, None if the process ends."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError, EOFError, pickle.UnpicklingError):
        pickle.dump(message, process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)


class Processes(InProcess):
    """Plays runs in worker processes, each of which has a thread here that waits for it."""

    def __init__(self, jobs: int, timeout: float | None = None) -> None:
        self.workers = [WorkerProcess(timeout, IMPORTED) for _ in range(jobs)]
        self.idle = list(self.workers)
        self.threads = ThreadPoolExecutor(jobs)
        self.capacity = 2 * jobs  # one waits for each that is played

    def submit(self, run: RunSpec) -> Any:
        return self.threads.submit(self.play, run)

    def play(self, run: RunSpec) -> Result:
        worker = self.idle.pop()  # there are as many as threads
        try:
            return worker.play(run)
        finally:
            self.idle.append(worker)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.threads.shutdown(cancel_futures=True)


BESIDE: dict[Any, WorkerProcess] = {}
"""The process beside each thread of a worker of a Dask cluster."""


def play_beside(
    run: RunSpec, version: str, imported: dict[str, ImportedFile], timeout: float | None
) -> Result:
    """Play one run in a process beside a Dask worker, which an agent then cannot end."""
    from upriver import __version__

    if __version__ != version:
        return Result(None, f"the worker has upriver {__version__}, this sweep is of {version}")
    key = get_ident(), repr((sorted(imported.items()), timeout))
    process = BESIDE.setdefault(key, WorkerProcess(timeout, imported))
    try:
        return process.play(run)
    except ChildProcessError as error:
        return Result(None, str(error))


def end_processes() -> None:
    while BESIDE:
        BESIDE.popitem()[1].close()


class Cluster(InProcess):
    """Plays runs on a Dask cluster.

    The results come back and are stored by the caller, so that no disk need be shared. Dask plays a
    run again if its worker is lost, which is harmless: a run is a function of its specification.
    """

    capacity = 10_000  # Dask keeps the queue

    def __init__(self, address: str, timeout: float | None) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError("a cluster needs Dask: pip install distributed") from None
        for name in ("distributed", "distributed.client"):
            # what is lost is reported in one sentence of ours
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self.address, self.timeout = address, timeout
        answer: Future[Any] = Future()

        def connect() -> None:
            try:
                answer.set_result(Client(address, timeout=CONNECT_TIMEOUT))
            except Exception as error:
                answer.set_exception(error)

        # in a thread: at a port that accepts and says nothing Dask waits without end
        Thread(target=connect, daemon=True).start()
        try:
            self.client = answer.result(timeout=1.5 * CONNECT_TIMEOUT)
        except (OSError, ValueError) as error:
            why = str(error) or f"no answer within {1.5 * CONNECT_TIMEOUT:g} s"
            raise ConnectionError(f"no Dask scheduler answers at {address}: {why}") from error

    def submit(self, run: RunSpec) -> Any:
        from upriver import __version__

        arguments = run, __version__, dict(IMPORTED), self.timeout
        return self.client.submit(play_beside, *arguments, pure=False)

    def collect(self, future: Any) -> Result:
        from distributed import KilledWorker

        try:
            return future.result()
        except (CancelledError, OSError) as error:
            raise ConnectionError(f"the scheduler at {self.address} was lost; {KEPT}") from error
        except KilledWorker:
            return Result(None, "the workers of the cluster that played this run were lost")

    def check_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=NO_WORKERS_TIMEOUT)
        except TimeoutError as error:
            since = f"has had no workers for {NO_WORKERS_TIMEOUT:g} s; {KEPT}"
            raise ConnectionError(f"the scheduler at {self.address} {since}") from error
        except OSError:  # the scheduler was lost: `collect` reports it
            pass

    def close(self) -> None:
        with suppress(Exception):  # they end with their workers in any case
            self.client.run(end_processes)
        self.client.close()


def open_executor(jobs: int, cluster: str | None, timeout: float | None) -> InProcess:
    """Open the executor that the options of `execute` ask for."""
    if cluster is not None:
        return Cluster(cluster, timeout)
    return Processes(jobs, timeout) if jobs > 1 or timeout is not None else InProcess()
