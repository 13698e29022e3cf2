"""A radius, a bonus rule or an optimism of one's own can be named in a specification."""

from __future__ import annotations

import pytest

import upriver as up
from upriver.cli import main
from upriver.experiments import check, execute, import_code, parse, registry
from upriver.experiments.build import build
from upriver.experiments.spec import schema

RULES = """
from dataclasses import dataclass
import numpy as np
from upriver.planning.optimism import half_range

@dataclass(frozen=True)
class slow:
    c: float = 0.5
    def __call__(self, evidence):
        return self.c * evidence.k ** 0.25

def quick(evidence):
    return 0.1

def tight(task, model, reward, beta, tie_seed):
    return half_range(task, model, reward, 0.5 * beta, tie_seed)

def flat(task):
    return np.full(task.horizon, 0.03)

NUMBER = 3
"""


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    import_code(path)
    yield path
    del registry.IMPORTED["rules"]


def experiment(**entry):
    return parse({
        "name": "own", "episodes": 4, "seeds": {"count": 1},
        "environments": [{"name": "riverswim-4", "horizon": 8}],
        "agents": [{"agent": "ucrl-mnl", "support": "local", **entry}],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "field", "value"),
    [
        ({"radius": "rules:quick"}, "radius", 0.1),
        ({"radius": "rules:slow"}, "radius", 0.5 * 16**0.25),
        ({"radius": {"rules:slow": {"c": 2.0}}}, "radius", 2.0 * 16**0.25),
        ({"optimism": "rules:tight"}, "optimism", None),
        ({"agent": "ucbvi", "bonus": "rules:flat"}, "bonus", None),
    ],
)
def test_an_own_rule_is_what_the_agent_gets(rules, tmp_path, entry, field, value):
    (run,) = experiment(**entry).runs()
    mdp, agent, _ = build(run)
    rule = getattr(agent, field)
    assert callable(rule)
    if value is not None:
        evidence = up.radii.Evidence(16, 8, 4, 3, 5, 1.0, 1.0, 0.0)
        assert rule(evidence) == pytest.approx(value)
    assert execute([run], tmp_path / "out", jobs=1).complete
    direct = up.simulate(mdp, agent, 4, seed=0)
    assert up.load_runs(tmp_path / "out")["value"].to_pylist() == direct.values.tolist()


def test_own_rules_survive_toml_worker_processes_and_tuning(rules, tmp_path, capsys):
    spec = experiment(radius=[{"rules:slow": {"c": 0.1}}, "rules:quick", 0.0])
    assert [a.full_label for a in spec.agents] == ["ucrl-mnl-slow", "ucrl-mnl-quick", "ucrl-mnl-0"]
    (tmp_path / "own.toml").write_text(spec.to_toml())
    words = ["--out", str(tmp_path / "out"), "--import", str(rules), "--jobs", "2"]
    assert main(["run", str(tmp_path / "own.toml"), *words]) == 0
    assert check(tmp_path / "out").whole == 3
    grid = {"radius": [{"rules:slow": {"c": c}} for c in (0.0, 0.1)], "regularization": [1.0]}
    (tmp_path / "own.toml").write_text(experiment(grid=grid).to_toml())
    words[1] = str(tmp_path / "tuned")
    assert main(["tune", str(tmp_path / "own.toml"), "--runs", "2", *words]) == 0
    assert "rules:slow" in (tmp_path / "tuned" / "tuned.toml").read_text()


def test_a_changed_rule_is_another_setting(rules):
    (first,) = experiment(radius="rules:quick").runs()
    rules.write_text(RULES.replace("return 0.1", "return 0.2"))
    import_code(rules)
    (second,) = experiment(radius="rules:quick").runs()
    assert first.setting != second.setting
    with pytest.raises(ValueError, match="was changed after the experiment was read"):
        build(first)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"radius": "rules:absent"}, "radius 'rules:absent' is not defined in"),
        ({"radius": "stranger:slow"}, "'stranger:slow' is defined in a file that was not imported"),
        ({"radius": {"os:system": {"command": "x"}}}, "a file that was not imported"),
        ({"optimism": "rules:half_range"}, "'rules:half_range' is not defined in"),
        ({"radius": "rules:NUMBER"}, "'rules:NUMBER' is not defined in"),
        ({"radius": {"rules:slow": {}, "rules:quick": {}}}, "at most 1 item"),
        ({"radius": {"rules:slow": {"d": 1.0}}}, "ucrl-mnl on riverswim-4-horizon-8: "),
        ({"per_step": "rules:quick"}, "per_step is 'rules:quick'; it should be"),
    ],
)
def test_mistakes_are_one_sentence(rules, entry, sentence):
    with pytest.raises(ValueError, match=r"^(?!.*\n)") as error:
        experiment(**entry).runs()
    assert sentence in str(error.value)


def test_the_schema_offers_own_rules():
    assert '"@own"' not in str(schema()) and "^\\\\w+:\\\\w+$" in repr(schema())
