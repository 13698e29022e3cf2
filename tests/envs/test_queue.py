"""The queue: competing clocks by hand, the stationary law of a birth-death chain, a threshold."""

import numpy as np
import pytest

import upriver as up
from tests.reference import dense
from upriver.envs.queue import queue, queue_features
from upriver.mnl.likelihood import probabilities


def test_rates_by_hand():
    p, r = (x[0] for x in dense(queue(4, arrival=2.0, service=3.0, emergencies=0.25, refusal=0.4)))
    np.testing.assert_allclose(
        p[2], [[0, 3 / 6, 1 / 6, 2 / 6, 0], [0, 3 / 4.5, 1 / 4.5, 0.5 / 4.5, 0]]
    )
    np.testing.assert_allclose(p[0], [[1 / 3, 2 / 3, 0, 0, 0], [1 / 1.5, 0.5 / 1.5, 0, 0, 0]])
    np.testing.assert_allclose(p[4], [[0, 0, 0, 3 / 4, 1 / 4]] * 2)
    np.testing.assert_allclose(r[:, 0], [1.0, 0.85, 0.7, 0.55, 0.0])
    np.testing.assert_allclose(r[:, 1], [0.6, 0.45, 0.3, 0.15, 0.0], atol=1e-15)


def test_the_true_parameter_has_the_log_rates():
    mdp = queue(7, arrival=2.0, service=3.0, emergencies=0.25)
    theta = np.log([2.0, 0.25, 3.0])  # arrival, door shut, service
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
    mdp = queue(12, horizon=3000, **numbers)
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
    with pytest.raises(ValueError, match="emergencies is 0; it must lie between 0 and 1"):
        queue(emergencies=0)
