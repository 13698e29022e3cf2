"""UCRL-MNL against a plain second implementation that keeps the whole history."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests.reference import (
    dense,
    gram,
    groups,
    matrix,
    mnl_fit,
    mnl_gradient,
    mnl_log_probabilities,
    random_mdp,
)
from upriver import envs, features, optimism, simulate
from upriver.agents import UCRLMNL
from upriver.agents.base import Episode
from upriver.features import Features
from upriver.mnl.radii import constant_radius, corrected_radius, scaled_radius


def lam_k(k):
    return 0.5 + 0.25 * k


def play(agent, mdp, n, seed=0):
    """All (state, plan, episode) of a run, driven by hand with plain sampling."""
    rng, dice = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    p, r = dense(mdp)
    state = agent.init()
    for _ in range(n):
        plan = agent.plan(state, rng)
        s = int(dice.choice(mdp.initial_states, p=mdp.initial_probability))
        states, actions, rewards = [s], [], []
        for h in range(mdp.horizon):
            a = int(plan.policy[h, s])
            rewards.append(r[h, s, a])
            s = int(dice.choice(mdp.n_states, p=p[h, s, a]))
            states.append(s)
            actions.append(a)
        episode = Episode(np.array(states), np.array(actions), np.array(rewards))
        yield state, plan, episode
        state = agent.update(state, plan, episode)


def history_counts(task, history, steps):
    """Counts of the listed steps of past episodes, looked up one transition at a time."""
    counts = np.zeros(task.n_triples)
    row_of = {(s, a, int(task.successors[i])): i for s, a, rows in groups(task) for i in rows}
    for episode in history:
        for h in steps:
            counts[row_of[episode.states[h], episode.actions[h], episode.states[h + 1]]] += 1
    return counts


@pytest.mark.parametrize("kind", ["dense", "sparse", "one-hot"])
@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("changing", [False, True])
def test_algorithm_one_from_the_whole_history(rng, kind, per_step, changing):
    mdp = random_mdp(rng, 4, 2, 3, per_step=per_step, random_start=True)
    task = mdp.task("known")
    raw = rng.standard_normal((task.n_triples, 3))
    made = {
        "dense": lambda: Features(task, raw),
        "sparse": lambda: Features(task, sparse.csr_array(raw * (rng.random(raw.shape) < 0.5))),
        "one-hot": lambda: features.one_hot(task),
    }[kind]()
    phi = matrix(made)
    agent = UCRLMNL(
        task, made, radius=scaled_radius(0.02), per_step=per_step,
        regularization=lam_k if changing else 0.9,
    )  # fmt: skip
    history = []
    for k, (state, plan, episode) in enumerate(play(agent, mdp, 6), start=1):
        assert state.k == k
        lam = lam_k(k) if changing else 0.9
        d = made.formal_dimension
        beta = 0.02 * np.sqrt(d * np.log(1 + k * 3 * 4 / (d * lam)))
        assert agent.beta(state) == pytest.approx(beta, rel=1e-12)
        v = np.zeros(4)
        for h in (2, 1, 0):
            counts = history_counts(task, history, [h] if per_step else range(3))
            core = h if per_step else 0
            theta = mnl_fit(task, phi, counts, lam)
            np.testing.assert_allclose(state.model.theta[core], theta, atol=2e-7)
            slope = mnl_gradient(task, phi, state.model.theta[core], counts, lam)
            assert np.abs(slope).max() < 1e-8  # stationary, tighter than the other minimiser
            log_p = mnl_log_probabilities(task, phi, theta)
            inverse = np.linalg.inv(gram(task, phi, counts, lam))
            q = np.empty((4, 2))
            for s, a, rows in groups(task):
                m = max(np.sqrt(phi[i] @ inverse @ phi[i]) for i in rows)
                assert state.model.max_norm[core, 2 * s + a] == pytest.approx(m, abs=1e-10)
                reward = mdp.reward[h, s, a] if mdp.reward.ndim == 3 else mdp.reward[s, a]
                expected = np.exp(log_p[rows]) @ v[task.successors[rows]]
                q[s, a] = reward + expected + 2 * 3 * beta * m
            np.testing.assert_allclose(plan.q(h), q, atol=1e-6)
            v = np.minimum(q.max(axis=1), 3.0)
            np.testing.assert_allclose(plan.v[h], v, atol=1e-6)
        history.append(episode)


def test_per_step_is_one_estimator_for_each_step(rng):
    """H agents on one-step problems, each fed its own step, hold the same cores."""
    mdp = random_mdp(rng, 4, 2, 3, per_step=True)
    task = mdp.task()
    made = Features(task, rng.standard_normal((task.n_triples, 3)))
    agent = UCRLMNL(task, made, radius=0.05, regularization=lam_k, per_step=True)
    single = [agent.__class__(task, made, 0.05, lam_k).init() for _ in range(3)]
    alone = UCRLMNL(task, made, radius=0.05, regularization=lam_k)
    for state, plan, episode in play(agent, mdp, 5):
        for h in range(3):
            model = single[h].model
            np.testing.assert_allclose(state.model.theta[h], model.theta[0], atol=1e-8)
            np.testing.assert_allclose(state.model.max_norm[h], model.max_norm[0], atol=1e-12)
            step = Episode(
                episode.states[h : h + 2], episode.actions[h : h + 1], episode.rewards[h : h + 1]
            )
            single[h] = alone.update(single[h], plan, step)


@pytest.mark.parametrize("rule", optimism.OPTIMISMS)
def test_one_hot_as_blocks_or_as_a_dense_matrix(rng, rule):
    mdp = random_mdp(rng, 4, 2, 5)
    task = mdp.task("full")
    blocks = features.one_hot(task)
    whole = Features(task, matrix(blocks), formal_dimension=blocks.formal_dimension)
    runs = [
        simulate(mdp, UCRLMNL(task, x, radius=0.01, optimism=optimism.OPTIMISMS[rule]), 25, seed=2)
        for x in (blocks, whole)
    ]
    np.testing.assert_array_equal(runs[0].returns, runs[1].returns)
    np.testing.assert_allclose(runs[0].plan.v, runs[1].plan.v, atol=1e-8)
    np.testing.assert_allclose(runs[0].state.model.theta, runs[1].state.model.theta, atol=1e-8)
    assert runs[0].state.model.logdet.sum() == pytest.approx(runs[1].state.model.logdet.sum())


def test_geometry_and_determinant_follow_the_gram_matrix(rng):
    """A_k = lambda_k I + G with the lambda of this k, not of the episodes before."""
    mdp = random_mdp(rng, 4, 2, 3)
    task = mdp.task()
    made = Features(task, rng.standard_normal((task.n_triples, 3)))
    agent = UCRLMNL(task, made, corrected_radius(0.1, 2.0), lam_k, optimism=optimism.exact_maximum)
    history = []
    for k, (state, _, episode) in enumerate(play(agent, mdp, 5), start=1):
        counts = history_counts(task, history, range(3))
        np.testing.assert_array_equal(state.model.counts[0], counts)
        whole = gram(task, made.matrix, counts, lam_k(k))
        inner = made.matrix @ np.linalg.inv(whole) @ made.matrix.T
        for g, (_, _, rows) in enumerate(groups(task)):
            block = state.model.inverse_products[0, task.square_start[g] : task.square_start[g + 1]]
            np.testing.assert_allclose(
                block.reshape(len(rows), -1), inner[np.ix_(rows, rows)], atol=1e-10
            )
        ratio = np.linalg.slogdet(whole)[1] - 3 * np.log(lam_k(k))
        expected = (1 / (4 * made.norm_bound) + 2.0) * np.sqrt(lam_k(k)) + (
            4 * made.norm_bound / np.sqrt(lam_k(k))
        ) * (3 * np.log(2) + ratio / 2 + np.log(20))
        assert agent.beta(state) == pytest.approx(expected / 0.1, rel=1e-10)
        history.append(episode)


def test_extreme_regularizations_still_fit():
    mdp = envs.riverswim(6, 24)
    task = mdp.task("local")
    made = features.one_hot(task)
    for lam in (1e-9, 1e-4, 1e4):
        agent = UCRLMNL(task, made, radius=0.0, regularization=lam)
        run = simulate(mdp, agent, 200, seed=0)
        counts, theta = run.state.model.counts[0], run.state.model.theta[0]
        slope = mnl_gradient(task, matrix(made), theta, counts, lam)
        assert np.abs(slope).max() < 1e-6 * max(1.0, counts.sum() ** 0.5)


def test_unknown_rewards_are_means_plus_a_width(rng):
    mdp = random_mdp(rng, 4, 2, 3)
    task = mdp.task().with_unknown_reward()
    made = Features(task, rng.standard_normal((task.n_triples, 3)))
    agent = UCRLMNL(task, made, radius=constant_radius(0.0), reward_bonus=0.3)
    visits, paid = np.zeros((4, 2)), np.zeros((4, 2))
    for _, plan, episode in play(agent, mdp, 8):
        n = np.maximum(visits, 1)
        upper = np.where(visits > 0, np.minimum(paid / n + 0.3 / np.sqrt(n), 1.0), 1.0)
        np.testing.assert_allclose(plan.q(2), upper, atol=1e-12)
        for s, a, r in zip(episode.states[:3], episode.actions, episode.rewards, strict=True):
            visits[s, a] += 1
            paid[s, a] += r


def test_wrong_inputs_get_one_clear_sentence(rng):
    mdp = envs.riverswim(5, 6)
    task = mdp.task()
    made = features.one_hot(task)
    for call, sentence in (
        (lambda: UCRLMNL(mdp.task("full"), made), "features were made for a task"),
        (lambda: UCRLMNL(task, made, radius=-1.0), r"radius is -1\.0"),
        (lambda: UCRLMNL(task, made, regularization=0.0), r"regularization is 0\.0"),
        (lambda: UCRLMNL(task, made, regularization=np.nan), "regularization is nan"),
        (lambda: UCRLMNL(task, made, regularization=lambda k: -1.0).init(), "regularization is -1"),
        (lambda: UCRLMNL(task, made, reward_bonus=-1.0), "reward_bonus is -1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="must be a function of upriver"):
        UCRLMNL(task, made, optimism="closed-form")
