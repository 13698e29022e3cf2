"""States and actions that have names are matched by name wherever two objects meet, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import upriver as up

STATES, ACTIONS = ["low", "middle", "high"], ["wait", "climb"]


def slope(states=STATES, actions=ACTIONS, horizon=4):
    """A slope with its states and actions in any order."""
    transition = np.zeros((3, 2, 3))
    reward = np.zeros((3, 2))
    for i, s in enumerate(states):
        at = STATES.index(s)
        for j, a in enumerate(actions):
            up_one, stay = (0.8, 0.2) if a == "climb" else (0.0, 1.0)
            transition[i, j, states.index(STATES[min(at + 1, 2)])] += up_one
            transition[i, j, i] += stay
            reward[i, j] = (at == 2) * 0.5 + (a == "wait") * 0.1 * (at + 1)
    return up.FiniteMDP.from_arrays(
        transition, reward, horizon, states.index("low"), states=states, actions=actions
    )


SAME = slope()
TURNED = slope(["high", "low", "middle"], ["climb", "wait"])


def start_value(mdp, v):
    return v[0, list(mdp.known.states).index("low")]


BEST = start_value(SAME, up.solve(SAME).v)


@pytest.mark.parametrize("policy", [up.solve(SAME), up.Policy.from_plan(up.solve(SAME))])
def test_a_plan_and_a_policy_are_worth_the_same_in_any_order(policy):
    assert start_value(TURNED, up.evaluate(TURNED, policy)) == pytest.approx(BEST, abs=1e-12)
    returns = up.rollouts(TURNED, policy, 4000).returns
    assert returns.mean() == pytest.approx(BEST, abs=4 * returns.std() / 4000**0.5 + 1e-9)


def test_a_policy_of_a_plan_and_another_task_is_matched_by_name():
    policy = up.Policy.from_plan(up.solve(SAME), TURNED.known)
    original = up.Policy.from_plan(up.solve(SAME))
    for h in range(4):
        for s in STATES:
            assert policy.act(s, h) == original.act(s, h)
    assert policy.state_names == ("high", "low", "middle")


def test_a_randomised_policy_is_matched_by_name():
    table = np.random.default_rng(0).dirichlet([1, 1], (4, 3))
    policy = up.Policy(table, 2, STATES, ACTIONS)
    there = start_value(TURNED, up.evaluate(TURNED, policy))
    assert there == pytest.approx(start_value(SAME, up.evaluate(SAME, policy)), abs=1e-12)


def test_a_saved_policy_keeps_its_names(tmp_path):
    up.Policy.from_plan(up.solve(SAME)).save(tmp_path / "p.npz")
    policy = up.load_policy(tmp_path / "p.npz")
    assert start_value(TURNED, up.evaluate(TURNED, policy)) == pytest.approx(BEST, abs=1e-12)


def test_names_that_do_not_match_are_refused():
    policy = up.Policy.from_plan(up.solve(SAME))
    strange = slope(horizon=4)
    strange = up.FiniteMDP.from_arrays(
        np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 4, states=["a", "b", "c"], actions=ACTIONS
    )
    with pytest.raises(ValueError, match="state 'a' is unknown to the policy, whose 3 states"):
        up.evaluate(strange, policy)
    other = up.FiniteMDP.from_arrays(
        np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 4, states=STATES, actions=["run", "sit"]
    )
    with pytest.raises(ValueError, match="the policy plays 'wait', which is no action here"):
        up.rollouts(other, policy, 1)
    plain = up.FiniteMDP.from_arrays(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 4)
    with pytest.raises(ValueError, match="state 0 is unknown to the policy"):
        up.evaluate(plain, policy)


def test_a_table_and_a_policy_without_names_are_numbers():
    table = up.solve(SAME).policy
    np.testing.assert_array_equal(up.evaluate(SAME, table), up.evaluate(SAME, up.Policy(table, 2)))


def test_an_agent_of_another_order_is_refused():
    for turned in (slope(["high", "low", "middle"]), slope(actions=["climb", "wait"])):
        with pytest.raises(ValueError, match=r"in the agent's task and .* in the MDP; build"):
            up.simulate(SAME, up.PSRL(turned.known), 2)


def test_messages_say_names():
    transition = np.full((3, 2, 3), 1 / 3)
    transition[1, 0] = 0.5
    named = dict(states=STATES, actions=ACTIONS)
    with pytest.raises(ValueError, match=r"row \(s='middle', a='wait'\) sums to 1\.5"):
        up.FiniteMDP.from_arrays(transition, np.zeros((3, 2)), 4, **named)
    with pytest.raises(ValueError, match=r"reward of \(s='low', a='wait'\) is nan"):
        up.FiniteMDP.from_arrays(np.full((3, 2, 3), 1 / 3), np.full((3, 2), np.nan), 4, **named)
    with pytest.raises(ValueError, match="states has the name 'low' twice"):
        up.FiniteMDP.from_arrays(
            np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 4, states=["low", "low", "high"]
        )
    policy = up.Policy.from_plan(up.solve(SAME))
    with pytest.raises(ValueError, match="state 'top' is unknown; there are 3 states, from 'low'"):
        policy.act("top", 0)
