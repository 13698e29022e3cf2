"""Where runs are played: in this process, in worker processes, or on a Dask cluster.

The three classes have the same three methods. `submit` starts a run and returns a future; `collect`
turns a finished future into a `Result`, or raises `WorkerLost` if the run must be tried again;
`close` ends all workers. A worker is a fresh Python process with one thread for linear algebra. It
knows nothing but the imported files and the runs it is sent, so that scripts need no guard around
their main part, and a process that is killed costs only the run it was at.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import current_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import Any, NamedTuple

from upriver.experiments.build import RunSpec, run_one
from upriver.experiments.registry import IMPORTED, ImportedFile, import_code
from upriver.experiments.store import StorageFailed, Store, to_bytes

CONNECT_TIMEOUT = 10
"""Seconds that a Dask scheduler has to answer."""
NO_WORKERS_TIMEOUT = 30.0
"""Seconds that a cluster may be without workers."""
MAX_ERROR = 500
"""Characters of an error that are shown and kept; its traceback is kept too."""
LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMBA_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = [f"{library}_THREADS" for library in LIBRARIES]
"""Environment variables that are 1 in every worker process."""


class Result(NamedTuple):
    """What became of a run: the bytes of its file, or why there is none."""

    data: bytes | None
    error: str | None = None
    traceback: str = ""
    storage: str | None = None
    """Why a shared folder could not be written."""


class WorkerLost(Exception):
    """The worker ended while it was at the run; the message says how."""


class WorkersFailed(ChildProcessError):
    """No worker process gets as far as its first run."""


def describe(error: BaseException) -> str:
    """Return the type and the message of an error in one line."""
    text = " ".join(str(error)[: 2 * MAX_ERROR].split())
    text = text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def play_run(run_json: str) -> Result:
    """Play one run; an error of the agent is part of the result."""
    run = RunSpec.from_json(run_json)
    try:
        return Result(to_bytes(run, run_one(run)))
    except (Exception, SystemExit) as error:  # an agent that exits ends its run, not the sweep
        return Result(None, describe(error), traceback.format_exc())


class InProcess:
    """Plays each run in this process, when it is submitted."""

    capacity = 1
    """How many runs should be under way at once."""

    def submit(self, run: RunSpec) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(play_run(run.to_json()))
        return future

    def collect(self, future: Future[Result]) -> Result:
        return future.result()

    def close(self, kill: bool = False) -> None: ...


class WorkerProcess(SpawnProcess):
    """A process that does not import the caller's main module and has one thread."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        main, before = sys.modules["__main__"], dict(os.environ)
        block = getattr(signal, "pthread_sigmask", None)
        # Ctrl-C is for the caller: the new process inherits that the signal is blocked
        mask = block(signal.SIG_BLOCK, {signal.SIGINT}) if block else None
        try:
            sys.modules["__main__"] = ModuleType("__main__")
            os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
            return SpawnProcess._Popen(process_obj)  # type: ignore[attr-defined]
        finally:
            for key in ONE_THREAD:
                os.environ.pop(key, None)
            os.environ.update(before)
            sys.modules["__main__"] = main
            if block:
                block(signal.SIG_SETMASK, mask)


class WorkerContext(SpawnContext):
    Process = WorkerProcess  # type: ignore[assignment]


def start_worker(imported: dict[str, ImportedFile]) -> None:
    """Prepare a new worker process."""
    os.dup2(2, 1)  # what an agent prints is no output of the command
    for file in imported.values():
        import_code(*file)


class Processes:
    """Plays runs in worker processes, with pebble's pool."""

    def __init__(
        self, jobs: int, timeout: float | None = None, imported: dict[str, ImportedFile] = IMPORTED
    ) -> None:
        self.jobs, self.timeout, self.imported = jobs, timeout, dict(imported)
        self.capacity = 2 * jobs  # one waits for each that is played
        self.finished_any = False
        self.pool: Any = None

    def submit(self, run: RunSpec) -> Any:
        from pebble import ProcessPool

        if self.pool is not None and not self.pool.active:
            self.close(kill=True)
        if self.pool is None:
            context: Any = WorkerContext()
            self.pool = ProcessPool(self.jobs, 0, start_worker, (self.imported,), context)
        return self.pool.schedule(play_run, args=(run.to_json(),), timeout=self.timeout)

    def collect(self, future: Any) -> Result:
        from pebble import ProcessExpired

        try:
            result = future.result()
        except TimeoutError:
            result = Result(None, f"it took longer than {self.timeout:g} s")
        except ProcessExpired as error:
            code = error.exitcode or 0
            raise WorkerLost(f"signal {-code}" if code < 0 else f"exit code {code}") from error
        except (BrokenProcessPool, CancelledError, RuntimeError) as error:
            if not self.finished_any:
                raise WorkersFailed("worker processes end before their first run") from error
            raise WorkerLost("the pool of processes was lost") from error
        self.finished_any = True
        return result

    def close(self, kill: bool = False) -> None:
        if self.pool is not None:
            pool, self.pool = self.pool, None
            (pool.stop if kill else pool.close)()
            pool.join()


# Beside a worker of a Dask cluster: its processes, shared by its threads.
BESIDE: dict[str, Processes] = {}
BESIDE_LOCK = Lock()


def play_beside(
    run_json: str, version: str, imported: dict[str, ImportedFile], root: str | None, timeout: Any
) -> Result:
    """Play one run in a process beside a Dask worker; with `root`, store it there too.

    An agent that ends its process costs the cluster nothing.
    """
    from distributed import get_worker

    from upriver import __version__

    if __version__ != version:
        return Result(None, f"the worker has upriver {__version__}, this sweep is of {version}")
    run = RunSpec.from_json(run_json)
    shared = None if root is None else Store(Path(root))
    if shared is not None and shared.has(run):
        return Result(None)
    key = repr((sorted(imported.items()), timeout))
    with BESIDE_LOCK:
        if key not in BESIDE:
            # Dask starts its workers as daemons, which multiprocessing lets have no children
            current_process()._config["daemon"] = False  # type: ignore[attr-defined]
            BESIDE[key] = Processes(get_worker().state.nthreads, timeout, imported)
        processes = BESIDE[key]
        future = processes.submit(run)
    try:
        result = processes.collect(future)
    except WorkersFailed as error:
        result = Result(None, str(error))
    if shared is None:
        return result
    try:
        keep(run, result, shared)
        return result._replace(data=None)
    except StorageFailed as error:
        return Result(None, storage=str(error))


def keep(run: RunSpec, result: Result, store: Store) -> str | None:
    """Store a result, and return its error if there was one."""
    if result.data is not None:
        store.save(run, result.data)
        return None
    error = result.error
    if error is None and not store.has(run):  # the worker says that it stored the run
        error = f"a worker stored the run, and {store.path(run)} is not visible here"
    if error is not None:
        store.record_failure(run, error, result.traceback)
    return error


def end_processes() -> None:
    """End the processes beside a Dask worker."""
    with BESIDE_LOCK:
        while BESIDE:
            BESIDE.popitem()[1].close(kill=True)


class Cluster:
    """Plays runs on a Dask cluster.

    The results come back and are stored by the caller, so that no disk need be shared; with
    `shared_store` the workers store them. Dask may play a run twice if a worker is lost, which is
    harmless: a run is a function of its specification, and its file is written once.
    """

    def __init__(self, client: Any, address: str, root: Path | None, timeout: float | None) -> None:
        self.client, self.address, self.timeout = client, address, timeout
        self.root = None if root is None else str(root.resolve())
        self.count = 0

    @property
    def n_threads(self) -> int:
        """Threads of all workers; 0 if the scheduler does not answer."""
        try:
            return sum(self.client.nthreads().values())
        except (OSError, TimeoutError, RuntimeError):
            return 0

    @property
    def capacity(self) -> int:
        return max(16, 4 * self.n_threads)  # so that no thread waits for this process

    def submit(self, run: RunSpec) -> Any:
        from upriver import __version__

        self.count += 1
        arguments = run.to_json(), __version__, dict(IMPORTED), self.root, self.timeout
        key = f"upriver-{os.getpid()}-{id(self)}-{self.count}"
        return self.client.submit(play_beside, *arguments, key=key, pure=False)

    def collect(self, future: Any) -> Result:
        from distributed import KilledWorker

        try:
            result = Result(*future.result())
        except (CancelledError, OSError) as error:
            if self.client.status == "running" and self.n_threads:
                raise WorkerLost("the connection was lost") from error
            raise ConnectionError(
                f"the scheduler at {self.address} was lost; finished runs are kept, and the same "
                "command continues"
            ) from error
        except KilledWorker as error:  # Dask blames every run that was at the worker
            raise WorkerLost("a worker of the cluster was lost") from error
        if result.storage is not None:
            raise OSError(result.storage)
        return result

    def close(self, kill: bool = False) -> None:
        with suppress(Exception):  # they end with their workers in any case
            self.client.run(end_processes)


Executor = InProcess | Processes | Cluster


def check_workers(executor: Executor, last_seen: float) -> float:
    """Return when a worker was last seen; refuse to wait longer for a cluster without any."""
    if not isinstance(executor, Cluster) or executor.n_threads:
        return time.monotonic()
    if time.monotonic() - last_seen > NO_WORKERS_TIMEOUT:
        raise ConnectionError(
            f"the scheduler at {executor.address} has had no workers for {NO_WORKERS_TIMEOUT:g} s; "
            "finished runs are kept, and the same command continues once there are some"
        )
    return last_seen


@contextmanager
def open_executor(
    jobs: int, cluster: str | None, shared: Path | None, timeout: float | None
) -> Iterator[Executor]:
    """Open the executor that the options of `execute` ask for, and close it at the end.

    shared: the folder into which the workers of a cluster write; None if only the caller does.
    """
    if cluster is not None:
        with connect(cluster, jobs) as client:
            executor: Executor = Cluster(client, cluster, shared, timeout)
            yield executor
            executor.close()
        return
    processes = jobs > 1 or timeout is not None
    executor = Processes(jobs, timeout) if processes else InProcess()
    try:
        yield executor
    except BaseException:
        executor.close(kill=True)
        raise
    executor.close()


@contextmanager
def connect(address: str, jobs: int) -> Iterator[Any]:
    """Open a client of the scheduler at `address`, or of a cluster started for this sweep."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError("a cluster needs Dask: pip install distributed") from None
    logs = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL + 1)  # what is lost is reported in one sentence of ours
    try:
        if address != "local":
            with ask_for_client(address, Client) as client:
                yield client
            return
        options: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1"}
        options |= {"dashboard_address": None, "silence_logs": logging.CRITICAL}
        with LocalCluster(n_workers=jobs, **options) as here, Client(here) as client:
            yield client
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def ask_for_client(address: str, make: Any) -> Any:
    """Return a client, or raise one sentence soon: Dask waits minutes for a port that is silent."""
    answer: queue.Queue[Any] = queue.Queue()

    def ask() -> None:
        try:
            answer.put(make(address, timeout=CONNECT_TIMEOUT))
        except Exception as error:
            answer.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        found = answer.get(timeout=1.5 * CONNECT_TIMEOUT)
    except queue.Empty:
        found = TimeoutError(f"no answer within {1.5 * CONNECT_TIMEOUT:g} s")
    if isinstance(found, Exception):
        raise ConnectionError(f"no Dask scheduler answers at {address}: {found}") from found
    return found
