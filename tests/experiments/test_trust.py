"""A spec from a stranger runs nothing that its reader did not put there."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.experiments.sweeping import finish, start
from upriver.cli import main
from upriver.experiments import execute, load, trust
from upriver.experiments.reading import read

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


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """(folder of the spec, another folder on the import path); the current folder is neither."""
    for name in ("here", "installed", "current"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    return tmp_path / "here", tmp_path / "installed"


@pytest.mark.parametrize(
    ("environment", "agent"),
    [
        ("name = \"timeit:timeit\"\nsetup = \"open('evil', 'w')\"", RANDOM),
        ('name = "os:system"\ncommand = "touch evil"', RANDOM),
        ('name = "subprocess:run"\nargs = "touch evil"', RANDOM),
        ('name = "upriver.mdp.writing:write_file"\npath = "evil"\ndata = "x"', RANDOM),
        (RIVER, 'agent = "subprocess:Popen"'),
        (RIVER, 'agent = "ucrl-mnl"\nfeatures = "os:system"'),
        (RIVER, 'agent = "ucrl-mnl"\nfeatures = ["one-hot", "os:system"]'),
        (RIVER, 'agent = ":system"'),
    ],
)
def test_code_of_somewhere_else_is_refused_before_it_is_touched(
    elsewhere, capsys, environment, agent
):
    here, _ = elsewhere
    assert main(["run", str(write(here, environment, agent)), "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert "spec.toml" in err and ("--trust" in err or "no such file" in err)
    assert not list(Path.cwd().rglob("evil")) and not Path("out").exists()


def test_a_module_on_the_import_path_is_not_imported_without_trust(elsewhere):
    here, installed = elsewhere
    (installed / "planted_module.py").write_text(f"open({str(here / 'evil')!r}, 'w')\n" + MODULE)
    spec = write(here, agent='agent = "planted_module:Mine"')
    with pytest.raises(ValueError, match=r"planted_module\.py, which lies neither beside the spec"):
        load(spec)
    assert not (here / "evil").exists() and "planted_module" not in sys.modules
    assert load(spec, trust=True).agents[0].agent == "planted_module:Mine"
    assert (here / "evil").exists()


@pytest.mark.parametrize("place", ["beside", "current"])
def test_what_the_reader_put_there_is_used(elsewhere, place):
    here, _ = elsewhere
    name = f"put_{place}"
    folder = here if place == "beside" else Path.cwd()
    (folder / f"{name}.py").write_text(MODULE)
    spec = write(here, f'name = "{name}:river"', f'agent = "{name}:Mine"')
    assert execute(read(spec), here / "out", jobs=2).complete
    spec = write(here, agent=f'agent = "ucrl-mnl"\nfeatures = "{name}:features"')
    assert execute(read(spec), here / "out", jobs=1).complete


def test_a_spec_that_we_write_finds_the_code_it_names(elsewhere, monkeypatch):
    """Tuned here, run from a third place, and again from the results when the first is gone."""
    here, _ = elsewhere
    (here / "neighbour.py").write_text("LEVELS = (1.0, 2.0)")
    (here / "put_apart.py").write_text(
        f"from neighbour import LEVELS\n{MODULE}\nTuned.GRID = {{'level': LEVELS}}\n"
    )
    spec = write(here, 'name = "put_apart:river"', 'agent = "put_apart:Tuned"')

    def upriver(*words):
        code, _, err = finish(start(*words, "--jobs", 2, "--quiet"))
        assert code == 0, err

    upriver("tune", spec, "--out", "tuning", "--runs", 2)
    monkeypatch.chdir(here.parent)
    upriver("run", "current/tuning/tuned.toml", "--out", "out")
    (here / "put_apart.py").rename(here / "gone.py")
    (kept,) = Path("out/_specs").glob("*.toml")
    upriver("run", kept, "--out", "again")
    assert {p.name for p in Path("again/_specs/_code").iterdir()} == {
        "put_apart.py",
        "neighbour.py",
    }
    for folder in ("out", "again"):
        assert main(["check", folder]) == 0


def test_what_a_file_only_imports_is_not_its_own(elsewhere):
    here, _ = elsewhere
    (here / "importer.py").write_text(MODULE)
    for name in ("run", "timeit"):
        with pytest.raises(ValueError, match="is not defined there; give --trust"):
            read(write(here, f'name = "importer:{name}"'))


def test_a_file_never_hides_a_module_of_python(elsewhere):
    here, _ = elsewhere
    (here / "colorsys.py").write_text("raise SystemError")
    with pytest.raises(ValueError, match="lies neither beside the spec"):
        read(write(here, 'name = "colorsys:rgb_to_hsv"'))


def test_what_code_returns_is_checked(elsewhere):
    here, _ = elsewhere
    (here / "returns.py").write_text(MODULE)
    with pytest.raises(ValueError, match="'returns:nothing' returned a int; it must be a Finite"):
        execute(read(write(here, 'name = "returns:nothing"')), here / "out", jobs=1)
    # what says beforehand that it returns something else is not even called
    with pytest.raises(ValueError, match="must be a function that returns FiniteMDP"):
        read(write(here, 'name = "returns:number"'))
    with pytest.raises(ValueError, match="is not a dataclass with init, plan and update"):
        read(write(here, agent='agent = "returns:river"'))


def test_installed_packages_offer_theirs_by_name(elsewhere, monkeypatch):
    here, installed = elsewhere
    (installed / "offering.py").write_text(MODULE)
    points = {
        group: {name: EntryPoint(name, f"offering:{value}", group)}
        for group, name, value in (
            ("agent", "theirs", "Mine"),
            ("environment", "their-river", "river"),
            ("features", "their-features", "features"),
        )
    }
    monkeypatch.setattr(trust, "offered", lambda kind: points[kind])
    spec = write(here, 'name = "their-river"\nn_states = 4', 'agent = "theirs"')
    assert execute(read(spec), here / "out", jobs=1).complete
    spec = write(here, agent='agent = "ucrl-mnl"\nfeatures = "their-features"')
    assert execute(read(spec), here / "out", jobs=1).complete
    assert read(write(here, agent='agent = "offering:Mine"')).agents
    with pytest.raises(ValueError, match="did you mean 'theirs'"):
        read(write(here, agent='agent = "their"'))


@pytest.mark.parametrize("command", ["watch", "table", "report", "plot", "check"])
def test_looking_at_a_folder_imports_nothing_that_it_names(elsewhere, command, capsys):
    here, _ = elsewhere
    (Path.cwd() / "own_agent.py").write_text(MODULE)
    folder = here / "out"
    execute(read(write(here, agent='agent = "own_agent:Mine"')), folder, jobs=1)
    del sys.modules["own_agent"]
    flag = here / "evil"
    (Path.cwd() / "own_agent.py").write_text(f"open({str(flag)!r}, 'w')\n")
    (folder / "_specs" / "planted.toml").write_text(
        SPEC.format(environment='name = "own_agent:river"', agent='agent = "own_agent:Mine"')
    )
    assert main([command, str(folder)]) == 0
    assert not flag.exists() and "own_agent" not in sys.modules
