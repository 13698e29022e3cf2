"""LSVI-PHE: by hand, against plain regression on perturbed histories, optimistic often enough."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

import upriver as up
from tests.agents.plain import check_plan, play, random_mdp, steps_left
from tests.agents.plain_linear import (
    lsvi_step,
    many_visits,
    optimal_q,
    right_then_stay,
    samples,
    two_states,
)
from upriver.mnl.online import largest_normal
from upriver.planning import draw_tie_seed

published = partial(up.agents.LSVIPHE, regress_reward=True)


def reference(task, episodes, phi, lam, noise):
    """noise (h, Lambda_h^-1) -> (S*A,) is added to the regression."""
    history = samples(task, episodes)

    def action_values(h, v):
        inverse, w = lsvi_step(task, history, h, phi, lam, v)
        q = np.clip(phi @ w + noise(h, inverse), 0, task.horizon - h)
        return q.reshape(task.n_states, task.n_actions)

    return action_values


def test_by_hand_without_noise():
    agent = up.agents.LSVIPHE(
        two_states().task("full"), noise=0.0, regularization=0.5, regress_reward=True
    )
    state = agent.update(agent.init(), None, right_then_stay())
    plan = agent.plan(state, np.random.default_rng(0))
    assert plan.q(1) == pytest.approx(np.array([[0, 0], [0.3 / 1.5, 0]]))
    assert plan.q(0) == pytest.approx(np.array([[0, (0.2 + 0.2) / 1.5], [0, 0]]))


def test_values_are_cut_at_the_steps_left():
    agent = up.agents.LSVIPHE(two_states(3).task("full"), noise=100.0, ensemble=1000)
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    assert plan.v[:3].tolist() == [[3, 3], [2, 2], [1, 1]]


@pytest.mark.parametrize("support", ["full", "known"])
def test_one_hot_agrees_with_plain_regression(support):
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task(support)
    agent = published(task, noise=0.02, regularization=0.3, ensemble=5)
    mirror = np.random.default_rng(7)
    for episodes, _, plan in play(agent, mdp, 12, seed=7):
        z = largest_normal(mirror.standard_exponential((6, 8)), 5)
        draw_tie_seed(mirror)

        def noise(h, inverse, z=z):
            return 0.02 * 6 * np.sqrt(np.diag(inverse)) * z[h]

        check_plan(plan, reference(task, episodes, np.eye(8), 0.3, noise), steps_left(6))


def test_general_features_agree_with_plain_regression(rng):
    mdp = random_mdp(3)
    task = mdp.task("full")
    phi = rng.standard_normal((6, 3))
    agent = up.agents.LSVIPHE(
        task, noise=0.1, regularization=0.3, ensemble=5, phi=phi, regress_reward=True
    )
    mirror = np.random.default_rng(7)
    for episodes, _, plan in play(agent, mdp, 12, seed=7):
        z = mirror.standard_normal((4, 5, 3))
        draw_tie_seed(mirror)

        def noise(h, inverse, z=z):
            root = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(inverse))).T
            return 0.1 * 4 * (phi @ root @ z[h].T).max(axis=1)

        check_plan(plan, reference(task, episodes, phi, 0.3, noise), steps_left(4))


def test_drawing_the_estimate_is_perturbing_the_history(rng):
    """Targets moved by N(0, s^2) and the prior by N(0, s^2 / lam) give one Gaussian estimate."""
    phi, lam, sigma, n = rng.standard_normal((7, 2)), 0.4, 0.8, 40_000
    gram = lam * np.eye(2) + phi.T @ phi
    targets = sigma * rng.standard_normal((n, 7)) @ phi
    prior = lam * (sigma / np.sqrt(lam)) * rng.standard_normal((n, 2))
    theta = np.linalg.solve(gram, (targets + prior).T)
    np.testing.assert_allclose(np.cov(theta), sigma**2 * np.linalg.inv(gram), atol=0.01)


def test_one_hot_given_explicitly_is_the_default_up_to_noise(rng):
    mdp = up.envs.riverswim(4)
    task = mdp.task("local")
    state = up.simulate(mdp, up.agents.LSVIPHE(task), 30, seed=1).state
    one = up.agents.LSVIPHE(task, noise=0.0).plan(state, rng)
    two = up.agents.LSVIPHE(task, noise=0.0, phi=np.eye(8)).plan(state, rng)
    np.testing.assert_allclose(one.v, two.v, atol=1e-9)


def test_one_hot_and_explicit_noise_have_one_distribution(rng):
    mdp = up.envs.riverswim(3, horizon=3)
    task = mdp.task("full")
    state = many_visits(mdp, 3, rng)
    draws = [
        [agent.plan(state, rng).q(2)[2, 1] for _ in range(1500)]
        for phi in (None, np.eye(6))
        for agent in [
            up.agents.LSVIPHE(
                task, noise=0.02, regularization=1.0, ensemble=4, phi=phi, regress_reward=True
            )
        ]
    ]
    assert stats.ks_2samp(*draws).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 3, 400])
def test_largest_normal(size, rng):
    drawn = largest_normal(rng.standard_exponential(4000), size)
    assert stats.kstest(drawn, lambda x: stats.norm.cdf(x) ** size).pvalue > 1e-3


def test_optimistic_with_the_theory(rng):
    """All of Q at least Q*, in nearly every plan."""
    mdp = random_mdp(1, n_states=2, horizon=2)
    task, n = mdp.task("full"), 10_000
    noise = np.sqrt(4 * np.log(2 * 4 * 8 * n / 0.1))  # sqrt(d log(2 d K H / delta)), d = S A
    size = int(np.ceil(4 * np.log(0.1 / 9) / np.log(stats.norm.cdf(1))))
    agent = up.agents.LSVIPHE(task, noise=noise, regularization=1.0, ensemble=size)
    held = 0
    for _ in range(100):
        plan = agent.plan(many_visits(mdp, n, rng), rng)
        assert plan.q(0).min() < mdp.horizon  # the clip is not what makes it optimistic
        held += all((plan.q(h) >= optimal_q(mdp, h)).all() for h in range(mdp.horizon))
    assert held >= 90


def test_bad_input():
    task = two_states().task("full")
    with pytest.raises(ValueError, match="noise is -1"):
        up.agents.LSVIPHE(task, noise=-1)
    with pytest.raises(ValueError, match="ensemble is 0"):
        up.agents.LSVIPHE(task, ensemble=0)
    with pytest.raises(ValueError, match=r"phi has shape \(4,\)"):
        up.agents.LSVIPHE(task, phi=np.ones(4))


@pytest.mark.parametrize("phi", [None, np.eye(4)])
def test_a_known_reward_is_used_and_not_shrunk(phi):
    agent = up.agents.LSVIPHE(two_states().task("full"), noise=0.0, regularization=0.5, phi=phi)
    state = agent.update(agent.init(), None, right_then_stay())
    plan = agent.plan(state, np.random.default_rng(0))
    reward = np.array([[0.1, 0.2], [0.3, 0.4]])
    assert plan.q(1) == pytest.approx(reward)
    assert plan.q(0) == pytest.approx(reward + np.array([[0, 0.4 / 1.5], [0, 0]]))
