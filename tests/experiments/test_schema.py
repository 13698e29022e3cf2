"""The schema says what the parser says; the file to start from is right, its comments too."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import resources

import jsonschema
import pytest

from upriver.agents.table import AGENTS
from upriver.cli import main
from upriver.cli.writing import make_template
from upriver.envs import ENVIRONMENTS
from upriver.experiments import catalogue, load, parse, registry
from upriver.experiments.spec import loads, schema

BASE = {
    "name": "base",
    "episodes": 4,
    "seeds": {"count": 2},
    "environments": [{"name": "riverswim-4"}],
    "agents": [{"agent": "ucrl-mnl", "radius": 0.01}],
}


@pytest.fixture(scope="module")
def validator():
    made = json.loads(json.dumps(schema()))
    jsonschema.Draft7Validator.check_schema(made)
    return jsonschema.Draft7Validator(made)


def env(**entry):
    return {**BASE, "environments": [entry]}


def agent(**entry):
    return {**BASE, "agents": [entry]}


@pytest.mark.parametrize("name", catalogue())
def test_every_experiment_of_the_catalogue_fits(name, validator):
    file = resources.files("upriver.experiments") / "catalogue" / f"{name}.toml"
    validator.validate(tomllib.loads(file.read_text(encoding="utf-8")))
    validator.validate(load(name).to_data())


GOOD = [
    BASE,
    env(name="riverswim", n_states=[4, 6], horizon=5, episodes=3),
    env(name="deep-sea", size=3),
    agent(agent="ucrl-mnl-se", features=["shared", "pooled"], support=["known", "local"]),
    agent(agent="ucrl-mnl", radius={"corrected": {"kappa": 0.1, "theta_bound": 4}}),
    agent(agent="ucrl-mnl", radius=[0.1, 0.2], optimism="gradient", label="x {radius}"),
    agent(agent="ucrl-mnl", grid={"radius": [0.1]}, at={"riverswim-4": {"radius": 1}}),
    agent(agent="ucrl-mnl", regularization={"theory": {}}, reward="unknown"),
]
BAD = [
    {**BASE, "epsiodes": 4},
    {**BASE, "episodes": 0},
    {**BASE, "episodes": 2.5},
    {**BASE, "name": "a/b"},
    {**BASE, "seeds": 3},
    {**BASE, "seeds": {"first": -1, "count": 2}},
    {**BASE, "agents": []},
    env(name="rivreswim-4"),
    env(name="riverswim-4", lenght=3),
    env(name="riverswim", n_states="six"),
    env(path="x.npz", name="riverswim-4"),
    env(horizon=4),
    agent(agent="ucrl-mln"),
    agent(agent="ucrl-mnl", raduis=0.1),
    agent(agent="ucrl-mnl", radius="large"),
    agent(agent="ucrl-mnl", radius={"corected": {}}),
    agent(agent="ucrl-mnl", radius={"corrected": {"kappa": 0.1}}),
    agent(agent="ucrl-mnl", optimism="boundless"),
    agent(agent="ucrl-mnl", per_step=1),
    agent(agent="ucrl-mnl", support="some"),
    agent(agent="ucrl-mnl", features="onehot"),
    agent(agent="ucrl-mnl", reward=True),
    agent(agent="ucrl-mnl", grid={"raduis": [1]}),
    agent(agent="ucrl-mnl", at={"riverswim-4": {"raduis": 1}}),
    agent(agent="psrl", features="one-hot"),
    agent(label="nobody"),
]


@pytest.mark.parametrize("data", GOOD)
def test_what_the_parser_takes_fits(data, validator):
    parse(data)
    validator.validate(data)


@pytest.mark.parametrize("data", BAD)
def test_what_the_parser_refuses_does_not_fit(data, validator):
    with pytest.raises(ValueError):
        parse(data)
    assert not validator.is_valid(data)


def test_every_agent_and_environment_with_each_of_its_numbers_fits(validator):
    for name, cls in AGENTS.items():
        for key, values in cls.GRID.items():
            data = agent(agent=name, grid={key: [registry.to_plain(key, v) for v in values]})
            parse(data)
            validator.validate(data)
        assert not validator.is_valid(agent(agent=name, no_such_number=1)), name
    for name, entry in ENVIRONMENTS.items():
        validator.validate(env(name=name, **{entry.size: 3}))
        assert not validator.is_valid(env(name=f"{name}-3", no_such_number=1)), name


def test_keys_are_described_as_the_code_describes_them(validator):
    text = json.dumps(validator.schema)
    assert "knows the rewards" in text and "Results go to results/NAME" in text


def test_the_file_to_start_from_is_right_in_every_line(validator):
    text = make_template("rivers")
    assert loads(text).name == "rivers"
    everything = re.sub(r"^#{1,2} (?=\w+(?:\.\S.*\S)? = |\[\[)", "", text, flags=re.MULTILINE)
    everything = everything.replace('path = "river.npz"', 'name = "queue"')
    data = tomllib.loads(everything)
    validator.validate(data)
    assert {key for entry in data["agents"] for key in entry} >= {"at", "grid", "reward"}
    assert len(parse(data).environments) == 4


def test_new_writes_once_and_schema_writes_what_an_editor_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "rivers"]) == 0
    file = tmp_path / "rivers.toml"
    assert load(file).name == "rivers"
    file.write_text("mine")
    assert main(["new", "rivers.toml"]) == 2
    assert file.read_text() == "mine"
    assert main(["new", "a?b"]) == 2
    assert main(["new", "nowhere/rivers"]) == 2
    errors = capsys.readouterr().err
    assert "exists and was not changed" in errors and "'a?b'; it must be letters" in errors
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
