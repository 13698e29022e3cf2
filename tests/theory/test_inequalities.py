"""The three inequalities behind the bonuses, on random cases that try to break them."""

from __future__ import annotations

import numpy as np
import pytest

CASES = 40_000


def softmax(z):
    weight = np.exp(z - z.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


@pytest.fixture(params=[2, 3, 6])
def draw(request, rng):
    """(p, q, values in [0, 1], x): P_theta, P_theta', V / B, and the shifts of the logits.

    Small and large shifts, spread and concentrated estimates, values at the ends of their range:
    the bounds are tight at two successors with values 0 and 1.
    """
    n = request.param
    size = np.exp(rng.uniform(np.log(1e-3), np.log(20.0), (CASES, 1)))
    x = size * rng.uniform(-1.0, 1.0, (CASES, n))
    extreme = rng.random(CASES) < 0.5
    x[extreme] = (size * np.sign(x))[extreme]
    z = rng.standard_normal((CASES, n)) * rng.choice([0.01, 1.0, 4.0], (CASES, 1))
    values = rng.random((CASES, n))
    ends = rng.random(CASES) < 0.5
    values[ends] = np.round(values[ends])
    return softmax(z), softmax(z + x), values, x


def test_first_order(draw):
    """|P' V - P V| <= (B/2) m, m the largest shift."""
    p, q, values, x = draw
    change = np.abs(((q - p) * values).sum(axis=1))
    m = np.abs(x).max(axis=1)
    assert (change <= 0.5 * m + 1e-13).all()
    assert (change / m).max() > 0.45  # and cannot be improved by much


def test_second_order(draw):
    """|P' V - P V - grad . (theta' - theta)| <= (B/2) m^2."""
    p, q, values, x = draw
    mean = (p * values).sum(axis=1, keepdims=True)
    linear = (p * (values - mean) * x).sum(axis=1)
    rest = np.abs(((q - p) * values).sum(axis=1) - linear)
    assert (rest <= 0.5 * np.abs(x).max(axis=1) ** 2 + 1e-13).all()


def test_total_variation(draw):
    """||P' - P||_1 <= m."""
    p, q, _, x = draw
    distance = np.abs(q - p).sum(axis=1)
    m = np.abs(x).max(axis=1)
    assert (distance <= m + 1e-13).all()
    assert (distance / m).max() > 0.9


def test_the_library_uses_these_constants(rng):
    """half_range and gradient add exactly the right-hand sides, for B the steps left."""
    from tests.reference import random_mdp
    from upriver import features
    from upriver.mnl import model as mnl
    from upriver.planning import optimism

    mdp = random_mdp(rng, 4, 2, 5)
    made = features.one_hot_indicator(mdp.task("full"))
    model = mnl.start(made, 1.0, 1, True)  # A = I: every width is 1
    reward = np.zeros((1, 8))
    plan = optimism.half_range(made.task, model, reward, 0.01, np.uint64(0))
    for h in range(5):
        bonus = plan.q(h).max() - plan.v[h + 1].mean()
        assert bonus == pytest.approx((4 - h) / 2 * 0.01, abs=1e-12)
    # All next values are equal, so only the second-order part is left.
    plan = optimism.gradient(made.task, model, reward, 0.01, np.uint64(0))
    for h in range(5):
        bonus = plan.q(h).max() - plan.v[h + 1].mean()
        assert bonus == pytest.approx((4 - h) / 2 * 1e-4, abs=1e-12)
