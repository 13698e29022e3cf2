"""The same runs on Dask: a scheduler and two workers, each a process of its own on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.sweeping import AGENTS, environment, stored, sweep, table_bytes
from upriver.experiments import execute
from upriver.experiments.progress import Reporter

pytest.importorskip("distributed")


def dask(role: str, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{role}", "--host", "127.0.0.1",
         "--no-dashboard", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """(address, worker processes), started by their own commands and stopped at the end."""
    note = tmp_path / "scheduler.json"
    scheduler = dask("scheduler", "--port", "0", "--scheduler-file", str(note))
    workers = []
    try:
        deadline = time.monotonic() + 60
        while not note.exists() or not note.read_text().strip():
            assert scheduler.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        address = json.loads(note.read_text())["address"]
        alone = "--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path / "dask")
        workers = [dask("worker", address, *alone) for _ in range(2)]
        yield address, workers
    finally:
        for process in [*workers, scheduler]:
            process.kill()
            process.wait()


class KillAfter(Reporter):
    """Kills a process when so many runs are done."""

    def __init__(self, count: int, victim: subprocess.Popen) -> None:
        self.count = count
        self.victim = victim

    def done(self, run) -> None:
        self.count -= 1
        if self.count == 0:
            self.victim.kill()


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(tmp_path, cluster):
    address, workers = cluster
    experiment = sweep([{"agent": "ucrl-mnl"}, {"agent": f"{AGENTS}:Logged"}], seeds=40)
    here, there = tmp_path / "here", tmp_path / "there"
    execute(experiment, here, jobs=1)
    outcome = execute(experiment, there, cluster=address, reporter=KillAfter(15, workers[0]))
    assert workers[0].wait(timeout=5) != 0
    assert outcome.complete and outcome.ran == 80
    assert table_bytes(there) == table_bytes(here)
    # what the one worker left now finds stored is not played again, and it can write by itself
    before = {p: p.stat().st_mtime_ns for p in stored(there)}
    longer = sweep([{"agent": "ucrl-mnl"}, {"agent": f"{AGENTS}:Raises"}], seeds=45)
    outcome = execute(longer, there, cluster=address, shared_store=True)
    assert outcome.stored == 40
    assert outcome.failed and all("an odd draw" in error for _, error in outcome.failed)
    assert outcome.ran + len(outcome.failed) == 50
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    for run, _ in outcome.failed:
        record = json.loads((Path(there) / "_failed" / failure_name(run)).read_text())
        assert "in plan" in record["traceback"]


def failure_name(run) -> str:
    return f"env={run.env}-agent={run.label}-{run.key}.json"


def test_an_address_where_nobody_answers_is_one_sentence(tmp_path, monkeypatch):
    from upriver.experiments import cluster

    monkeypatch.setattr(cluster, "TIMEOUT", 1)
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        execute(sweep([{"agent": "random"}], 1), tmp_path, cluster="tcp://127.0.0.1:9")
