"""Epsilon-greedy: the greedy part is UCRL-MNL without bonus, the rest follows epsilon."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import play
from upriver.features import one_hot


def agents(**numbers):
    task = up.envs.riverswim(5, horizon=10).task("local")
    return up.agents.EpsilonGreedy(task, one_hot(task), **numbers)


def test_without_epsilon_it_is_ucrl_mnl_without_bonus():
    mdp = up.envs.riverswim(5, horizon=10)
    greedy = agents(epsilon=0.0)
    other = up.agents.UCRLMNL(greedy.task, greedy.features, radius=0.0)
    twin = other.init()
    for k, (episodes, state, _) in enumerate(play(greedy, mdp, 8)):
        if episodes:
            twin = other.update(twin, None, episodes[-1])
        one, two = (
            greedy.plan(state, np.random.default_rng(k)),
            other.plan(twin, np.random.default_rng(k)),
        )
        assert np.array_equal(one.policy, two.policy) and np.array_equal(one.v, two.v)
        assert np.array_equal(state.model.theta, twin.model.theta)


def test_actions_are_replaced_as_often_as_epsilon_says():
    agent = agents(epsilon=0.6, decay=0.5)
    state = agent.init()._replace(k=4)  # epsilon_4 = 0.3, and half of the draws hit the same action
    greedy = agents(epsilon=0.0)
    changed = []
    for seed in range(200):
        plans = [a.plan(state, np.random.default_rng(seed)) for a in (agent, greedy)]
        assert np.array_equal(plans[0].v, plans[1].v)
        changed.append((plans[0].policy != plans[1].policy).mean())
    error = 4 * np.sqrt(0.15 * 0.85 / (200 * 50))
    assert np.mean(changed) == pytest.approx(0.15, abs=error)
    assert plans[0].policy.dtype == plans[1].policy.dtype


def test_one_is_uniform_play():
    agent = agents(epsilon=1.0, decay=0.0)
    state = agent.init()._replace(k=1000)
    right = [agent.plan(state, np.random.default_rng(seed)).policy.mean() for seed in range(100)]
    assert np.mean(right) == pytest.approx(0.5, abs=0.03)


def test_bad_inputs_are_named():
    with pytest.raises(ValueError, match=r"epsilon is 1\.5; it must lie between 0 and 1"):
        agents(epsilon=1.5)
    with pytest.raises(ValueError, match="decay is -1"):
        agents(decay=-1)
    task = up.envs.riverswim(5, horizon=10).task("full")
    with pytest.raises(ValueError, match="features were made for"):
        up.agents.EpsilonGreedy(task, one_hot(up.envs.riverswim(5, horizon=10).task("local")))


def test_the_schedule_begins_with_k_equal_to_one():
    """epsilon_k = epsilon k^-decay: the share of actions off the greedy plan is half of it."""
    mdp = up.envs.riverswim(20, horizon=50)
    task = mdp.task("local")
    features = up.features.one_hot(task)
    agent = up.agents.EpsilonGreedy(task, features, epsilon=0.8, decay=0.5)
    first = agent.init()
    for k in (1, 4, 16):
        state = first._replace(k=k)
        off = []
        for seed in range(20):
            word = np.random.default_rng(seed)
            greedy = up.agents.EpsilonGreedy(task, features, epsilon=0.0).plan(state, word)
            off.append(agent.plan(state, np.random.default_rng(seed)).policy != greedy.policy)
        assert np.mean(off) == pytest.approx(0.8 * k**-0.5 / 2, abs=0.02), k
