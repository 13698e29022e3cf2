"""The paper's table: the printed numbers, the comparison with ours, and the command itself."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import upriver as up
from upriver.cli import main
from upriver.experiments import load
from upriver.paper import table1 as paper
from upriver.results.runs import Sample


def sample(env: str, agent: str, totals: list[float]) -> Sample:
    returns = np.array(totals)[:, None] / 2 * np.ones(2)
    return Sample(env, agent, "x", np.arange(len(totals)), returns, returns, returns)


def test_the_printed_optimum_fits_the_numbers_of_episodes_that_were_inferred():
    for env, (mean, sd), entry in zip(
        paper.COLUMNS, paper.PRINTED["Optimal"], load("paper").environments, strict=True
    ):
        mdp = up.envs.make(env)
        episodes = entry.episodes or load("paper").episodes
        assert (mdp.n_states, mdp.horizon) == paper.COLUMNS[env]
        assert abs(mean - episodes * up.solve(mdp).v[0, 0]) <= 1.5 * sd / np.sqrt(10)


def test_a_line_agrees_within_two_standard_errors_of_the_difference():
    near = paper.compare([sample("riverswim-6", "UCRL-MNL", [480.0, 500.0, 520.0])])[0]
    assert near.agrees and near.ratio == pytest.approx(500.0 / 492.64)
    far = paper.compare([sample("riverswim-6", "UC-MatrixRL", [470.0, 480.0, 490.0])])[0]
    # standard error sqrt(10^2 / 3 + 18.04^2 / 10) = 8.1; the means are 107.5 apart
    assert far.agrees is False
    greedy = paper.compare([sample("riverswim-6", "Greedy", [1.0, 2.0])])[0]
    assert greedy.agrees is None and greedy.ratio is None
    text = paper.write_markdown([near, far, greedy])
    assert "agrees" in text and "**UC-MatrixRL** earns 1.29 times at S = 6: " in text


def test_settings_that_ship_come_from_tuning_and_both_experiments_name_the_methods():
    labels = [a.full_label for a in load("paper").agents]
    assert sorted(labels) == sorted(paper.METHODS)
    assert sorted(a.full_label for a in load("paper-tuned").agents) == sorted(paper.TUNED_METHODS)
    for agent in load("paper").agents:
        if agent.agent not in ("optimal", "ucrl-mnl"):
            assert agent.support == "full" and agent.given["regularization"] == 1.0


def test_reproduce_writes_the_table_the_figures_and_the_page(tmp_path, capsys):
    assert main(["reproduce", "--out", str(tmp_path), "--runs", "2", "--jobs", "2"]) == 0
    for name in ("figure2", "figure3", "figure2-tuned", "figure3-tuned"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8").lower()
    rows = list(csv.DictReader((tmp_path / "table1.csv").open()))
    assert list(rows[0]) == list(paper.Line._fields)
    by = {(r["method"], r["n_states"]): float(r["mean"]) for r in rows}
    assert len(by) == 4 * (7 + 5)
    for n in ("6", "8", "10", "20"):
        best = by["Optimal", n]
        assert by["UCRL-MNL", n] > 0.9 * best
        assert by["UCRL-MNL", n] > by["UC-MatrixRL", n] > by["UCRL-VTR", n] > by["LSVI-UCB", n]
    assert by["Greedy", "20"] == pytest.approx(80.0)
    printed = capsys.readouterr().out
    table = printed[printed.index("Cumulative return") : printed.index("written (")].splitlines()
    assert max(map(len, table)) <= 80, "\n".join(table)
    words = [line.split()[:2] for line in table if line]
    assert ["UC-MatrixRL", "ours"] in words and words.count(["printed", "372.5"]) == 2
    assert sum(line[:1] == ["ratio"] for line in words) == 6 + 5


def test_a_reproduction_with_a_failed_run_writes_no_table(tmp_path, monkeypatch, capsys):
    """With holes it would raise, or print a mean over other runs than it says."""

    def fails(agent, state, rng):
        raise ArithmeticError("not today")

    monkeypatch.setattr(up.agents.UCRLVTR, "plan", fails)
    assert main(["reproduce", "--out", str(tmp_path), "--runs", "1", "--jobs", "1"]) == 1
    assert "ArithmeticError: not today" in capsys.readouterr().err
    assert not list(tmp_path.glob("table1.*")) and not list(tmp_path.glob("*.png"))
