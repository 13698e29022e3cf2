"""The calibrated scale of a radius."""

import sys

import numpy as np
import pytest
from studies.calibration import (
    calibrated_radius,
    coverage_over,
    covering_scale,
    draw_core,
    mnl_mdp,
)

import upriver as up
from tests.diagnostics.problems import random_features
from tests.diagnostics.test_coverage import make_coverage
from upriver.diagnostics import theta_star
from upriver.mnl import likelihood


def test_the_scale_is_an_order_statistic():
    many = make_coverage(np.arange(1.0, 20.0)[:, None], 1.0)
    assert covering_scale(many, "r") == 18.0  # the 18th of 19, since 20 * 0.9 = 18
    with pytest.raises(ValueError, match=r"n_runs is 3; level 1 - 0.1 needs at least 9 runs"):
        covering_scale(make_coverage([[1.0]] * 3, 1.0), "r")


def test_no_scale_repairs_a_negative_radius():
    seen = make_coverage([[1.0]] * 12, -1.0)
    assert covering_scale(seen, "r") == np.inf


def test_scale_covers_the_next_run(rng):
    """The order statistic covers a fresh draw with probability at least 1 - delta."""
    hits = []
    for _ in range(2000):
        draws = rng.standard_exponential((20, 1))
        hits.append(draws[-1, 0] <= covering_scale(make_coverage(draws[:-1], 1.0), "r"))
    assert np.mean(hits) >= 0.9 - 3 * np.sqrt(0.09 / 2000)


def test_calibrated_scale_covers_fresh_runs(rng):
    """c from one set of random cores covers cores drawn anew about as often as it promises."""
    features = random_features(rng)
    c = calibrated_radius(features.task, features, n_episodes=20, n_runs=79, delta=0.2, seed=1)
    agent = up.agents.UCRLMNL(features.task, features, radius=c)
    problems = [(mnl_mdp(features, draw_core(features, rng)), features, agent) for _ in range(80)]
    seen = coverage_over(problems, {"c": up.radii.scaled_radius(c)}, 20, 0.2, seed=1000)
    assert seen.share("c") >= 0.8 - 3 * np.sqrt(0.8 * 0.2 / 80 * 2)
    assert seen.share("c") <= 0.97  # and it is not absurdly wide


def test_calibrated_scale_of_an_mdp():
    mdp = up.envs.riverswim(5)
    features = up.features.one_hot(mdp.task())
    c = calibrated_radius(mdp, features, n_episodes=20, n_runs=9, delta=0.1)
    assert 0.1 < c < 10.0
    assert c == calibrated_radius(mdp, features, n_episodes=20, n_runs=9, delta=0.1)


@pytest.mark.parametrize("known", [True, False])
def test_every_run_of_a_calibration_has_a_seed_of_its_own(monkeypatch, known):
    """Also those of the next round: else c would be judged on the runs that it was chosen by."""
    module = sys.modules["upriver.diagnostics.coverage"]
    play, seeds = module.simulate, []

    def recorded(mdp, agent, n_episodes, seed):
        seeds.append(seed)
        return play(mdp, agent, n_episodes, seed)

    monkeypatch.setattr(module, "simulate", recorded)
    mdp = up.envs.riverswim(3, 4)
    features = up.features.one_hot(mdp.task())
    given = mdp if known else mdp.task()
    calibrated_radius(given, features, n_episodes=2, n_runs=4, delta=0.25, seed=7, rounds=3)
    assert seeds == list(range(7, 7 + 3 * 4))


def test_a_task_is_calibrated_on_a_new_parameter_for_every_run(monkeypatch):
    module = sys.modules["studies.calibration"]
    draw, cores = module.draw_core, []

    def recorded(*given):
        cores.append(draw(*given))
        return cores[-1]

    monkeypatch.setattr(module, "draw_core", recorded)
    task = up.envs.riverswim(3, 4).task()
    features = up.features.one_hot(task)
    for seed in (0, 0, 1):
        calibrated_radius(task, features, n_episodes=2, n_runs=4, delta=0.25, seed=seed)
    first, again, other = np.array(cores).reshape(3, 8, -1)
    assert len(np.unique(first, axis=0)) == 8
    np.testing.assert_array_equal(first, again)
    assert not (first == other).all(axis=1).any()


def test_a_random_parameter_has_its_norm_and_no_part_without_effect(rng):
    features = up.features.one_hot(up.envs.riverswim(5).task())
    theta = draw_core(features, rng, 2.5)
    assert np.linalg.norm(theta) == pytest.approx(2.5)
    mdp = mnl_mdp(features, theta)
    np.testing.assert_allclose(mdp.probability[0], likelihood.probabilities(features, theta))
    np.testing.assert_allclose(theta_star(mdp, features)[0], theta, atol=1e-10)


def test_a_random_parameter_without_a_norm_has_log_odds_of_order_one(rng):
    features = random_features(rng, norm=3.0, dimension=2)
    assert features.norm_bound * np.linalg.norm(draw_core(features, rng)) == pytest.approx(2**0.5)
