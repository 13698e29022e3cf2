"""The MNL likelihood: a case by hand, finite differences, block structure, logits of any size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests.reference import (
    groups,
    matrix,
    mnl_gradient,
    mnl_log_probabilities,
    mnl_loss,
    random_mdp,
)
from upriver import FiniteMDP, features
from upriver.features import Features
from upriver.mnl.fit import fit_mnl
from upriver.mnl.likelihood import gradient, hessian, log_probabilities, loss, probabilities


def as_array(x):
    return x.toarray() if sparse.issparse(x) else x


@pytest.fixture
def problem(rng):
    """(features, counts): dense features of a small task, some pairs never visited."""
    task = random_mdp(rng, 5, 2).task()
    counts = rng.integers(0, 5, task.n_triples).astype(float)
    counts[task.rows(2, 1)] = 0.0
    return Features(task, rng.standard_normal((task.n_triples, 4))), counts


def test_the_smallest_case_by_hand():
    """Two successors, one feature: the logistic model, three visits to one and one to the other."""
    mdp = FiniteMDP.from_arrays([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [0.0]], 1)
    made = Features(mdp.task(), [[0.0], [1.0], [0.0], [1.0]])
    theta, counts = np.array([np.log(3.0)]), np.array([1.0, 3.0, 0.0, 0.0])
    np.testing.assert_allclose(probabilities(made, theta), [0.25, 0.75, 0.25, 0.75], rtol=1e-15)
    by_hand = -np.log(0.25) - 3 * np.log(0.75)
    assert loss(made, theta, counts, 0.0) == pytest.approx(by_hand, rel=1e-14)
    assert loss(made, theta, counts, 2.0) == pytest.approx(by_hand + np.log(3) ** 2, rel=1e-14)
    np.testing.assert_allclose(gradient(made, theta, counts, 0.0), [0.0], atol=1e-14)
    np.testing.assert_allclose(gradient(made, theta, counts, 2.0), [2 * np.log(3)], rtol=1e-14)
    np.testing.assert_allclose(hessian(made, theta, counts, 2.0), [[2 + 4 * 0.1875]], rtol=1e-14)


def test_values_and_gradient_against_plain_loops(problem, rng):
    made, counts = problem
    task, phi = made.task, made.matrix
    for size in (0.0, 0.5, 5.0):
        theta = size * rng.standard_normal(4)
        log_p = mnl_log_probabilities(task, phi, theta)
        np.testing.assert_allclose(log_probabilities(made, theta), log_p, atol=1e-12)
        np.testing.assert_allclose(probabilities(made, theta), np.exp(log_p), rtol=1e-12)
        assert loss(made, theta, counts, 0.7) == pytest.approx(
            mnl_loss(task, phi, theta, counts, 0.7), rel=1e-13
        )
        np.testing.assert_allclose(
            gradient(made, theta, counts, 0.7),
            mnl_gradient(task, phi, theta, counts, 0.7),
            atol=1e-11,
        )


@pytest.mark.parametrize("size", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_finite_differences(problem, rng, size, make):
    given, counts = problem
    made = Features(given.task, make(given.matrix))
    theta = size * rng.standard_normal(4)
    step = 1e-6
    slope = gradient(made, theta, counts, 0.7)
    curve = as_array(hessian(made, theta, counts, 0.7))
    for i in range(4):
        e = step * np.eye(4)[i]
        up, down = (loss(made, theta + sign * e, counts, 0.7) for sign in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(slope[i], rel=1e-5, abs=1e-5)
        change = gradient(made, theta + e, counts, 0.7) - gradient(made, theta - e, counts, 0.7)
        np.testing.assert_allclose(change / (2 * step), curve[i], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(curve, curve.T)
    assert np.linalg.eigvalsh(curve).min() >= 0.7 - 1e-10  # convex, and more so by lambda


def test_the_hessian_is_the_centred_second_moment(problem, rng):
    made, counts = problem
    theta = rng.standard_normal(4)
    p = np.exp(mnl_log_probabilities(made.task, made.matrix, theta))
    expected = 0.7 * np.eye(4)
    for _, _, rows in groups(made.task):
        mean = p[rows] @ made.matrix[rows]
        second = (p[rows, None] * made.matrix[rows]).T @ made.matrix[rows]
        expected += counts[rows].sum() * (second - np.outer(mean, mean))
        centred = made.matrix[rows] - mean
        np.testing.assert_allclose(p[rows] @ centred, 0.0, atol=1e-14)
    np.testing.assert_allclose(hessian(made, theta, counts, 0.7), expected, atol=1e-11)


@pytest.mark.parametrize("size", [1e3, 1e8, 1e150])
def test_logits_of_any_size(problem, rng, size):
    made, counts = problem
    theta = size * rng.standard_normal(4)
    p = probabilities(made, theta)
    assert np.isfinite(p).all()
    for _, _, rows in groups(made.task):
        assert p[rows].sum() == pytest.approx(1.0)
        assert p[rows].argmax() == (made.matrix[rows] @ theta).argmax()
    log_p = log_probabilities(made, theta)
    assert np.isfinite(log_p).all() and (log_p <= 0).all()
    value = loss(made, theta, counts, 0.0)
    seen = counts > 0
    assert value == pytest.approx(-(counts[seen] @ log_p[seen]), rel=1e-12)
    assert np.isfinite(gradient(made, theta, counts, 0.0)).all()
    assert np.isfinite(hessian(made, theta, counts, 1.0)).all()


@pytest.mark.parametrize("support", ["known", "full"])
def test_blocks_and_a_dense_matrix_give_the_same(rng, support):
    task = random_mdp(rng, 5, 2).task(support)
    blocks = features.one_hot(task)
    whole = Features(task, matrix(blocks))
    counts = rng.integers(0, 4, task.n_triples).astype(float)
    theta = rng.standard_normal(blocks.dimension)
    assert len(blocks.layout.size) > 1 and len(whole.layout.size) == 1
    assert loss(blocks, theta, counts, 0.3) == pytest.approx(loss(whole, theta, counts, 0.3))
    np.testing.assert_allclose(
        gradient(blocks, theta, counts, 0.3), gradient(whole, theta, counts, 0.3), atol=1e-12
    )
    np.testing.assert_allclose(
        hessian(blocks, theta, counts, 0.3).toarray(), hessian(whole, theta, counts, 0.3),
        atol=1e-12,
    )  # fmt: skip
    np.testing.assert_allclose(probabilities(blocks, theta), probabilities(whole, theta))


def test_groups_without_features_are_uniform_and_counted(rng):
    task = random_mdp(rng, 4, 2).task("full")
    phi = np.zeros((task.n_triples, 2))
    phi[task.rows(1, 0)] = rng.standard_normal((4, 2))
    made = Features(task, sparse.csr_array(phi))
    counts = rng.integers(0, 4, task.n_triples).astype(float)
    theta = np.array([0.4, -1.0])
    assert loss(made, theta, counts, 0.5) == pytest.approx(mnl_loss(task, phi, theta, counts, 0.5))
    np.testing.assert_allclose(probabilities(made, theta)[:4], 0.25)


def test_wrong_counts_get_one_clear_sentence(problem):
    made, counts = problem
    n = len(counts)
    for given, sentence in (
        (counts[1:], rf"counts has shape \({n - 1},\); it must be \({n},\)"),
        (counts - 9, r"counts\[0\] is -.*; counts must be finite and >= 0"),
        (counts * np.nan, r"counts\[0\] is nan"),
        (["many"] * n, "counts must be an array of numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit_mnl(made, given, 1.0)
