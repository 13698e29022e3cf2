"""The drawn MNL-MDP: exactly in the family, or at most the chosen distance away from it."""

import numpy as np
import pytest

from upriver import envs
from upriver.envs.random_mnl import (
    misspecified_mnl,
    random_mnl,
    random_mnl_features,
    true_parameter,
)
from upriver.mnl.likelihood import probabilities


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_true_parameter_gives_the_probabilities_exactly(seed):
    mdp = random_mnl(
        n_states=7, n_actions=3, dimension=4, max_successors=5, seed=seed, theta_norm=3.0
    )
    phi, theta = random_mnl_features(mdp.true_task), true_parameter(4, 3.0, seed)
    assert np.linalg.norm(theta) == pytest.approx(3.0)
    assert phi.dimension == 4 and mdp.true_task.sizes.tolist() == [5] * 21
    assert np.linalg.norm(phi.matrix, axis=1) == pytest.approx(1.0)
    assert probabilities(phi, theta) == pytest.approx(mdp.probability[0], abs=1e-14)


def test_features_of_a_triple_do_not_depend_on_the_support():
    mdp = envs.make("random-mnl-8")
    known, full = random_mnl_features(mdp.true_task), random_mnl_features(mdp.task("full"))
    s, a, s2 = mdp.true_task.triples
    rows = (s * mdp.n_actions + a) * mdp.n_states + s2
    assert np.array_equal(full.matrix[rows], known.matrix)


def test_a_draw_is_a_function_of_its_seed():
    one, same, other = random_mnl(seed=4), random_mnl(seed=4), random_mnl(seed=5)
    assert np.array_equal(one.probability, same.probability)
    assert np.array_equal(one.reward, same.reward)
    assert not np.array_equal(one.true_task.successors, other.true_task.successors)


@pytest.mark.parametrize("seed", range(20, 25))
def test_the_task_does_not_reveal_the_true_parameter(seed):
    task = random_mnl(seed=seed).task("full")
    theta = true_parameter(5, 1.0, seed)
    for number in task.states[0]:  # nothing in a name draws the core again
        assert abs(true_parameter(5, 1.0, number) @ theta) < 0.999
    # and no feature is the core itself: among 200 unit vectors in R^5, |cosine| > 0.999 has a
    # probability of about 1e-6
    assert np.abs(random_mnl_features(task).matrix @ theta).max() < 0.999


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.5, 1.0])
def test_distance_bounds_the_total_variation(distance):
    exact = random_mnl(seed=3)
    mixed = misspecified_mnl(seed=3, distance=distance)
    assert mixed.true_task.same_support(exact.true_task)
    assert np.array_equal(mixed.reward, exact.reward)
    gap = np.abs(mixed.probability - exact.probability)[0]
    variation = 0.5 * np.add.reduceat(gap, exact.true_task.indptr[:-1])
    assert variation.max() <= distance + 1e-12
    assert (variation.max() > 0.3 * distance) == (distance > 0)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"max_successors": 11}, "max_successors is 11; there are 10 states"),
        ({"distance": 1.5}, "distance is 1.5; it must lie between 0 and 1"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
    ],
)
def test_bad_numbers_are_named(numbers, message):
    with pytest.raises(ValueError, match=message):
        misspecified_mnl(**numbers)
