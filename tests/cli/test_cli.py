"""The command line: what it prints, one sentence for each mistake, and the exit codes."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from upriver.cli import main

SPEC = """
name = "small"
episodes = 3
seeds = { first = 0, count = 2 }
[[environments]]
name = "riverswim-3"
[[agents]]
agent = "ucrl-mnl"
grid = { radius = [0.0, 0.01], regularization = [1.0] }
[[agents]]
agent = "random"
"""


@pytest.fixture
def spec(tmp_path) -> Path:
    (tmp_path / "small.toml").write_text(SPEC)
    return tmp_path / "small.toml"


def call(capsys, *words: object) -> tuple[int, str, str]:
    code = main([str(w) for w in words])
    return code, *capsys.readouterr()


def test_run_table_and_resume(capsys, spec, tmp_path):
    folder = tmp_path / "r"
    code, out, err = call(capsys, "run", spec, "--out", folder, "--jobs", 1)
    assert code == 0
    assert out == f"4 runs in {folder}: 0 were stored, 4 ran, 0 failed\n"
    assert err.startswith("4 runs to do, 0 already stored\n")
    code, out, _ = call(capsys, "run", spec, "--out", folder, "--jobs", 1)
    assert (code, out) == (0, f"4 runs in {folder}: 4 were stored, 0 ran, 0 failed\n")
    code, out, _ = call(capsys, "table", folder)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "riverswim-3: 2 runs of 3 episodes"
    assert " ".join(lines[2].split()) == "agent mean ± sd [95% interval] lost locked in stuck"
    assert [line.split()[0] for line in lines[3:]] == ["random", "ucrl-mnl"]
    assert max(map(len, lines)) <= 80
    code, out, _ = call(capsys, "table", folder, "--against", "random", "--of", "regret")
    assert code == 0 and out.splitlines()[0].split()[:3] == ["environment", "agent", "pairs"]
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [["riverswim-3", "ucrl-mnl", "2"]]


def test_table_formats_agree(capsys, spec, tmp_path):
    folder = tmp_path / "r"
    call(capsys, "run", spec, "--out", folder, "--jobs", 1)
    _, out, _ = call(capsys, "table", folder, "--format", "csv", "--of", "regret")
    rows = list(csv.DictReader(io.StringIO(out)))
    _, markdown, _ = call(capsys, "table", folder, "--format", "markdown", "--of", "regret")
    for row, line in zip(rows, markdown.splitlines()[4:], strict=True):
        mean = line.split("|")[2].split()[0]
        assert float(mean) == pytest.approx(float(row["mean"]), abs=0.06)
    call(capsys, "table", folder, "--format", "csv", "--of", "regret", "--out", tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == out


def test_tune_writes_what_run_accepts(capsys, spec, tmp_path):
    code, out, err = call(capsys, "tune", spec, "--out", tmp_path / "t", "--runs", 2, "--jobs", 1)
    assert code == 0, err
    assert "riverswim-3  ucrl-mnl: radius = " in out
    assert "warning: ucrl-mnl on riverswim-3: radius" in err
    tuned = tmp_path / "t" / "tuned.toml"
    code, out, _ = call(capsys, "run", tuned, "--out", tmp_path / "r", "--jobs", 1)
    assert code == 0 and "4 ran" in out


def test_list_names_everything_a_spec_can_name(capsys):
    from upriver.agents.table import AGENTS
    from upriver.envs import ENVIRONMENTS
    from upriver.features import FEATURES

    code, out, _ = call(capsys, "list")
    assert code == 0
    words = out.split()
    for name in [*AGENTS, *ENVIRONMENTS, *FEATURES, "shared", "quick"]:
        assert name in words
    assert "radius: 0.0, 1e-05" in out


MISTAKES = {
    "a misspelt key": ("episodes = 3", "epsiodes = 3", "did you mean 'episodes'?"),
    "a negative seed": ("first = 0", "first = -4", "seeds.first is -4"),
    "zero episodes": ("episodes = 3", "episodes = 0", "episodes is 0"),
    "an unknown agent": ('"ucrl-mnl"', '"ucrl-mn"', "did you mean 'ucrl-mnl'?"),
    "an unknown environment": ("riverswim-3", "riverswmi-3", "did you mean 'riverswim'?"),
    "no TOML": ("episodes = 3", "episodes =", "is not TOML"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_spec_is_one_sentence_and_code_2(capsys, spec, tmp_path, mistake):
    old, new, sentence = MISTAKES[mistake]
    spec.write_text(SPEC.replace(old, new, 1))
    code, out, err = call(capsys, "run", spec, "--out", tmp_path / "r")
    assert (code, out) == (2, "")
    assert sentence in err and err.startswith("upriver: ") and err.count("\n") == 1
    assert str(spec) in err
    assert not (tmp_path / "r").exists()


def test_a_number_that_an_agent_refuses_is_found_before_anything_runs(capsys, spec, tmp_path):
    spec.write_text(SPEC.replace("grid = {", "regularization = -1.0\ngrid = {"))
    code, _, err = call(capsys, "run", spec, "--out", tmp_path / "r", "--jobs", 1)
    assert code == 2
    assert "ucrl-mnl on riverswim-3: regularization is -1.0; it must be" in err
    assert not list((tmp_path / "r").glob("env=*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run"], "`upriver run quick` plays a demonstration"),
        (["run", "quik"], "experiment 'quik' is unknown; did you mean 'quick'?"),
        (["run", "no/such.toml"], "No such file"),
        (["run", "quick", "--jobs", "0"], "jobs is 0; it must be at least 1"),
        (["run", "quick", "--jobs", "two"], "jobs"),
        (["run", "quick", "--job", "2"], "--job"),
        (["rnu", "quick"], "rnu"),
        (["table", "no-such-folder"], "no-such-folder is not a folder of results"),
        (["tune", "quick", "--runs", "1"], "runs is 1"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_code_2(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, *words)
    assert code == 2
    assert sentence in err and "Traceback" not in err


def test_debug_shows_the_traceback(capsys):
    code, _, err = call(capsys, "run", "quik", "--debug")
    assert code == 2 and "Traceback" in err


def test_a_reader_that_has_seen_enough_is_no_error():
    found = subprocess.run(
        f"{sys.executable} -m upriver list | head -1", shell=True, capture_output=True, text=True
    )
    assert found.stdout == "environments\n" and found.stderr == ""


def test_importing_upriver_imports_nothing_heavy():
    code = "import sys, upriver; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numba", "pyarrow", "pydantic", "matplotlib", "plotly", "pandas", "distributed",
             "gymnasium", "upriver.experiments"}  # fmt: skip
    assert not heavy & set(found.stdout.split())
