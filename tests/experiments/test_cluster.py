"""The same runs on Dask: a scheduler and two workers, each a process of its own on loopback."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.experiments.sweeping import (
    AGENTS,
    environment,
    finish,
    start,
    stored,
    sweep,
    table_bytes,
)
from upriver.experiments import check, execute
from upriver.experiments.execute import Reporter

pytest.importorskip("distributed")


def dask(role: str, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{role}", "--host", "127.0.0.1",
         "--no-dashboard", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """(address, workers, scheduler), started by their own commands and stopped at the end."""
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
        yield address, workers, scheduler
    finally:
        for process in [*workers, scheduler]:
            process.kill()
            process.wait()


class KillAfter(Reporter):
    """Kills a process when so many runs are done."""

    def __init__(self, count: int, victim: subprocess.Popen) -> None:
        super().__init__()
        self.count = count
        self.victim = victim

    def done(self, run, error=None) -> None:
        self.count -= 1
        if self.count == 0:
            self.victim.kill()


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(tmp_path, cluster):
    address, workers, _ = cluster
    experiment = sweep([{"agent": "ucrl-mnl"}, {"agent": f"{AGENTS}:Logged"}], seeds=40)
    here, there = tmp_path / "here", tmp_path / "there"
    execute(experiment, here, jobs=1)
    outcome = execute(experiment, there, cluster=address, reporter=KillAfter(15, workers[0]))
    assert outcome.complete and outcome.ran == 80, outcome.failed
    assert workers[0].wait(timeout=5) != 0
    assert table_bytes(there) == table_bytes(here)
    # what the one worker left now finds stored is not played again
    before = {p: p.stat().st_mtime_ns for p in stored(there)}
    longer = sweep([{"agent": "ucrl-mnl"}, {"agent": f"{AGENTS}:Raises"}], seeds=45)
    outcome = execute(longer, there, cluster=address)
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
    from upriver.experiments import executor

    monkeypatch.setattr(executor, "CONNECT_TIMEOUT", 1)
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        execute(sweep([{"agent": "random"}], 1), tmp_path, cluster="tcp://127.0.0.1:9")


def test_a_port_that_says_nothing_is_one_sentence(tmp_path, monkeypatch):
    from upriver.experiments import executor

    monkeypatch.setattr(executor, "CONNECT_TIMEOUT", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"no Dask scheduler answers at {address}"):
            execute(sweep([{"agent": "random"}], 1), tmp_path, cluster=address)


def test_a_cluster_without_workers_is_told(tmp_path, cluster, monkeypatch):
    address, workers, _ = cluster
    for worker in workers:
        worker.kill()
        worker.wait()
    monkeypatch.setattr("upriver.experiments.executor.NO_WORKERS_TIMEOUT", 2)
    with pytest.raises(ConnectionError, match="has had no workers for 2 s"):
        execute(sweep([{"agent": "random"}], 1), tmp_path, cluster=address)


def test_the_missing_extra_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match="a cluster needs Dask: pip install distributed"):
        execute(sweep([{"agent": "random"}], 1), tmp_path, cluster="tcp://127.0.0.1:9")


def test_workers_with_threads_tear_and_swap_nothing(tmp_path):
    """Four threads of one process write into one folder, labels and all."""
    from distributed import LocalCluster

    agents = [{"agent": "random", "label": f"random {i}"} for i in range(4)]
    experiment = sweep([*agents, {"agent": "ucrl-mnl"}], seeds=20)
    execute(experiment, tmp_path / "here", jobs=1)
    options = {"n_workers": 1, "threads_per_worker": 4, "host": "127.0.0.1"}
    with LocalCluster(dashboard_address=None, **options) as here:
        there = tmp_path / "there"
        outcome = execute(experiment, there, cluster=here.scheduler_address)
    assert outcome.complete and outcome.ran == 100
    assert check(there).problems == []
    assert table_bytes(there) == table_bytes(tmp_path / "here")


def test_an_agent_that_dies_or_hangs_fails_alone_and_costs_no_worker(tmp_path, cluster):
    """These workers have no nanny: one that died would not come back."""
    address, workers, _ = cluster
    agents = [{"agent": f"{AGENTS}:Aborts"}, {"agent": "random"}]
    outcome = execute(sweep(agents, 2), tmp_path, cluster=address)
    assert [(run.label, error) for run, error in outcome.failed] == [
        ("Aborts", "the worker process died 3 times at this run (signal 9)")
    ] * 2
    assert outcome.ran == 2
    slow = sweep([{"agent": f"{AGENTS}:Sleeps"}], 2, episodes=60)
    outcome = execute(slow, tmp_path, cluster=address, run_timeout=1.5)
    assert [error for _, error in outcome.failed] == ["it took longer than 1.5 s"] * 2
    assert all(worker.poll() is None for worker in workers)
    for worker in workers:  # and what was started beside them is gone
        beside = psutil.Process(worker.pid).children()
        assert not [p for p in beside if "resource_tracker" not in " ".join(p.cmdline())]


def test_a_lost_scheduler_is_one_sentence_and_the_same_command_continues(tmp_path, cluster):
    address, _, scheduler = cluster
    spec, folder = tmp_path / "sweep.toml", tmp_path / "r"
    agents = [{"agent": "random"}, {"agent": f"{AGENTS}:Sleeps"}]
    spec.write_text(sweep(agents, seeds=8).to_toml())
    words = "run", spec, "--out", folder, "--cluster", address
    process = start(*words)
    while len(stored(folder)) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    scheduler.kill()
    code, _, err = finish(process, timeout=60)
    said = [line for line in err.splitlines() if not re.match(r"\d+(/\d+)? runs", line)]
    assert code == 1 and len(said) == 1, err
    assert re.search(r"the scheduler at tcp://\S+ was lost; finished runs are kept, and the", err)
    kept = stored(folder)
    assert 3 <= len(kept) < 16 and check(folder).problems == []
    code, out, err = finish(start("run", spec, "--out", folder, "--jobs", 2))
    assert code == 0 and "0 failed" in out and len(stored(folder)) == 16, err
