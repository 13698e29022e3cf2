"""The search over the ellipsoid, eq. (4), against slow references."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from upriver import kernels

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


def slsqp_maximum(p, features, values, beta, rng, starts=10):
    """The best of many local searches, from the centre, from axes and from random points."""
    best = p @ values
    d = features.shape[1]
    for k in range(starts):
        w = rng.standard_normal(d) if k else np.zeros(d)
        if 0 < k <= len(p):
            w = features[k - 1] - p @ features
        w *= beta * rng.random() / max(np.linalg.norm(w), 1e-12)

        def loss(w):
            q = np.log(p) + features @ w
            q = np.exp(q - q.max())
            q /= q.sum()
            return -(q @ values), -((q * (values - q @ values)) @ features)

        found = minimize(
            loss, w, jac=True, method="SLSQP", options={"ftol": 1e-15, "maxiter": 60},
            constraints={"type": "ineq", "fun": lambda w: 1 - w @ w / beta**2,
                         "jac": lambda w: -2 * w / beta**2},
        )  # fmt: skip
        w = found.x * min(1.0, beta / max(np.linalg.norm(found.x), 1e-300))
        best = max(best, -loss(w)[0])
    return best


def search(p, features, values, beta):
    return kernels.ellipsoid.optimize_expectation(p, features @ features.T, values, beta)


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
    """None of these searches misses the maximum; of 4,200 of another draw three did."""
    for rank in (1, 2, n - 1, n + 1):
        p, features, values = case(rng, n, rank)
        best, scale = slsqp_maximum(p, features, values, beta, rng), np.ptp(values)
        assert search(p, features, values, beta) >= best - 1e-7 * scale


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


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_the_minimum_is_the_maximum_with_a_minus(rng, n):
    for beta in RADII:
        p, features, values = case(rng, n, 3)
        maximum = search(p, features, values, beta)
        assert search(p, features, -values, -beta) == pytest.approx(-maximum, abs=1e-12)
        assert search(p, features, values, -beta) <= p @ values + 1e-12


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
