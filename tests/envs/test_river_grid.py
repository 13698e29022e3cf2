"""River grid: its rule by hand, the banks, and that four features are exact at any size."""

import numpy as np
import pytest

import upriver as up
from upriver import envs
from upriver.envs.river_grid import MOVES, river_grid, river_grid_features
from upriver.mnl.likelihood import probabilities


def test_probabilities_by_hand_inside_and_at_a_corner():
    mdp = river_grid(length=3, width=3)
    task, p = mdp.true_task, mdp.probability[0]
    middle = task.rows(task.states.index((1, 1)), list(MOVES).index("upstream"))
    # Successors in order of number: downstream, left, stay, right, upstream.
    weights = np.array([0.25, 0.12, 1.0, 0.12, 20 * 0.05])
    assert p[middle] == pytest.approx(weights / weights.sum())
    corner = task.rows(task.states.index((0, 0)), list(MOVES).index("downstream"))
    weights = np.array([1.0, 0.12, 0.05])  # stay, right, upstream; the bank blocks the rest
    assert p[corner] == pytest.approx(weights / weights.sum())


@pytest.mark.parametrize(("length", "width"), [(2, 1), (4, 3), (9, 2)])
def test_four_features_are_exact(length, width):
    mdp = river_grid(length, width)
    phi = river_grid_features(mdp.true_task)
    value = {
        "upstream": np.log(0.05),
        "downstream": np.log(0.25),
        "across": np.log(0.12),
        "swum for": np.log(20.0),
    }
    theta = np.array([value[name] for name in phi.names])
    assert probabilities(phi, theta) == pytest.approx(mdp.probability[0], abs=1e-14)
    assert phi.dimension == (3 if width == 1 else 4)


def test_local_support_is_the_true_one_and_full_adds_one_feature():
    mdp = envs.make("river-grid-4")
    assert mdp.task("local").same_support(mdp.true_task)
    assert river_grid_features(mdp.task("full")).names[2] == "elsewhere"


def test_the_far_corner_is_worth_the_swim():
    mdp = river_grid()
    downstream = np.full(mdp.n_states, list(MOVES).index("downstream"))
    assert up.solve(mdp).v[0, 0] > 3 * up.evaluate(mdp, downstream)[0, 0]


def test_without_a_bonus_one_hot_features_stay_at_the_mouth():
    mdp = river_grid()
    task = mdp.task("local")
    phi = up.features.one_hot(task)
    late = {
        c: up.simulate(mdp, up.agents.UCRLMNL(task, phi, radius=c), 200, seed=0).values[-50:].mean()
        for c in (0.0, 1e-4)
    }
    best = up.solve(mdp).v[0, 0]
    assert late[0.0] < 0.5 * best and late[1e-4] > 0.9 * best


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="length is 1; it must be a whole number of at least 2"):
        river_grid(1)
