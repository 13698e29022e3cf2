"""Sweeps survive: any number of workers, any order, any kill, the same table."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.experiments.sweep_agents import LOG, word_of
from tests.experiments.sweeping import (
    AGENTS,
    TWO_HUNDRED,
    finish,
    start,
    stored,
    sweep,
    table_bytes,
)
from upriver.experiments import execute


@pytest.fixture(scope="module")
def spec_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "sweep.toml"
    path.write_text(TWO_HUNDRED.to_toml())
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> bytes:
    """The table of a sweep that nobody disturbed, played in this process, last run first."""
    folder = tmp_path_factory.mktemp("undisturbed")
    outcome = execute(TWO_HUNDRED.runs()[::-1], folder, jobs=1)
    assert (outcome.total, outcome.ran) == (200, 200)
    return table_bytes(folder)


def wait_for(folder: Path, count: int, process) -> None:
    """Until so many runs are stored, or the sweep is over."""
    while len(stored(folder)) < count and process.poll() is None:
        time.sleep(0.002)


def test_two_workers_and_one_worker_give_the_same_bytes(tmp_path, spec_file, undisturbed):
    code, out, err = finish(start("run", spec_file, "--out", tmp_path / "r", "--jobs", 2))
    assert code == 0, err
    assert "200 runs in" in out and "200 ran, 0 failed" in out
    assert table_bytes(tmp_path / "r") == undisturbed


def kill_and_go_on(folder: Path, spec_file: Path, rng: np.random.Generator, whole: bool) -> None:
    """Start, kill -9 at a random moment, start again; nothing is torn, lost or played again."""
    log = folder / "_starts.log"
    folder.mkdir()
    process = start("run", spec_file, "--out", folder, "--jobs", 2, **{LOG: str(log)})
    wait_for(folder, int(rng.integers(0, 190)), process)
    time.sleep(rng.uniform(0, 0.02))
    children = psutil.Process(process.pid).children(recursive=True)
    if whole:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()  # only the parent: the workers must notice and end by themselves
    finish(process)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in stored(folder)}
    played = log.read_text().split() if log.exists() else []
    jobs = 1 if whole else 2  # going on need not look like before
    code, out, err = finish(
        start("run", spec_file, "--out", folder, "--jobs", jobs, **{LOG: str(log)})
    )
    assert code == 0, err
    assert f"{len(before)} were stored, {200 - len(before)} ran, 0 failed" in out
    assert len(stored(folder)) == 200
    for path, identity in before.items():
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == identity
    again = {int(w) for w in log.read_text().split()[len(played) :]}
    words = {word_of(int(p.stem.rpartition("-")[2])) for p in before if "Logged" in str(p.parent)}
    assert len(again) == 100 - len(words)
    assert not again & words


def test_a_sweep_killed_three_times_loses_nothing(tmp_path, spec_file, undisturbed, rng):
    for i, whole in enumerate((True, True, False)):
        kill_and_go_on(tmp_path / str(i), spec_file, rng, whole)
        assert table_bytes(tmp_path / str(i)) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("i", range(30))
def test_a_sweep_killed_thirty_times_loses_nothing(tmp_path, spec_file, undisturbed, i):
    kill_and_go_on(tmp_path / "r", spec_file, np.random.default_rng(i), whole=i % 3 < 2)
    assert table_bytes(tmp_path / "r") == undisturbed


def test_a_killed_worker_costs_only_its_run(tmp_path, spec_file, undisturbed):
    folder = tmp_path / "r"
    process = start("run", spec_file, "--out", folder, "--jobs", 2)
    wait_for(folder, 20, process)
    worker = psutil.Process(process.pid).children()[0]
    worker.kill()
    code, out, err = finish(process)
    assert code == 0, err
    assert "200 ran, 0 failed" in out
    assert table_bytes(folder) == undisturbed


def test_runs_that_raise_or_die_are_recorded_and_the_others_go_on(tmp_path):
    agents = [{"agent": f"{AGENTS}:{name}"} for name in ("Raises", "Dies")]
    spec = tmp_path / "sweep.toml"
    spec.write_text(sweep(agents, seeds=8).to_toml())
    code, out, err = finish(start("run", spec, "--out", tmp_path / "r", "--jobs", 2))
    odd = [s for s in range(8) if word_of(s) % 2]
    assert 0 < len(odd) < 8
    assert code == 1
    assert f"{16 - len(odd) - 1} ran, {len(odd) + 1} failed" in out
    assert "ArithmeticError: an odd draw" in err
    records = {p.name: p.read_text() for p in (tmp_path / "r" / "_failed").iterdir()}
    assert len(records) == len(odd) + 1
    assert any("died 3 times at this run (signal 9)" in text for text in records.values())
    assert any("in plan" in text and "an odd draw" in text for text in records.values())


def test_ctrl_c_stops_cleanly_and_says_how_to_continue(tmp_path):
    spec = tmp_path / "sweep.toml"
    spec.write_text(sweep([{"agent": f"{AGENTS}:Sleeps"}], seeds=40).to_toml())
    process = start("run", spec, "--out", tmp_path / "r", "--jobs", 2)
    wait_for(tmp_path / "r", 2, process)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "finished runs are kept" in err and "Continue with: upriver run" in err
    assert "Traceback" not in err
    assert 2 <= len(stored(tmp_path / "r")) < 40
