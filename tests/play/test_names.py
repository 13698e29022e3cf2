"""States and actions that have names are matched by name wherever two objects meet, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import upriver as up
from tests.building import from_rows

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
    return v[0, list(mdp.true_task.states).index("low")]


BEST = start_value(SAME, up.solve(SAME).v)


@pytest.mark.parametrize("policy", [up.solve(SAME), up.Policy.from_plan(up.solve(SAME))])
def test_a_plan_and_a_policy_are_worth_the_same_in_any_order(policy):
    assert start_value(TURNED, up.evaluate(TURNED, policy)) == pytest.approx(BEST, abs=1e-12)
    returns = up.rollouts(TURNED, policy, 4000).returns
    assert returns.mean() == pytest.approx(BEST, abs=4 * returns.std() / 4000**0.5 + 1e-9)


def test_a_policy_of_a_plan_and_another_task_is_matched_by_name():
    policy = up.Policy.from_plan(up.solve(SAME), TURNED.true_task)
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
    with pytest.raises(ValueError, match="state 'a' is unknown to the policy; there are 3 states"):
        up.evaluate(strange, policy)
    other = up.FiniteMDP.from_arrays(
        np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 4, states=STATES, actions=["run", "sit"]
    )
    with pytest.raises(ValueError, match="the policy's action 'wait' is unknown; there are"):
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
            up.simulate(SAME, up.agents.PSRL(turned.true_task), 2)


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
    with pytest.raises(ValueError, match="state 'top' is unknown to the policy; there are 3"):
        policy.act("top", 0)


ROOMS = ["hall", "attic", "cellar"]


def house(states=ROOMS, actions=("up", "down")) -> up.FiniteMDP:
    """Three rooms and two ways, in any order of their names."""
    truth = {
        ("hall", "up"): {"attic": 0.7, "hall": 0.3}, ("hall", "down"): {"cellar": 1.0},
        ("attic", "up"): {"attic": 1.0}, ("attic", "down"): {"hall": 0.9, "attic": 0.1},
        ("cellar", "up"): {"hall": 0.5, "cellar": 0.5}, ("cellar", "down"): {"cellar": 1.0},
    }  # fmt: skip
    number = {s: i for i, s in enumerate(states)}
    p = np.zeros((3, 2, 3))
    r = np.zeros((3, 2))
    for (s, a), row in truth.items():
        for t, chance in row.items():
            p[number[s], list(actions).index(a), number[t]] = chance
        r[number[s], list(actions).index(a)] = {"attic": 3.0, "hall": -1.0, "cellar": 0.5}[s]
    return up.FiniteMDP.from_arrays(p, r, 4, number["hall"], states=states, actions=actions)


OTHER = ["cellar", "hall", "attic"], ("down", "up")


@pytest.mark.parametrize("form", ["plan", "policy", "mixture"])
def test_a_policy_is_played_as_a_fixed_agent(form):
    mdp, other = house(), house(*OTHER)
    plan = up.solve(mdp)
    policy = up.Policy.from_plan(plan)
    if form == "mixture":
        policy = up.Policy(np.full((4, 3, 2), 0.5), 2, ROOMS, ("up", "down"))
    run = up.simulate(other, plan if form == "plan" else policy, 300, seed=1)
    value = up.evaluate(other, policy)[0, 1]
    if form == "mixture":
        assert len(set(run.values)) > 1
        assert run.values.mean() == pytest.approx(value, abs=0.3)
    else:
        np.testing.assert_allclose(run.values, value)
        np.testing.assert_allclose(run.regret, 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="state 'den' is unknown to the policy"):
        up.simulate(from_rows({(0, 0): {0: 1.0}}, [[0.0]], 4, states=["den"]), policy, 1)


def test_stationary_plans_are_matched_by_name():
    mdp, other = house(), house(*OTHER)
    best = up.solve(mdp, discount=0.9)
    again = up.evaluate(other, best, discount=0.9)
    np.testing.assert_allclose(again.v[[1, 2, 0]], best.v, atol=1e-7)
    always = up.Policy(np.tile([0, 0, 0], (4, 1)), 2, ROOMS, ("up", "down"))
    gain = up.evaluate(other, always, average=True).gain
    assert gain == pytest.approx(up.evaluate(mdp, always, average=True).gain)
    changing = up.Policy(np.array([[0, 0, 0], [1, 1, 1]] * 2), 2, ROOMS, ("up", "down"))
    with pytest.raises(ValueError, match="policy has shape"):
        up.evaluate(mdp, changing, average=True)


def test_a_plan_is_valued_by_name_under_a_fitted_log():
    mdp, other = house(), house(*OTHER)
    played = up.rollouts(other, np.full((3, 2), 0.5), 200, seed=0)
    log = [x.ravel() for x in (played.states[:, :-1], played.actions, played.states[:, 1:])]
    names = other.true_task
    rows = [
        (names.state_names[s], names.action_names[a], names.state_names[t])
        for s, a, t in zip(*log, strict=True)
    ]
    paid = dict(zip(names.state_names, names.reward.tolist(), strict=True))
    number = {a: i for i, a in enumerate(names.action_names)}
    model = up.fit_transitions(
        "C(next_state):C(action)", list(zip(*rows, strict=True)), successors="all",
        states={"state": list(names.state_names)}, regularization=0.1, horizon=names.horizon,
        reward=lambda s, a: paid[s][number[a]],
    )  # fmt: skip
    plan = up.solve(mdp)
    by_plan = up.policy_value(model.at(start="hall"), plan).value
    assert by_plan == pytest.approx(
        up.policy_value(model.at(start="hall"), up.Policy.from_plan(plan)).value
    )
    assert by_plan == pytest.approx(
        up.policy_value(
            model.at(start="hall"), up.Policy.from_plan(plan, other.true_task).actions
        ).value
    )


def test_a_transition_that_is_not_declared_is_refused():
    ways = {("hall", "up"): ["attic"], ("hall", "down"): ["cellar"]}
    task = up.Task.from_successors(
        ["hall", "attic", "cellar"], ["up", "down"], lambda s, a: ways.get((s, a), ["hall"]), 4
    )
    agent = up.agents.UCBVI(task)
    news = [0, 0], [0], [0.0]  # up from the hall, and still there
    sentence = r"\(s='hall', a='up'\) to 'hall', which is not among .* declare it"
    with pytest.raises(ValueError, match=sentence):
        agent.update(agent.init(), None, news)


def test_names_can_be_listed():
    """With names and without; a list of numbers ends where the states do."""
    assert list(house().true_task.state_names) == list(house().true_task.states)
    plain = up.envs.riverswim(4, 6).true_task
    assert list(plain.state_names) == [0, 1, 2, 3]
