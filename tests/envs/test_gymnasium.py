import subprocess
import sys
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

import upriver as up
from upriver.envs.gymnasium import FiniteMDPEnv, from_table
from upriver.planning import start_value


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_upriver_alone_imports_no_gymnasium():
    code = (
        "import sys, upriver; "
        "print([m for m in ('gymnasium', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", up.envs.ENVIRONMENTS)
def test_every_environment_passes_the_official_check(name):
    check_env(up.envs.to_gymnasium(up.envs.make(name)), skip_render_check=True)


@pytest.mark.parametrize("vector", ["SyncVectorEnv", "AsyncVectorEnv"])
def test_vector_environments_and_statistics(vector):
    river = partial(up.envs.to_gymnasium, up.envs.riverswim(6, 24))
    envs = getattr(gymnasium.vector, vector)([river] * 3)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=1)
    for _ in range(24):
        *_, truncated, info = envs.step(np.ones(3, np.int64))
    assert truncated.all() and (info["episode"]["l"] == 24).all()
    envs.close()


def test_record_episode_statistics():
    env = RecordEpisodeStatistics(up.envs.to_gymnasium(up.envs.riverswim(4, 7)))
    env.reset(seed=0)
    total = 0.0
    for _ in range(7):
        _, reward, ended, truncated, info = env.step(0)
        total += reward
    assert truncated and not ended
    assert info["episode"]["l"] == 7 and info["episode"]["r"] == pytest.approx(total)
    assert total == pytest.approx(7 * 0.005)


def test_steps_follow_the_probabilities():
    mdp = up.envs.riverswim(3, 4)
    env = up.envs.to_gymnasium(mdp)
    env.reset(seed=0)
    seen = np.zeros(3)
    for _ in range(4000):
        env.reset()
        env.state = 1
        seen[env.step(1)[0]] += 1
    # 5 standard errors of a frequency near one half
    assert np.abs(seen / 4000 - [0.05, 0.6, 0.35]).max() < 5 * 0.5 / np.sqrt(4000)


def test_a_table_of_an_mdp_gives_it_back():
    mdp = up.envs.riverswim(5, 11, variant="strehl")
    table = [[[], []] for _ in range(5)]
    for s, a, s2, p in zip(*mdp.true_task.triples, mdp.probability[0], strict=True):
        table[s][a].append((p, s2, mdp.reward[s, a], False))
    back = from_table(table, [0, 0.5, 0.5, 0, 0], 11, "table")
    assert back.true_task.same_support(mdp.true_task)
    np.testing.assert_allclose(back.probability, mdp.probability, rtol=1e-15)
    np.testing.assert_array_equal(back.reward, mdp.reward)
    np.testing.assert_array_equal(back.initial_probability, mdp.initial_probability)


def test_frozen_lake_by_hand():
    mdp = up.envs.from_gymnasium("FrozenLake-v1", success_rate=0.8)
    assert mdp.horizon == 100  # its own time limit
    task = mdp.true_task
    at = task.rows(14, 2)  # left of the goal, going right: down and up slips stay and go up
    assert dict(zip(task.successors[at], mdp.probability[0, at], strict=True)) == pytest.approx(
        {10: 0.1, 14: 0.1, 15: 0.8}
    )
    assert mdp.reward[14, 2] == pytest.approx(0.8)
    for over in (5, 7, 11, 12, 15):
        assert [task.successors[task.rows(over, a)].tolist() for a in range(4)] == [[over]] * 4
        assert (mdp.reward[over] == 0).all()
    at = task.rows(0, 0)  # a corner: two of the three outcomes stay
    assert mdp.probability[0, at] == pytest.approx([0.9, 0.1])


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalkingSlippery-v1", "Taxi-v4"])
def test_values_in_the_users_units(name):
    """V* equals value iteration on the raw table, with its rewards and endings as they are."""
    horizon = 30
    mdp = up.envs.from_gymnasium(name, horizon=horizon)
    env = gymnasium.make(name).unwrapped
    n = len(env.P)
    v = np.zeros(n)
    for _ in range(horizon):
        v = np.array([
            max(
                sum(p * (r + (0.0 if end else v[s2])) for p, s2, r, end in env.P[s][a])
                for a in env.P[s]
            )
            for s in range(n)
        ])  # fmt: skip
    expected = float(env.initial_state_distrib @ v)
    got = start_value(mdp, up.solve(mdp).v)
    assert got == pytest.approx(expected, abs=1e-9)


def test_a_state_where_only_some_episodes_end_gets_an_end_state():
    rows = [
        {0: [(0.5, 1, 0.0, False), (0.5, 1, 2.0, True)]},
        {0: [(1.0, 0, -2.0, False)]},
    ]
    mdp = from_table(rows, 0, 3, "two")
    assert mdp.true_task.states == (0, 1, "end")
    assert mdp.true_task.reward_range == (-2.0, 2.0)
    # 1 for the first step; half go on, pay -2, and are back for another 1
    assert up.solve(mdp).v[0, 0] == pytest.approx(1 + 0.5 * (-2 + 1))


def test_a_table_may_be_an_array():
    table = np.array([[[[0.5, 0, 1.0, 0], [0.5, 1, 2.0, 1]]], [[[0.5, 1, 0.0, 1]] * 2]])
    assert up.solve(from_table(table, 0, 3, "two")).v[0].tolist() == [2.625, 0.0]


def test_a_table_may_lack_actions():
    table = {0: {1: [(1.0, 1, 3.0, False)]}, 1: {0: [(1.0, 0, 0.0, False)], 1: []}}
    mdp = from_table(table, [0.25, 0.75], 2, "two")
    assert mdp.true_task.available.tolist() == [[False, True], [True, False]]
    assert up.solve(mdp).v[0].tolist() == [3.0, 3.0]
    for empty in ({}, [{}, {}], [{0: []}]):
        with pytest.raises(ValueError, match="P of two has no outcomes"):
            from_table(empty, 0, 2, "two")


class Table:
    """An environment with a table P of one state, whose first outcome has the given next state."""

    spec, initial_state_distrib = None, np.array([1.0, 0.0])

    def __init__(self, following):
        self.P = {0: {0: [(1.0, following, 0.5, False)]}, 1: {0: [(1.0, 1, 0.0, False)]}}


@pytest.mark.parametrize("following", [1.9, -1, 2, "1", None, np.nan])
def test_a_next_state_that_is_not_a_state_is_refused(following):
    """A next state of 1.9 must not become 1."""
    with pytest.raises(ValueError, match=r"P\[0\]\[0\] of Table holds .*next state from 0 to 1"):
        up.envs.from_gymnasium(Table(following), horizon=3)


@pytest.mark.parametrize(
    "table",
    [5, {0: None}, {0: {0: None}}, {0: {0: [None]}}, {0: {0: [(1.0, 0, "x", False)]}},
     {0: {0: [(None, 0, 1.0, False)]}}],
)  # fmt: skip
def test_a_table_of_other_things_than_outcomes_is_refused(table):
    with pytest.raises(ValueError, match=r"P.* of two holds .*outcomes|P.* of two holds .*reward"):
        from_table(table, 0, 2, "two")


@pytest.mark.parametrize("following", [1, 1.0, np.int64(1)])
def test_next_states_are_whole_numbers_of_any_type(following):
    mdp = up.envs.from_gymnasium(Table(following), horizon=3)
    assert mdp.task().successors.tolist() == [1, 1]


def test_an_environment_without_a_table_is_a_black_box():
    with pytest.raises(ValueError, match=r"CartPole-v1 has no transition table P.*upriver.learn"):
        up.envs.from_gymnasium("CartPole-v1")


def test_an_episode_that_is_over_must_be_reset():
    mdp = up.FiniteMDP.from_arrays(np.full((2, 2, 1, 2), 0.5), np.zeros((2, 1)), 2)
    env = FiniteMDPEnv(mdp)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValueError, match="call reset first"):
        env.step(0), env.step(0)


def test_an_infinite_horizon_is_no_environment():
    with pytest.raises(ValueError, match="infinite horizon"):
        up.envs.to_gymnasium(up.envs.riverswim(3).infinite_horizon(0.9))


def test_small_units_do_not_end_an_episode():
    stays = [[[0.0, 1.0]], [[0.0, 1.0]]]
    mdp = up.FiniteMDP.from_arrays(stays, [[0.0], [1e-13]], 4)
    env = up.envs.to_gymnasium(mdp)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]


def test_what_a_table_does_not_contain_is_refused():
    """A fickle passenger changes the destination in `step`, with a hidden variable, not in P."""
    with pytest.raises(ValueError, match=r"fickle_passenger of Taxi-v4 is True.*upriver.learn"):
        up.envs.from_gymnasium("Taxi-v4", fickle_passenger=True)
    rainy = up.envs.from_gymnasium("Taxi-v4", is_rainy=True)
    assert rainy.true_task.max_successors == 3
    lake = gymnasium.make("FrozenLake-v1")
    doubled = gymnasium.wrappers.TransformReward(lake, lambda r: 2 * r)
    with pytest.raises(ValueError, match=r"TransformReward.*upriver.learn"):
        up.envs.from_gymnasium(doubled)
    counted = gymnasium.wrappers.RecordEpisodeStatistics(lake)
    assert up.envs.from_gymnasium(counted).n_states == 16
