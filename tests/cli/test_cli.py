"""The command line: what it prints, one sentence for each mistake, and the exit codes."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import upriver as up
from upriver.cli import main
from upriver.results import plots
from upriver.results.report.data import collect

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
    assert " ".join(lines[2].split()) == "agent mean ± sd [95% interval] lost stuck"
    assert [line.split()[0] for line in lines[3:]] == ["random", "ucrl-mnl"]
    assert max(map(len, lines)) <= 80
    code, out, _ = call(capsys, "table", folder, "--against", "random", "--of", "regret")
    assert code == 0 and out.splitlines()[0].split()[:3] == ["environment", "agent", "pairs"]
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [["riverswim-3", "ucrl-mnl", "2"]]
    _, exact, _ = call(
        capsys, "table", folder, "--against", "random", "--of", "regret", "--format", "csv"
    )
    (row,) = csv.DictReader(io.StringIO(exact))
    frame = up.load_runs(folder).to_pandas()
    total = frame.groupby(["agent", "seed"])["regret"].sum()
    gaps = total["ucrl-mnl"] - total["random"]
    reach = 12.7062047 * gaps.std() / 2**0.5
    assert float(row["minus random"]) == pytest.approx(gaps.mean(), rel=1e-12)
    assert float(row["ci_low"]) == pytest.approx(gaps.mean() - reach)
    assert float(row["ci_high"]) == pytest.approx(gaps.mean() + reach)


def test_table_formats_agree(capsys, spec, tmp_path):
    folder = tmp_path / "r"
    call(capsys, "run", spec, "--out", folder, "--jobs", 1)
    _, out, _ = call(capsys, "table", folder, "--format", "csv", "--of", "regret")
    rows = list(csv.DictReader(io.StringIO(out)))
    _, markdown, _ = call(capsys, "table", folder, "--format", "markdown", "--of", "regret")
    for row, line in zip(rows, markdown.splitlines()[4:], strict=True):
        mean = line.split("|")[2].split()[0]
        assert float(mean) == pytest.approx(float(row["mean"]), abs=0.06)


def test_tune_writes_what_run_accepts(capsys, spec, tmp_path):
    code, out, err = call(capsys, "tune", spec, "--out", tmp_path / "t", "--runs", 2, "--jobs", 1)
    assert code == 0, err
    assert "riverswim-3  ucrl-mnl: radius = " in out
    assert "warning: ucrl-mnl on riverswim-3: radius" in err
    tuned = tmp_path / "t" / "tuned.toml"
    code, out, _ = call(capsys, "run", tuned, "--out", tmp_path / "r", "--jobs", 1)
    assert code == 0 and "4 ran" in out


@pytest.fixture
def costs(tmp_path) -> Path:
    """An experiment on three problems whose optimal values are negative, 0, and 0 for all."""
    river = up.envs.riverswim(5)
    frame = river.to_frame()
    best = up.solve(river).v[0, 0] / 20
    for name, reward in {
        "cost": frame["reward"] - 1.0,
        "zero": frame["reward"] - best,
        "idle": 0.0 * frame["reward"],
    }.items():
        up.FiniteMDP.from_frame(frame.assign(reward=reward), 20).save(tmp_path / f"{name}.npz")
    assert river.horizon == 20
    environments = "".join(
        f'[[environments]]\npath = "{tmp_path / name}.npz"\nlabel = "{name}"\n'
        for name in ("cost", "zero", "idle")
    )
    path = tmp_path / "costs.toml"
    path.write_text(
        f'name = "costs"\nepisodes = 50\nseeds = {{ count = 3 }}\n{environments}'
        '[[agents]]\nagent = "epsilon-greedy"\ndecay = 0.0\n'
        "regularization = 1.0\ngrid = { epsilon = [0.0, 0.5, 1.0] }\n"
        '[[agents]]\nagent = "random"\n[[agents]]\nagent = "optimal"\n'
    )
    return path


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_costs_are_lost_like_rewards(capsys, costs, tmp_path):
    """A positive loss, the best agent first, and a dash where there is nothing to lose."""
    folder = tmp_path / "r"
    assert call(capsys, "run", costs, "--out", folder, "--jobs", 1)[0] == 0
    _, out, _ = call(capsys, "table", folder, "--format", "csv")
    lost = {(r["env"], r["agent"]): r["episodes_lost"] for r in csv.DictReader(io.StringIO(out))}
    for env in ("cost", "zero"):
        assert abs(float(lost[env, "optimal"])) < 1e-9
        assert 0.0 < float(lost[env, "epsilon-greedy"]) < float(lost[env, "random"])
    # uniform play is 0 on the scale on which the optimum is 1
    assert float(lost["zero", "random"]) == pytest.approx(50.0, rel=0.05)
    assert {lost["idle", agent] for agent in ("optimal", "random", "epsilon-greedy")} == {""}
    code, out, err = call(capsys, "table", folder)
    idle = out.split("idle: ")[1].split("\n\n")[1].splitlines()
    assert code == 0 and err == "" and "nan" not in out
    assert all(line.split()[-2:] == ["–", "–"] for line in idle[1:])
    found = collect(folder)
    json.dumps(found, allow_nan=False)
    assert [a["name"] for a in found["agents"]] == ["optimal", "epsilon-greedy", "random"]
    shares = {(r["env"], r["agent"]): r["share"] for r in found["table"]}
    assert shares["cost", "random"] < shares["cost", "epsilon-greedy"] < 1.0
    assert shares["cost", "optimal"] == 1.0 and shares["idle", "random"] is None
    for command in ("report", "plot"):
        code, _, err = call(capsys, command, folder)
        assert (code, err) == (0, "")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_choice_is_the_best_one_also_for_costs(capsys, costs, tmp_path):
    folder = tmp_path / "t"
    words = ["tune", costs, "--out", folder, "--runs", 3, "--jobs", 1]
    code, out, _ = call(capsys, *words)
    assert code == 0 and "cost  epsilon-greedy: epsilon = 1.0" not in out
    with open(folder / "grid.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["env"] == "cost"]
    worst, *_, best = sorted(rows, key=lambda r: float(r["mean"]))
    assert worst["settings"] == '{"epsilon": 1.0}' and best["chosen"] == "1"


def test_streams_are_counted_in_steps(capsys, spec, tmp_path, monkeypatch):
    text = spec.read_text().replace('agent = "ucrl-mnl"', 'agent = "ucrl-mnl-se"')
    text = text.replace("grid = { radius = [0.0, 0.01], regularization = [1.0] }", "")
    spec.write_text(text.replace("[[agents]]", "discount = 0.9\n[[agents]]", 1))
    call(capsys, "run", spec, "--out", tmp_path / "r", "--jobs", 1)
    _, out, _ = call(capsys, "table", tmp_path / "r")
    assert out.splitlines()[0].endswith(": 2 runs of 3 steps")
    monkeypatch.setattr(plots, "plot_curves", lambda panels, unit, **_: units.append(unit))
    monkeypatch.setattr(plots, "save_figure", lambda *_: [])
    units: list[str] = []
    call(capsys, "plot", tmp_path / "r", "regret")
    spec.write_text(text)
    call(capsys, "run", spec, "--out", tmp_path / "r", "--jobs", 1)
    call(capsys, "plot", tmp_path / "r", "regret")
    assert units == ["step", "episode or step"]


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
        (["run", "quick", "--jobs", "0"], "jobs is 0; it must be a whole number of at least 1"),
        (["run", "quick", "--jobs", "two"], "jobs"),
        (["run", "quick", "--job", "2"], "--job"),
        (["rnu", "quick"], "rnu"),
        (["table", "no-such-folder"], "no-such-folder does not exist"),
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


def test_only_runs_of_one_length_are_compared(tmp_path, capsys):
    """Runs of 20 episodes would be far better than the optimum of 10."""
    spec, folder = tmp_path / "s.toml", tmp_path / "out"
    for episodes in (10, 20):
        spec.write_text(
            f'name = "s"\nepisodes = {episodes}\nseeds = {{count = 2}}\n'
            'environments = [{name = "riverswim-4"}]\n'
            'agents = [{agent = "optimal"}, {agent = "random"}]\n'
        )
        assert call(capsys, "run", spec, "--out", folder, "--jobs", "1")[0] == 0
    code, out, _ = call(capsys, "table", folder, "--against", "optimal", "--of", "value")
    rows = [line for line in out.splitlines() if "random" in line]
    assert code == 0 and len(rows) == 2
    assert all("-" in row and "minus optimal [" in row for row in rows)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["run", "quick", "--jobs", "0"], "--jobs is 0"),
        (["run", "quick", "--run-timeout", "-1"], "--run-timeout is -1.0"),
        (["tune", "quick", "--runs", "1"], "--runs is 1"),
        (["tune", "quick", "--runs", "1000000000"], "--runs is 1000000000; it must be at most"),
        (["reproduce", "--runs", "0"], "--runs is 0"),
        (["reproduce", "--runs", "2000000"], "--runs is 2000000; it must be at most 1000000"),
        (["diagnose", "riverswim-3", "--episodes", "0"], "--episodes is 0"),
        (["diagnose", "riverswim-3", "--runs", "-1"], "--runs is -1"),
        (["diagnose", "riverswim-3", "--theta-bound", "-1"], "--theta-bound is -1.0"),
        (["diagnose", "riverswim-3", "--support", "x"], "--support is 'x'"),
    ],
)
def test_errors_name_options_and_not_arguments(capsys, tmp_path, monkeypatch, words, option):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, *words)
    assert code == 2 and f"upriver: {option}" in err.replace("\n", " "), err


def upriver(words: str, **options) -> subprocess.CompletedProcess:
    """A command in a process of its own, through a shell."""
    form = {"shell": True, "capture_output": True, **options}
    return subprocess.run(f"{sys.executable} -m upriver {words}", **form)


def test_output_in_ascii_has_what_it_can(capsys, spec, tmp_path):
    folder = tmp_path / "r"
    call(capsys, "run", spec, "--out", folder, "--jobs", 1)
    done = upriver(f"table {folder}", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb" \xb1 " in done.stdout and b"random" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_outputs_are_no_error(closed):
    done = upriver(f"list {closed}")
    assert done.returncode == 0 and done.stderr == b""


def test_a_label_gives_no_commands_to_the_terminal(capsys, spec, tmp_path):
    """Specifications cannot have such labels, and the folder of a stranger can."""
    from upriver.experiments import Store, load
    from upriver.experiments.build import run_one
    from upriver.experiments.store import to_bytes

    store, run = Store.create(tmp_path / "r"), load(spec).runs()[0]
    for label in ("evil\x1b[2J\x07", "back\u202ewards"):
        odd = dataclasses.replace(run, label=label)
        store.save(odd, to_bytes(odd, run_one(run)))
        store.record_failure(dataclasses.replace(odd, seed=9), "no \x1b]0;x\x07", "")
    for command in ("table", "check", "plot", "report"):
        _, out, err = call(capsys, command, tmp_path / "r")
        assert not any(c in out + err for c in "\x1b\x07\u202e"), command
    assert r"evil\x1b[2J\x07" in call(capsys, "table", tmp_path / "r")[1]


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_full_disk_is_named_with_the_file(capsys, spec, tmp_path, monkeypatch, command):
    import errno

    from upriver.mdp import writing

    folder, target = tmp_path / "r", tmp_path / "out.html"
    call(capsys, "run", spec, "--out", folder, "--jobs", 1)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writing.os, "fsync", full)
    code, _, err = call(capsys, command, folder, "--out", target)
    assert code == 1 and "No space left on device" in err and str(target) in err


def test_a_damaged_mdp_file_is_named(capsys, spec, tmp_path):
    path = tmp_path / "river.npz"
    up.envs.riverswim(3, 4).save(path)
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    data[end + 16 : end + 20] = b"\xff" * 4  # the list of members would begin before the file
    path.write_bytes(bytes(data))
    code, _, err = call(capsys, "diagnose", path)
    assert code == 2 and err == f"upriver: {path} is damaged, or was not written by Upriver\n"


def test_small_rewards_are_shown_and_rounding_is_not(capsys, tmp_path):
    river = up.envs.riverswim(3, 6)
    frame = river.to_frame()
    mdp = up.FiniteMDP.from_frame(frame.assign(reward=1e-4 * frame["reward"]), 6)
    mdp.save(tmp_path / "small.npz")
    path = tmp_path / "s.toml"
    path.write_text(
        'name = "s"\nepisodes = 20\nseeds = { count = 3 }\n'
        f'[[environments]]\npath = "{tmp_path / "small.npz"}"\n'
        '[[agents]]\nagent = "optimal"\n[[agents]]\nagent = "random"\n'
        '[[agents]]\nagent = "optimal"\nlabel = "same"\n'
    )
    call(capsys, "run", path, "--out", tmp_path / "r", "--jobs", 1)
    _, out, _ = call(capsys, "table", tmp_path / "r", "--of", "regret")
    rows = {line.split()[0]: line.split() for line in out.splitlines()[3:]}
    assert rows["optimal"][1:4] == ["0.00", "±", "0.00"]
    assert float(rows["random"][1]) > 0.0 and len(rows["random"][1].lstrip("0.")) >= 3
    _, out, _ = call(capsys, "table", tmp_path / "r", "--against", "optimal", "--of", "value")
    rows = {line.split()[1]: line.split() for line in out.splitlines()[1:]}
    assert rows["same"][3] == "+0.00" and rows["random"][3].startswith("-0.00")
    assert float(rows["random"][3]) < 0.0


def test_other_problems_of_one_label_are_no_pairs(capsys, tmp_path):
    """Runs of another MDP that was given the same label, and agents without a common seed."""
    path, folder = tmp_path / "s.toml", tmp_path / "r"
    for seeds, horizon, agents in (
        ("{ count = 2 }", 5, ("optimal", "random")),
        ("{ count = 2 }", 9, ("random",)),
        ("{ first = 5, count = 2 }", 5, ("greedy-ish",)),
    ):
        entries = "".join(
            f'[[agents]]\nagent = "{"random" if a == "greedy-ish" else a}"\nlabel = "{a}"\n'
            for a in agents
        )
        path.write_text(
            f'name = "s"\nepisodes = 4\nseeds = {seeds}\n[[environments]]\n'
            f'name = "riverswim-3"\nhorizon = {horizon}\nlabel = "river"\n{entries}'
        )
        assert call(capsys, "run", path, "--out", folder, "--jobs", 1)[0] == 0
    code, out, _ = call(capsys, "table", folder, "--against", "optimal", "--of", "value")
    rows = [line.split() for line in out.splitlines()[1:]]
    assert code == 0 and sorted(row[1] for row in rows) == ["greedy-ish", "random"]
    by = {row[1]: row for row in rows}
    assert by["greedy-ish"][2:] == ["0", "–", "–"] and "2" in by["random"]
