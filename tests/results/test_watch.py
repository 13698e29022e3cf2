"""Watching a sweep: what is done, what is left, what failed; the live page while a sweep runs."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from threading import Thread

import pytest

from tests.browser import Browser, needs_browser
from upriver.cli import main
from upriver.experiments import execute
from upriver.experiments.spec import parse
from upriver.experiments.store import Store
from upriver.results.watch import LivePage, Watcher, clock

SPEC = {
    "name": "watched",
    "episodes": 20,
    "seeds": {"first": 0, "count": 4},
    "environments": [{"name": "riverswim-4", "horizon": 8, "label": "river-4"}],
    "agents": [{"agent": "random"}, {"agent": "ucrl-mnl"}, {"agent": "optimal"}],
}


@pytest.fixture
def half(tmp_path):
    """A sweep of 12 runs of which 5 are done and one has failed."""
    folder = tmp_path / "half"
    experiment = parse(SPEC)
    runs = experiment.runs()
    execute(runs[:5], folder, jobs=1)
    store = Store(folder)
    store.record_runs(runs)
    store.record_failure(runs[5], "ValueError: no luck", "")
    return folder


def test_a_look_counts_what_is_there(half):
    found = Watcher(half).look()
    assert (found["done"], found["total"], found["failed"]) == (5, 12, 1)
    assert found["state"] == "running"
    groups = {g["agent"]: g for g in found["groups"]}
    assert groups["random"]["done"] == groups["random"]["total"] == 4
    assert (groups["ucrl-mnl"]["done"], groups["ucrl-mnl"]["failed"]) == (1, 1)
    assert groups["optimal"]["mean"] is None
    assert groups["ucrl-mnl"]["best"] and not groups["random"]["best"]
    assert groups["ucrl-mnl"]["lost"] < groups["random"]["lost"]
    assert found["failures"][0]["error"] == "ValueError: no luck"


def test_new_runs_arrive_and_old_files_are_not_read_again(half, monkeypatch):
    import upriver.results.watch as module

    watcher = Watcher(half)
    watcher.look()
    read, one = [], module.read_run
    monkeypatch.setattr(module, "read_run", lambda path: read.append(path) or one(path))
    execute(parse(SPEC), half, jobs=1)
    found = watcher.look()
    assert found["state"] == "finished" and found["done"] == 12 and found["failed"] == 0
    assert len(read) == 7
    assert found["left"] is None


def test_a_sweep_that_stopped_is_waiting(half, monkeypatch):
    import upriver.results.watch as module

    monkeypatch.setattr(module, "RECENT", -1.0)
    assert Watcher(half).look()["state"] == "waiting"


def test_a_folder_that_was_removed_is_gone(half):
    watcher = Watcher(half)
    watcher.look()
    shutil.rmtree(half)
    assert watcher.look()["state"] == "gone"


def test_a_damaged_file_is_counted(half):
    victim = next(half.glob("env=*/agent=random/*.parquet"))
    victim.write_bytes(b"PAR1")
    assert Watcher(half).look()["unreadable"] == 1


def test_times_as_a_person_says_them():
    assert [clock(s) for s in (4.4, 75, 7300)] == ["4 s", "1 min 15 s", "2 h 1 min"]


def test_the_terminal_view_shows_it_once_where_nobody_watches(half, capsys):
    assert main(["watch", str(half)]) == 0
    out = capsys.readouterr().out
    assert "5 of 12 runs, 1 failed" in out
    assert "seed 1: ValueError: no luck" in out


def test_wrong_calls_are_told(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "absent")]) == 2
    assert "absent is not a folder" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--port", "70000"]) == 2
    assert main(["watch", str(tmp_path), "--interval", "0"]) == 2


@pytest.fixture
def server(half):
    with LivePage(Watcher(half)) as live:
        thread = Thread(target=live.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield live
        live.shutdown()


def fetch(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return answer.read()


def test_the_server_is_for_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"
    assert json.loads(fetch(f"{server.address}status.json"))["done"] == 5
    for path, headers, code in (
        ("", {"Host": "evil.example"}, 403),
        ("../etc/passwd", {}, 404),
        ("status.json?x", {}, 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(server.address + path, **headers)
        assert refused.value.code == code


def test_a_port_in_use_is_told(server, half):
    with pytest.raises(ValueError, match=f"port {server.server_port} cannot be used"):
        LivePage(Watcher(half), server.server_port)


def test_many_pages_cost_one_look(server, monkeypatch):
    looks, look = [], server.watcher.look
    monkeypatch.setattr(server, "KEEP", 60.0)
    monkeypatch.setattr(server.watcher, "look", lambda: looks.append(1) or look())
    server.last = (-1e9, b"")
    for _ in range(5):
        fetch(f"{server.address}status.json")
    assert len(looks) == 1


@needs_browser
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_the_live_page_while_a_sweep_runs(tmp_path, width):
    """Started by its own command, driven in a browser while runs arrive, ended by Ctrl-C."""
    folder = tmp_path / "sweep"
    two = [{"name": "riverswim-4", "horizon": 8, "label": f"river-{n}"} for n in ("a", "b")]
    experiment = parse({**SPEC, "environments": two})
    execute(experiment.runs()[:2], folder, jobs=1)
    Store(folder).record_runs(experiment.runs())
    command = [sys.executable, "-m", "upriver", "watch", str(folder), "--web"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell that runs the tests in the background lets children ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        url = re.match(r"(http://127\.0\.0\.1:\d+/)", process.stdout.readline())[1]
        with Browser() as browser:
            page = browser.open(url, width, 844)
            page.wait("document.getElementById('status').textContent.includes('2 of 24 runs')")
            sweep = Thread(target=execute, args=(experiment, folder, 1))
            sweep.start()
            page.wait("/finished · 24 of 24/i.test(document.getElementById('status').textContent)")
            sweep.join()
            count = "document.querySelectorAll('#groups tbody tr:not(.group)').length"
            assert page.run(count) == 6
            page.choose("#env", "river-b")
            assert page.run(count) == 3
            assert page.run("document.querySelectorAll('#groups tr.best').length") == 1
            assert page.run("document.getElementById('bar').ariaValueNow") == "24"
            assert page.run("document.documentElement.scrollWidth") <= width
            assert page.errors == []
            assert {u for u in page.network if not u.startswith(url)} == set()
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err.strip() == "stopped"
