"""The search over the ellipsoid, eq. (4), against slow references."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import upriver as up
from upriver.envs.random_mnl import random_mnl_features
from upriver.kernels import ellipsoid
from upriver.kernels.compiled import njit_cached

RADII = (1e-3, 0.1, 1.0, 5.0, 30.0, 150.0)


def case(rng, n, rank):
    """Return p, whitened features (n, rank) and next values, with rare successors and ties."""
    p = rng.dirichlet(np.full(n, rng.choice([0.1, 0.5, 3.0]))) + 1e-12
    features = rng.standard_normal((n, rank)) * np.exp(rng.normal(-1.0, 1.0))
    values = rng.random(n) * 10.0
    if rng.random() < 0.3:
        values = rng.integers(0, 3, n).astype(float)
        values[0] = 3.0  # so that they are not all equal
    return p / p.sum(), features, values


def expectation(p, shift, values):
    weight = np.log(p) + shift
    weight = np.exp(weight - weight.max(axis=-1, keepdims=True))
    return (weight @ values) / weight.sum(axis=-1)


def angular_maximum(p, features, values, beta):
    """A dense grid of directions and radii in two dimensions, refined three times at its best."""
    angle, length, width = 0.0, 0.5, 1.0
    best = -np.inf
    for _ in range(4):
        angles = angle + np.linspace(-np.pi, np.pi, 721) * width
        lengths = np.clip(length + np.linspace(-0.5, 0.5, 41) * width, 0.0, 1.0)
        t, r = (x.ravel() for x in np.meshgrid(angles, lengths))
        w = beta * r[:, None] * np.stack([np.cos(t), np.sin(t)], 1)
        found = expectation(p, w @ features.T, values)
        top = int(np.argmax(found))
        best, angle, length, width = max(best, found[top]), t[top], r[top], width / 40
    return best


def log_probability(p, features, u, w):
    """Return log q_u at w and its gradient; it is concave in w."""
    logits = np.log(p) + features @ w
    q = np.exp(logits - logits.max())
    q /= q.sum()
    return logits[u] - logits.max() - np.log(np.exp(logits - logits.max()).sum()), (
        features[u] - q @ features
    )


def slsqp_maximum(p, features, values, beta, rng, starts=10):
    """The best of many local searches: from the estimate, from where each successor is likeliest,
    from the direction of each and from random points."""
    best = p @ values
    d = features.shape[1]
    ball = {"type": "ineq", "fun": lambda w: 1 - w @ w / beta**2, "jac": lambda w: -2 * w / beta**2}

    def climb(loss, w):
        found = minimize(
            loss, w, jac=True, method="SLSQP", constraints=ball,
            options={"ftol": 1e-15, "maxiter": 60},
        ).x  # fmt: skip
        return found * min(1.0, beta / max(np.linalg.norm(found), 1e-300))

    def expected_loss(w):
        q = np.log(p) + features @ w
        q = np.exp(q - q.max())
        q /= q.sum()
        return -(q @ values), -((q * (values - q @ values)) @ features)

    points = [np.zeros(d)]
    for u in range(len(p)):
        points.append(features[u] - p @ features)
        likeliest = climb(
            lambda w, u=u: tuple(-x for x in log_probability(p, features, u, w)), np.zeros(d)
        )
        points += [likeliest, 0.5 * likeliest]
    points += [rng.standard_normal(d) for _ in range(starts)]
    for w in points:
        size = max(np.linalg.norm(w), 1e-12)
        best = max(best, -expected_loss(climb(expected_loss, w * min(1.0, beta / size)))[0])
    return best


@njit_cached
def maximize_expectation(p, products, values, beta):
    """Return (4) of one pair: p and values (n,), products (n, n)."""
    n = p.shape[0]
    search = ellipsoid.new_search(n)
    search.values[:] = values
    return ellipsoid.maximize_in_ellipsoid(p, 0, n, products.ravel(), 0, beta, search)[0]


def search(p, features, values, beta):
    return maximize_expectation(p, features @ features.T, values, beta)


@pytest.mark.parametrize("beta", RADII)
@pytest.mark.parametrize("n", [2, 3])
def test_the_maximum_is_that_of_a_dense_grid_of_angles(rng, n, beta):
    for _ in range(4):
        p, features, values = case(rng, n, 2)
        best, scale = angular_maximum(p, features, values, beta), np.ptp(values)
        found = search(p, features, values, beta)
        assert best - 1e-9 * scale <= found <= max(best, 0.0) + 2e-5 * scale


@pytest.mark.parametrize("beta", RADII)
@pytest.mark.parametrize("n", [4, 5, 6])
def test_the_maximum_is_that_of_many_local_searches(rng, n, beta):
    for rank in (1, 2, n - 1, n + 1):
        p, features, values = case(rng, n, rank)
        best, scale = slsqp_maximum(p, features, values, beta, rng, 2), np.ptp(values)
        assert search(p, features, values, beta) >= best - 1e-7 * scale


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 6])
def test_no_search_of_many_misses_the_maximum(rng, rank):
    """Most misses are at large radii with few features; here are those that a search may make."""
    for _ in range(80):
        p, features, values = case(rng, int(rng.integers(3, 8)), rank)
        beta = float(rng.choice([5.0, 30.0, 150.0]))
        best, scale = slsqp_maximum(p, features, values, beta, rng, 4), np.ptp(values)
        assert search(p, features, values, beta) >= best - 1e-5 * scale


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_a_second_maximum_is_found_where_the_best_successor_is_likely_already(order):
    """From the estimate the search climbs to the second best successor, whose features are large;
    the best successor can be made certain too."""
    p = np.array([0.212, 0.561, 0.227])[order]
    features = np.array([[-0.716, 2.632], [-0.542, 3.238], [0.022, -0.943]])[order]
    values = np.array([3.624, 4.548, 4.425])[order]
    assert search(p, features, values, 150.0) == pytest.approx(4.548, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "features", "values", "w"),
    [
        # the better successor underflows where the first climb ends
        ([0.71, 0.016, 0.27], [[0, 0], [-180, 0], [703, -407]], [1.0, 8.6, 5.4], [-1.0, 0.0]),
        # a step of the climb points more to the centre than up
        (
            [0.24, 0.0035, 0.15, 0.57, 0.0079, 0.022],
            [[0, 0], [-32.2, 0], [-47.0, 2.1], [-61.4, -84.0], [34.2, 48.0], [-160.7, 23.1]],
            [1.0, 0.11, 0.02, 0.81, 0.3, 0.05],
            [0.821, -0.57],
        ),
        # all steps are used up where the second best successor is almost certain
        (
            [0.2, 0.43, 0.15, 0.22],
            [[0, 0], [114.7, 0], [4.2, -11.3], [5.1, -12.2]],
            [0.27, 0.78, 0.14, 1.0],
            [0.073, -0.997],
        ),
        # the maximum is far from where the best successor is likeliest
        (
            [0.29, 0.11, 0.054, 0.43, 0.11],
            [[0, 0], [15.3, 0], [23.0, 9.9], [7.5, -0.2], [6.7, -10.4]],
            [0.02, 0.93, 0.59, 0.81, 0.16],
            [0.836, -0.548],
        ),
    ],
)
def test_no_point_of_a_wide_ball_is_better(p, features, values, w):
    """A search once ended at other local maxima here, or before a maximum."""
    p, features, values, w = np.array(p), np.array(features, float), np.array(values), np.array(w)
    assert w @ w <= 1.0
    found = search(p / p.sum(), features, values, 1.0)
    assert expectation(p, features @ w, values) <= found <= values.max()


@pytest.mark.parametrize("per_step", [False, True])
def test_a_plan_has_the_maximum_of_every_pair_and_step(rng, per_step):
    """The values are those of one search for each pair and step."""
    mdp = up.envs.random_mnl(6, 2, 5, max_successors=5, horizon=7, seed=3)
    task = mdp.task("known")
    phi = random_mnl_features(task)
    agent = up.agents.UCRLMNL(
        task, phi, radius=0.1, per_step=per_step, optimism=up.optimism.exact_maximum
    )
    state = up.simulate(mdp, agent, 20, seed=0).state
    plan, beta, model = agent.plan(state, rng), agent.beta(state), state.model
    assert 0.1 < beta < 10.0
    for h in range(task.horizon):
        c, best = h if per_step else 0, np.empty(len(task.sizes))
        for pair in range(len(best)):
            rows, n = slice(task.indptr[pair], task.indptr[pair + 1]), int(task.sizes[pair])
            square = model.inverse_products[c][task.square_start[pair] :][: n * n].reshape(n, n)
            best[pair] = task.reward_rows[0, pair] + maximize_expectation(
                model.prob[c, rows],
                square,
                plan.v[h + 1][task.successors[rows]],
                beta,
            )
        q = best.reshape(task.n_states, task.n_actions)
        np.testing.assert_allclose(plan.v[h], q.max(axis=1), rtol=0, atol=1e-9)
        np.testing.assert_allclose(plan.q(h), q, rtol=0, atol=1e-9)


@pytest.mark.parametrize("beta", [10.0, 1e3, 1e5])
def test_a_plan_sees_successors_that_the_maximum_of_the_next_step_makes_impossible(rng, beta):
    """plan.q(h) computes them again, one step at a time."""
    mdp = up.envs.random_mnl(15, 2, 5, max_successors=4, horizon=12, seed=0)
    task = mdp.task("known")
    agent = up.agents.UCRLMNL(
        task, up.features.one_hot(task), radius=0.01, optimism=up.optimism.exact_maximum
    )
    model, reward = up.simulate(mdp, agent, 40, seed=0).state.model, rng.random((12, 30))
    plan = up.optimism.exact_maximum(task, model, reward, beta, np.uint64(0))
    for h in range(task.horizon):
        np.testing.assert_allclose(plan.v[h], plan.q(h).max(axis=1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_search_lies_between_the_estimate_and_the_closed_form(rng, n):
    """P V <= (4) <= P V + 2 max|V| beta m, (6), and (4) grows with the radius."""
    for _ in range(40):
        p, features, values = case(rng, n, n)
        m, before = np.linalg.norm(features, axis=1).max(), p @ values
        for beta in RADII:
            found = search(p, features, values, beta)
            assert before - 1e-9 <= found <= values.max() + 1e-12
            assert found <= p @ values + 2.0 * values.max() * beta * m + 1e-12
            before = found


def test_two_successors_in_closed_form(rng):
    p, features, values = np.array([0.3, 0.7]), np.array([[0.0], [2.0]]), np.array([1.0, 5.0])
    odds = 0.7 / 0.3 * np.exp(2.0 * 0.4)
    assert search(p, features, values, 0.4) == pytest.approx((1.0 + 5.0 * odds) / (1.0 + odds))


def test_the_first_step_is_the_tilted_distribution(rng):
    """At a small radius (4) is the tilted distribution up to third order in the radius."""
    p, features, values = case(rng, 4, 3)
    slope = (p * (values - p @ values)) @ features
    for beta in (1e-2, 1e-3):
        w = beta * slope / np.linalg.norm(slope)
        tilted = expectation(p, features @ w, values)
        found = search(p, features, values, beta)
        assert tilted - 1e-12 <= found <= tilted + 10.0 * np.ptp(values) * beta**3
