"""Uneven river: exactly the chosen distance from RiverSwim, and RiverSwim at 0."""

import numpy as np
import pytest
from studies.environments import uneven_river

import upriver as up
from tests.reference import dense, optimal_q


@pytest.mark.parametrize("distance", [0.05, 0.3])
def test_every_swim_is_moved_by_the_distance_and_no_other_row(distance):
    p, even = dense(uneven_river(30, distance, seed=1))[0][0], dense(up.envs.riverswim(30))[0][0]
    variation = 0.5 * np.abs(p - even).sum(axis=2)
    np.testing.assert_allclose(variation[:, 1], distance, atol=1e-14)
    assert not variation[:, 0].any()
    # some swims are helped and some hindered, so states differ by twice the distance
    ahead = p[np.arange(1, 29), 1, np.arange(2, 30)]
    assert set(ahead.round(12)) == {round(0.35 - distance, 12), round(0.35 + distance, 12)}


def test_no_distance_is_riverswim():
    uneven, even = uneven_river(20, distance=0.0), up.envs.riverswim(20)
    np.testing.assert_array_equal(uneven.probability, even.probability)
    np.testing.assert_array_equal(uneven.reward, even.reward)
    assert uneven.true_task.same_support(even.true_task) and uneven.horizon == even.horizon == 80
    assert up.solve(uneven).v[0, 0] == pytest.approx(9.230224, abs=5e-7)


def test_what_a_learner_sees_does_not_depend_on_the_seed():
    one, other = (uneven_river(12, 0.2, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.probability, other.probability)
    for support in ("known", "local", "full"):
        a, b = one.task(support), other.task(support)
        assert a.same_support(b) and np.array_equal(a.reward, b.reward)
        assert (a.states, a.actions, a.horizon) == (b.states, b.actions, b.horizon)
    assert one.name == other.name == "uneven-river-12"


def test_the_optimum_by_another_programme_and_within_the_simulation_lemma():
    even = up.solve(up.envs.riverswim(8, 12)).v[0, 0]
    for seed in range(5):
        mdp = uneven_river(8, 0.1, seed, horizon=12)
        best = up.solve(mdp).v[0, 0]
        assert best == pytest.approx(optimal_q(*dense(mdp))[0, 0].max(), abs=1e-12)
        # |V - V'| <= distance * sum over steps of the range of the next value, at most H - h
        assert abs(best - even) <= 0.1 * sum(range(12))


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match=r"distance is 0\.4; it must lie between 0 and 0\.3"):
        uneven_river(distance=0.4)
    with pytest.raises(ValueError, match="seed is -1; it must be a whole number of at least 0"):
        uneven_river(seed=-1)
