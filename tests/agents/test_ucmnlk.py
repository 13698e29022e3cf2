"""UCMNLK and plans for an infinite horizon: optimism, coverage, hand cases."""

from dataclasses import fields
from math import log

import numpy as np
import pytest

import upriver as up
from studies import environments
from upriver.agents.base import Episode
from upriver.mnl.online import mirror_radius, mirror_regularization, theory_step
from upriver.planning.infinite_horizon import plan_l1, plan_model, plan_tilted

TIE_SEED = np.uint64(7)


def infinite_horizon(seed, discount=0.9):
    mdp = up.envs.random_mnl(6, max_successors=4, seed=seed).infinite_horizon(discount)
    return mdp, mdp.true_task


@pytest.mark.parametrize("seed", range(4))
def test_without_a_radius_it_is_the_optimum(seed):
    mdp, task = infinite_horizon(seed)
    prob, reward = mdp.probability[0], task.reward_rows[0]
    best, starts = up.solve(mdp).v, np.append(0, np.cumsum((task.sizes - 1) ** 2))
    for plan in (
        plan_model(task, prob, reward, TIE_SEED),
        plan_l1(task, prob, reward, np.zeros(len(task.sizes)), TIE_SEED, 0.9),
        plan_tilted(task, prob, reward, np.zeros((1, starts[-1])), starts, TIE_SEED),
    ):
        np.testing.assert_allclose(plan.v[0], best, atol=1e-5)
        np.testing.assert_allclose(up.evaluate(mdp, plan).v, best, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_extended_plans_are_fixed_points_of_a_plain_sweep(seed, rng):
    mdp, task = infinite_horizon(seed)
    prob, reward = mdp.probability[0], task.reward_rows[0]
    radius = rng.random(len(task.sizes))
    v = plan_l1(task, prob, reward, radius, TIE_SEED, 0.9).v[0]
    q = np.empty(len(task.sizes))
    for g in range(len(q)):
        rows = slice(task.indptr[g], task.indptr[g + 1])
        values, p = v[task.successors[rows]], prob[rows].copy()
        order = np.argsort(values)
        left = min(radius[g] / 2, 1 - p[order[-1]])
        p[order[-1]] += left
        for u in order[:-1]:
            moved = min(left, p[u])
            p[u], left = p[u] - moved, left - moved
        q[g] = reward[g] + 0.9 * p @ values
    np.testing.assert_allclose(q.reshape(task.n_states, -1).max(axis=1), v, atol=1e-5)


def test_average_plans_of_models_that_fall_apart():
    """Optimism may believe in two closed classes at once; the plan must still be the best one."""
    mdp = up.envs.riverswim(6).infinite_horizon()
    agent = up.agents.UCRLMNLSE(mdp.task("local"), up.features.shared(mdp.task("local")))
    run = up.simulate(mdp, agent, n_steps=3_000, seed=1)
    assert run.regret[-300:].mean() < 0.5 * up.solve(mdp).gain


def coverage(mdp, agent, best, seeds):
    """Share of the plans whose set holds the truth at every pair; where it does V >= V*."""
    task, held = mdp.true_task, []

    class Watch(up.agents.UCMNLK):
        def plan(self, state, rng):
            plan = super().plan(state, rng)
            size = np.minimum(2.0 * self.beta(state) * state.model.max_norm[0], 2.0)
            far = task.by_pair(np.abs(state.model.prob[0] - mdp.probability[0]))
            held.append(bool((far <= size + 1e-12).all()))
            assert not held[-1] or (plan.v[0] >= best - 1e-5).all()
            return plan

    watch = Watch(**{f.name: getattr(agent, f.name) for f in fields(agent)})
    for seed in range(seeds):
        up.simulate(mdp, watch, n_steps=400, seed=seed)
    return np.mean(held)


@pytest.mark.parametrize("discount", [0.9, None])
def test_the_set_holds_the_truth_and_plans_are_optimistic(discount):
    mdp = environments.two_state(2).infinite_horizon(discount)
    phi = environments.ENVIRONMENTS["two-state"].shared(mdp.true_task)
    theta = np.array([np.log(1 / 3), np.log(1 / 3), 0.01 / 0.1875, 0.01 / 0.1875])
    bound = float(np.linalg.norm(theta)) + 0.1
    theory = up.agents.UCMNLK(
        mdp.true_task, phi, mirror_radius(bound), mirror_regularization(phi, bound),
        step_size=theory_step(phi, bound), theta_bound=bound, n_steps=400,
    )  # fmt: skip
    best = up.solve(mdp, discount=theory.gamma).v
    assert coverage(mdp, theory, best, 10) >= 0.95
    for beta, low, high in ((2.0, 0.95, 1.0), (0.05, 0.0, 0.5)):  # and so that it can fail
        agent = up.agents.UCMNLK(
            mdp.true_task, phi, up.radii.constant_radius(beta), step_size=1.0, n_steps=400
        )
        assert low <= coverage(mdp, agent, best, 10) <= high


def test_the_discount_of_the_average_is_the_published_one():
    mdp = environments.two_state(3).infinite_horizon()
    phi = environments.ENVIRONMENTS["two-state"].shared(mdp.true_task)
    agent = up.agents.UCMNLK(mdp.true_task, phi, n_steps=5_000, diameter=4.0)
    assert agent.gamma == pytest.approx(1.0 - np.sqrt(5 / 4.0 / 5_000))
    assert up.agents.UCMNLK(mdp.infinite_horizon(0.7).true_task, phi).gamma == 0.7


def test_a_step_does_not_cost_more_as_time_goes_on():
    mdp = up.envs.queue(6).infinite_horizon()
    phi = up.envs.ENVIRONMENTS["queue"].shared(mdp.true_task)
    for agent in (up.agents.UCMNLK(mdp.true_task, phi), up.agents.UCRLMNLSE(mdp.true_task, phi)):
        up.simulate(mdp, agent, n_steps=200)  # compiled
        seconds = np.median([up.simulate(mdp, agent, n_steps=20_000, seed=i).seconds
                             for i in range(3)], axis=0)  # fmt: skip
        assert seconds[10_000:].mean() < 2.0 * seconds[:10_000].mean()


def test_the_radius_by_hand():
    """beta = c sqrt(d) log(S t / (1 - gamma))^2 with d = 72, S = 6, t = 7, gamma = 3/4."""
    mdp, task = infinite_horizon(0, 0.75)
    agent = up.agents.UCMNLK(task, up.features.one_hot(task), 0.3)
    found = agent.beta(agent.init()._replace(k=7))
    assert found == pytest.approx(0.3 * np.sqrt(72) * log(6 * 7 * 4) ** 2)
    assert agent.step_size == pytest.approx(0.5 * log(2.0) + 2.0)
    assert up.agents.UCMNLK(mdp.true_task, agent.features, 0.0).beta(agent.init()) == 0.0
    episodic = up.envs.riverswim(4, horizon=6).task()
    agent = up.agents.UCMNLK(episodic, up.features.one_hot(episodic))
    assert agent.gamma == pytest.approx(1.0 - 1.0 / 7.0)


@pytest.mark.parametrize("beta", [0.01, 0.35, 0.7, 5.0])
def test_the_sets_have_twice_the_radius_and_hold_at_most_the_simplex(beta):
    """With lambda = 1 and unit features m starts at 1, so that sizes of 0.7 and 1.4 are not cut."""
    mdp, task = infinite_horizon(1)
    agent = up.agents.UCMNLK(task, up.features.one_hot(task), up.radii.constant_radius(beta))
    state = up.simulate(mdp, agent, n_steps=30, seed=0).state
    plan = agent.plan(state, np.random.default_rng(0))
    size = np.minimum(2.0 * beta * state.model.max_norm[0], 2.0)
    reward, prob = task.reward_rows[0], state.model.prob[0]
    best = plan_l1(task, prob, reward, size, TIE_SEED, 0.9).v
    np.testing.assert_allclose(plan.v, best, atol=1e-6)
    smaller = plan_l1(task, prob, reward, 0.9 * size, TIE_SEED, 0.9).v
    assert (smaller[0] < best[0] - 1e-4).all()  # so that the size is what decides


def test_time_counts_steps():
    for mdp in (up.envs.riverswim(4, horizon=6), up.envs.riverswim(4).infinite_horizon(0.9)):
        task = mdp.task("local")
        agent = up.agents.UCMNLK(task, up.features.one_hot(task))
        episode = Episode(np.array([0, 1, 1, 0]), np.array([1, 1, 0]), np.zeros(3))
        assert agent.update(agent.init(), agent.plan(agent.init(), np.random.default_rng(0)),
                            episode).k == 4  # fmt: skip
