"""The kernels of the MNL model against plain NumPy, with dense, sparse and pooled features."""

from __future__ import annotations

from types import SimpleNamespace

import numba
import numpy as np
import pytest
from scipy import sparse

from tests import reference
from upriver.features import Features, pooled
from upriver.kernels import layout as kernel_layout
from upriver.kernels import likelihood, model
from upriver.mnl import likelihood as mnl_likelihood
from upriver.mnl import model as running
from upriver.mnl import pooled as pooled_fits

LAM = 0.6
KINDS = ["dense", "sparse", "pooled"]


@pytest.fixture
def case(request, rng):
    """Features, their dense matrix, a parameter and counts; one pair has no count."""
    task = reference.random_mdp(rng, 4, 2).task()
    phi = rng.standard_normal((task.n_triples, 3))
    features = Features(task, phi)
    if request.param == "sparse":  # each pair has two features of eight, so there are blocks
        phi = np.zeros((task.n_triples, 8))
        for pair, (_, _, rows) in enumerate(reference.groups(task)):
            columns = 4 * (pair % 2) + rng.choice(4, 2, replace=False)
            phi[np.ix_(rows, columns)] = rng.standard_normal((len(rows), 2))
        features = Features(task, sparse.csr_array(phi))
        assert len(features.layout.size) > 1
    if request.param == "pooled":
        features = pooled(features, 0.8)
    counts = rng.integers(0, 5, task.n_triples).astype(float)
    counts[task.rows(2, 1)] = 0.0
    theta = 0.5 * rng.standard_normal(features.dimension)
    return SimpleNamespace(
        task=task, features=features, phi=reference.matrix(features), theta=theta, counts=counts,
        loss=lambda t: reference.mnl_loss(task, reference.matrix(features), t, counts, LAM),
    )  # fmt: skip


every_kind = pytest.mark.parametrize("case", KINDS, indirect=True)


def differences(function, x, step=1e-5):
    """The derivative of a function by central differences, one row per coordinate of x."""
    return np.array(
        [(function(x + e) - function(x - e)) / (2 * step) for e in step * np.eye(len(x))]
    )


def dense_hessian(case, theta):
    """The Hessian of (2), the sum of N P (varphi - mean)(varphi - mean)^T and lambda I."""
    result = LAM * np.eye(len(theta))
    p = np.exp(reference.mnl_log_probabilities(case.task, case.phi, theta))
    for _, _, rows in reference.groups(case.task):
        x = case.phi[rows] - p[rows] @ case.phi[rows]
        result += case.counts[rows].sum() * (x * p[rows, None]).T @ x
    return result


def schur(matrix, shared):
    """What is left of a matrix for the shared coordinates when the others are eliminated."""
    rest = np.setdiff1d(np.arange(len(matrix)), shared)
    if not len(rest):
        return matrix[np.ix_(shared, shared)]
    border = matrix[np.ix_(shared, rest)]
    inverse = np.linalg.inv(matrix[np.ix_(rest, rest)])
    return matrix[np.ix_(shared, shared)] - border @ inverse @ border.T


@numba.njit
def evaluate_and_gram(layout, counts, theta, b, scale, gradient, hessian, gram_matrix):
    """Return the loss of a block and fill its gradient, Hessian and Gram matrix."""
    pairs, slots, values, blocks = layout.pairs, layout.slots, layout.values, layout.blocks
    visited, outcomes, effects, mean, point, _, _ = kernel_layout.new_work(layout, scale)
    members, features = layout.block_pairs, layout.features
    n = 0
    for k in range(blocks[b].first_pair, blocks[b + 1].first_pair):
        visited[n] = members[k]
        n += counts[0, pairs[members[k]].first_row : pairs[members[k] + 1].first_row].any()
    likelihood.load_block(blocks, features, b, theta, 0, point)
    loss = 0.0
    for local, matrix in ((False, gram_matrix), (True, hessian)):
        loss = likelihood.evaluate_block(
            pairs, slots, values, blocks[b].size, visited, n, counts, 0, LAM, scale, local, point,
            theta, effects, outcomes, mean, gradient, matrix,
        )  # fmt: skip
    return loss


@every_kind
def test_equation_1_is_the_softmax_of_the_logits(case):
    log_prob = mnl_likelihood.log_probabilities(case.features, 50 * case.theta)
    expected = reference.mnl_log_probabilities(case.task, case.phi, 50 * case.theta)
    np.testing.assert_allclose(log_prob, expected, atol=1e-10)


@every_kind
def test_equation_2_and_its_derivatives_block_by_block(case):
    layout, m = case.features.layout, case.features.layout.max_block_size
    gradient, hessian, computed_gram = np.empty(m), np.empty((m, m)), np.empty((m, m))
    slope = differences(case.loss, case.theta)
    bend = differences(lambda t: differences(case.loss, t, 1e-3), case.theta, 1e-3)
    whole, gram_matrix = (
        dense_hessian(case, case.theta),
        reference.gram(case.task, case.phi, case.counts, LAM),
    )
    np.testing.assert_allclose(whole, bend, atol=2e-4)
    total = 0.0
    start = layout.blocks["first_feature"]
    for b, size in enumerate(layout.size):
        at = layout.features[start[b] : start[b + 1]]
        effects = np.arange(case.features.n_shared, case.features.dimension)
        part = np.concatenate([at, effects])
        scale = case.features.triple_scale
        total += evaluate_and_gram(
            case.features.compiled, case.counts[None], case.theta[None], b, scale, gradient,
            hessian, computed_gram,
        )  # fmt: skip
        border = np.linalg.solve(whole[np.ix_(effects, effects)], slope[effects])
        reduced = slope[at] - whole[np.ix_(at, effects)] @ border
        np.testing.assert_allclose(gradient[:size], reduced, atol=1e-6)
        for computed, expected in ((hessian, whole), (computed_gram, gram_matrix)):
            left = schur(expected[np.ix_(part, part)], np.arange(size))
            np.testing.assert_allclose(np.tril(computed[:size, :size]), np.tril(left), atol=1e-9)
    unvisited = 0.0  # the penalty of effects in pairs without a count is not in the sum
    if case.features.spread:
        rows = np.delete(np.arange(case.task.n_triples), case.task.first_rows)
        visits = np.repeat(case.task.by_pair(case.counts), case.task.sizes)[rows]
        effects = case.theta[case.features.n_shared :]
        unvisited = 0.5 * LAM * (effects[visits == 0] ** 2).sum()
    assert total + unvisited == pytest.approx(case.loss(case.theta), rel=1e-12)


@every_kind
def test_log_probabilities_give_equation_2_without_the_ridge(case):
    log_prob = mnl_likelihood.log_probabilities(case.features, case.theta)
    assert -case.counts @ log_prob == pytest.approx(
        case.loss(case.theta) - 0.5 * LAM * case.theta @ case.theta
    )


@every_kind
def test_equation_3_is_the_stationary_point(case):
    theta = np.zeros(case.features.dimension)
    given = case.features, case.counts[None], theta[None], LAM
    assert running.fit_blocks(*given, case.features.triple_scale)[0] == -1
    args = case.task, case.phi, theta, case.counts, LAM
    np.testing.assert_allclose(reference.mnl_gradient(*args), 0.0, atol=1e-8)


def test_one_newton_step_from_near_the_minimum_squares_the_error(rng):
    """The last step of Newton's method, after which the kernel stops, is a full one."""
    task = reference.random_mdp(rng, 4, 2).task()
    features = Features(task, rng.standard_normal((task.n_triples, 3)))
    counts = rng.integers(0, 5, task.n_triples).astype(float)
    case = SimpleNamespace(task=task, phi=features.matrix, counts=counts)
    minimum = np.zeros(3)
    running.fit_blocks(features, counts[None], minimum[None], LAM, 0.0)
    start = minimum + 1e-6 * rng.standard_normal(3)  # its squared decrement is below DECREMENT
    slope = reference.mnl_gradient(task, features.matrix, start, counts, LAM)
    expected = start - np.linalg.solve(dense_hessian(case, start), slope)
    theta = start.copy()
    running.fit_blocks(features, counts[None], theta[None], LAM, 0.0)
    np.testing.assert_allclose(theta, expected, atol=1e-13)
    assert np.abs(theta - minimum).max() < 1e-10


@pytest.mark.parametrize("case", ["pooled"], indirect=True)
def test_products_and_variances_are_those_of_the_dense_inverse(case, rng):
    features, d = case.features, case.features.dimension
    whole = dense_hessian(case, case.theta)
    inverse = np.linalg.inv(whole)
    vector = rng.standard_normal((d, 2))
    product = pooled_fits.covariance(features, case.theta, case.counts, LAM) @ vector
    np.testing.assert_allclose(product, inverse @ vector, atol=1e-10)
    variance = pooled_fits.shared_variances(features, case.theta, case.counts, LAM)
    np.testing.assert_allclose(variance, np.diag(inverse)[: len(variance)], atol=1e-10)
    given = features, case.counts[None], case.theta[None], LAM, 0.8
    _, _, found = running.fit_blocks(*given, is_fitted=True)
    assert found == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-12)


@every_kind
@pytest.mark.parametrize("local", [False, True])
def test_refresh_computes_equations_1_3_and_5(case, local):
    features, task = case.features, case.task
    new = running.start(features, LAM, 1, with_products=True)
    new.counts[0], new.logdet[:] = case.counts, np.nan  # compute every block again
    none = np.empty(0, np.int64)
    given = none, none, False, local, *running.ONCE, running.NONE
    assert model.refresh(features.compiled, *new, *given)[:2] == (-1, -1)
    theta = new.theta[0]
    slope = reference.mnl_gradient(task, case.phi, theta, case.counts, LAM)
    np.testing.assert_allclose(slope, 0.0, atol=1e-8)
    log_prob = reference.mnl_log_probabilities(task, case.phi, theta)
    np.testing.assert_allclose(new.prob[0], np.exp(log_prob), atol=1e-12)
    matrix = dense_hessian(case, theta)
    if not local:
        matrix = reference.gram(task, case.phi, case.counts, LAM)
    assert new.logdet.sum() == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12)
    products = case.phi @ np.linalg.inv(matrix) @ case.phi.T
    for pair, (_, _, rows) in enumerate(reference.groups(task)):
        block = products[np.ix_(rows, rows)]
        at = slice(task.square_start[pair], task.square_start[pair + 1])
        np.testing.assert_allclose(new.inverse_products[0, at], block.ravel(), atol=1e-9)
        assert new.max_norm[0, pair] ** 2 == pytest.approx(block.diagonal().max(), abs=1e-9)


@every_kind
def test_refresh_counts_an_episode_and_names_a_step_outside_the_support(case):
    features, task = case.features, case.task
    new = running.start(features, LAM, 1, False)
    first = int(task.successors[0])  # a successor of state 0 and action 0
    states, actions = np.array([0, first]), np.array([0])
    rest = actions, False, False, *running.ONCE, running.NONE
    args = features.compiled, *new
    assert model.refresh(*args, states, *rest)[:2] == (-1, -1)
    assert new.counts.sum() == 1.0 and new.counts[0, 0] == 1.0
    missing = np.setdiff1d(np.arange(4), task.successors[task.rows(0, 0)])
    if len(missing):
        wrong = np.array([0, missing[0]])
        assert model.refresh(*args, wrong, *rest)[:2] == (0, -1)


def test_choice_data_in_chunks(rng):
    """The loss, residuals and centred rows of two chunks."""
    indptr, x = np.array([0, 2, 5, 6, 9]), rng.standard_normal((9, 5))
    pair = np.repeat(np.arange(4), np.diff(indptr))
    counts, theta = rng.integers(0, 4, 9).astype(float), 20.0 * rng.standard_normal(5)
    visits = np.add.reduceat(counts, indptr[:-1])
    for first, last in ((0, 2), (2, 4)):
        part = slice(indptr[first], indptr[last])
        made, residual = x[part], x[part] @ theta
        rows, loss = np.empty((part.stop - part.start, 5)), 0.0
        found = likelihood.evaluate_chunk(
            indptr, first, last, made, counts, visits, residual, rows
        )  # fmt: skip
        for g in range(first, last):
            of = np.flatnonzero(pair == g)
            log_p = x[of] @ theta
            log_p -= log_p.max() + np.log(np.exp(log_p - log_p.max()).sum())
            p = np.exp(log_p)
            loss -= counts[of] @ log_p
            expected = visits[g] * p - counts[of]
            np.testing.assert_allclose(residual[of - part.start], expected, atol=1e-12)
            centred = np.sqrt(visits[g] * p)[:, None] * (x[of] - p @ x[of])
            np.testing.assert_allclose(rows[of - part.start], centred, atol=1e-12)
        assert found == pytest.approx(loss, rel=1e-12)
