import numpy as np
import pytest
from scipy import sparse
from studies.linear_models import (
    COUNTEREXAMPLES,
    bilinear_model,
    examine,
    linear_model,
    matrix_rl_constant,
    mean_features,
    represent,
    with_constant,
)

import upriver as up


@pytest.mark.parametrize(
    ("name", "residual", "weights"),
    [
        ("bilinear", 0.608581, [0.259259, 0.259259]),
        ("low-rank", 0.388623, [0.403932, 0.361930, -0.126005]),
    ],
)
def test_counterexamples_of_the_paper(name, residual, weights):
    phi, _ = COUNTEREXAMPLES[name]
    found = linear_model(phi)
    assert not found.possible
    assert found.residual == pytest.approx(residual, abs=5e-7)
    np.testing.assert_allclose(found.weights, weights, atol=5e-7)
    np.testing.assert_allclose(phi.T @ found.obstruction, 0.0, atol=1e-12)
    assert found.obstruction.sum() == pytest.approx(residual**2, abs=1e-6)
    with pytest.raises(ValueError, match="no linear model"):
        found.model([0.5, 0.5])


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_a_constant_feature_repairs_the_linear_case(name):
    phi, _ = COUNTEREXAMPLES[name]
    found = linear_model(with_constant(phi))
    assert found.possible
    q = np.array([0.3, 0.7])
    np.testing.assert_allclose(with_constant(phi) @ found.model(q), np.tile(q, (4, 1)), atol=1e-12)


def test_the_bilinear_example_fails_in_both_conditions():
    phi, psi = COUNTEREXAMPLES["bilinear"]
    found = bilinear_model(with_constant(phi), psi)
    assert found.rows.possible and not found.possible and found.direction is None
    assert (found.obstruction > 0).all()
    np.testing.assert_allclose(psi.T @ found.obstruction, 0.0, atol=1e-12)


def test_a_possible_bilinear_model_is_stochastic(rng):
    phi = with_constant(rng.standard_normal((8, 2)))
    psi = np.hstack([rng.standard_normal((4, 1)), np.ones((4, 1))])
    found = bilinear_model(phi, psi)
    assert found.possible
    transition = phi @ np.outer(found.rows.weights, found.direction) @ psi.T
    assert (transition >= -1e-12).all()
    np.testing.assert_allclose(transition.sum(axis=1), 1.0)


def test_one_hot_features_are_always_possible():
    assert linear_model(np.eye(5)).possible
    assert linear_model(sparse.eye_array(50, format="csr")).possible
    assert bilinear_model(np.eye(4), np.eye(2)).possible


def test_sparse_and_dense_agree(rng):
    blocks = [rng.standard_normal((3, 2)), rng.standard_normal((2, 2)), np.zeros((1, 1))]
    matrix = sparse.block_array(
        [[blocks[i] if i == j else None for j in range(3)] for i in range(3)], format="csr"
    )
    some, other = linear_model(matrix), linear_model(matrix.toarray())
    assert some.possible == other.possible is False
    assert some.residual == pytest.approx(other.residual)
    np.testing.assert_allclose(some.obstruction, other.obstruction, atol=1e-12)


def test_the_given_transitions_as_linear_models():
    mdp = up.envs.riverswim(4)
    dense = np.zeros((8, 4))
    s, a, s2 = mdp.true_task.triples
    dense[s * 2 + a, s2] = mdp.probability[0]
    assert represent(mdp, np.eye(8)).exact
    assert represent(mdp, dense).exact  # P = P I
    assert represent(mdp, np.eye(8), np.eye(4)).exact
    phi, psi = np.ones((8, 1)), np.ones((4, 1))
    left = np.full((8, 8), 1 / 8) @ dense
    assert represent(mdp, phi).residual == pytest.approx(np.linalg.norm(dense - left))
    both = left @ np.full((4, 4), 1 / 4)
    assert represent(mdp, phi, psi).residual == pytest.approx(np.linalg.norm(dense - both))
    features = up.features.one_hot(mdp.task())
    derived = mean_features(features)
    assert represent(mdp, derived).residual == pytest.approx(
        represent(mdp, derived.toarray()).residual
    )


def test_matrix_rl_constant_is_the_operator_norm(rng):
    """The supremum of |Psi^T v|_inf over |v|_inf = 1 is taken at a vertex of the cube."""
    psi = rng.standard_normal((6, 3))
    cube = np.array(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1)
    assert matrix_rl_constant(psi) == pytest.approx(np.abs(psi.T @ cube).max())


@pytest.mark.parametrize("n_states", [5, 50])
def test_matrix_rl_constant_grows_with_dense_features_only(n_states):
    assert matrix_rl_constant(np.ones((n_states, 1))) == n_states
    assert matrix_rl_constant(np.eye(n_states)) == 1.0


def test_wrong_input_is_one_sentence():
    with pytest.raises(ValueError, match="state-action features hold nan"):
        linear_model([[1.0, np.nan]])
    with pytest.raises(ValueError, match=r"3 rows; there must be 8, one for each \(s, a\)"):
        represent(up.envs.riverswim(4), np.eye(3))


def test_given_linear_features():
    mdp = up.envs.riverswim(4)
    found = examine(mdp, up.features.one_hot(mdp.task()), np.eye(8), np.eye(4))
    assert not found.derived and found.linear.possible and found.bilinear.possible
    assert found.representation.exact and found.matrix_rl_constant == 1.0
