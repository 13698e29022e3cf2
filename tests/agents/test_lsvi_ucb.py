"""LSVI-UCB: by hand, against plain regression on the history, and optimistic as proved."""

from functools import partial

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play, random_mdp
from tests.agents.plain_linear import (
    lsvi_step,
    many_visits,
    optimal_q,
    right_then_stay,
    samples,
    two_states,
)

published = partial(up.agents.LSVIUCB, regress_reward=True)


def reference(task, episodes, phi, lam, bonus):
    history = samples(task, episodes)

    def action_values(h, v):
        inverse, w = lsvi_step(task, history, h, phi, lam, v)
        width = np.sqrt(np.einsum("gi,ij,gj->g", phi, inverse, phi))
        q = np.minimum(phi @ w + bonus * task.horizon * width, task.horizon)
        return q.reshape(task.n_states, task.n_actions)

    return action_values


def test_by_hand():
    agent = up.agents.LSVIUCB(
        two_states().task("full"), bonus=0.1, regularization=0.5, regress_reward=True
    )
    state = agent.update(agent.init(), None, right_then_stay())
    plan = agent.plan(state, np.random.default_rng(0))
    # Each step has one visit, of one pair; the reward is shrunk with the rest.
    new, old = 0.2 / np.sqrt(0.5), 0.2 / np.sqrt(1.5)
    last = np.array([[new, new], [0.3 / 1.5 + old, new]])
    assert plan.q(1) == pytest.approx(last)
    first = np.array([[new, (0.2 + last[1].max()) / 1.5 + old], [new, new]])
    assert plan.q(0) == pytest.approx(first)


@pytest.mark.parametrize("support", ["full", "known"])
def test_one_hot_agrees_with_plain_regression(support):
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task(support)
    agent = published(task, bonus=0.05, regularization=0.3)
    for episodes, _, plan in play(agent, mdp, 12):
        check_plan(plan, reference(task, episodes, np.eye(8), 0.3, 0.05), [6.0] * 6)


def test_general_features_agree_with_plain_regression(rng):
    """Features of both signs: Q is cut from above only, and may be negative."""
    mdp = random_mdp(3)
    task = mdp.task("full")
    phi = rng.standard_normal((6, 3))
    agent = published(task, bonus=0.0, regularization=0.3, phi=phi)
    lowest = 0.0
    for episodes, _, plan in play(agent, mdp, 12):
        check_plan(plan, reference(task, episodes, phi, 0.3, 0.0), [4.0] * 4)
        lowest = min(lowest, plan.q(0).min())
    assert lowest < 0
    agent = published(task, bonus=0.1, regularization=0.3, phi=phi)
    for episodes, _, plan in play(agent, mdp, 12):
        check_plan(plan, reference(task, episodes, phi, 0.3, 0.1), [4.0] * 4)


def test_one_hot_given_explicitly_is_the_default():
    mdp = up.envs.riverswim(4)
    task = mdp.task("local")
    one = up.simulate(mdp, up.agents.LSVIUCB(task), 30, seed=1)
    two = up.simulate(mdp, up.agents.LSVIUCB(task, phi=np.eye(8)), 30, seed=1)
    np.testing.assert_allclose(one.plan.v, two.plan.v, atol=1e-9)
    np.testing.assert_array_equal(one.returns, two.returns)


def test_optimistic_with_the_theory(rng):
    mdp = random_mdp(1, n_states=2, horizon=2)
    task, n = mdp.task("full"), 10_000
    bonus = 4 * np.sqrt(np.log(2 * 4 * 8 * n / 0.1))  # d sqrt(log(2 d K H / delta)), d = S A
    agent = up.agents.LSVIUCB(task, bonus=bonus, regularization=1.0)
    for _ in range(20):
        plan = agent.plan(many_visits(mdp, n, rng), rng)
        assert plan.q(0).min() < mdp.horizon  # the clip is not what makes it optimistic
        assert all((plan.q(h) >= optimal_q(mdp, h)).all() for h in range(mdp.horizon))


def test_data_without_end_gives_the_optimum(rng):
    mdp = random_mdp(1)
    state = up.agents.LSVIUCB(mdp.task("full")).init()
    state.model.counts[:] = 1e12 * mdp.probability
    state.model.paid[:] = 1e12 * mdp.reward.ravel()
    for phi in (None, np.eye(6)):
        plan = up.agents.LSVIUCB(mdp.task("full"), phi=phi).plan(state, rng)
        np.testing.assert_allclose(plan.v, up.solve(mdp).v, atol=1e-6)


def test_as_published_a_known_reward_is_not_used():
    """The published algorithm regresses what it was paid, so hiding the reward changes nothing."""
    mdp = up.envs.riverswim(3)
    told = up.simulate(mdp, published(mdp.task("full")), 40, seed=0)
    untold = up.simulate(mdp, up.agents.LSVIUCB(mdp.task("full").with_unknown_reward()), 40, seed=0)
    np.testing.assert_array_equal(told.returns, untold.returns)


def test_bad_input():
    task = two_states().task("full")
    with pytest.raises(ValueError, match=r"phi has shape \(2, 4\); .* of shape \(4, d\)"):
        up.agents.LSVIUCB(task, phi=np.ones((2, 4)))
    with pytest.raises(ValueError, match="bonus is -1"):
        up.agents.LSVIUCB(task, bonus=-1)
    with pytest.raises(ValueError, match="regularization is 0"):
        up.agents.LSVIUCB(task, regularization=0)


@pytest.mark.parametrize("phi", [None, np.eye(4)])
def test_a_known_reward_is_used_and_not_shrunk(phi):
    """By hand, one visit for each step: r comes whole, only V_{h+1} is regressed."""
    agent = up.agents.LSVIUCB(two_states().task("full"), bonus=0.1, regularization=0.5, phi=phi)
    state = agent.update(agent.init(), None, right_then_stay())
    plan = agent.plan(state, np.random.default_rng(0))
    new, old = 0.2 / np.sqrt(0.5), 0.2 / np.sqrt(1.5)
    reward = np.array([[0.1, 0.2], [0.3, 0.4]])
    last = reward + np.array([[new, new], [old, new]])
    assert plan.q(1) == pytest.approx(last)
    first = np.array([[new, last[1].max() / 1.5 + old], [new, new]])
    assert plan.q(0) == pytest.approx(reward + first)
