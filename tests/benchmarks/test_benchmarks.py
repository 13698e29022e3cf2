"""The benchmark runs, says what it skips and counts right; an install without a cache works."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.timing import Line, Skipped

import benchmarks as bench
import upriver
from benchmarks import against, agents, fits, peers, planning, timing
from upriver.cli import main
from upriver.experiments.workers import ONE_THREAD


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """As the command sees it after it has started itself again with one thread."""
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "1")
    # QuantEcon starts numba's threads, whose number this process could then not change back
    monkeypatch.setattr(peers, "find_spec", lambda name: None)


def line(figure=3.0, theirs=2.0, **more):
    return Line("family", "case", figure, "ms", "other", theirs, **more)


def test_a_ratio_is_ours_over_theirs_and_is_judged_on_both_sides():
    assert line().ratio == 1.5 and line().met is None
    assert line(most=1.5).met is True and line(most=1.4).met is False
    assert line(least=1.5).met is True and line(least=1.6).met is False
    assert "NOT MET, at most 1.4" in bench.as_text(line(most=1.4))
    assert "skipped: no such thing" in bench.as_text(Skipped("family", "case", "no such thing"))


def test_repeats_take_turns_and_the_first_round_is_not_counted():
    clock = iter(range(1000))
    order = []
    works = {x: lambda x=x: order.append(x) for x in "ab"}
    taken = timing.interleaved(works, 3, lambda: next(clock))
    assert order == ["a", "b"] * 4
    assert taken == {"a": 1, "b": 1}


@pytest.mark.parametrize("near", [True, False])
def test_the_problems_to_plan_in_have_as_many_successors_as_they_say(near):
    mdp = planning.random_mdp(30, 3, near)
    assert set(mdp.true_task.sizes) == {3}
    if near:
        s, _, s2 = mdp.true_task.triples
        assert abs(s - s2).max() <= 2


def test_the_plain_likelihood_of_the_comparison_is_the_one_that_is_fitted():
    x, chosen, groups = fits.choices(500, 3, 4)
    ours = upriver.fit_choices(x, chosen, groups)
    loss, gradient = fits.plain_loss(x, chosen, 3)(ours.theta)
    assert -500 * loss == pytest.approx(ours.log_likelihood)
    assert abs(gradient).max() < 1e-9
    theirs = fits.lbfgs(x, chosen, 3, 1e-7)
    assert theirs.x == pytest.approx(ours.theta, abs=1e-5)


def test_the_quick_run_measures_every_family_and_writes_what_it_prints(tmp_path, capsys):
    out = tmp_path / "bench.json"
    families = [f for f in bench.FAMILIES if f not in ("memory", "pooled", "dense", "startup")]
    assert main(["bench", *families, "--quick", "--peers", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    data = json.loads(out.read_text())
    assert {"numpy", "numba", "processors"} <= set(data["machine"])
    seen = {row["family"] for row in data["lines"]}
    assert {"episodes", "time against k", "backward induction", "environment steps"} <= seen
    for row in data["lines"]:
        assert row["case"] in printed
        if "reason" in row:
            assert f"skipped: {row['reason']}" in printed
        else:
            assert row["figure"] > 0 and row["ratio"] > 0 and math.isfinite(row["ratio"])
    agents = {row["case"].partition(",")[0] for row in data["lines"] if row["family"] == "episodes"}
    assert {"ucrl-mnl", "ucbvi", "lsvi-ucb", "orrl-mnl"} <= agents
    assert any("--rlberry-python" in row.get("reason", "") for row in data["lines"])


def test_a_missing_peer_is_a_line_and_not_a_failure():
    lines = [*planning.one_size(100, 3, True, True, True), *fits.fits(True, True)]
    reasons = [x.reason for x in lines if isinstance(x, Skipped)]
    assert reasons == ["quantecon is not installed here", "xlogit is not installed here"]
    assert {x.against for x in lines if isinstance(x, Line)} == {
        "scipy.sparse products alone", "SciPy L-BFGS", "well scaled",
    }  # fmt: skip


def test_a_python_without_rlberry_is_said_to_be_one():
    (skipped,) = peers.rlberry(Path(sys.executable), True)
    assert isinstance(skipped, Skipped) and "rlberry" in skipped.reason


def test_wrong_calls(capsys):
    assert main(["bench", "speed"]) == 2
    assert "family 'speed' is unknown; it must be one of episodes" in capsys.readouterr().err
    assert main(["bench", "steps", "--quick", "--rlberry-python", "no/such/python"]) == 2
    assert "no/such/python is not a file" in capsys.readouterr().err


def test_a_page_gets_the_same_rows(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        bench, "measure", lambda *_: [line(most=2.0), Skipped("family", "other", "why")]
    )
    assert main(["bench", "--out", str(tmp_path / "table.md")]) == 0
    assert (tmp_path / "table.md").read_text().splitlines()[2:] == [
        "| family | case | 3 ms | 1.5 | other | ok, at most 2 |"
    ]
    alone = [
        Line("episodes", f"psrl, S={n}, H=24", 30.0 + n, "us", agents.ALONE, 10.0) for n in (6, 20)
    ]
    grown = Line("time against k", "psrl, S=6, k=5000", 40.0, "us", "the same, k=200", 20.0)
    assert bench.as_markdown([*alone, grown]).splitlines()[-1] == "| psrl | 36 | 50 | 2 |"
    assert main(["bench", "--out", str(tmp_path / "table.csv")]) == 2
    assert "must be a .json or a .md file" in capsys.readouterr().err


def test_a_missed_figure_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda *_: [line(most=1.0)])
    assert main(["bench"]) == 1
    assert "1 of the figures miss" in capsys.readouterr().err


def test_without_one_thread_it_starts_itself_again(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    started = []

    def run(words, env, check):
        started.append((words, env["OPENBLAS_NUM_THREADS"]))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["bench", "steps", "--quick"]) == 0
    ((words, threads),) = started
    assert words[1:] == ["-m", "upriver", "bench", "steps", "--quick"] and threads == "1"


def test_an_install_where_nothing_can_be_cached_still_plays(tmp_path):
    """A file stands where each cache folder would be, which stops even the superuser."""
    package = tmp_path / "upriver"
    shutil.copytree(
        Path(upriver.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "kernels" / "__pycache__").write_text("")
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "PYTHONPATH": str(tmp_path)}
    code = (
        "import upriver as up; mdp = up.envs.riverswim(4, 6); "
        "print(up.__file__, up.simulate(mdp, up.agents.UCBVI(mdp.task()), 2).returns.shape)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | nowhere
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert str(package) in done.stdout and "(2,)" in done.stdout
    assert not list(tmp_path.rglob("*.nbi"))


def written(path, lines, version="0.1.0"):
    path.write_text(bench.as_json(lines, {"upriver": version}))
    return path


def test_two_versions_side_by_side(monkeypatch, tmp_path, capsys):
    """A cost is compared in units of the yardstick of its minute; a rate the other way round."""
    then = [
        Line("a", "time", 10.0, "us", "other", 5.0, yardstick=2.0),
        Line("a", "rate", 100.0, "steps/s", "other", 5.0, yardstick=2.0),
        Line("a", "memory", 8.0, "MiB", "other", 5.0, yardstick=2.0),
        Line("a", "gone", 8.0, "us", "other", 5.0, yardstick=2.0),
        Skipped("a", "never", "why"),
    ]
    now = [
        Line("a", "time", 40.0, "us", "other", 5.0, yardstick=4.0),  # the machine at half its pace
        Line("a", "time", 40.0, "us", "another", 5.0, yardstick=4.0),
        Line("a", "rate", 100.0, "steps/s", "other", 5.0, yardstick=4.0),
        Line("a", "memory", 8.0, "MiB", "other", 5.0, yardstick=4.0),
        Line("a", "new", 8.0, "us", "other", 5.0, yardstick=4.0),
        Skipped("a", "never", "why"),
    ]
    _, rows = against.earlier(written(tmp_path / "then.json", then))
    found = {x.case: (x.then, x.now, x.times, x.verdict) for x in against.changes(now, rows)}
    assert found == {
        "time": (10.0, 40.0, 2.0, "slower"),
        "rate": (100.0, 100.0, 0.5, "faster"),
        "memory": (8.0, 8.0, 1.0, ""),
    }
    monkeypatch.setattr(bench, "measure", lambda *_: now)
    assert main(["bench", "--against", str(tmp_path / "then.json")]) == 0
    shown = capsys.readouterr().out.splitlines()[-5:]
    assert [x.strip() for x in shown[0].split("|")[1:7]] == [
        "what", "case", "0.1.0", "now", "times", "",
    ]  # fmt: skip
    assert [x.strip() for x in shown[2].split("|")[1:7]] == [
        "a", "time", "10 us", "40 us", "2.00", "slower",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", '{"lines": [{"figure": 1}], "machine": {}}'])
def test_figures_that_are_none_are_refused(tmp_path, capsys, text):
    (tmp_path / "then.json").write_text(text)
    assert main(["bench", "steps", "--against", str(tmp_path / "then.json")]) == 2
    assert "then.json is not what `upriver bench --out then.json` writes" in capsys.readouterr().err


def test_a_figure_carries_the_pace_of_the_machine(monkeypatch):
    monkeypatch.setattr(bench, "yardstick", lambda: 3.0)
    assert all(x.yardstick == 3.0 for x in bench.measure(("steps",), quick=True))
    assert 0.1 < against.yardstick() < 1000.0
