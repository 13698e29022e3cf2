"""Sweeps survive: any number of workers, any order, any kill, the same table."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from subprocess import Popen

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
from upriver.experiments import Store, check, execute
from upriver.experiments.executor import WorkerProcess


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


def test_a_worker_that_is_killed_while_it_starts_is_started_again():
    """Only one that ends by itself, such as with a broken installation, ends the sweep."""
    worker = WorkerProcess(None, {})
    killed = []

    def kill_the_first(*given, **options):
        process = Popen(*given, **options)
        if not killed:
            process.kill()
            killed.append(process.pid)
        return process

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upriver.experiments.executor.subprocess.Popen", kill_the_first)
        worker.process = worker.start()
    assert killed and worker.process.pid != killed[0]
    worker.close()


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


def test_a_run_that_hangs_is_ended_and_the_others_go_on(tmp_path):
    agents = [{"agent": f"{AGENTS}:Sleeps"}]
    for jobs in (1, 2):
        outcome = execute(sweep(agents, 2, episodes=60), tmp_path, jobs=jobs, run_timeout=1.5)
        assert [error for _, error in outcome.failed] == ["it took longer than 1.5 s"] * 2
        assert outcome.ran == 0 and len(list((tmp_path / "_failed").iterdir())) == 2
    quick = sweep([{"agent": "random"}], 2)
    assert execute(quick, tmp_path, jobs=1, run_timeout=60.0).ran == 2
    with pytest.raises(ValueError, match="run_timeout is 0"):
        execute(sweep(agents, 1), tmp_path, run_timeout=0)


def test_how_a_worker_ended_is_said_as_it_was(tmp_path):
    for jobs in (1, 2):
        outcome = execute(sweep([{"agent": f"{AGENTS}:Exits"}], 2), tmp_path / "a", jobs=jobs)
        assert {error for _, error in outcome.failed} == {"SystemExit: 3"}
    for code in (3, 0):  # also one that ends as if all were well
        hard = sweep([{"agent": f"{AGENTS}:Exits", "code": code}], 1)
        runs = [*hard.runs(), *sweep([{"agent": "random"}], 1).runs()]
        ((_, error),) = execute(runs, tmp_path / str(code), 2).failed
        assert error == f"the worker process died 3 times at this run (exit code {code})"


def test_a_long_complaint_is_cut(tmp_path):
    outcome = execute(sweep([{"agent": f"{AGENTS}:Talks"}], 1), tmp_path, jobs=1)
    ((_, error),) = outcome.failed
    assert len(error) < 600
    assert sum(p.stat().st_size for p in (tmp_path / "_failed").iterdir()) < 50_000


def test_an_agent_that_changes_the_folder_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = execute(sweep([{"agent": f"{AGENTS}:Wanders"}], 3), "r", jobs=1)
    assert outcome.complete and outcome.ran == 3
    assert len(stored(tmp_path / "r")) == 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_that_is_removed_is_no_success(tmp_path, jobs):
    folder = tmp_path / "r"
    agent = {"agent": f"{AGENTS}:Removes", "folder": str(folder)}
    with pytest.raises(OSError, match="was removed or emptied while it was in use"):
        execute(sweep([agent], 4), folder, jobs=jobs)
    assert not stored(folder)


def test_success_is_what_lies_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "save", lambda *_: True)
    outcome = execute(sweep([{"agent": "random"}], 2), tmp_path, jobs=1)
    assert outcome.ran == 0 and not outcome.complete
    assert "is missing" in outcome.failed[0][1]


@pytest.mark.parametrize("wait", [0.3, 0.8, 1.6])
def test_ctrl_c_in_the_first_seconds_prints_no_traceback(tmp_path, wait):
    spec = tmp_path / "sweep.toml"
    spec.write_text(sweep([{"agent": f"{AGENTS}:Sleeps"}], seeds=40).to_toml())
    process = start("run", spec, "--out", tmp_path / "r", "--jobs", 2)
    time.sleep(wait)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    # before our first line it is Python that answers, in its own words
    assert (code, "Traceback" in err) == (130, False) or "upriver/cli" not in err, err


def files(folder: Path) -> int:
    """Return the number of files; the command at work may remove a folder meanwhile."""
    return sum(len(names) for _, _, names in os.walk(folder))


def killed_at_six_stages(words, folder: Path, stages: int, seed: int) -> None:
    """A command killed -9 when it has written so many files, six times, and then left to end.

    Work is counted, not time: on a busy machine it is killed as far on its way as on an idle one.
    """
    rng = np.random.default_rng(seed)
    for stage in sorted(rng.integers(0, stages, size=6)):
        process = start(*words, folder)
        while files(folder) < stage and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.exponential(0.1))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, _, err = finish(start(*words, folder))
    assert code == 0, err


KILLED = {
    "tune": (("tune", "quick", "--runs", 2), "", ("tuned.toml", "grid.csv")),
    "reproduce": (("reproduce", "--runs", 1), "", ("table1.csv", "table1.md", "figure2.png")),
}
"""Command -> (its words, where its runs lie, what it makes of them)."""


@pytest.fixture(scope="module", params=KILLED)
def left_alone(request, tmp_path_factory):
    """(the command, where its runs lie, what it makes of them, the folder it made undisturbed)."""
    words, place, made = KILLED[request.param]
    words = *words, "--jobs", 2, "--out"
    folder = tmp_path_factory.mktemp(request.param)
    code, _, err = finish(start(*words, folder))
    assert code == 0, err
    return words, place, made, folder


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_command_killed_at_any_stage_makes_the_same(tmp_path, left_alone, seed):
    words, place, made, whole = left_alone
    killed_at_six_stages(words, tmp_path, files(whole), seed)
    for name in made:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    assert table_bytes(tmp_path / place) == table_bytes(whole / place)
    assert check(tmp_path / place).problems == []


def test_streams_are_stored_like_episodes(tmp_path):
    from upriver.experiments.spec import parse
    from upriver.results.runs import load_runs

    spec = {
        "name": "streams", "episodes": 300, "seeds": {"count": 2},
        "environments": [
            {"name": "riverswim-4", "discount": 1}, {"name": "queue-4", "discount": 0.99},
        ],
        "agents": [
            {"agent": "ucrl-mnl-se", "features": "shared"}, {"agent": "ucrl2"},
            {"agent": "ucmnlk", "features": "shared"},
        ],
    }  # fmt: skip
    experiment = parse(spec)
    outcome = execute(experiment, tmp_path, jobs=1)
    assert outcome.complete and outcome.ran == 12
    table = load_runs(tmp_path)
    assert set(table["env"].to_pylist()) == {"riverswim-4-discount-1", "queue-4-discount-0.99"}
    assert len(table) == 12 * 300 and table["episode"].to_numpy().max() == 300
    assert (table["regret"].to_numpy() > -1e-6).all()
    assert parse(experiment.to_data()).runs() == experiment.runs()
    with pytest.raises(ValueError, match=r"discount is 2; it should be less than or equal to 1"):
        parse({**spec, "environments": [{"name": "riverswim-4", "discount": 2}]})
