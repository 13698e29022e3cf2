import json
import zipfile
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse

import upriver as up
from tests.building import Wrapper, build_agent
from upriver.agents.fixed import Random
from upriver.agents.table import AGENTS
from upriver.mdp.archive import to_tree


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_every_agent_goes_on_byte_identically(name, tmp_path):
    mdp = up.envs.riverswim(4, 8)
    agent = build_agent(name, mdp)
    whole = up.simulate(mdp, agent, 25, seed=7)
    first = up.simulate(mdp, agent, 11, seed=7)
    up.save_agent(tmp_path / "a.npz", first)
    again = build_agent(name, up.envs.riverswim(4, 8))
    rest = up.simulate(mdp, again, 14, resume=up.load_agent(tmp_path / "a.npz", again))
    for field in ("returns", "values", "optimal_values"):
        joined = np.concatenate([getattr(first, field), getattr(rest, field)])
        assert joined.tobytes() == getattr(whole, field).tobytes()
    assert rest.plan.policy.tobytes() == whole.plan.policy.tobytes()
    # and the states are the same to the last bit, not only what was seen of them
    left, right = {}, {}
    assert to_tree(rest.checkpoint, left) == to_tree(whole.checkpoint, right)
    assert all(left[k].tobytes() == right[k].tobytes() for k in left)


def test_equal_contents_give_equal_files(tmp_path):
    mdp = up.envs.riverswim(4, 8)
    run = up.simulate(mdp, build_agent(up.agents.UCRLMNL, mdp), 5)
    for name in ("a", "b"):
        up.save_agent(tmp_path / name, run.checkpoint)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


class OwnState(NamedTuple):
    seen: np.ndarray


@dataclass(frozen=True)
class OwnAgent:
    task: up.Task
    taste: object = None

    def init(self):
        return OwnState(np.zeros(self.task.n_states))

    def plan(self, state, rng):
        return Random(self.task).plan(None, rng)

    def update(self, state, plan, episode):
        return OwnState(state.seen + np.bincount(episode.states, minlength=len(state.seen)))


def test_the_state_of_an_own_agent_is_saved(tmp_path):
    mdp = up.envs.riverswim(4, 8)
    agent = OwnAgent(mdp.task(), taste=lambda x: x)
    whole = up.simulate(mdp, agent, 9, seed=3)
    up.save_agent(tmp_path / "a.npz", up.simulate(mdp, agent, 4, seed=3))
    checkpoint = up.load_agent(tmp_path / "a.npz", agent)
    rest = up.simulate(mdp, agent, 5, resume=checkpoint)
    np.testing.assert_array_equal(rest.state.seen, whole.state.seen)
    other = OwnAgent(mdp.task("full"), taste=agent.taste)
    with pytest.raises(ValueError, match="a run with another agent"):
        up.simulate(mdp, other, 5, resume=checkpoint)
    with pytest.raises(ValueError, match=r"OwnState', which is not part of Upriver"):
        up.load_agent(tmp_path / "a.npz", Random(mdp.task()))


# Files that are not what they should be


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "river.npz"
    up.envs.riverswim(4, 8).save(path)
    return path


def test_truncated_files_are_refused(saved):
    whole = saved.read_bytes()
    for size in (0, 1, 50, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="damaged, or was not written by Upriver"):
            up.FiniteMDP.load(saved)


def test_flipped_bits_are_refused_or_harmless(saved, rng):
    mdp = up.FiniteMDP.load(saved)
    whole = saved.read_bytes()
    refused = 0
    for at in rng.choice(len(whole), size=200):
        changed = bytearray(whole)
        changed[at] ^= 1 << rng.integers(8)
        saved.write_bytes(bytes(changed))
        try:
            again = up.FiniteMDP.load(saved)
        except ValueError as error:
            refused += 1
            assert str(saved) in str(error)
        else:  # dates and flags of the zip that carry no data
            assert again.probability.tobytes() == mdp.probability.tobytes()
            assert again.reward.tobytes() == mdp.reward.tobytes()
    assert refused > 100


def rezip(path, change):
    """Rewrite the archive with a changed head."""
    members = dict(np.load(path))
    head = json.loads(str(members["upriver"]))
    change(head)
    np.savez(path, **(members | {"upriver": np.array(json.dumps(head))}))


def test_files_of_another_version_or_kind(saved):
    with pytest.raises(ValueError, match="holds a saved mdp, where a saved policy is needed"):
        up.load_policy(saved)
    rezip(saved, lambda head: head.update(version=99))
    with pytest.raises(ValueError, match="file version 99"):
        up.FiniteMDP.load(saved)


def test_foreign_files_are_refused(tmp_path):
    np.savez(tmp_path / "foreign.npz", a=np.arange(3))
    (tmp_path / "text.npz").write_text("hello")
    for name in ("foreign.npz", "text.npz"):
        with pytest.raises(ValueError, match="not written by Upriver"):
            up.FiniteMDP.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        up.load_policy(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "upriver.mdp.archive:json"])
def test_files_cannot_name_foreign_code(saved, name):
    rezip(saved, lambda head: head.update(body={"object": name, "fields": {}}))
    with pytest.raises(ValueError, match=r"not part of Upriver|not a kind of data"):
        up.FiniteMDP.load(saved)


@pytest.mark.parametrize("spread", [2**70, -(2**70), "wide", None, [0.1], True])
def test_numbers_that_no_compiled_loop_takes_are_refused(tmp_path, spread):
    """They would fail deep inside a compiled loop, with pages of its types."""
    from upriver.mdp.archive import read_archive, write_archive

    mdp = up.envs.riverswim(4, 6)
    task = mdp.task("local")
    agent = up.agents.UCRLMNLSE(task, up.features.shared(task))
    path = tmp_path / "agent.npz"
    up.save_agent(path, up.simulate(mdp, agent, 3, seed=0))
    body, arrays = read_archive(path, "agent")
    model = body["fields"]["state"]["fields"]["model"]["fields"]
    assert isinstance(model["spread"], float)
    model["spread"] = spread
    write_archive(path, "agent", body, arrays)
    with pytest.raises(ValueError, match="the state is not one of this UCRLMNLSE and its task"):
        up.load_agent(path, agent)


def test_no_pickles_inside(saved):
    with zipfile.ZipFile(saved) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    np.lib.format.read_array(file, allow_pickle=False)


# MDPs as files


def tuples(s, a):
    return {(s[0], min(s[1] + 1, 2)), (s[0], 0)}


MDPS = {
    "river": lambda: up.envs.riverswim(5, 7, variant="strehl"),
    "steps": lambda: up.FiniteMDP.from_arrays(
        np.random.default_rng(0).dirichlet(np.ones(3), (4, 3, 2)),
        np.random.default_rng(1).random((4, 3, 2)), 4, [0.25, 0.75, 0], reward_range=(-3.0, 5.5),
    ),
    "tuples": lambda: up.FiniteMDP.from_functions(
        ("x", 0), ["go", "wait"], tuples, lambda s, a, t: 1 / len(tuples(s, a)),
        lambda s, a: 0.1 * s[1], 5, name="pairs, \"quoted\"",
    ),
    "sparse": lambda: up.FiniteMDP.from_arrays(
        sparse.csr_array(np.eye(2)[[0, 1, 1, 0]]), np.zeros((2, 2)), 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MDPS)
def test_mdps_come_back_as_they_were(name, tmp_path):
    mdp = MDPS[name]()
    mdp.save(tmp_path / "m.npz")
    again = up.FiniteMDP.load(tmp_path / "m.npz")
    for field in ("probability", "initial_states", "initial_probability", "reward"):
        np.testing.assert_array_equal(getattr(again, field), getattr(mdp, field))
    assert again.true_task.same_support(mdp.true_task)
    assert (again.local is None) == (mdp.local is None)
    if mdp.local is not None:
        assert again.task("local").same_support(mdp.task("local"))
    for f in fields(up.Task):
        if f.name in ("states", "actions"):
            a, b = getattr(again.true_task, f.name), getattr(mdp.true_task, f.name)
            assert (a is None and b is None) or list(a) == list(b)
    assert (again.name, again.true_task.reward_range, again.horizon) == (
        mdp.name, mdp.true_task.reward_range, mdp.horizon,
    )  # fmt: skip


def test_a_spec_takes_an_mdp_from_a_file(tmp_path, monkeypatch):
    """The runs of a spec of files equal those of the same things named."""
    from upriver.cli import main
    from upriver.experiments import Store, import_code, load
    from upriver.experiments.build import run_one

    mdp = up.envs.riverswim(4, 8)
    mdp.save(tmp_path / "river.npz")
    (tmp_path / "own_features.py").write_text(
        "import upriver as up\n\ndef same(task):\n    return up.features.shared(task)\n"
    )
    import_code(tmp_path / "own_features.py")
    monkeypatch.chdir(tmp_path)
    spec = """
    name = "files"
    episodes = 12
    seeds = {{ count = 2 }}
    [[environments]]
    {}
    [[agents]]
    agent = "ucrl-mnl"
    support = "local"
    features = "{}"
    """
    tables = []
    for environment, features in (
        ('path = "river.npz"', "own_features:same"),
        ('name = "riverswim"\nn_states = 4\nhorizon = 8', "shared"),
    ):
        (tmp_path / "spec.toml").write_text(spec.format(environment, features))
        runs = load("spec.toml").runs()
        tables.append([run_one(r).drop_columns(["setting", "seconds"]) for r in runs])
    for other in tables[1:]:
        for a, b in zip(tables[0], other, strict=True):
            assert a.equals(b)
    (tmp_path / "spec.toml").write_text(spec.format('path = "river.npz"', "own_features:same"))
    assert main(["run", "spec.toml", "--out", "results", "--jobs", "1"]) == 0
    assert len(list((tmp_path / "results").rglob("*.parquet"))) == 2
    assert Store.open("results")
    # what the file holds is part of what the run is; where it lies is not
    before = load("spec.toml").runs()[0]
    (tmp_path / "moved").mkdir()
    (tmp_path / "river.npz").rename(tmp_path / "moved" / "river.npz")
    moved = spec.format('path = "moved/river.npz"', "own_features:same")
    (tmp_path / "spec.toml").write_text(moved)
    assert load("spec.toml").runs()[0].setting == before.setting
    up.envs.riverswim(4, 9).save(tmp_path / "moved" / "river.npz")
    assert load("spec.toml").runs()[0].setting != before.setting


def test_a_run_does_not_go_on_with_another_agent_inside_a_wrapper():
    mdp = up.envs.riverswim(3)
    phi = up.features.one_hot(mdp.task())
    one, other = (Wrapper(up.agents.UCRLMNL(mdp.task(), phi, radius=r)) for r in (0.1, 0.5))
    run = up.simulate(mdp, one, 5, seed=0)
    again = Wrapper(up.agents.UCRLMNL(mdp.task(), phi, radius=0.1))
    assert len(up.simulate(mdp, again, 2, resume=run.checkpoint).returns) == 2
    with pytest.raises(ValueError, match="another agent"):
        up.simulate(mdp, other, 2, resume=run.checkpoint)


def test_fields_that_hold_other_classes_have_other_fingerprints():
    from upriver.mdp.archive import digest

    classes = up.agents.UCRL2, up.agents.PSRL
    assert len({digest(Wrapper(cls)) for cls in classes}) == 2
