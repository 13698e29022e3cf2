"""A spec says what is run: round trips, identities, and one sentence for each mistake."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import upriver as up
from upriver.agents.table import AGENTS
from upriver.experiments import catalogue, import_code, load, registry
from upriver.experiments.build import RunSpec, build, run_one
from upriver.experiments.spec import Experiment, loads, parse

BASE = {
    "name": "base",
    "episodes": 4,
    "seeds": {"count": 2},
    "environments": [{"name": "riverswim-4"}],
    "agents": [{"agent": "ucrl-mnl", "radius": 0.01}],
}


def changed(**changes) -> Experiment:
    return parse({**BASE, **changes})


def only_run(**changes) -> RunSpec:
    return changed(seeds={"count": 1}, **changes).runs()[0]


def agent(**numbers) -> list[dict]:
    return [{"agent": "ucrl-mnl", **numbers}]


def test_every_experiment_of_the_catalogue_is_valid_and_survives_toml():
    assert "quick" in catalogue()
    for name in catalogue():
        experiment = load(name)
        assert experiment.name == name
        assert experiment.description
        assert loads(experiment.to_toml()) == experiment
        assert loads(experiment.to_toml()).runs() == experiment.runs()


def test_a_spec_with_everything_in_it_survives_toml():
    experiment = changed(
        seeds={"first": 7, "count": 3},
        environments=[{"name": "riverswim", "n_states": 4, "episodes": 2}, {"name": "deep-sea-5"}],
        agents=[
            {
                "agent": "ucrl-mnl",
                "label": 'Said "x" (y)'.replace('"', ""),
                "support": ["known", "full"],
                "features": ["one-hot", "shared"],
                "radius": {"corrected": {"kappa": 0.02, "theta_bound": 4}},
                "regularization": {"theory": {}},
                "optimism": "gradient",
                "per_step": True,
                "at": {"riverswim-4": {"radius": 0.5, "optimism": "closed-form"}},
                "grid": {"radius": [0, 1e-3], "per_step": [True, False]},
            },
            {"agent": "optimal"},
        ],
    )
    again = loads(experiment.to_toml())
    assert again == experiment and again.runs() == experiment.runs()
    assert len(experiment.runs()) == 2 * (4 + 1) * 3
    for run in experiment.runs():
        assert RunSpec(**json.loads(run.to_json())) == run
        build(run)


def test_a_list_stands_for_one_entry_each():
    experiment = changed(
        environments=[
            {"name": "riverswim", "n_states": [4, 5], "horizon": 8},
            {"name": "misspecified-mnl-4", "label": "d {distance}", "distance": [0.0, 0.05]},
        ],
        agents=[
            *agent(radius=[0.01, 1e-6], support=["known", "full"]),
            *agent(label="{optimism} {radius}", radius=[0, 10], optimism=["gradient"]),
        ],
    )
    assert [e.full_label for e in experiment.environments] == [
        "riverswim-4-horizon-8", "riverswim-5-horizon-8", "d 0", "d 0.05",
    ]  # fmt: skip
    assert [a.full_label for a in experiment.agents] == [
        "ucrl-mnl-0.01-known", "ucrl-mnl-0.01-full", "ucrl-mnl-1e-06-known",
        "ucrl-mnl-1e-06-full", "gradient 0", "gradient 10",
    ]  # fmt: skip
    single = only_run(
        environments=[{"name": "riverswim-5", "horizon": 8}],
        agents=agent(radius=1e-6, support="full"),
    )
    assert single.setting in {r.setting for r in experiment.runs()}
    assert loads(experiment.to_toml()).runs() == experiment.runs()


def test_the_identity_covers_what_changes_a_result_and_nothing_else():
    base = only_run()
    assert only_run().setting == base.setting
    same = [
        only_run(agents=agent(radius=0.01, label="other")),
        only_run(environments=[{"name": "riverswim", "n_states": 4}]),
        only_run(environments=[{"name": "riverswim-4", "label": "river", "episodes": 4}]),
        only_run(agents=agent(radius=0.01, regularization=1)),
        only_run(agents=agent(radius=0.01, support="known", reward="known", features="automatic")),
        only_run(agents=agent(radius=9.0, at={"riverswim-4": {"radius": 0.01}})),
        only_run(name="renamed"),
    ]
    assert {run.setting for run in same} == {base.setting}
    different = [
        only_run(episodes=5),
        only_run(environments=[{"name": "riverswim-5"}]),
        only_run(environments=[{"name": "riverswim-4", "horizon": 9}]),
        only_run(environments=[{"name": "riverswim-4", "variant": "ayoub"}]),
        only_run(agents=agent(radius=0.02)),
        only_run(agents=agent(radius=0.01, per_step=True)),
        only_run(agents=agent(radius=0.01, optimism="gradient")),
        only_run(agents=agent(radius=0.01, support="local")),
        only_run(agents=agent(radius=0.01, features="shared")),
        only_run(agents=agent(radius=0.01, features="one-hot")),
        only_run(agents=agent(radius=0.01, reward="unknown")),
        only_run(agents=[{"agent": "ucrl-mnl-ll", "radius": 0.01}]),
    ]
    settings = [run.setting for run in different]
    assert len({*settings, base.setting}) == len(different) + 1


def test_a_changed_default_is_a_changed_identity(monkeypatch):
    from dataclasses import make_dataclass

    old = only_run(agents=[{"agent": "always"}])
    cls = AGENTS["always"]
    other = make_dataclass("Other", [("action", int, 1)], bases=(cls,), frozen=True)
    monkeypatch.setattr(registry, "AGENTS", {**AGENTS, "always": other})
    assert only_run(agents=[{"agent": "always"}]).setting != old.setting


def test_every_agent_can_be_named_and_built_with_its_defaults():
    for name in AGENTS:
        run = only_run(agents=[{"agent": name}])
        mdp, built, _ = build(run)
        assert type(built) is AGENTS[name]
        assert build(run)[1] is built  # seeds of one setting share it
        assert built.task.n_states == mdp.n_states


def test_what_a_spec_says_is_what_the_agent_gets():
    entry = agent(
        support="local",
        features="shared",
        reward="unknown",
        radius={"constant": {"beta": 0.25}},
        optimism="exact-maximum",
        per_step=True,
    )
    mdp, built, _ = build(only_run(environments=[{"name": "riverswim-5"}], agents=entry))
    assert mdp.n_states == 5
    assert built.task.support == "local" and built.task.reward is None
    assert built.features.dimension == 8
    assert built.radius.beta == 0.25 and built.per_step
    assert built.optimism.__name__ == "exact_maximum"


def test_pooled_features_are_the_environments_own_and_an_effect_of_every_triple():
    """The run of the spec is, to the last bit, the one that its words say."""
    import upriver as up

    entry = agent(agent="ucrl-mnl-se", support="local", features="pooled")
    run = only_run(environments=[{"name": "river-grid-3"}], agents=entry)
    mdp, built, _ = build(run)
    shared = up.envs.find("river-grid-3").shared(mdp.task("local"))
    by_hand = up.features.pooled(shared)
    assert (built.features.matrix != by_hand.matrix).nnz == 0
    assert built.features.spread == "estimate" and built.features.n_shared == shared.dimension
    mine = up.simulate(mdp, up.agents.UCRLMNLSE(mdp.task("local"), by_hand), 4, seed=0)
    assert np.array_equal(run_one(run)["value"].to_numpy(), mine.values)
    other = only_run(
        environments=[{"name": "river-grid-3"}], agents=[entry[0] | {"own_errors": 3.0}]
    )
    assert other.setting != run.setting


def test_an_environment_may_be_a_saved_mdp_known_by_its_numbers(tmp_path):
    import upriver as up

    for name, n_states in (("one", 4), ("copy", 4), ("other", 5)):
        up.envs.riverswim(n_states).save(tmp_path / f"{name}.npz")
    (tmp_path / "spec.toml").write_text(
        'name = "files"\nepisodes = 3\nseeds = { count = 1 }\nagents = [{ agent = "random" }]\n'
        + "".join(f'[[environments]]\npath = "{n}.npz"\n' for n in ("one", "copy", "other"))
    )
    one, copy, other = load(tmp_path / "spec.toml").runs()
    assert (one.env, copy.env, other.env) == ("one", "copy", "other")
    assert one.setting == copy.setting != other.setting
    assert build(other)[0].n_states == 5
    with pytest.raises((ValueError, OSError), match="missing"):
        parse({**BASE, "environments": [{"path": str(tmp_path / "missing.npz")}]}).runs()


MISTAKES = {
    "a misspelt key": ({"episodez": 3}, "key 'episodez' is unknown; did you mean 'episodes'?"),
    "a misspelt key of seeds": (
        {"seeds": {"first": 0, "cuont": 3}},
        "seeds: key .cuont. is unknown; did you mean .count.",
    ),
    "a misspelt number": ({"agents": agent(raduis=1.0)}, r"agents\[0\].*did you mean 'radius'"),
    "a misspelt argument": (
        {"environments": [{"name": "riverswim", "n_state": 4}]},
        r"environments\[0\].*did you mean 'n_states'",
    ),
    "a misspelt number in at": (
        {"agents": agent(at={"riverswim-4": {"radus": 1.0}})},
        "did you mean 'radius'",
    ),
    "a misspelt place in at": (
        {"agents": agent(at={"riverswim-44": {"radius": 1.0}})},
        "did you mean 'riverswim-4'",
    ),
    "a misspelt number in the grid": (
        {"agents": agent(grid={"regularisation": [1.0]})},
        "did you mean 'regularization'",
    ),
    "an unknown agent": ({"agents": [{"agent": "ucrl-mln"}]}, "did you mean 'ucrl-mnl'"),
    "an unknown environment": ({"environments": [{"name": "riverswin-6"}]}, "mean 'riverswim'"),
    "unknown features": ({"agents": agent(features="onehot")}, "did you mean 'one-hot'"),
    "an unknown support": (
        {"agents": agent(support="all")},
        "'all' is unknown.*full, known",
    ),
    "an unknown optimism": ({"agents": agent(optimism="gradual")}, "did you mean 'gradient'"),
    "an unknown rule": ({"agents": agent(radius={"fixed": {}})}, "radius: key 'fixed' is unknown"),
    "a rule without its constant": (
        {"agents": agent(radius={"constant": {}})},
        "radius.constant.beta is missing",
    ),
    "a constant in words": (
        {"agents": agent(radius={"constant": {"beta": "much"}})},
        "beta is 'much'; it should be",
    ),
    "a negative seed": ({"seeds": {"first": -1, "count": 3}}, "seeds.first is -1; it should be"),
    "no seed": ({"seeds": {"count": 0}}, "seeds.count is 0; it should be"),
    "half a seed": ({"seeds": {"count": 1.5}}, "seeds.count is 1.5; it should be"),
    "a seed for tuning": ({"seeds": {"first": 999_999, "count": 2}}, "for tuning"),
    "zero episodes": ({"episodes": 0}, "episodes is 0; it should be"),
    "zero episodes on one environment": (
        {"environments": [{"name": "riverswim-4", "episodes": 0}]},
        r"environments\[0\].episodes is 0",
    ),
    "no agents": ({"agents": []}, "agents is .*at least 1"),
    "no environments": ({"environments": []}, "environments is .*at least 1"),
    "one label twice": ({"agents": [*agent(), *agent(radius=0.0)]}, "label 'ucrl-mnl'; give"),
    "a number in words": (
        {"agents": agent(regularization="big")},
        "regularization is 'big'; it should be",
    ),
    "a yes in numbers": (
        {"agents": agent(per_step=1)},
        "per_step is 1; it should be",
    ),
    "a number as a yes": (
        {"agents": agent(radius=True)},
        "radius is True; it should be",
    ),
    "half an action": (
        {"agents": [{"agent": "always", "action": 0.5}]},
        "action is 0.5; it should be",
    ),
    "features for nobody": (
        {"agents": [{"agent": "random", "features": "one-hot"}]},
        "features is 'one-hot'; it should be None",
    ),
    "a size given twice": (
        {"environments": [{"name": "riverswim-4", "n_states": 4}]},
        "n_states is given twice",
    ),
    "neither name nor path": ({"environments": [{"episodes": 3}]}, "either a name or a path"),
    "a module that is not there": (
        {"agents": [{"agent": "no_such_module:Agent"}]},
        "'no_such_module:Agent' is defined in a file that was not imported; .* --import",
    ),
    "a label that names nothing": (
        {"agents": agent(label="c {radus}", radius=1)},
        "did you mean 'radius'",
    ),
    "a list with a wrong number": (
        {"agents": agent(radius=[0.1, "x"])},
        "radius is 'x'; it should be",
    ),
    "a label that is a path": ({"agents": agent(label="../x")}, "label is '../x'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_that_names_it(mistake):
    changes, sentence = MISTAKES[mistake]
    with pytest.raises(ValueError, match=sentence) as caught:
        changed(**changes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("experiment: ")


def test_a_file_that_is_not_toml_or_not_there_is_named(tmp_path):
    (tmp_path / "bad.toml").write_text("name = \n")
    with pytest.raises(ValueError, match=r"bad.toml is not TOML"):
        load(tmp_path / "bad.toml")
    with pytest.raises(ValueError, match=r"missing.toml': No such file"):
        load(tmp_path / "missing.toml")
    with pytest.raises(ValueError, match="experiment 'quik' is unknown; did you mean 'quick'"):
        load("quik")


def test_seeds_can_be_replaced():
    experiment = changed(environments=[{"name": "riverswim-4", "episodes": 2}])
    assert {r.seed for r in experiment.with_seeds(3, first=5).runs()} == {5, 6, 7}
    assert {r.episodes for r in experiment.runs()} == {2}
    with pytest.raises(ValueError, match=r"base: seeds.count is 0"):
        experiment.with_seeds(0)


def test_a_run_is_a_function_of_its_spec():
    from upriver.experiments import run_one

    run = only_run()
    first, second = run_one(run).drop(["seconds"]), run_one(run).drop(["seconds"])
    assert first.equals(second)
    numbers = ["return", "value", "optimal_value", "uniform_value"]
    assert first.column_names == ["setting", "seed", "episode", *numbers]
    np.testing.assert_array_equal(first["episode"].to_numpy(), [1, 2, 3, 4])


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e400", "9" * 400])
@pytest.mark.parametrize("key", ["n_states", "horizon", "radius", "regularization", "episodes"])
def test_numbers_without_end_are_refused_in_a_sentence(tmp_path, number, key):
    from upriver.cli import main

    where = {"n_states": 0, "horizon": 0, "episodes": 1}.get(key, 2)
    parts = ['name = "riverswim"', "", 'agent = "ucrl-mnl"']
    parts[where] += f"\n{key} = {number}"
    text = f'name = "x"\n{parts[1] or "episodes = 2"}\nseeds = {{ count = 1 }}\n'
    text += f"[[environments]]\n{parts[0]}\n[[agents]]\n{parts[2]}\n"
    (tmp_path / "spec.toml").write_text(text)
    assert main(["run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "r")]) == 2


@pytest.mark.parametrize("size", [10**9, 10**14, 2**63, 2**70])
def test_sizes_beyond_any_memory_are_a_sentence(size, tmp_path):
    from upriver.experiments import execute

    entry = [{"name": "riverswim", "n_states": size, "horizon": 2}]
    with pytest.raises(ValueError, match=r"on riverswim-\d+-horizon-2: |n_states") as caught:
        execute(changed(environments=entry), tmp_path, jobs=1)
    assert len(str(caught.value)) < 1000


def valley(folder, n_states=4):
    """A spec with an MDP and features in files beside it."""

    import upriver as up

    folder.mkdir(exist_ok=True)
    mdp = up.envs.riverswim(n_states)
    mdp.save(folder / "valley.npz")
    mdp.save(folder / "hills.npz")
    (folder / "spec.toml").write_text(
        'name = "files"\nepisodes = 3\nseeds = { count = 2 }\n'
        '[[environments]]\npath = "valley.npz"\n[[environments]]\npath = "hills.npz"\n'
        '[[agents]]\nagent = "ucrl-mnl"\nfeatures = "one-hot"\nregularization = 1.0\n'
        "grid = { radius = [0.0, 0.1] }\n"
    )
    return folder / "spec.toml"


def test_files_are_named_from_the_spec(tmp_path, monkeypatch, capsys):
    """Read here, tuned there, run from a third place, and again from the results folder."""
    from upriver.cli import main

    spec = valley(tmp_path / "mine")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    wanted = {run.key for run in load(spec).runs()}
    assert main(["tune", "../mine/spec.toml", "--out", "t", "--runs", "2", "--jobs", "2"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["run", "cwd/t/tuned.toml", "--out", "r", "--jobs", "2"]) == 0
    assert main(["run", "mine/spec.toml", "--out", "s", "--jobs", "1"]) == 0
    (kept,) = (tmp_path / "s" / "_specs").iterdir()
    assert {run.key for run in load(kept).runs()} == wanted
    capsys.readouterr()
    assert main(["run", str(kept), "--out", "s"]) == 0
    assert "4 were stored, 0 ran" in capsys.readouterr().out


def test_an_mdp_that_was_replaced_is_not_played_under_its_old_name(tmp_path):
    """Neither in this process, which has read it before, nor in others."""
    import upriver as up
    from upriver.experiments import execute

    runs = load(valley(tmp_path / "mine")).runs()
    run_one(runs[0])
    up.envs.riverswim(4, horizon=9).save(tmp_path / "mine" / "valley.npz")
    sentence = r"valley\.npz was changed after"
    for jobs in (1, 2):
        outcome = execute(runs, tmp_path / "r", jobs=jobs)
        assert [run.env for run, _ in outcome.failed] == ["valley"] * 2
        assert all(re.search(sentence, error) for _, error in outcome.failed)


def test_a_worker_notices_a_file_that_was_replaced_under_way(tmp_path):
    """Past the check of the beginning, as on a machine with an old copy."""
    import upriver as up
    from upriver.experiments.executor import Processes

    run = load(valley(tmp_path / "mine")).runs()[0]
    up.envs.riverswim(4, horizon=9).save(tmp_path / "mine" / "valley.npz")
    workers = Processes(1)
    result = workers.collect(workers.submit(run))
    workers.close()
    assert result.data is None and "was changed after" in str(result.error)


def test_labels_that_differ_in_case_only_are_refused():
    with pytest.raises(ValueError, match="two entries have the agent label"):
        changed(agents=[*agent(label="river"), *agent(label="River")])


def saved(folder, mdp, name="river.npz"):
    """The runs of one learner on a saved MDP."""
    folder.mkdir(exist_ok=True)
    mdp.save(folder / name)
    (folder / "spec.toml").write_text(
        'name = "identity"\nepisodes = 3\nseeds = { count = 1 }\n'
        f'[[environments]]\npath = "{name}"\n[[agents]]\nagent = "psrl"\n'
    )
    return load(folder / "spec.toml").runs()


def test_everything_of_an_mdp_that_influences_a_run_is_part_of_its_identity(tmp_path):
    """Rewards, their range, the horizon or discount, names, the start and terminal values."""
    import upriver as up

    p = np.array([[[0.5, 0.5], [0.1, 0.9]], [[0.7, 0.3], [1.0, 0.0]]])
    r = np.array([[0.0, 0.2], [0.5, 0.1]])
    given = {
        "horizon": 5, "reward_range": (0.0, 1.0), "states": ["a", "b"], "actions": ["x", "y"],
        "initial_state": [1.0, 0.0],
    }  # fmt: skip

    def make(probability=p, reward=r, **changes):
        return up.FiniteMDP.from_arrays(probability, reward, **(given | changes))

    base = make()
    others = {
        "reward range": make(reward_range=(0.0, 2.0)),
        "rewards": make(reward=r + 0.01),
        "probabilities": make(probability=p[:, ::-1]),
        "horizon": make(horizon=6),
        "names of states": make(states=["b", "a"]),
        "names of actions": make(actions=["y", "x"]),
        "start": make(initial_state=[0.5, 0.5]),
        "terminal values": make(terminal=[0.0, 0.5]),
        "discount 0.9": base.infinite_horizon(0.9),
        "discount 0.99": base.infinite_horizon(0.99),
        "average": base.infinite_horizon(),
    }
    settings = {"base": saved(tmp_path, base)[0].setting}
    settings |= {what: saved(tmp_path, mdp)[0].setting for what, mdp in others.items()}
    assert len(set(settings.values())) == len(settings), settings
    assert saved(tmp_path / "elsewhere", base, "copy.npz")[0].setting == settings["base"]


def test_the_identity_covers_what_names_of_the_catalogue_stand_for(monkeypatch):
    """Another version of an environment's function, or of a feature map, makes other runs."""
    import upriver as up
    from upriver.experiments.build import make_mdp

    def setting() -> str:
        make_mdp.cache_clear()
        return only_run(agents=agent(features="shared")).setting

    before, river = setting(), registry.ENVIRONMENTS["riverswim"]
    assert setting() == before

    def with_features_scaled(task):
        return up.Features(task, 2.0 * np.asarray(river.shared(task).matrix))

    slower = river._replace(make=lambda n_states, **more: river.make(n_states, horizon=9))
    for changed_entry in (slower, river._replace(shared=with_features_scaled)):
        monkeypatch.setitem(registry.ENVIRONMENTS, "riverswim", changed_entry)
        assert setting() != before
    monkeypatch.setitem(registry.ENVIRONMENTS, "riverswim", river)
    assert setting() == before


def test_the_identity_covers_the_file_of_an_agent(tmp_path):
    from upriver.experiments import import_code, registry

    file, settings = tmp_path / "own_agents.py", []
    for chance in ("0.5", "0.5", "0.7"):
        file.write_text(
            "from dataclasses import dataclass\nfrom upriver.agents.fixed import Random\n"
            f"@dataclass(frozen=True)\nclass Own(Random):\n    chance: float = 1.0  # {chance}\n"
        )
        import_code(file)
        settings.append(only_run(agents=[{"agent": "own_agents:Own"}]).setting)
    del registry.IMPORTED["own_agents"]
    assert settings[0] == settings[1] != settings[2]


def test_another_mdp_in_the_place_of_a_file_is_played_and_not_taken_for_stored(tmp_path):
    """What a run of a saved MDP is called follows from the MDP and not from the file's name."""
    import upriver as up
    from upriver.experiments import execute

    for n_states, ran in ((4, 1), (4, 0), (5, 1)):
        runs = saved(tmp_path, up.envs.riverswim(n_states))
        assert execute(runs, tmp_path / "r", jobs=1).ran == ran


def test_a_label_is_filled_in_with_settings_and_nothing_else():
    """Formats and attributes in braces, which could fill the memory, are plain text."""
    for label in ("{radius:999999999999}", "{radius.real}", "{radius"):
        assert only_run(agents=agent(label=label, radius=0.1)).label == label


def test_an_mdp_is_built_once_in_a_process(tmp_path, monkeypatch):
    """By reading an experiment, tuning it and playing it, for any number of agents and settings."""
    import upriver as up
    from upriver.experiments import execute
    from upriver.experiments.registry import ENVIRONMENTS

    made = []

    def river(n_states=6, horizon=None):
        made.append(n_states)
        return up.envs.riverswim(n_states, horizon)

    sizes = list(range(3, 11))
    monkeypatch.setitem(ENVIRONMENTS, "riverswim", ENVIRONMENTS["riverswim"]._replace(make=river))
    spec = {
        **BASE, "episodes": 1, "seeds": {"count": 2},
        "environments": [{"name": "riverswim", "n_states": sizes, "horizon": 7}],
        "agents": [{"agent": "ucrl-mnl", "radius": [0.0, 0.1, 0.2]}],
    }  # fmt: skip
    assert execute(parse(spec), tmp_path, jobs=1).ran == 48
    assert sorted(made) == sizes


def test_an_own_environment_is_called_by_the_name_of_its_mdp(tmp_path):
    """The name of the function may be the same for all of them."""
    from upriver.experiments import execute, import_code, registry
    from upriver.results.runs import read_results

    (tmp_path / "worlds.py").write_text(
        "import numpy as np\nimport upriver as up\n\n"
        "def world(level=1.0):\n"
        "    p = np.full((2, 2, 2), 0.5)\n"
        "    return up.FiniteMDP.from_arrays(p, level * np.eye(2), 3, name='two towns')\n"
    )
    import_code(tmp_path / "worlds.py")
    try:
        spec = {**BASE, "environments": [{"name": "worlds:world"},
                                         {"name": "worlds:world", "level": 2.0}]}  # fmt: skip
        labels = [e.full_label for e in parse(spec).environments]
        assert labels == ["two towns", "two towns-level-2.0"]
        execute(parse({**spec, "agents": [{"agent": "random"}]}), tmp_path / "r", jobs=1)
        assert {s.env for s in read_results(tmp_path / "r").samples} == set(labels)
    finally:
        del registry.IMPORTED["worlds"]


def test_an_empty_list_is_no_experiment():
    with pytest.raises(ValueError, match=r"agents\[0\]: radius is an empty list"):
        only_run(agents=agent(radius=[]))


def test_an_environment_that_fails_is_named(tmp_path):
    (tmp_path / "broken.py").write_text("def world(n=3):\n    return 1 / 0\n")
    import_code(tmp_path / "broken.py")
    with pytest.raises(ValueError, match="environment 'broken:world': ZeroDivisionError"):
        only_run(environments=[{"name": "broken:world"}])


def test_automatic_features_of_agents_that_cannot_pool():
    run = only_run(agents=[{"agent": "rrl-mnl", "support": "local"}])
    task = up.envs.riverswim(4).task("local")
    assert run.features == "automatic" and not build(run)[1].features.spread
    np.testing.assert_array_equal(
        build(run)[1].features.matrix.toarray(), up.agents.RRLMNL(task).features.matrix.toarray()
    )
