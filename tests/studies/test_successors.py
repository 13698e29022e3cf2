"""The studies of the successors: what their problems and learners are, and what they find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from studies.measured import power

import upriver as up
from studies import changing, environments, kappa
from tests.studies.test_findings import found, smaller
from upriver.agents.base import Episode
from upriver.diagnostics.kappa import kappa_at
from upriver.mnl import online, radii
from upriver.mnl.radii import Evidence


@pytest.mark.parametrize(("target", "u"), [(0.2, 2), (1e-4, 2), (1e-5, 7)])
def test_drawn_problems_have_the_kappa_and_the_norm_that_they_tell(target, u):
    mdp = kappa.drawn(target, n_states=12, dimension=3, max_successors=u, seed=4)
    measured = kappa_at(mdp.true_task, mdp.probability)
    assert measured is not None and measured.value == pytest.approx(target, rel=1e-9)
    features = kappa.drawn_features(mdp.task())
    first = np.repeat(mdp.true_task.indptr[:-1], mdp.true_task.sizes)
    rows = features.matrix - features.matrix[first]
    log_odds = np.log(mdp.probability[0]) - np.log(mdp.probability[0][first])
    theta, *_ = np.linalg.lstsq(rows, log_odds, rcond=None)
    assert rows @ theta == pytest.approx(log_odds, abs=1e-9)
    told = mdp.true_task.states[0]
    assert np.linalg.norm(theta) == pytest.approx(told.theta_bound) and told.kappa == target
    with pytest.raises(ValueError, match=r"kappa is 0.3; with 2 successors it is below 0.25"):
        kappa.drawn(0.3)


def test_the_published_learners_have_the_constants_of_their_papers():
    mdp = kappa.drawn(0.01, n_states=6, dimension=3, horizon=5)
    task = mdp.task()
    features, norm = kappa.drawn_features(task), task.states[0].theta_bound
    settings = {
        "ucrl-mnl": radii.lemma1_radius(0.01, norm),
        "rrl-mnl": online.newton_radius(0.01, norm, rounds=5),
        "orrl-mnl": online.mirror_radius(norm, rounds=5),
    }
    e = Evidence(7, 5, 6, 2, 3, 1.0, 2.0, np.nan)
    for learner, radius in settings.items():
        agent = kappa.Published(task, features, learner, 0.1).agent
        assert agent.radius(e) == pytest.approx(0.1 * radius(e))
        assert getattr(agent, "theta_bound", norm) == norm
    assert agent.regularization == online.mirror_regularization(features, norm)
    assert agent.step_size == online.theory_step(features, norm) and not agent.per_step
    loose = kappa.Published(task, features, "rrl-mnl", as_printed=False).agent
    assert loose.kappa == 0.01 and loose.regularization == 1.0 and loose.theta_bound is None


def test_one_factor_at_a_time():
    base = (100.0, 2.0, 8.0, 20.0)
    points = {
        base: np.array([1.0, 3.0]),
        (1e4, 2.0, 8.0, 20.0): np.array([10.0, 30.0]),
        (400.0, 4.0, 8.0, 20.0): np.array([5.0, 6.0]),
        (100.0, 2.0, 16.0, 20.0): np.array([7.0, 8.0]),
    }
    x, totals = kappa.along(points, 0)
    assert x.tolist() == [100.0, 1e4] and totals.tolist() == [[1.0, 10.0], [3.0, 30.0]]
    assert power(x, totals) == pytest.approx((0.5, 0.5, 0.5))
    assert kappa.along(points, 1)[0].tolist() == [2.0, 4.0]
    assert kappa.along(points, 2)[1].tolist() == [[1.0, 7.0], [3.0, 8.0]]
    assert kappa.along(points, 3)[0].tolist() == [20.0]


def episodes_of(mdp, n, rng):
    """Uniform play on the plain river, and the same with the step in the state."""
    run = up.rollouts(mdp, rng.integers(mdp.n_actions, size=(mdp.horizon, mdp.n_states)), n)
    for states, actions, rewards in zip(run.states, run.actions, run.rewards, strict=True):
        plain = Episode(states, actions, rewards)
        steps = np.arange(mdp.horizon + 1) % mdp.horizon
        yield plain, Episode(steps * mdp.n_states + states, actions, rewards)


def test_a_theta_for_each_step_is_a_feature_of_the_step(rng):
    """Features by step on the river with a clock are parameters by step on the one without."""
    river, clocked = environments.tidal_river(4, 6), changing.clocked_river(4, 6)
    assert up.solve(clocked).v[0, 0] == pytest.approx(up.solve(river).v[0, 0])
    own = up.agents.UCRLMNLSE(
        river.task(), environments.tidal_river_features(river.task()), per_step=True
    )
    task = clocked.task()
    each = up.agents.UCRLMNLSE(task, changing.theta_of_each_step(task))
    one = up.agents.UCRLMNLSE(task, changing.one_theta(task))
    flat = replace(own, per_step=False)
    states = [agent.init() for agent in (own, each, flat, one)]
    for plain, timed in episodes_of(river, 5, rng):
        plans = [None] * 4
        given = (plain, timed, plain, timed)
        states = [
            agent.update(state, plan, episode)
            for agent, state, plan, episode in zip(
                (own, each, flat, one), states, plans, given, strict=True
            )
        ]
    by_step, by_feature, shared, common = (state.model.prob for state in states)
    assert by_feature.reshape(6, -1) == pytest.approx(by_step, abs=1e-8)
    assert common.reshape(6, -1) == pytest.approx(np.tile(shared, (6, 1)), abs=1e-8)
    assert changing.pooled_steps(task).dimension == 4 * 7
    assert len(changing.theta_of_each_step(task).layout.size) >= 6


@pytest.mark.slow
def test_kappa_raises_the_regret_of_radii_that_have_it(tmp_path):
    agents = [f"{a} scaled" for a in ("UCRL-MNL", "RRL-MNL", "ORRL-MNL", "UCRL-MNL+")]
    agents.append("UCRL-MNL published")
    places = [f"kappa {k} draw {i}" for k in ("0.01", "1e-05") for i in range(4)]
    spec = smaller("kappa", places, agents, seeds=2)
    assert len(spec.environments) == 8
    result, at = found(tmp_path, spec)

    def regret(agent, k):
        return np.mean([at[f"kappa {k} draw {i}", agent].lost for i in range(4)])

    for agent in agents[:2]:
        assert regret(agent, "1e-05") > 10 * regret(agent, "0.01")
    for agent in agents[2:4]:
        assert regret(agent, "1e-05") < 5 * regret(agent, "0.01")
    assert regret(agents[4], "0.01") > 0.3 * 50  # as good as never learning
    assert "proved" in result.table and "kappa-scaled" in result.figures


@pytest.mark.slow
def test_more_successors_raise_the_regret_of_radii_that_have_kappa_and_no_other(tmp_path):
    """With U, kappa falls like its square; the drawn problems themselves become easier."""
    agents = [f"{a} scaled" for a in ("UCRL-MNL", "RRL-MNL", "ORRL-MNL", "UCRL-MNL+")]
    agents += ["UCRL-MNL-SE", "Greedy"]
    places = [f"{x} draw {i}" for x in ("kappa 0.01", "U 50") for i in range(3)]
    result, at = found(tmp_path, smaller("kappa", places, agents, seeds=1))

    def ratio(agent):
        two, fifty = (
            np.mean([at[f"{x} draw {i}", agent].lost for i in range(3)])
            for x in ("kappa 0.01", "U 50")
        )
        return fifty / two

    assert all(ratio(agent) > 2 for agent in agents[:2])
    assert all(ratio(agent) < 0.25 for agent in agents[2:])
    assert "| learner | U 2 | U 50 |" in result.table


@pytest.mark.slow
def test_the_maximum_over_the_local_set_bears_a_long_horizon(tmp_path):
    """The closed bonus of UCRL-MNL-LL has H in front; the maximum that it bounds has not."""
    agents = ["UCRL-MNL-LL scaled", "UCRL-MNL-LL exact scaled"]
    places = [f"{x} draw {i}" for x in ("kappa 0.01", "H 160") for i in range(3)]
    _, at = found(tmp_path, smaller("kappa", places, agents, seeds=1))
    closed, exact = (np.mean([at[f"H 160 draw {i}", a].lost for i in range(3)]) for a in agents)
    assert exact < 0.7 * closed


@pytest.mark.slow
def test_with_the_support_known_all_reach_the_optimum_of_a_short_river(tmp_path):
    agents = ["UCRL-MNL", "Greedy", "RRL-MNL", "ORRL-MNL", "UCRL-MNL+", "UCRL-MNL-LL"]
    spec = smaller("cho-figure-1", ["riverswim-4-horizon-12"], agents, seeds=3, episodes=1000)
    result, at = found(tmp_path, spec)
    assert all(at["riverswim-4-horizon-12", agent].share > 0.99 for agent in agents)
    assert "published / ours" in result.table


@pytest.mark.slow
def test_parameters_that_are_pooled_over_steps_lose_little_in_both_cases(tmp_path):
    agents = [f"ORRL-MNL {kind}" for kind in changing.KINDS]
    _, at = found(tmp_path, smaller("changing", ["current 0", "current 1.5"], agents, seeds=10))
    one, each, pooled = agents
    for env in ("current 0", "current 1.5"):
        assert at[env, pooled].lost < 0.7 * at[env, each].lost
    assert at["current 1.5", pooled].lost < 1.25 * at["current 1.5", one].lost
    assert at["current 1.5", one].lost > 4 * at["current 0", one].lost  # what a wrong model costs
