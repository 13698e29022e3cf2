"""Two states: the value in closed form, and near to the published probabilities."""

import numpy as np
import pytest
from studies.environments import two_state, two_state_features

import upriver as up
from tests.reference import dense
from upriver.mnl.likelihood import probabilities


def closed_form(p, q, horizon):
    """Expected visits to state 1 in steps 0 .. H-1 from state 0: crossing p, falling back q."""
    decay = 1.0 - p - q
    return p / (p + q) * (horizon - (1.0 - decay**horizon) / (1.0 - decay))


@pytest.mark.parametrize(("dimension", "horizon"), [(1, 5), (3, 20), (4, 50)])
def test_the_optimum_in_closed_form(dimension, horizon):
    mdp = two_state(dimension, horizon)
    crossing = 1.0 / (1.0 + 3.0 * np.exp(-0.01 / (3 / 16) * dimension))
    plan = up.solve(mdp)
    assert plan.v[0, 0] == pytest.approx(closed_form(crossing, 0.25, horizon), abs=1e-12)
    assert all(mdp.true_task.actions[a] == (1,) * dimension for a in plan.policy[: horizon - 2, 0])


def test_near_the_published_probabilities():
    mdp = two_state()
    p, r = (x[0] for x in dense(mdp))
    assert mdp.n_actions == 8
    published = 0.25 + 0.01 * np.array([sum(a) for a in mdp.true_task.actions])
    np.testing.assert_allclose(p[0, :, 1], published, atol=0.0013)
    np.testing.assert_allclose(p[1, :, 0], 0.25)
    np.testing.assert_array_equal(r, [[0.0] * 8, [1.0] * 8])


def test_the_signs_are_exact_features():
    mdp = two_state(4, gap=0.03)
    phi = two_state_features(mdp.true_task)
    theta = np.array([np.log(1 / 3), np.log(1 / 3), *[0.03 * 16 / 3] * 4])
    assert probabilities(phi, theta) == pytest.approx(mdp.probability[0], abs=1e-14)
    assert phi.dimension == 6


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="dimension is 0"):
        two_state(0)
    with pytest.raises(ValueError, match="gap is 0; it must"):
        two_state(gap=0)
