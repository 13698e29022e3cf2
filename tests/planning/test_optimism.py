"""Optimistic plans against loops that follow the formulas, and the exact maximum by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.test_ellipsoid import maximize_expectation
from tests.reference import (
    brute_force_maximum,
    expectation,
    gram,
    groups,
    matrix,
    mnl_log_probabilities,
    random_mdp,
)
from upriver import FiniteMDP, features
from upriver.agents.base import Episode
from upriver.features import Features
from upriver.mnl import model as mnl
from upriver.planning import optimism

LAM, BETA = 0.8, 0.35


def random_episodes(rng, mdp, n):
    """Uniform play, drawn with plain numpy."""
    task = mdp.true_task
    for _ in range(n):
        states, actions = [int(rng.choice(mdp.initial_states, p=mdp.initial_probability))], []
        for h in range(task.horizon):
            actions.append(int(rng.integers(task.n_actions)))
            rows = task.rows(states[-1], actions[-1])
            p = mdp.probability[min(h, len(mdp.probability) - 1)][rows]
            states.append(int(rng.choice(task.successors[rows], p=p)))
        yield Episode(np.array(states), np.array(actions), np.zeros(task.horizon))


def learned(rng, per_step, kind="dense", support="known", with_products=True):
    mdp = random_mdp(rng, 4, 2, 3, per_step=per_step)
    task = mdp.task(support)
    made = (
        Features(task, rng.standard_normal((task.n_triples, 3)))
        if kind == "dense"
        else features.one_hot(task)
    )
    model = mnl.start(made, LAM, 3 if per_step else 1, with_products)
    for episode in random_episodes(rng, mdp, 6):
        model = mnl.absorb(made, model, episode, LAM)
    return mdp, made, model


def reference_q(name, made, model, reward, rng):
    """(H, S, A) and V of each rule, by loops."""
    task, phi = made.task, matrix(made)
    horizon = task.horizon
    v = np.zeros((horizon + 1, task.n_states))
    q = np.zeros((horizon, task.n_states, task.n_actions))
    for h in reversed(range(horizon)):
        core = min(h, len(model.theta) - 1)
        log_p = mnl_log_probabilities(task, phi, model.theta[core])
        inverse = np.linalg.inv(gram(task, phi, model.counts[core], LAM))
        left = horizon - 1 - h  # steps after this one, the range of the next values
        for s, a, rows in groups(task):
            p, f, following = np.exp(log_p[rows]), phi[rows], v[h + 1][task.successors[rows]]
            mean = p @ following
            m = max(np.sqrt(x @ inverse @ x) for x in f)
            slope = (p * (following - mean)) @ f
            second = BETA * np.sqrt(slope @ inverse @ slope) + left / 2 * (BETA * m) ** 2
            reward_here = reward[min(h, len(reward) - 1), s * task.n_actions + a]
            if name == "exact-maximum":
                inner = f @ inverse @ f.T
                upper = brute_force_maximum(log_p[rows], inner, following, BETA, rng, 1000, 1)
            else:
                bonus = {
                    "closed-form": 2 * horizon * BETA * m,
                    "half-range": left / 2 * BETA * m,
                    "gradient": second,
                }[name]
                upper = mean + bonus
            q[h, s, a] = reward_here + upper
        cap = horizon if name in ("closed-form", "exact-maximum") else horizon - h
        v[h] = np.minimum(q[h].max(axis=1), cap)
    return q, v


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("kind", ["dense", "one-hot"])
@pytest.mark.parametrize("name", optimism.OPTIMISMS)
def test_each_plan_is_its_formula(rng, name, kind, per_step):
    mdp, made, model = learned(rng, per_step, kind)
    reward = mdp.true_task.reward_rows
    plan = optimism.OPTIMISMS[name](made.task, model, reward, BETA, np.uint64(5))
    q, v = reference_q(name, made, model, reward, rng)
    np.testing.assert_allclose(plan.v, v, atol=1e-9)
    for h in range(3):
        np.testing.assert_allclose(plan.q(h), q[h], atol=1e-9)
        chosen = np.take_along_axis(q[h], plan.policy[h][:, None].astype(int), 1)[:, 0]
        np.testing.assert_allclose(chosen, q[h].max(axis=1), atol=1e-9)


@pytest.mark.parametrize("name", optimism.OPTIMISMS)
def test_radius_zero_is_greedy_for_every_rule(rng, name):
    mdp, made, model = learned(rng, False)
    plan = optimism.OPTIMISMS[name](made.task, model, mdp.true_task.reward_rows, 0.0, np.uint64(1))
    believed = FiniteMDP(made.task, model.prob, mdp.initial_states, mdp.initial_probability)
    from upriver import solve

    np.testing.assert_allclose(plan.v, solve(believed).v, atol=1e-12)


def test_one_successor_has_no_bonus(rng):
    p = np.zeros((3, 2, 3))
    p[:, 0, 0] = 1.0
    p[:, 1] = [0.2, 0.3, 0.5]
    mdp = FiniteMDP.from_arrays(p, np.zeros((3, 2)), 4)
    made = features.one_hot(mdp.task())
    model = mnl.start(made, 1.0, 1, True)
    assert not model.max_norm.reshape(3, 2)[:, 0].any() and model.max_norm.reshape(3, 2)[:, 1].all()
    plan = optimism.closed_form(made.task, model, mdp.true_task.reward_rows, 0.1, np.uint64(0))
    assert not plan.q(3)[:, 0].any()


def cases(rng, n, count):
    """(logits, geometry, values) with features of any rank, recentred or not, ties and all."""
    for _ in range(count):
        d = int(rng.integers(1, n + 2))
        phi = rng.standard_normal((n, d)) * np.exp(rng.normal(0.0, 1.0))
        if rng.random() < 0.5:
            phi -= phi[0]
        root = rng.standard_normal((d, d))
        inner = root @ root.T + np.exp(rng.normal()) * np.eye(d)
        values = (
            rng.integers(0, 3, n).astype(float)
            if rng.random() < 0.3
            else rng.random(n) * rng.choice([1.0, 20.0])
        )
        geometry = phi @ np.linalg.solve(inner, phi.T)
        yield rng.standard_normal(n) * rng.choice([0.3, 2.0, 8.0]), geometry, values


def largest(logits, geometry, values, beta):
    p = np.exp(logits - np.logaddexp.reduce(logits))
    geometry = np.ascontiguousarray(geometry)
    return maximize_expectation(p, geometry, values, beta)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_exact_maximum_is_the_maximum(rng, n):
    """Never below the best point of a dense search, never above what the set allows."""
    for beta in (1e-3, 0.03, 0.3, 1.0, 5.0, 30.0):
        for logits, geometry, values in cases(rng, n, 10 if n < 4 else 4):
            got = largest(logits, geometry, values, beta)
            best = brute_force_maximum(logits, geometry, values, beta, rng, 1500, 1)
            scale = np.ptp(values) + 1e-9 * abs(values).max() + 1e-300
            assert got >= best - 1e-9 * scale
            assert got <= values.max() + 1e-12 * scale
            if n <= 3:  # a dense boundary, polished: the bound is two-sided
                assert got <= best + 1e-6 * scale


def test_a_maximum_inside_the_set_is_found():
    """One feature, the middle successor best: pushing either way only hurts."""
    for n in (3, 5):
        phi = np.linspace(-1.0, 1.0, n)
        values = np.zeros(n)
        values[n // 2] = 1.0
        logits = 0.3 * phi
        got = largest(logits, np.outer(phi, phi), values, 10.0)
        assert got == pytest.approx(expectation(np.zeros(n), values), abs=1e-12)


def test_a_far_tip_of_the_set_is_found():
    """The good successor is out of sight of the estimate: only a push along the axis gets there."""
    for n in (3, 4, 6):
        geometry = np.diag(np.arange(n) > 0).astype(float)
        logits = np.zeros(n)
        logits[n - 1] = -30.0
        values = np.zeros(n)
        values[1], values[n - 1] = 0.5, 1.0
        got = largest(logits, geometry, values, 60.0)
        assert got == pytest.approx(1.0, abs=1e-9)


def test_the_exact_maximum_of_nothing_to_choose():
    one = largest(np.zeros(4), np.eye(4), np.full(4, 3.25), 2.0)
    assert one == pytest.approx(3.25, abs=1e-14)
    values = np.array([0.0, 1.0, 2.0])
    assert largest(np.zeros(3), np.zeros((3, 3)), values, 2.0) == pytest.approx(1.0)
    assert largest(np.zeros(3), np.eye(3), values, 0.0) == pytest.approx(1.0)


def test_an_ascent_stays_in_the_set(rng):
    """Pairs as a river grid has them: the ascent once left the ellipsoid, 5.18 for 4.78."""
    p = np.array([0.63629907, 0.22349066, 0.07010513, 0.07010513])
    values = np.array([3.8460707, 5.17753486, 5.93940218, 6.50165473])
    geometry = np.zeros((4, 4))
    geometry[1:, 1:] = 0.07692308 * np.eye(3) + 0.00156986
    for beta in np.linspace(3.9, 4.5, 25):
        for moved in (values, values + 0.1 * rng.random(4)):
            got = largest(np.log(p), geometry, moved, beta)
            best = brute_force_maximum(np.log(p), geometry, moved, beta, rng, 1500, 2)
            assert got == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize("kind", ["dense", "low rank", "one-hot"])
@pytest.mark.parametrize("per_step", [False, True])
def test_a_plan_follows_every_maximum(rng, kind, per_step):
    """From step to step, against a search of its own for each pair; whatever the radius."""
    follows_every_maximum(rng, kind, per_step)


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(12))
def test_more_draws_of_correlated_features_follow_every_maximum(draw):
    """Draw 3 has one that a climb towards a single successor does not find."""
    follows_every_maximum(np.random.default_rng(draw), "dense", True)


@pytest.mark.parametrize("kind", ["dense", "one-hot"])
def test_a_plan_follows_every_maximum_of_a_wide_set(kind):
    """Where one successor is all but certain at a maximum, and the slope there next to nothing."""
    for draw in (6, 8, 37):
        rng = np.random.default_rng(1000 + draw)
        follows_every_maximum(rng, kind, kind == "dense", (60.0, 150.0))


def follows_every_maximum(rng, kind, per_step, radii=(1e-3, 0.03, 0.3, 1.0, 3.0, 30.0)):
    mdp = random_mdp(rng, 6, 3, 10, per_step=per_step)
    task = mdp.task("known")
    made = (
        features.one_hot(task)
        if kind == "one-hot"
        else Features(task, rng.standard_normal((task.n_triples, 8 if kind == "dense" else 2)))
    )
    model = mnl.start(made, LAM, 10 if per_step else 1, True)
    for episode in random_episodes(rng, mdp, 8):
        model = mnl.absorb(made, model, episode, LAM)
    reward = mdp.true_task.reward_rows
    for beta in radii:
        plan = optimism.exact_maximum(task, model, reward, beta, np.uint64(5))
        for h in range(10):
            core = min(h, len(model.theta) - 1)
            q = np.empty((task.n_states, task.n_actions))
            for s, a, rows in groups(task):
                g, values = s * task.n_actions + a, plan.v[h + 1][task.successors[rows]]
                square = slice(task.square_start[g], task.square_start[g + 1])
                logits, n = np.log(model.prob[core, rows]), len(values)
                inner = model.inverse_products[core, square].reshape(n, n)
                here = reward[min(h, len(reward) - 1), g]
                q[s, a] = here + largest(logits, inner, values, beta)
                if plan.q(h)[s, a] > q[s, a] + 1e-9:  # where that search misses it
                    best = brute_force_maximum(logits, inner, values, beta, rng, 4000, 10)
                    q[s, a] = here + best
            np.testing.assert_allclose(plan.v[h], q.max(axis=1), atol=1e-9)
            np.testing.assert_allclose(plan.q(h), q, atol=1e-9)
            played = np.take_along_axis(q, plan.policy[h][:, None].astype(int), 1)[:, 0]
            np.testing.assert_allclose(played, q.max(axis=1), atol=1e-9)
