"""Every example runs, stays short, and shows what it says it shows."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import upriver as up

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def run(name, capsys):
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    return capsys.readouterr().out


def test_there_is_one_for_each_need():
    assert {p.stem for p in EXAMPLES} >= {
        "frozen_lake", "own_simulator", "from_a_log", "own_agent", "own_features",
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_short(path):
    lines = len(path.read_text().splitlines())
    assert lines < (60 if path.stem == "own_agent" else 80)


def test_frozen_lake(capsys):
    """95% of the optimum by both roads, and intervals that hold the truth."""
    out = run("frozen_lake.py", capsys)
    shares = [float(x) for x in re.findall(r"([\d.]+)% of the best", out)]
    assert len(shares) == 2 and min(shares) >= 95.0
    rows = re.findall(r"95% \[(.+?), (.+?)\]  truth (\S+)", out)
    assert len(rows) == 4
    for low, high, truth in rows:
        assert float(low) <= float(truth) <= float(high)
    assert "regret unknown" in out


def test_own_simulator(capsys):
    out = run("own_simulator.py", capsys)
    first = float(re.search(r"first 10 months: ([\d.]+)", out)[1])
    last = float(re.search(r"return ([\d.]+)", out)[1])
    assert last > first
    for estimate, error, truth in re.findall(r"log-odds\s+(\S+) ± (\S+)\s+truth\s+(\S+)", out):
        assert abs(float(estimate) - float(truth)) < 4 * float(error)


def test_from_a_log(capsys):
    out = run("from_a_log.py", capsys)
    best = float(re.search(r"best possible value ([\d.]+)", out)[1])
    plans = {
        how: (float(promised), float(earned))
        for how, promised, earned in re.findall(r"(\w+) +promises +([\d.]+), earns ([\d.]+)", out)
    }
    assert plans["pessimistic"][0] <= plans["pessimistic"][1]  # a promise kept
    assert plans["optimistic"][0] >= best
    assert plans["greedy"][1] > 0.9 * best


def test_own_agent(capsys):
    out = run("own_agent.py", capsys)
    lost = {n.strip(): float(x) for n, x in re.findall(r"  (.+?) +([\d.]+) ± ", out)}
    assert lost["UCRL-MNL"] < lost["explore, then commit"] < lost["uniform play"]


def test_own_agent_joins_a_comparison_by_name(monkeypatch):
    from upriver.experiments.build import run_one
    from upriver.experiments.spec import parse

    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", [*sys.path, str(FOLDER)])
    spec = parse({
        "name": "joined", "episodes": 30, "seeds": {"count": 1},
        "environments": [{"name": "riverswim-6"}],
        "agents": [
            {"agent": "own_agent:ExploreThenCommit", "features": "shared", "exploration": 5},
            {"agent": "ucrl-mnl", "features": "shared"},
        ],
    })  # fmt: skip
    tables = [run_one(r) for r in spec.runs()]
    assert [t.num_rows for t in tables] == [30, 30]
    best = up.solve(up.envs.riverswim(6)).v[0, 0]
    assert tables[0]["value"][-1].as_py() > 0.9 * best


def test_own_features(capsys):
    out = run("own_features.py", capsys)
    lost = re.findall(r"columns: +([\d.]+)", out)
    assert float(lost[1]) < 0.2 * float(lost[0])
