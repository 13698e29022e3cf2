"""The queue: competing clocks by hand, the stationary law of a birth-death chain, a threshold."""

import numpy as np
import pytest
from studies.environments import queue_features

import upriver as up
from tests.reference import dense
from upriver.envs.queue import queue
from upriver.mnl.likelihood import probabilities


def test_rates_by_hand():
    p, r = (x[0] for x in dense(queue(4)))
    admit, reject = np.array([0, 1, 1, 1.2, 0]), np.array([0, 1, 1, 0.12, 0])
    np.testing.assert_allclose(p[2], [admit / 3.2, reject / 2.12])
    np.testing.assert_allclose(
        p[0], [[1 / 2.2, 1.2 / 2.2, 0, 0, 0], [1 / 1.12, 0.12 / 1.12, 0, 0, 0]]
    )
    np.testing.assert_allclose(p[4], [[0, 0, 0, 0.5, 0.5]] * 2)
    np.testing.assert_allclose(r[:, 0], [1.0, 0.825, 0.65, 0.475, 0.0])
    np.testing.assert_allclose(r[:, 1], [0.7, 0.525, 0.35, 0.175, 0.0], atol=1e-15)


def test_the_true_parameter_has_the_log_rates():
    mdp = queue(7)
    theta = np.log([1.2, 0.1, 1.0])  # arrival, door shut, service
    assert probabilities(queue_features(mdp.true_task), theta) == pytest.approx(mdp.probability[0])


def threshold_gain(buffer, threshold, arrival, service, emergencies, refusal):
    """Reward per step of "admit below the threshold", by detailed balance of a birth-death chain.

    In continuous time customers come at `arrival` below the threshold and at a share of it above,
    and leave at `service`; a step lasts 1 / (sum of the rates), by which states are weighted.
    """
    up_rate = [arrival * (1.0 if n < threshold else emergencies) for n in range(buffer)] + [0.0]
    law = np.cumprod([1.0, *(rate / service for rate in up_rate[:-1])])
    steps = law * [u + 1.0 + (service if n else 0.0) for n, u in enumerate(up_rate)]
    steps /= steps.sum()
    reward = [
        (1 - refusal) * (1 - n / buffer) + (refusal if n < min(threshold, buffer) else 0.0)
        for n in range(buffer + 1)
    ]
    return float(steps @ reward)


def test_long_horizons_earn_the_gain_of_the_best_threshold():
    numbers = {"arrival": 1.2, "service": 1.0, "emergencies": 0.1, "refusal": 0.3}
    mdp = queue(12, horizon=3000)
    gains = [threshold_gain(12, t, **numbers) for t in range(13)]
    best = int(np.argmax(gains))
    assert 0 < best < 12
    for t in (0, best, 12):
        v = up.evaluate(mdp, (np.arange(13) >= t).astype(int))
        assert v[0, 0] - v[1, 0] == pytest.approx(gains[t], abs=1e-10)
    plan = up.solve(mdp)
    assert plan.v[0, 0] - plan.v[1, 0] == pytest.approx(gains[best], abs=1e-10)
    assert plan.policy[0].tolist()[:12] == [int(n >= best) for n in range(12)]


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="buffer is 1; it must be a whole number of at least 2"):
        queue(1)
