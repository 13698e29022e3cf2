"""What is said while a sweep goes on."""

from __future__ import annotations

import io

import pytest

from tests.experiments.sweeping import AGENTS, sweep
from upriver.experiments import execute
from upriver.experiments.progress import Bars, PlainLines

MIXED = sweep([{"agent": "random"}, {"agent": f"{AGENTS}:Raises"}], seeds=4)


def test_plain_lines_tell_the_start_failures_and_the_end(tmp_path):
    stream = io.StringIO()
    outcome = execute(MIXED, tmp_path, jobs=1, reporter=PlainLines(stream, interval=0.0))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "8 runs to do, 0 already stored"
    assert sum(line.startswith("failed: riverswim-3") for line in lines) == len(outcome.failed)
    assert any("s left" in line for line in lines)
    assert lines[-1].startswith(f"8/8 runs, {len(outcome.failed)} failed, ")


@pytest.mark.parametrize("visible", [20, 1])
def test_bars_count_every_group_to_its_end(tmp_path, visible, monkeypatch):
    monkeypatch.setattr(Bars, "VISIBLE", visible)
    bars = Bars()
    bars.progress.console.file = io.StringIO()
    outcome = execute(MIXED, tmp_path, jobs=1, reporter=bars)
    assert outcome.failed
    tasks = {t.description: t for t in bars.progress.tasks}
    assert tasks["all runs"].completed == 8
    assert f"{len(outcome.failed)} failed" in tasks["all runs"].fields["note"]
    for label in ("random", "Raises"):
        task = tasks[f"riverswim-3-horizon-5 · {label}"]
        assert task.started and task.completed == 4
        assert task.visible == (visible == 20)
        assert "running" not in task.fields["note"]


def test_a_second_sweep_is_counted_from_the_start(tmp_path):
    stream = io.StringIO()
    bars, lines = Bars(), PlainLines(stream)
    bars.progress.console.file = io.StringIO()
    for seeds in (2, 5):
        spec = sweep([{"agent": "random"}], seeds=seeds)
        execute(spec, tmp_path / "bars", jobs=1, reporter=bars)
        execute(spec, tmp_path / "lines", jobs=1, reporter=lines)
    assert [t.total for t in bars.progress.tasks if t.description == "all runs"] == [3]
    assert stream.getvalue().splitlines()[-1].startswith("3/3 runs, ")
