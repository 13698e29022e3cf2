"""Bus-engine replacement: the published numbers, and features that hold them exactly."""

import numpy as np
import pytest
from studies.environments import bus_engine_features

import upriver as up
from upriver import envs
from upriver.envs.bus_engine import INCREMENTS, bus_engine
from upriver.mnl.likelihood import probabilities


def test_increments_and_rewards():
    mdp = envs.make("bus-engine-90")
    task, p = mdp.true_task, mdp.probability[0]
    assert task.max_successors == 3
    assert sum(INCREMENTS) == pytest.approx(1.0)
    assert task.successors[task.rows(40, 0)].tolist() == [40, 41, 42]
    assert p[task.rows(40, 0)] == pytest.approx(INCREMENTS)
    assert task.successors[task.rows(40, 1)].tolist() == [0, 1, 2]
    assert p[task.rows(88, 0)] == pytest.approx([0.3919, 0.6081])
    assert p[task.rows(89, 0)].tolist() == [1.0]
    assert mdp.reward[:, 1].tolist() == [0.0] * 90
    assert mdp.reward[40, 0] == pytest.approx(1 - 0.001 * 2.293 * 40 / 10.075)


def test_local_support_does_not_say_which_action_replaces():
    task = bus_engine(20).task("local")
    assert task.successors[task.rows(10, 0)].tolist() == [0, 1, 2, 10, 11, 12]
    assert task.successors[task.rows(10, 1)].tolist() == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("n_bins", [3, 4, 20])
def test_features_are_exact(n_bins):
    mdp = bus_engine(n_bins)
    phi = bus_engine_features(mdp.true_task)
    zero, one, two = INCREMENTS
    value = {"+1": one / zero, "+2": two / zero, "+1 or more": (one + two) / zero}
    theta = np.log([value[name] for name in phi.names])
    assert probabilities(phi, theta) == pytest.approx(mdp.probability[0], abs=1e-14)
    assert bus_engine_features(mdp.task("local")).dimension == (4 if n_bins == 3 else 5)


def test_a_cheap_replacement_is_used_at_high_mileage_and_never_at_low():
    mdp = bus_engine(30, horizon=60, replacement=0.3)
    policy = up.solve(mdp).policy[0]
    first = int(np.argmax(policy))
    assert 0 < first < 30 and policy[first:].all() and not policy[:first].any()


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="n_bins is 2; it must be a whole number of at least 3"):
        bus_engine(2)
    with pytest.raises(ValueError, match="replacement is 0"):
        bus_engine(replacement=0)
