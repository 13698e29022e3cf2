import numpy as np
import pytest
from scipy import sparse

import upriver as up
from tests.diagnostics.problems import random_features, random_problem
from upriver.diagnostics import find_core, theta_star, true_probabilities
from upriver.diagnostics.realizability import has_zero_successor
from upriver.mnl import likelihood


@pytest.mark.parametrize(
    ("n_states", "norm"), [(4, 2.6456), (6, 3.7193), (8, 4.5462), (10, 5.2443), (20, 7.8534)]
)
def test_norm_of_the_riverswim_core(n_states, norm):
    mdp = up.envs.riverswim(n_states)
    core = find_core(mdp, up.features.one_hot(mdp.task()))
    assert core.realizable
    assert core.norm == pytest.approx(norm, abs=5e-5)
    assert core.error < 1e-12


@pytest.mark.parametrize(
    ("n_states", "norm"), [(4, 4.5002), (6, 6.3383), (8, 7.7522), (10, 8.9454), (20, 13.4027)]
)
def test_norm_of_the_indicator_core(n_states, norm):
    mdp = up.envs.riverswim(n_states)
    features = up.features.one_hot_indicator(mdp.task())
    assert find_core(mdp, features).norm == pytest.approx(norm, abs=5e-5)


def test_core_gives_back_the_transitions():
    mdp = up.envs.riverswim(7)
    for features in (up.features.one_hot(mdp.task()), up.features.shared(mdp.task())):
        prob = likelihood.probabilities(features, theta_star(mdp, features)[0])
        np.testing.assert_allclose(prob, mdp.probability[0], atol=1e-12)


def test_core_is_of_minimum_norm_and_blocks_agree_with_dense(rng):
    mdp = up.envs.riverswim(5)
    sparse = up.features.one_hot(mdp.task())
    dense = up.Features(mdp.task(), sparse.matrix.toarray())
    np.testing.assert_allclose(theta_star(mdp, sparse), theta_star(mdp, dense), atol=1e-12)
    assert find_core(mdp, sparse).rank == find_core(mdp, dense).rank == 8
    # a repeated column leaves many solutions; the least one splits the weight
    doubled = up.Features(mdp.task(), np.hstack([dense.matrix, dense.matrix]))
    np.testing.assert_allclose(
        theta_star(mdp, doubled)[0], np.tile(theta_star(mdp, dense)[0] / 2, 2), atol=1e-12
    )


def test_recentring_keeps_the_core(rng):
    mdp, features, theta = random_problem(rng)
    np.testing.assert_allclose(theta_star(mdp, features)[0], theta, atol=1e-10)
    np.testing.assert_allclose(
        theta_star(mdp, up.features.recentre(features))[0], theta, atol=1e-10
    )


def test_only_recentring_gives_every_pair_a_zero_successor(rng):
    features = random_features(rng, zero=False)
    for made in (features, up.Features(features.task, sparse.csr_array(features.matrix))):
        assert not has_zero_successor(made)
        assert has_zero_successor(up.features.recentre(made))
    assert has_zero_successor(up.features.shared(up.envs.riverswim(4).task()))
    assert has_zero_successor(up.features.pooled(up.features.recentre(features)))


def test_unrealizable_gets_the_kl_projection(rng):
    mdp = up.envs.riverswim(6)
    features = up.Features(mdp.task(), rng.standard_normal((mdp.true_task.n_triples, 2)))
    core = find_core(mdp, features)
    assert not core.realizable and core.forbidden is None and core.residual > 0.1
    slope = likelihood.gradient(features, core.theta[0], mdp.probability[0], 0.0)
    assert np.abs(slope).max() < 1e-6
    prob = likelihood.probabilities(features, core.theta[0])
    h, s, a = core.where
    rows = mdp.true_task.rows(s, a)
    here = 0.5 * np.abs(prob[rows] - mdp.probability[0, rows]).sum()
    assert h == 0 and core.error == pytest.approx(here)
    with pytest.raises(ValueError, match=r"no theta\* gives these transitions.*s=\d"):
        theta_star(mdp, features)


@pytest.mark.parametrize("odds, realizable", [(0.0, True), (1e-5, False)])
def test_a_little_off_is_not_realizable(rng, odds, realizable):
    """Two groups with the same features and log-odds that differ by 1e-5."""
    p, q = (1.0 / (1.0 + np.exp(-x)) for x in (0.7, 0.7 + odds))
    mdp = up.FiniteMDP.from_arrays([[[1 - p, p]], [[1 - q, q]]], np.zeros((2, 1)), 3)
    features = up.Features(mdp.task(), np.array([[0.0], [1.0], [0.0], [1.0]]))
    assert find_core(mdp, features).realizable == realizable


def test_the_error_is_that_of_the_worst_group_of_all_steps(rng):
    transition = rng.dirichlet(np.ones(3), size=(4, 3, 2))
    transition[2, 1, 0] = [0.98, 0.01, 0.01]
    mdp = up.FiniteMDP.from_arrays(transition, np.zeros((3, 2)), 4)
    features = up.Features(mdp.task(), 0.1 * rng.standard_normal((18, 1)))
    core = find_core(mdp, features)
    errors = np.zeros((4, 3, 2))
    for h in range(4):
        prob = likelihood.probabilities(features, core.theta[h]).reshape(3, 2, 3)
        errors[h] = 0.5 * np.abs(prob - transition[h]).sum(axis=2)
    assert core.error == pytest.approx(errors.max())
    assert core.where == np.unravel_index(errors.argmax(), errors.shape) == (2, 1, 0)


@pytest.mark.parametrize("spread", ["estimate", 0.5])
def test_triple_effects_come_as_close_as_one_likes_whatever_their_spread(spread):
    mdp = up.envs.make("misspecified-mnl-6")
    shared = up.envs.find("misspecified-mnl-6").shared(mdp.task("full"))
    core = find_core(mdp, up.features.pooled(shared, spread))
    assert core.forbidden is not None and core.error < 1e-5


@pytest.mark.parametrize("support", ["local", "full"])
def test_declared_successor_that_never_happens(support):
    mdp = up.envs.riverswim(6)
    features = up.features.one_hot(mdp.task(support))
    core = find_core(mdp, features)
    assert core.forbidden == (0, 0, 1) and core.residual == np.inf
    assert core.error < 1e-5  # the projection comes as close as one likes
    with pytest.raises(ValueError, match=r"successor 1 of \(s=0, a=0\).*theta\* is infinite"):
        theta_star(mdp, features)


def test_transitions_that_change_with_the_step(rng):
    transition = rng.dirichlet(np.ones(3), size=(2, 3, 2))
    mdp = up.FiniteMDP.from_arrays(transition, np.zeros((3, 2)), 2)
    features = up.features.one_hot(mdp.task())
    core = find_core(mdp, features)
    assert core.realizable and core.theta.shape == (2, features.dimension)
    for h in range(2):
        prob = likelihood.probabilities(features, core.theta[h])
        np.testing.assert_allclose(prob, transition[h].ravel(), atol=1e-12)


def test_true_probabilities_on_a_larger_support():
    mdp = up.envs.riverswim(4)
    task = mdp.task("full")
    dense = true_probabilities(mdp, task).reshape(4, 2, 4)
    np.testing.assert_allclose(dense.sum(axis=2), 1.0)
    assert dense[1, 1].tolist() == [0.05, 0.6, 0.35, 0.0]


def test_features_of_another_task():
    six, eight = up.envs.riverswim(6), up.envs.riverswim(8)
    with pytest.raises(ValueError, match=r"made for 8 states named 0 .* here they are 6"):
        find_core(six, up.features.one_hot(eight.task()))
    names = {"actions": six.true_task.actions}
    narrow = up.FiniteMDP.from_arrays(
        np.eye(6)[:, None].repeat(2, 1), np.zeros((6, 2)), 24, **names
    )
    with pytest.raises(ValueError, match="leaves out successor"):
        find_core(six, up.features.one_hot(narrow.task()))


def test_features_belong_to_names_in_one_order():
    prob, reward = np.array([[[0.8, 0.2]] * 2] * 2), np.zeros((2, 2))
    here, there = (
        up.FiniteMDP.from_arrays(prob, reward, 3, states=list(names)) for names in ("ab", "ba")
    )
    phi = up.features.from_function(there.task(), lambda s, a, s2: [float(s2 == "a")])
    assert theta_star(there, phi)[0, 0] == pytest.approx(np.log(0.2 / 0.8))
    for call in (lambda: theta_star(here, phi), lambda: up.agents.UCRLMNLSE(here.task(), phi)):
        with pytest.raises(ValueError, match="states named b / a, and here they are 2 named a / b"):
            call()
    numbers, pairs = (
        up.FiniteMDP.from_arrays(prob, reward, 3, states=names)
        for names in (np.arange(2), [(0, "x"), (1, "x")])
    )
    with pytest.raises(ValueError, match="states named 0 / 1, and here they are"):
        up.agents.UCRLMNLSE(pairs.task(), up.features.one_hot(numbers.task()))


def test_units_of_columns_do_not_matter(rng):
    mdp, features, theta = random_problem(rng)
    units = 10.0 ** np.array([-9, 5, -14, 0, 8, 3, 11])[: features.dimension]
    other = up.Features(features.task, features.matrix * units)
    core = find_core(mdp, other)
    assert core.realizable
    np.testing.assert_allclose(core.theta[0] * units, theta, atol=1e-9)
    assert core.rank == find_core(mdp, features).rank


def test_units_of_columns_do_not_matter_to_the_projection(rng):
    mdp = up.envs.riverswim(6)
    matrix = rng.standard_normal((mdp.true_task.n_triples, 2))
    expected = find_core(mdp, up.Features(mdp.task(), matrix))
    for units in ([1e-5, 1e5], [1e6, 1e6], [1e-7, 1e-7]):
        core = find_core(mdp, up.Features(mdp.task(), matrix * units))
        np.testing.assert_allclose(core.theta * units, expected.theta, rtol=1e-5)
        assert core.error == pytest.approx(expected.error, rel=1e-6)


def test_the_least_norm_is_that_of_the_units_given():
    """Twice the column 1, and once in other units: theta is in proportion to the columns."""
    mdp = up.envs.riverswim(5)
    dense = up.features.one_hot(mdp.task()).matrix.toarray()
    for unit in (1e-3, 1e-9):
        doubled = up.Features(mdp.task(), np.hstack([dense, unit * dense]))
        single = theta_star(mdp, up.Features(mdp.task(), dense))[0]
        expected = np.concatenate([single, unit * single]) / (1 + unit**2)
        np.testing.assert_allclose(theta_star(mdp, doubled)[0], expected, rtol=1e-9, atol=1e-15)


def test_an_offset_does_not_raise_the_rank(rng):
    """Year 2020 in days and in hours are one direction, whatever the offset."""
    mdp = up.envs.riverswim(6)
    x = rng.standard_normal(mdp.true_task.n_triples)
    for offset in (1e3, 1e6, 1e9):
        columns = np.stack([x, np.ones_like(x), 3.7 * x + offset], axis=1)
        assert find_core(mdp, up.Features(mdp.task(), columns)).rank == 1
