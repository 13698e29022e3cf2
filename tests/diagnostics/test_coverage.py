import sys

import numpy as np
import pytest

import upriver as up
from tests.diagnostics.problems import random_features, random_problem
from upriver.agents.protocol import Episode
from upriver.diagnostics import coverage_over, draw_core, kappa_over_ball, mnl_mdp, theta_star
from upriver.diagnostics.coverage import Coverage, Watched, distance, lemma_radii, tie_share
from upriver.diagnostics.figures import coverage_curves, coverage_figure
from upriver.mnl import likelihood


def made_up(distances, radius, delta=0.1):
    d = np.asarray(distances, float)
    r = np.broadcast_to(np.asarray(radius, float), d.shape)
    return Coverage(delta, d, {"r": r}, d > 0, d, d, d, d + 1)


@pytest.mark.parametrize("name", ["one_hot", "shared"])
def test_distance_is_the_norm_in_the_gram_matrix(name):
    mdp = up.envs.riverswim(5)
    features = getattr(up.features, name)(mdp.task())
    agent = up.agents.UCRLMNL(mdp.task(), features, regularization=0.7)
    model = up.simulate(mdp, agent, 20, seed=3).state.model
    gap = model.theta[0] - theta_star(mdp, features)[0]
    gram = up.radii.gram_matrix(features, model.counts[0], 0.7)
    found = distance(features, model, theta_star(mdp, features))
    assert found == pytest.approx(np.sqrt(gap @ (gram @ gap)))


def test_watching_changes_nothing():
    mdp = up.envs.riverswim(5)
    features = up.features.one_hot(mdp.task())
    agent = up.agents.UCRLMNL(mdp.task(), features, radius=0.01)
    seen = up.coverage(mdp, features, agent, n_episodes=15, n_runs=2, seed=4)
    radii = []
    for seed in (4, 5):
        run = up.simulate(mdp, agent, 15, seed=seed)
        radii.append(agent.beta(run.state))
        one = up.simulate(mdp, agent, 14, seed=seed).state
        assert seen.distance[seed - 4, 14] == pytest.approx(
            distance(features, one.model, theta_star(mdp, features))
        )
    assert seen.distance[0, 0] == pytest.approx(np.linalg.norm(theta_star(mdp, features)))
    assert (seen.radii["acting"][:, 14] < radii).all()


def test_share_ratio_and_scale():
    seen = made_up([[1.0, 2.0], [3.0, 1.0], [0.5, 0.5]], [[2.0, 2.0]] * 3)
    assert seen.ratio("r").tolist() == [1.0, 1.5, 0.25]
    assert seen.share("r") == pytest.approx(2 / 3)
    many = made_up(np.arange(1.0, 20.0)[:, None], 1.0)
    assert many.scale("r") == 18.0  # the 18th of 19, since 20 * 0.9 = 18
    with pytest.raises(ValueError, match=r"n_runs is 3; level 1 - 0.1 needs at least 9 runs"):
        seen.scale("r")
    with pytest.raises(ValueError, match=r"radius 'x' was not judged; there are \['r'\]"):
        seen.share("x")


def test_a_negative_radius_covers_nothing():
    seen = made_up([[1.0]] * 12, -1.0)
    assert seen.share("r") == 0.0 and seen.scale("r") == np.inf


def test_scale_covers_the_next_run(rng):
    """The order statistic covers a fresh draw with probability at least 1 - delta."""
    hits = []
    for _ in range(2000):
        draws = rng.standard_exponential((20, 1))
        hits.append(draws[-1, 0] <= made_up(draws[:-1], 1.0).scale("r"))
    assert np.mean(hits) >= 0.9 - 3 * np.sqrt(0.09 / 2000)


def test_optimism_clips_and_ties_on_riverswim():
    mdp = up.envs.riverswim(5)
    features = up.features.one_hot(mdp.task())
    huge = up.agents.UCRLMNL(mdp.task(), features, radius=100.0)
    seen = up.coverage(mdp, features, huge, n_episodes=10, n_runs=2)
    assert seen.optimistic.all() and seen.clipped[:, 0].min() > 0.7
    assert seen.share("acting") == 1.0
    greedy = up.agents.UCRLMNL(mdp.task(), features, radius=0.0)
    none = up.coverage(mdp, features, greedy, n_episodes=10, n_runs=2)
    assert none.clipped.max() == 0.0 and none.share("acting") == 0.0


@pytest.mark.parametrize("share, optimistic", [(0.95, 0.0), (1.0, 1.0), (1.2, 1.0)])
def test_a_plan_is_optimistic_from_the_optimum_on(share, optimistic):
    mdp = up.envs.riverswim(4)
    features = up.features.one_hot(mdp.task())
    agent = up.agents.UCRLMNL(mdp.task(), features)
    best = up.solve(mdp)
    watched = Watched(agent, theta_star(mdp, features), best.v[0], ())
    state, steps = agent.init(), np.zeros(mdp.horizon + 1, int)
    plan = agent.plan(state, np.random.default_rng(0))._replace(v=share * best.v)
    played = Episode(steps, steps[1:], np.zeros(mdp.horizon))
    assert watched.look(state, plan, played)[1] == optimistic


def test_the_radii_to_judge_hold_the_largest_of_several_cores():
    task = up.envs.riverswim(3, 2).task()
    features = up.features.one_hot(task)
    cores = np.zeros((2, features.dimension))
    cores[0, 0], cores[1, 1] = 0.5, 2.0
    agent = up.agents.UCRLMNL(task, features, per_step=True)
    for theta in (cores, cores[::-1]):
        judged = lemma_radii(features, theta, agent, 0.1)
        for name in ("printed", "corrected"):
            assert judged[name].theta_bound == 2.0 and judged[name].delta == 0.1
            assert judged[name].kappa == kappa_over_ball(features, 2.0).certified


@pytest.mark.parametrize("name, radius", [("closed_form", 0.002), ("half_range", 0.4)])
def test_a_value_is_clipped_where_its_own_cap_is_reached(name, radius):
    """The paper's plan stops at H, the tighter ones at the steps left: each has its own share."""
    mdp = up.envs.riverswim(5)
    features = up.features.one_hot(mdp.task())
    agent = up.agents.UCRLMNL(mdp.task(), features, radius, optimism=getattr(up.optimism, name))
    seen = up.coverage(mdp, features, agent, n_episodes=1, n_runs=1)
    v = agent.plan(agent.init(), np.random.default_rng(0)).v[:-1]
    horizon = mdp.horizon
    at_the_rest = (v >= horizon - np.arange(horizon)[:, None]).mean()
    at_the_top = (v >= horizon).mean()
    assert 0.0 < at_the_top < at_the_rest < 1.0
    assert seen.clipped[0, 0] == (at_the_rest if name == "half_range" else at_the_top)


def test_ties_are_counted():
    mdp = up.FiniteMDP.from_arrays(np.full((2, 2, 2), 0.5), np.array([[1.0, 1.0], [0.0, 1.0]]), 3)
    assert tie_share(up.solve(mdp), 0) == 0.5


def test_potential_is_below_its_bound_and_is_the_sum_of_widths(rng):
    mdp, features, _ = random_problem(rng, norm=1.3)
    agent = up.agents.UCRLMNL(features.task, features, regularization=1.7)  # at least L_varphi^2
    seen = up.coverage(mdp, features, agent, n_episodes=60, n_runs=3)
    assert (seen.potential <= seen.potential_bound).all()
    assert (np.diff(seen.potential, axis=1) >= 0).all()
    task = features.task
    norms = up.radii.elliptical_norms(features, np.zeros(task.n_triples), 1.7)
    counts = up.simulate(mdp, agent, 1, seed=0).state.model.counts[0]
    visits = np.add.reduceat(counts, task.indptr[:-1])
    width = np.maximum.reduceat(norms, task.indptr[:-1])
    assert seen.potential[0, 0] == pytest.approx(visits @ width**2)


def test_calibrated_scale_covers_fresh_runs(rng):
    """c from one set of random cores covers cores drawn anew about as often as it promises."""
    features = random_features(rng)
    c = up.calibrated_radius(features.task, features, n_episodes=20, n_runs=79, delta=0.2, seed=1)
    agent = up.agents.UCRLMNL(features.task, features, radius=c)
    problems = [(mnl_mdp(features, draw_core(features, rng)), features, agent) for _ in range(80)]
    seen = coverage_over(problems, {"c": up.radii.scaled_radius(c)}, 20, 0.2, seed=1000)
    assert seen.share("c") >= 0.8 - 3 * np.sqrt(0.8 * 0.2 / 80 * 2)
    assert seen.share("c") <= 0.97  # and it is not absurdly wide


def test_calibrated_scale_of_an_mdp():
    mdp = up.envs.riverswim(5)
    features = up.features.one_hot(mdp.task())
    c = up.calibrated_radius(mdp, features, n_episodes=20, n_runs=9, delta=0.1)
    assert 0.1 < c < 10.0
    assert c == up.calibrated_radius(mdp, features, n_episodes=20, n_runs=9, delta=0.1)


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
    up.calibrated_radius(given, features, n_episodes=2, n_runs=4, delta=0.25, seed=7, rounds=3)
    assert seeds == list(range(7, 7 + 3 * 4))


def test_a_task_is_calibrated_on_a_new_core_for_every_run(monkeypatch):
    module = sys.modules["upriver.diagnostics.calibration"]
    draw, cores = module.draw_core, []

    def recorded(*given):
        cores.append(draw(*given))
        return cores[-1]

    monkeypatch.setattr(module, "draw_core", recorded)
    task = up.envs.riverswim(3, 4).task()
    features = up.features.one_hot(task)
    for seed in (0, 0, 1):
        up.calibrated_radius(task, features, n_episodes=2, n_runs=4, delta=0.25, seed=seed)
    first, again, other = np.array(cores).reshape(3, 8, -1)
    assert len(np.unique(first, axis=0)) == 8
    np.testing.assert_array_equal(first, again)
    assert not (first == other).all(axis=1).any()


def test_drawn_cores_have_the_asked_norm_and_no_idle_part(rng):
    features = up.features.one_hot(up.envs.riverswim(5).task())
    theta = draw_core(features, rng, 2.5)
    assert np.linalg.norm(theta) == pytest.approx(2.5)
    mdp = mnl_mdp(features, theta)
    np.testing.assert_allclose(mdp.probability[0], likelihood.probabilities(features, theta))
    np.testing.assert_allclose(theta_star(mdp, features)[0], theta, atol=1e-10)


def test_a_core_drawn_without_a_norm_has_log_odds_of_order_one(rng):
    features = random_features(rng, norm=3.0, dimension=2)
    assert features.norm_bound * np.linalg.norm(draw_core(features, rng)) == pytest.approx(2**0.5)


def test_per_step_cores(rng):
    transition = rng.dirichlet(np.ones(3), size=(4, 3, 2))
    mdp = up.FiniteMDP.from_arrays(transition, rng.random((3, 2)), 4)
    features = up.features.one_hot(mdp.task())
    with pytest.raises(ValueError, match="per_step=True"):
        up.coverage(mdp, features, n_episodes=2, n_runs=1)
    agent = up.agents.UCRLMNL(mdp.task(), features, per_step=True)
    seen = up.coverage(mdp, features, agent, n_episodes=5, n_runs=1)
    assert np.isfinite(seen.distance).all()


def test_support_that_promises_too_much():
    mdp = up.envs.riverswim(5)
    with pytest.raises(ValueError, match=r"theta\* is infinite"):
        up.coverage(mdp, up.features.one_hot(mdp.task("local")), n_episodes=2, n_runs=1)


def test_curves_and_figure(tmp_path):
    mdp = up.envs.riverswim(4)
    features = up.features.one_hot(mdp.task())
    seen = up.coverage(mdp, features, n_episodes=6, n_runs=3)
    curves = coverage_curves(seen)
    assert set(curves) == {"distance", "optimism", "clips and ties", "elliptical potential"}
    assert all(y.shape == (6,) for panel in curves.values() for y in panel.values())
    np.testing.assert_allclose(
        curves["distance"]["median distance"], np.median(seen.distance, axis=0)
    )
    coverage_figure(seen).savefig(tmp_path / "coverage.png")
    assert (tmp_path / "coverage.png").stat().st_size > 5000
