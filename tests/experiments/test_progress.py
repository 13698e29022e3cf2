"""What is said while a sweep goes on."""

from __future__ import annotations

import io

from tests.experiments.sweeping import AGENTS, sweep
from upriver.experiments import execute
from upriver.experiments.progress import Reporter

MIXED = sweep([{"agent": "random"}, {"agent": f"{AGENTS}:Raises"}], seeds=4)


def test_plain_lines_tell_the_start_failures_and_the_end(tmp_path):
    stream = io.StringIO()
    outcome = execute(MIXED, tmp_path, jobs=1, reporter=Reporter(stream, interval=0.0))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "8 runs to do, 0 already stored"
    assert sum(line.startswith("failed: riverswim-3") for line in lines) == len(outcome.failed)
    assert any("s left" in line for line in lines)
    assert lines[-1].startswith(f"8/8 runs, {len(outcome.failed)} failed, ")


def test_the_bar_counts_runs_and_failures(tmp_path):
    bar = Reporter(bar=True)
    bar.bar.console.file = io.StringIO()
    outcome = execute(MIXED, tmp_path, jobs=1, reporter=bar)
    (task,) = bar.bar.tasks
    assert task.completed == task.total == 8 and outcome.failed
    assert f"{len(outcome.failed)} failed" in task.description
    assert "failed: riverswim-3" in bar.bar.console.file.getvalue()


def test_a_second_sweep_is_counted_from_the_start(tmp_path):
    stream = io.StringIO()
    bar, lines = Reporter(bar=True), Reporter(stream)
    bar.bar.console.file = io.StringIO()
    for seeds in (2, 5):
        spec = sweep([{"agent": "random"}], seeds=seeds)
        execute(spec, tmp_path / "bar", jobs=1, reporter=bar)
        execute(spec, tmp_path / "lines", jobs=1, reporter=lines)
    assert [t.total for t in bar.bar.tasks] == [3]
    assert stream.getvalue().splitlines()[-1].startswith("3/3 runs, ")
