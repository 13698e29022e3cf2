"""Runs on a Dask cluster: the same worker processes, each beside a worker of the cluster.

A run is played in a process of its own, as it is without a cluster, so an agent that takes its
process with it costs the cluster nothing. Results come back and are written here, so that no disk
need be shared; with `shared_store` the workers write them. Dask may play a run twice when a worker
is lost. That is harmless: a run is a function of its spec, and its file is written once.
"""

from __future__ import annotations

import json
import logging
import queue
import time
from collections import Counter, deque
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from uuid import uuid4

from upriver.experiments.execute import Tally, describe
from upriver.experiments.progress import Reporter
from upriver.experiments.runspec import RunSpec
from upriver.experiments.store import Store
from upriver.experiments.workers import Crew, WorkersFailed

ATTEMPTS = 3
"""How often a run may be lost with its workers or its scheduler before it counts as failed."""
TIMEOUT = 10
"""Seconds that a scheduler has to answer."""
WORKERLESS = 30.0
"""Seconds that a cluster may be without workers."""
AHEAD = 4
"""Runs under way for each thread of the cluster, so that no thread waits for this process."""
IDLE: queue.SimpleQueue[Crew] = queue.SimpleQueue()
"""In a worker of the cluster: processes that wait for their next run."""


class Result(NamedTuple):
    """What a worker sends back: the file of a run, or why there is none."""

    data: bytes | None
    error: str | None = None
    trace: str = ""
    storage: str | None = None


def remote(run_json: str, version: str, root: str | None, timeout: float | None) -> Result:
    """Play one run beside a worker; with `root`, store it there too."""
    from upriver import __version__

    if __version__ != version:
        return Result(None, f"the worker has upriver {__version__}, this sweep is of {version}")
    run = RunSpec.from_json(run_json)
    shared = None if root is None else Store(Path(root))
    try:
        if shared is None:
            return played(run, timeout)
        if shared.has(run):
            return Result(None)
        result = played(run, timeout)
        if result.data is None:
            shared.record_failure(run, str(result.error), result.trace)
        else:
            shared.save_bytes(run, result.data)
        return result._replace(data=None)
    except OSError as error:
        return Result(None, storage=str(error))


def played(run: RunSpec, timeout: float | None) -> Result:
    """The file of a run, or its error: played into a folder that Dask removes with its worker."""
    from distributed import get_worker

    try:
        crew = IDLE.get_nowait()
    except queue.Empty:
        folder = Path(get_worker().local_directory, f"upriver-{uuid4().hex}")
        crew = Crew(Store.create(folder))
    told = Tally(Reporter(), [])
    try:
        crew.play([run], 1, told, timeout)
    except WorkersFailed as error:
        return Result(None, str(error))
    for _, error in told.failures:
        path = crew.store.failure_path(run)
        result = Result(None, error, json.loads(path.read_text(encoding="utf-8"))["traceback"])
        break
    else:
        path = crew.store.path(run)
        result = Result(path.read_bytes())
    path.unlink()
    IDLE.put(crew)
    return result


def dismiss() -> None:
    """Let the processes beside a worker go."""
    with suppress(queue.Empty):
        while True:
            IDLE.get_nowait().dismiss()


def run_on_cluster(
    runs: list[RunSpec],
    store: Store,
    address: str,
    jobs: int,
    progress: Tally,
    shared_store: bool = False,
    timeout: float | None = None,
) -> None:
    """Play `runs` on the cluster until each is stored or has failed."""
    from upriver import __version__

    root = str(store.root.resolve()) if shared_store else None
    waiting, lost = deque(runs), Counter[int]()
    inbox: queue.Queue[Any] = queue.Queue()
    with connected(address, jobs) as client:
        from distributed import KilledWorker  # not before it is known to be there

        under_way: dict[str, tuple[RunSpec, Any]] = {}

        def submit(run: RunSpec) -> None:
            # one name for one run: asked for twice, Dask still plays it once
            key = f"upriver-{__version__}-{run.env}-{run.label}-{run.key}-{lost[id(run)]}"
            future = client.submit(remote, run.to_json(), __version__, root, timeout, key=key)
            under_way[key] = run, future
            progress.reporter.running(run)
            future.add_done_callback(inbox.put)

        seen = time.monotonic()
        while waiting or under_way:
            at_once = max(16, AHEAD * threads(client))
            while waiting and len(under_way) < at_once:
                submit(waiting.popleft())
            try:
                future = inbox.get(timeout=1.0)
            except queue.Empty:
                progress.reporter.tick()
                seen = time.monotonic() if threads(client) else seen
                if time.monotonic() - seen > WORKERLESS:
                    raise ConnectionError(
                        f"the scheduler at {address} has had no workers for {WORKERLESS:g} s; "
                        "finished runs are kept, and the same command continues once there are some"
                    ) from None
                continue
            seen = time.monotonic()
            run, _ = under_way.pop(future.key)
            try:
                result = Result(*future.result())
            except Exception as error:
                lost[id(run)] += 1
                again = lost[id(run)] < ATTEMPTS and client.status == "running"
                if isinstance(error, CancelledError | OSError) and not again:
                    raise ConnectionError(
                        f"the scheduler at {address} was lost; finished runs are kept, and the "
                        "same command continues"
                    ) from error
                # Dask gives a run up when it was lost with a few workers, whoever was to blame
                if isinstance(error, CancelledError | OSError | KilledWorker) and again:
                    waiting.append(run)
                    continue
                result = Result(None, describe(error))
            progress.settle(run, receive(run, result, store, shared_store))
        with suppress(Exception):  # they go with their workers in any case
            client.run(dismiss)


def receive(run: RunSpec, result: Result, store: Store, shared_store: bool) -> str | None:
    """Store what came back; the error if there was one."""
    if result.storage is not None:
        raise OSError(result.storage)
    if result.data is not None:
        store.save_bytes(run, result.data)
    error = result.error
    if shared_store and error is None and not store.has(run):
        error = f"a worker stored the run, and {store.path(run)} is not here"
    if error is not None and not (shared_store and store.failure_path(run).exists()):
        store.record_failure(run, error, result.trace)
    return error


def threads(client: Any) -> int:
    """Threads of all workers; 0 where nobody can be asked."""
    try:
        return sum(client.nthreads().values())
    except (OSError, TimeoutError, RuntimeError):
        return 0


@contextmanager
def connected(address: str, jobs: int):
    """A client of the scheduler at `address`, or of one started for this sweep."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError(
            "a cluster needs Dask; install the extra: pip install 'upriver[cluster]'"
        ) from None
    logs = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL + 1)  # what is lost is said in a sentence of ours
    try:
        if address == "local":
            with (
                LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=None,  # type: ignore[arg-type]
                    silence_logs=logging.CRITICAL,
                ) as here,
                Client(here) as client,
            ):
                yield client
            return
        with answering(address, Client) as client:
            yield client
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def answering(address: str, make: Any) -> Any:
    """A client, or one sentence in good time: Dask itself waits minutes for a port that is mute."""
    answer: queue.Queue[Any] = queue.Queue()

    def ask() -> None:
        try:
            answer.put(make(address, timeout=TIMEOUT))
        except Exception as error:
            answer.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        found = answer.get(timeout=1.5 * TIMEOUT)
    except queue.Empty:
        found = TimeoutError(f"nothing was said for {1.5 * TIMEOUT:g} s")
    if isinstance(found, Exception):
        raise ConnectionError(f"no Dask scheduler answers at {address}: {found}") from found
    return found
