from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import upriver as up
from upriver.diagnostics import certify_kappa, theta_star
from upriver.diagnostics.coverage import Coverage, distance, lemma_radii


def make_coverage(distances, radius, delta=0.1):
    d = np.asarray(distances, float)
    r = np.broadcast_to(np.asarray(radius, float), d.shape)
    return Coverage(delta, d, {"r": r}, d > 0)


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


def test_measuring_changes_no_run():
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


def test_the_share_of_runs():
    seen = make_coverage([[1.0, 2.0], [3.0, 1.0], [0.5, 0.5]], [[2.0, 2.0]] * 3)
    assert seen.share("r") == pytest.approx(2 / 3)


def test_a_negative_radius_covers_nothing():
    assert make_coverage([[1.0]] * 12, -1.0).share("r") == 0.0


def test_optimism_on_riverswim():
    mdp = up.envs.riverswim(5)
    features = up.features.one_hot(mdp.task())
    huge = up.agents.UCRLMNL(mdp.task(), features, radius=100.0)
    seen = up.coverage(mdp, features, huge, n_episodes=10, n_runs=2)
    assert seen.optimistic.all()
    assert seen.share("acting") == 1.0
    greedy = up.agents.UCRLMNL(mdp.task(), features, radius=0.0)
    none = up.coverage(mdp, features, greedy, n_episodes=10, n_runs=2)
    assert none.share("acting") == 0.0 and not none.optimistic.all()


@dataclass(frozen=True)
class Promising(up.agents.UCRLMNL):
    """Promises a share of the optimum."""

    values: Any = None

    def make_plan(self, state, rng):
        return super().make_plan(state, rng)._replace(v=self.values)


@pytest.mark.parametrize("share, optimistic", [(0.95, False), (1.0, True), (1.2, True)])
def test_a_plan_is_optimistic_if_it_reaches_the_optimum(share, optimistic):
    mdp = up.envs.riverswim(4)
    features = up.features.one_hot(mdp.task())
    agent = Promising(mdp.task(), features, values=share * up.solve(mdp).v)
    seen = up.coverage(mdp, features, agent, n_episodes=3, n_runs=2)
    assert (seen.optimistic == optimistic).all()


def test_an_infinite_horizon_is_refused():
    mdp = up.envs.riverswim(4).infinite_horizon(0.9)
    with pytest.raises(ValueError, match="infinite horizon; coverage needs a finite one"):
        up.coverage(mdp, up.features.one_hot(mdp.task()), n_episodes=2, n_runs=1)


def test_the_default_radii_use_the_largest_of_several_parameters():
    task = up.envs.riverswim(3, 2).task()
    features = up.features.one_hot(task)
    cores = np.zeros((2, features.dimension))
    cores[0, 0], cores[1, 1] = 0.5, 2.0
    agent = up.agents.UCRLMNL(task, features, per_step=True)
    for theta in (cores, cores[::-1]):
        judged = lemma_radii(features, theta, agent, 0.1)
        for name in ("printed", "corrected"):
            assert judged[name].theta_bound == 2.0 and judged[name].delta == 0.1
            assert judged[name].kappa == certify_kappa(features, 2.0)


def test_one_parameter_for_each_step(rng):
    transition = rng.dirichlet(np.ones(3), size=(4, 3, 2))
    mdp = up.FiniteMDP.from_arrays(transition, rng.random((3, 2)), 4)
    features = up.features.one_hot(mdp.task())
    with pytest.raises(ValueError, match="per_step=True"):
        up.coverage(mdp, features, n_episodes=2, n_runs=1)
    agent = up.agents.UCRLMNL(mdp.task(), features, per_step=True)
    seen = up.coverage(mdp, features, agent, n_episodes=5, n_runs=1)
    assert np.isfinite(seen.distance).all()


def test_a_support_with_impossible_successors_is_refused():
    mdp = up.envs.riverswim(5)
    with pytest.raises(ValueError, match=r"theta\* is infinite"):
        up.coverage(mdp, up.features.one_hot(mdp.task("local")), n_episodes=2, n_runs=1)


@pytest.mark.parametrize(("factor", "shift"), [(200.0, 0.0), (0.01, 0.0), (200.0, -70.0)])
@pytest.mark.parametrize("radius", [1e-4, 2e-3])
def test_measurements_do_not_depend_on_the_units_of_rewards(factor, shift, radius):
    """Rewards times 200 leave coverage and optimism as they are."""
    plain = up.envs.riverswim(5)
    given = {"n_episodes": 12, "n_runs": 2, "seed": 3}

    def measure(scale, move):
        reward = scale * plain.reward + move
        mdp = replace_reward(plain, reward, (move, scale + move))
        features = up.features.one_hot(mdp.task())
        agent = up.agents.UCRLMNL(mdp.task(), features, radius=radius)
        return up.coverage(mdp, features, agent, **given)

    one, other = measure(1.0, 0.0), measure(factor, shift)
    np.testing.assert_allclose(other.distance, one.distance)
    np.testing.assert_array_equal(other.optimistic, one.optimistic)
    assert other.share("acting") == one.share("acting")


def replace_reward(mdp, reward, reward_range):
    """Return the MDP with other rewards."""
    task = replace(mdp.true_task, reward=reward, reward_range=reward_range)
    return replace(mdp, true_task=task)


def test_the_agent_has_the_features_whose_theta_is_compared():
    mdp = up.envs.riverswim(3)
    phi = up.features.one_hot(mdp.task())
    for other in (up.Features(phi.task, phi.matrix * 10), up.features.one_hot_indicator(phi.task)):
        with pytest.raises(ValueError, match="agent has other features"):
            up.coverage(mdp, phi, up.agents.UCRLMNL(phi.task, other), n_runs=1, n_episodes=2)
    same = up.agents.UCRLMNL(phi.task, up.features.one_hot(mdp.task()))
    assert up.coverage(mdp, phi, same, n_runs=1, n_episodes=2).distance.shape == (1, 2)
