"""Tidal river: its rule written out, its optimum by other means, and that the tide matters."""

from itertools import product
from math import cos, exp, pi

import numpy as np
import pytest
from studies.environments import ANCHOR_FACTOR, DRIFT, tidal_river, tidal_river_features

import upriver as up
from tests.reference import optimal_q


def by_hand(n, horizon, current, period, strength):
    """(H, S, A, S) from the weights on the page, with plain loops."""
    p = np.zeros((horizon, n, 3, n))
    for h, s, a in product(range(horizon), range(n), range(3)):
        for way, s2 in ((-1, s - 1), (0, s), (1, s + 1)):
            if 0 <= s2 < n:
                drift = DRIFT * exp(way * current * cos(2 * pi * h / period))
                swum = (
                    strength if (a, way) in ((0, -1), (1, 1)) else ANCHOR_FACTOR if a == 2 else 1.0
                )
                p[h, s, a, s2] = drift * swum if way else 1.0
        p[h, s, a] /= p[h, s, a].sum()
    return p


@pytest.mark.parametrize("n", [2, 6])
def test_probabilities_and_optimum_from_the_rule(n):
    mdp = tidal_river(n, 11, current=0.8, period=5.0, strength=3.0)
    p = by_hand(n, 11, 0.8, 5.0, 3.0)
    s, a, s2 = mdp.true_task.triples
    np.testing.assert_allclose(mdp.probability, p[:, s, a, s2], rtol=1e-13)
    reward = np.zeros((11, n, 3))
    reward[:, 0, 0], reward[:, -1, 1] = 0.005, 1.0
    assert up.solve(mdp).v[0, 0] == pytest.approx(optimal_q(p, reward)[0, 0].max(), abs=1e-12)


def test_the_optimum_is_the_best_of_all_policies():
    mdp = tidal_river(2, 2)
    every = (np.array(x).reshape(2, 2) for x in product(range(3), repeat=4))
    best = max(up.evaluate(mdp, policy)[0, 0] for policy in every)
    assert up.solve(mdp).v[0, 0] == pytest.approx(best, abs=1e-14)


def test_every_step_has_a_parameter_and_slack_water_has_one_for_all():
    mdp = tidal_river(5)
    assert len(mdp.probability) == mdp.horizon == 20
    assert up.diagnose(mdp, tidal_river_features(mdp.true_task)).core.theta.std(axis=0).max() > 0.5
    slack = tidal_river(5, current=0.0)
    np.testing.assert_allclose(slack.probability, slack.probability[:1].repeat(20, axis=0))


def test_the_optimum_anchors_against_the_tide():
    mdp = tidal_river(10)
    plan = up.solve(mdp)
    assert plan.policy[0, 5] == 1 and plan.policy[6, 5] == 2  # high tide, low tide
    assert plan.v[0, 0] > 1.2 * up.evaluate(mdp, np.ones(10, int))[0, 0]


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="n_states is 1; it must be a whole number of at least 2"):
        tidal_river(1)
    with pytest.raises(ValueError, match="period is 0; it must be a finite number above 0"):
        tidal_river(period=0)
