"""An experiment file or a results folder of a stranger runs no code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.experiments.sweeping import finish, start
from upriver.cli import main
from upriver.experiments import check, execute, import_code, load, registry

SPEC = """
name = "stranger"
episodes = 2
seeds = {{ count = 1 }}
[[environments]]
{environment}
[[agents]]
{agent}
"""
RIVER, RANDOM = 'name = "riverswim-3"', 'agent = "random"'
MODULE = """
from dataclasses import dataclass
from subprocess import run
from timeit import timeit
from upriver.agents.fixed import Random
import upriver as up

@dataclass(frozen=True)
class Mine(Random):
    pass

def river(n_states: int = 3) -> up.FiniteMDP:
    return up.envs.riverswim(n_states)

def nothing(n_states: int = 3):
    return n_states

def number(n_states: int = 3) -> int:
    raise SystemError("called")

def features(task) -> up.features.Features:
    return up.features.one_hot(task)

@dataclass(frozen=True)
class Tuned(Random):
    level: float = 1.0
"""


def write(folder: Path, environment: str = RIVER, agent: str = RANDOM) -> Path:
    path = folder / "spec.toml"
    path.write_text(SPEC.format(environment=environment, agent=agent))
    return path


@pytest.fixture(autouse=True)
def no_other_files(tmp_path, monkeypatch):
    """Each test begins without imported files, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(registry.IMPORTED)
    registry.IMPORTED.clear()
    yield
    registry.IMPORTED.clear()
    registry.IMPORTED.update(before)


@pytest.mark.parametrize(
    ("environment", "agent"),
    [
        ("name = \"timeit:timeit\"\nsetup = \"open('evil', 'w')\"", RANDOM),
        ('name = "os:system"\ncommand = "touch evil"', RANDOM),
        ('name = "upriver.mdp.writing:write_file"\ndata = "evil"', RANDOM),
        ('name = "planted:river"', RANDOM),
        (RIVER, 'agent = "subprocess:Popen"'),
        (RIVER, 'agent = "ucrl-mnl"\nfeatures = "os:system"'),
        (RIVER, 'agent = "ucrl-mnl"\nfeatures = ["one-hot", "os:system"]'),
        (RIVER, 'agent = ":system"'),
    ],
)
def test_code_that_was_not_imported_is_refused(tmp_path, capsys, environment, agent):
    """Neither an installed module nor a file beside the experiment is executed."""
    (tmp_path / "planted.py").write_text("open('evil', 'w')\n" + MODULE)
    assert main(["run", str(write(tmp_path, environment, agent)), "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert "spec.toml" in err and "--import" in err and err.count("\n") == 1
    assert not list(tmp_path.rglob("evil")) and not Path("out").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_imported_file_offers_what_it_defines(tmp_path, jobs):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text(MODULE)
    import_code(tmp_path / "code" / "mine.py")
    spec = write(tmp_path, 'name = "mine:river"', 'agent = "mine:Mine"')
    assert execute(load(spec), tmp_path / "out", jobs=jobs, run_timeout=60).complete
    spec = write(tmp_path, agent='agent = "ucrl-mnl"\nfeatures = "mine:features"')
    assert execute(load(spec), tmp_path / "out", jobs=jobs).complete
    assert check(tmp_path / "out").problems == []


@pytest.mark.parametrize("name", ["run", "timeit", "absent"])
def test_what_a_file_only_imports_is_not_offered(tmp_path, name):
    (tmp_path / "mine.py").write_text(MODULE)
    import_code("mine.py")
    with pytest.raises(ValueError, match=f"'mine:{name}' is not defined in .*mine.py"):
        load(write(tmp_path, f'name = "mine:{name}"'))


def test_what_code_returns_is_checked(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    import_code("mine.py")
    with pytest.raises(ValueError, match="'mine:nothing' returned a int; it must be a FiniteMDP"):
        load(write(tmp_path, 'name = "mine:nothing"')).runs()
    with pytest.raises(ValueError, match="is not a dataclass with init, plan and update"):
        load(write(tmp_path, agent='agent = "mine:river"'))


def test_a_changed_function_is_another_environment(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    import_code("mine.py")
    spec = write(tmp_path, 'name = "mine:river"')
    (first,) = load(spec).runs()
    assert load(spec).runs()[0].setting == first.setting
    (tmp_path / "mine.py").write_text(MODULE.replace("riverswim(n_states)", "riverswim(5)"))
    import_code("mine.py")
    assert load(spec).runs()[0].setting != first.setting


def test_files_that_cannot_be_imported_are_named(tmp_path):
    (tmp_path / "mine.py").write_text("raise KeyError('x')")
    with pytest.raises(ValueError, match=r"cannot import .*mine.py': KeyError"):
        import_code("mine.py")
    with pytest.raises(ValueError, match=r"cannot import .*absent.py': No such file"):
        import_code("absent.py")
    with pytest.raises(ValueError, match=r"cannot import .*spec.toml'; it must be a Python file"):
        import_code("spec.toml")
    (tmp_path / "mine.py").write_text("")
    import_code("mine.py")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text("")
    with pytest.raises(ValueError, match=r"mine.py' was imported under the same name"):
        import_code("other/mine.py")


def test_an_experiment_with_code_can_be_tuned_and_repeated(tmp_path):
    """Tuned with a file, run with it, and again from the results folder."""
    (tmp_path / "neighbour.py").write_text("LEVELS = (1.0, 2.0)")
    (tmp_path / "mine.py").write_text(
        f"from neighbour import LEVELS\n{MODULE}\nTuned.GRID = {{'level': LEVELS}}\n"
    )
    spec = write(tmp_path, 'name = "mine:river"', 'agent = "mine:Tuned"')

    def upriver(*words):
        code, _, err = finish(start(*words, "--jobs", 2))
        assert code == 0, err

    upriver("tune", spec, "--out", "tuning", "--runs", 2, "--import", "mine.py")
    upriver("run", "tuning/tuned.toml", "--out", "out", "--import", "mine.py")
    (kept,) = Path("out/_specs").glob("*.toml")
    upriver("run", kept, "--out", "out", "--import", "mine.py")
    assert check("out").problems == [] and len(list(Path("out").glob("env=*/*/*"))) == 1


@pytest.mark.parametrize("command", ["table", "report", "plot", "check"])
def test_looking_at_a_folder_executes_nothing_that_lies_in_it(tmp_path, command):
    (tmp_path / "mine.py").write_text(MODULE)
    import_code("mine.py")
    execute(load(write(tmp_path, agent='agent = "mine:Mine"')), "out", jobs=1)
    registry.IMPORTED.clear()
    for place in (Path(), Path("out"), Path("out/_specs")):
        (place / "mine.py").write_text("open('evil', 'w')\n")
    assert main([command, "out"]) in (0, 1)
    assert not list(tmp_path.rglob("evil"))
