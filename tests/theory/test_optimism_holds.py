"""Lemma 2: wherever theta* lies in the confidence set, the planned Q is at least Q*."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import dense, gram, matrix, optimal_q
from upriver import FiniteMDP, features, simulate
from upriver.agents import UCRLMNL
from upriver.features import Features, recentre
from upriver.mnl.likelihood import probabilities
from upriver.mnl.radii import constant_radius
from upriver.planning import optimism

RULES = ["closed-form", "half-range", "gradient", "exact-maximum"]


def realizable(rng, n_states=4, n_actions=2, horizon=5, d=3):
    """(mdp, features, theta*): an MDP that is exactly MNL, one successor with the zero vector."""
    support = [
        np.sort(rng.choice(n_states, rng.integers(1, n_states + 1), replace=False))
        for _ in range(n_states * n_actions)
    ]
    p = np.zeros((n_states, n_actions, n_states))
    for g, reached in enumerate(support):
        p[g // n_actions, g % n_actions, reached] = 1.0 / len(reached)
    reward = rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.5)
    uniform = FiniteMDP.from_arrays(p, reward, horizon)
    task = uniform.task()
    made = recentre(Features(task, rng.standard_normal((task.n_triples, d))))
    theta = rng.standard_normal(d)
    probability = probabilities(made, theta)[None]
    mdp = FiniteMDP(task, probability, np.array([0]), np.ones(1))
    return mdp, made, theta


def distance(made, state, theta):
    """||theta_hat - theta*||_A, with A computed again from the counts."""
    model = state.model
    gap = model.theta[0] - theta
    a = gram(made.task, matrix(made), model.counts[0], model.regularization)
    return float(np.sqrt(gap @ a @ gap))


@pytest.mark.parametrize("rule", RULES)
def test_theta_star_inside_means_optimism(rng, rule):
    """The radius is set to the true distance: theta* sits on the edge, the hardest case."""
    rule = optimism.OPTIMISMS[rule]
    margin = []
    for seed in range(8):
        mdp, made, theta = realizable(rng)
        truth = optimal_q(*dense(mdp))
        for episodes in (1, 3, 12):
            lam = float(rng.choice([0.1, 1.0]))
            agent = UCRLMNL(made.task, made, 0.1, lam, optimism=rule)
            state = simulate(mdp, agent, episodes, seed=seed).state
            edge = UCRLMNL(
                made.task, made, constant_radius(distance(made, state, theta) * (1 + 1e-12)), lam,
                optimism=rule,
            )  # fmt: skip
            plan = edge.plan(state, rng)
            for h in range(mdp.horizon):
                excess = np.minimum(plan.q(h), np.inf) - truth[h]
                assert excess.min() >= -1e-10
                margin.append(excess.min())
            assert (plan.v[:-1] >= truth.max(axis=2) - 1e-10).all()
    assert min(margin) < 0.2  # the cases are not all far from the edge


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shift", [1e-3, 0.1, 1.0])
def test_the_tightest_case(rule, shift):
    """A fair coin between all and nothing, theta* a push towards all: no bonus has room to spare.

    P V moves by B tanh(shift) / 2 where the first-order bound says B shift / 2.
    """
    horizon, lam = 6, 0.5
    p = np.zeros((3, 1, 3))
    p[0, 0, 1] = 1.0 / (1.0 + np.exp(-2.0 * shift))
    p[0, 0, 2] = 1.0 - p[0, 0, 1]
    p[1, 0, 1] = p[2, 0, 2] = 1.0
    mdp = FiniteMDP.from_arrays(p, [[0.0], [1.0], [0.0]], horizon)
    made = Features(mdp.task(), [[1.0], [-1.0], [0.0], [0.0]])
    agent = UCRLMNL(
        made.task, made, constant_radius(np.sqrt(lam) * shift * (1 + 1e-12)), lam,
        optimism=optimism.OPTIMISMS[rule],
    )  # fmt: skip
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    excess = np.array([plan.q(h)[0, 0] for h in range(horizon)]) - optimal_q(*dense(mdp))[:, 0, 0]
    assert excess.min() >= -1e-10
    room = (horizon - 1) / 2 * (shift - np.tanh(shift))
    if rule == "exact-maximum":
        assert excess.max() <= 1e-9
    elif rule == "half-range":
        assert excess[0] == pytest.approx(room, abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_without_a_radius_there_is_no_optimism(rng, rule):
    """The test above can fail: greedy plans fall below Q* on these problems."""
    fell = 0
    for seed in range(8):
        mdp, made, _ = realizable(rng)
        agent = UCRLMNL(made.task, made, 0.0, 1.0, optimism=optimism.OPTIMISMS[rule])
        plan = agent.plan(simulate(mdp, agent, 3, seed=seed).state, rng)
        fell += (plan.v[:-1] < optimal_q(*dense(mdp)).max(axis=2) - 1e-6).any()
    assert fell >= 4


@pytest.mark.parametrize("support", ["known", "full"])
def test_the_exact_maximum_lies_between_greedy_and_closed_form(rng, support):
    for seed in range(6):
        mdp, made, _ = realizable(rng)
        if support == "full":
            task = mdp.task("full")
            made = features.one_hot_indicator(task)
        task = made.task
        plans = {}
        run = simulate(
            mdp, UCRLMNL(task, made, 0.01, optimism=optimism.exact_maximum), 5, seed=seed
        )
        for beta in (0.0, 0.05, 0.5):
            for name in ("exact-maximum", "closed-form", "half-range", "gradient"):
                agent = UCRLMNL(
                    task, made, constant_radius(beta), optimism=optimism.OPTIMISMS[name]
                )
                # the state of another optimism, on purpose, so without the checks of `plan`
                plans[name, beta] = agent.make_plan(run.state, np.random.default_rng(0))
        greedy = plans["closed-form", 0.0]
        for beta in (0.0, 0.05, 0.5):
            exact = plans["exact-maximum", beta]
            assert (exact.v <= np.arange(mdp.horizon, -1, -1)[:, None] + 1e-9).all()
            for h in range(mdp.horizon):
                assert (exact.q(h) >= greedy.q(h) - 1e-9).all()
                for name in ("closed-form", "half-range", "gradient"):
                    assert (exact.q(h) <= plans[name, beta].q(h) + 1e-9).all(), name
        for h in range(mdp.horizon):  # and it grows with the set
            assert (
                plans["exact-maximum", 0.05].q(h) <= plans["exact-maximum", 0.5].q(h) + 1e-9
            ).all()
