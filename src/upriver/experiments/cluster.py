"""Runs on a Dask cluster: the same pure function, sent to a running scheduler or to a local one.

Results come back and are written here, so that no disk need be shared; with `shared_store` the
workers write them. Dask may play a run twice when a worker is lost. That is harmless: a run is a
function of its spec, and its file is written once.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter, deque
from contextlib import contextmanager
from typing import Any, NamedTuple

from upriver.experiments.build import run_one
from upriver.experiments.execute import Tally, attempt, describe
from upriver.experiments.runspec import RunSpec
from upriver.experiments.store import StorageFailed, Store, to_bytes

ATTEMPTS = 3
"""How often a run may be lost with the connection before it counts as failed."""
TIMEOUT = 10
"""Seconds that a scheduler has to answer."""
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
    except Exception as error:
        return Result(None, describe(error), traceback.format_exc())


def run_on_cluster(
    runs: list[RunSpec],
    store: Store,
    address: str,
    jobs: int,
    shared_store: bool,
    progress: Tally,
) -> None:
    """Play `runs` on the cluster until each is stored or has failed."""
    from distributed import as_completed

    from upriver import __version__

    root = str(store.root.resolve()) if shared_store else None
    waiting, lost = deque(runs), Counter[str]()
    with connected(address, jobs) as client:
        under_way: dict[str, tuple[RunSpec, Any]] = {}
        finished: Any = as_completed()

        def submit() -> None:
            run = waiting.popleft()
            # one name for one run: asked for twice, Dask still plays it once
            key = f"upriver-{__version__}-{run.env}-{run.label}-{run.key}"
            future = client.submit(remote, run.to_json(), __version__, root, key=key)
            under_way[key] = run, future
            progress.reporter.running(run)
            finished.add(future)

        while waiting or under_way:
            while waiting and len(under_way) < max(16, AHEAD * threads(client)):
                submit()
            future = next(finished)
            run, _ = under_way.pop(future.key)
            if future.status in ("cancelled", "lost"):
                lost[future.key] += 1
                if lost[future.key] >= ATTEMPTS or client.status != "running":
                    raise ConnectionError(
                        f"the scheduler at {address} was lost; finished runs are kept, and the "
                        "same command continues"
                    )
                waiting.append(run)
            else:
                progress.settle(run, receive(run, future, store, shared_store))


def receive(run: RunSpec, future: Any, store: Store, shared_store: bool) -> str | None:
    """Store what came back; the error if there was one."""
    if future.status == "error":  # Dask gave up: its workers died at this run
        error, trace = describe(future.exception()), ""
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
    return sum(client.nthreads().values())


@contextmanager
def connected(address: str, jobs: int):
    """A client of the scheduler at `address`, or of one started for this sweep."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError(
            "a cluster needs Dask; install the extra: pip install 'upriver[cluster]'"
        ) from None
    if address == "local":
        with (
            LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,  # type: ignore[arg-type]
                silence_logs=logging.ERROR,
            ) as here,
            Client(here) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        yield client
