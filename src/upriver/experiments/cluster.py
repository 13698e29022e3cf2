"""Runs on a Dask cluster: the same pure function, sent to a running scheduler or to a local one.

Results come back and are written here, so that no disk need be shared; with `shared_store` the
workers write them. Dask may play a run twice when a worker is lost. That is harmless: a run is a
function of its spec, and its file is written once.
"""

from __future__ import annotations

import logging
import queue
import time
import traceback
from collections import Counter, deque
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple

from upriver.experiments.build import run_one
from upriver.experiments.execute import Tally, attempt, describe
from upriver.experiments.runfile import to_bytes
from upriver.experiments.runspec import RunSpec
from upriver.experiments.store import StorageFailed, Store

ATTEMPTS = 3
"""How often a run may be lost with the connection before it counts as failed."""
TIMEOUT = 10
"""Seconds that a scheduler has to answer."""
WORKERLESS = 30.0
"""Seconds that a cluster may be without workers."""
AHEAD = 4
"""Runs under way for each thread of the cluster, so that no thread waits for this process."""


class Result(NamedTuple):
    """What a worker sends back: the file of a run, or why there is none."""

    data: bytes | None
    error: str | None
    trace: str
    storage: str | None = None


def remote(run_json: str, version: str, root: str | None) -> Result:
    """Play one run on a worker; with `root`, store it there too."""
    from pathlib import Path

    from upriver import __version__

    if __version__ != version:
        text = f"the worker has upriver {__version__}, this sweep is of {version}"
        return Result(None, text, "")
    run = RunSpec.from_json(run_json)
    if root is not None:
        try:
            return Result(None, attempt(run, Store(Path(root))), "")
        except StorageFailed as error:
            return Result(None, None, "", str(error))
    try:
        return Result(to_bytes(run, run_one(run)), None, "")
    except (Exception, SystemExit) as error:
        return Result(None, describe(error), traceback.format_exc()[-20_000:])


def run_on_cluster(
    runs: list[RunSpec],
    store: Store,
    address: str,
    jobs: int,
    shared_store: bool,
    progress: Tally,
) -> None:
    """Play `runs` on the cluster until each is stored or has failed."""
    from upriver import __version__

    root = str(store.root.resolve()) if shared_store else None
    waiting, suspects, lost = deque(runs), deque[RunSpec](), Counter[str]()
    inbox: queue.Queue[Any] = queue.Queue()
    with connected(address, jobs) as client:
        under_way: dict[str, tuple[RunSpec, Any]] = {}

        def submit(run: RunSpec, alone: bool) -> None:
            # one name for one run: asked for twice, Dask still plays it once
            key = f"upriver-{__version__}-{run.env}-{run.label}-{run.key}{'-alone' * alone}"
            future = client.submit(remote, run.to_json(), __version__, root, key=key)
            under_way[key] = run, future
            progress.reporter.running(run)
            future.add_done_callback(inbox.put)

        alone, seen = False, time.monotonic()
        while waiting or suspects or under_way:
            at_once = max(16, AHEAD * threads(client))
            while waiting and len(under_way) < at_once:
                submit(waiting.popleft(), alone=False)
            if suspects and not under_way:
                alone = True
                submit(suspects.popleft(), alone)
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
            if future.status in ("cancelled", "lost"):
                lost[future.key] += 1
                if lost[future.key] >= ATTEMPTS or client.status != "running":
                    raise ConnectionError(
                        f"the scheduler at {address} was lost; finished runs are kept, and the "
                        "same command continues"
                    )
                waiting.append(run)
            elif future.status == "error" and not alone:
                # workers died with this run on them, but it may have been another that killed
                # them: once all others are done, each suspect is played with nobody else around
                suspects.append(run)
            else:
                progress.settle(run, receive(run, future, store, shared_store))


def receive(run: RunSpec, future: Any, store: Store, shared_store: bool) -> str | None:
    """Store what came back; the error if there was one."""
    if future.status == "error":  # Dask gave up: its workers died at this run
        error, trace = "the workers that played this run died", describe(future.exception())
    else:
        result = Result(*future.result())
        if result.storage is not None:
            raise OSError(result.storage)
        if result.data is not None:
            store.save_bytes(run, result.data)
        error, trace = result.error, result.trace
        if shared_store and error is None and not store.has(run):
            error = f"a worker stored the run, and {store.path(run)} is not here"
    if error is not None and not (shared_store and store.failure_path(run).exists()):
        store.record_failure(run, error, trace)
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
    log = logging.getLogger("distributed")
    before = log.level
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
        log.setLevel(before)


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
