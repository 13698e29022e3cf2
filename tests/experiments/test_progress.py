"""What is said while a sweep goes on."""

from __future__ import annotations

import io

from tests.experiments.sweeping import AGENTS, sweep
from upriver.experiments import execute
from upriver.experiments.execute import Reporter

MIXED = sweep([{"agent": "random"}, {"agent": f"{AGENTS}:Raises"}], seeds=4)


def test_plain_lines_tell_the_start_failures_and_the_end(tmp_path):
    stream = io.StringIO()
    outcome = execute(MIXED, tmp_path, jobs=1, reporter=Reporter(stream, interval=0.0))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "8 runs to do, 0 already stored"
    assert sum(line.startswith("failed: riverswim-3") for line in lines) == len(outcome.failed)
    assert any("s left" in line for line in lines)
    assert lines[-1].startswith(f"8/8 runs, {len(outcome.failed)} failed, ")


def test_on_a_terminal_the_line_of_now_replaces_the_one_before(tmp_path):
    stream = io.StringIO()
    reporter = Reporter(stream, live=True)
    reporter.begin(MIXED.runs(), 0)
    for run in MIXED.runs()[:3]:
        reporter.last_line = 0.0
        reporter.done(run)
    reporter.end()
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown[1] == "8 runs to do, 0 already stored\n"
    assert [text[:8] for text in shown[2:5]] == ["1/8 runs", "2/8 runs", "3/8 runs"]
    assert not any("\n" in text for text in shown[2:5]) and shown[5].startswith("3/8 runs, ")


def test_a_second_sweep_is_counted_from_the_start(tmp_path):
    stream = io.StringIO()
    lines = Reporter(stream)
    for seeds in (2, 5):
        spec = sweep([{"agent": "random"}], seeds=seeds)
        execute(spec, tmp_path / "lines", jobs=1, reporter=lines)
    assert stream.getvalue().splitlines()[-1].startswith("3/3 runs, ")
