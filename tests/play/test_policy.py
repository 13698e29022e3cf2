from typing import NamedTuple

import numpy as np
import pytest

import upriver as up


def learned():
    mdp = up.envs.riverswim(4, 8)
    task = mdp.task("local")
    return mdp, up.simulate(mdp, up.agents.UCRLMNL(task, up.features.one_hot(task)), 20, seed=1)


def test_acts_as_the_plan_says():
    mdp, run = learned()
    for h in range(mdp.horizon):
        for s in range(mdp.n_states):
            assert run.policy.act(s, h) == ("left", "right")[run.plan.policy[h, s]]


def test_a_policy_without_names_acts_by_number():
    policy = up.Policy(np.array([[0, 1], [1, 0]]), 2)
    assert policy.act(1, 0) == 1 and isinstance(policy.act(1, 0), int)


def test_the_frame_holds_the_whole_policy():
    _, run = learned()
    rebuilt = run.policy.to_pandas().pivot(index="step", columns="state", values="action")
    named = np.array(["left", "right"])[run.plan.policy]
    np.testing.assert_array_equal(rebuilt.to_numpy(), named)


def test_randomised_policies_draw(rng):
    policy = up.Policy(np.array([[[0.75, 0.0, 0.0, 0.25]]]), 4)
    drawn = [policy.act(0, 0, rng) for _ in range(2000)]
    assert set(drawn) == {0, 3}
    assert np.mean(np.array(drawn) == 0) == pytest.approx(0.75, abs=0.05)
    frame = policy.to_pandas()
    assert frame[["P(0)", "P(3)"]].to_numpy().tolist() == [[0.75, 0.25]]
    with pytest.raises(ValueError, match="needs a generator"):
        policy.act(0, 0)


def test_saved_and_loaded(tmp_path):
    states = ["bank", ("deep", 1), 3.5]
    policy = up.Policy(np.array([[0, 1, 1], [1, 0, 1]], np.int8), 2, states, ["wait", "swim"])
    policy.save(tmp_path / "p.npz")
    again = up.load_policy(tmp_path / "p.npz")
    assert again.actions.dtype == np.int8
    assert again.state_names == tuple(states) and again.action_names == ("wait", "swim")
    np.testing.assert_array_equal(again.actions, policy.actions)
    assert again.act(("deep", 1), 0) == "swim"


def test_black_boxes_have_policies_too(tmp_path):
    mdp = up.envs.riverswim()
    run = up.learn(up.envs.to_gymnasium(mdp), up.agents.Always(mdp.task(), 1), 2)
    run.policy.save(tmp_path / "p.npz")
    assert up.load_policy(tmp_path / "p.npz").act(3, 23) == "right"


class Cell(NamedTuple):
    row: int
    column: int


def test_states_that_are_named_tuples_are_saved_as_plain_ones(tmp_path):
    policy = up.Policy([[0, 1]], 2, [Cell(0, 0), Cell(0, 1)])
    policy.save(tmp_path / "policy.npz")
    again = up.load_policy(tmp_path / "policy.npz")
    assert again.act(Cell(0, 1)) == again.act((0, 1)) == 1
