"""Every example runs, stays short, and shows what it says it shows."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def run(name, capsys):
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_short(path):
    assert len(path.read_text().splitlines()) < 80


def test_own_simulator(capsys):
    out = run("own_simulator.py", capsys)
    first = float(re.search(r"first 10 months: ([\d.]+)", out)[1])
    last = float(re.search(r"last 10 months: ([\d.]+)", out)[1])
    assert last > first
    for estimate, error, truth in re.findall(r"log-odds\s+(\S+) ± (\S+)\s+truth\s+(\S+)", out):
        assert abs(float(estimate) - float(truth)) < 4 * float(error)


def test_own_features(capsys):
    out = run("own_features.py", capsys)
    lost = re.findall(r"columns: +([\d.]+)", out)
    assert float(lost[1]) < 0.25 * float(lost[0])
