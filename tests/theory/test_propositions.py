"""Propositions 1 and 2: when a linear transition model can be a distribution at all.

With features Phi (S*A, d) of pairs and Psi (S, d') of next states, exactly:

    linear, P = Phi mu:           possible  <=>  1 is in the range of Phi
    bilinear, P = Phi M Psi^T:    possible  <=>  that, and some v has Psi v >= 0, 1^T Psi v = 1

If Phi w = 1, then mu = w q^T for any distribution q, and M = w v^T, are models. If not, the
residual r of the least-squares problem has Phi^T r = 0 and 1^T r > 0, so no w exists. And if there
is no v, some y > 0 has Psi^T y = 0 (Stiemke).
"""

import numpy as np
import pytest
from scipy.optimize import linprog

BILINEAR = np.array([[1.0, 1], [1, 2], [3, 1], [2, 3]]), np.array([[1.0], [-2]])
LOW_RANK = np.array([[1.0, 1, 1], [1, 2, 0], [3, 1, 4], [2, 3, 7]])
"""The two examples in the proof of Proposition 1: (Phi, Psi), and Phi."""


def solve_ones(phi):
    """Return the least-squares solution w of Phi w = 1, and the residual 1 - Phi w."""
    w = np.linalg.lstsq(phi, np.ones(len(phi)), rcond=None)[0]
    return w, 1.0 - phi @ w


def is_linear_possible(phi):
    return bool(np.abs(solve_ones(phi)[1]).max() < 1e-9)


def nonnegative_direction(psi):
    """Return v with Psi v >= 0 and 1^T Psi v = 1, or None where there is none."""
    n, d = psi.shape
    found = linprog(
        np.zeros(d), A_ub=-psi, b_ub=np.zeros(n), A_eq=psi.sum(axis=0)[None], b_eq=[1.0],
        bounds=[(None, None)] * d,
    )  # fmt: skip
    return found.x if found.status == 0 else None


def is_bilinear_possible(phi, psi):
    return is_linear_possible(phi) and nonnegative_direction(psi) is not None


def with_constant(phi):
    return np.hstack([phi, np.ones((len(phi), 1))])


@pytest.mark.parametrize(
    ("phi", "size", "weights"),
    [
        (BILINEAR[0], 0.608581, [0.259259, 0.259259]),
        (LOW_RANK, 0.388623, [0.403932, 0.361930, -0.126005]),
    ],
)
def test_counterexamples_of_the_paper(phi, size, weights):
    w, residual = solve_ones(phi)
    assert not is_linear_possible(phi)
    assert np.linalg.norm(residual) == pytest.approx(size, abs=5e-7)
    np.testing.assert_allclose(w, weights, atol=5e-7)
    np.testing.assert_allclose(phi.T @ residual, 0.0, atol=1e-12)
    assert residual.sum() == pytest.approx(size**2, abs=1e-6)


@pytest.mark.parametrize("phi", [BILINEAR[0], LOW_RANK])
def test_a_constant_feature_repairs_the_linear_case(phi):
    phi, q = with_constant(phi), np.array([0.3, 0.7])
    assert is_linear_possible(phi)
    np.testing.assert_allclose(phi @ np.outer(solve_ones(phi)[0], q), np.tile(q, (4, 1)))


def test_the_bilinear_example_fails_in_both_conditions():
    phi, psi = BILINEAR
    assert is_linear_possible(with_constant(phi))
    assert not is_bilinear_possible(with_constant(phi), psi)
    np.testing.assert_array_equal(psi.T @ [2.0, 1.0], 0.0)  # the certificate y > 0


def test_a_possible_bilinear_model_is_stochastic(rng):
    phi = with_constant(rng.standard_normal((8, 2)))
    psi = with_constant(rng.standard_normal((4, 1)))
    assert is_bilinear_possible(phi, psi)
    transition = phi @ np.outer(solve_ones(phi)[0], nonnegative_direction(psi)) @ psi.T
    assert (transition >= -1e-12).all()
    np.testing.assert_allclose(transition.sum(axis=1), 1.0)


def test_e14_linear_models_are_possible_for_some_features(rng):
    phi = rng.standard_normal((6, 2))
    assert not is_linear_possible(phi)
    assert is_linear_possible(with_constant(phi))
    assert is_linear_possible(np.eye(6))
    assert is_bilinear_possible(np.eye(6), np.eye(3))
    assert is_linear_possible(rng.dirichlet(np.ones(3), size=6))  # what a linear MDP usually has


def matrix_rl_constant(psi):
    """Proposition 2: the least C with ||Psi^T v||_inf <= C ||v||_inf."""
    return np.abs(psi).sum(axis=0).max()


def test_matrix_rl_constant_grows_with_the_states_for_dense_features_only(rng):
    psi = rng.standard_normal((6, 3))
    cube = np.array(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1)  # the vertices of |v| <= 1
    assert matrix_rl_constant(psi) == pytest.approx(np.abs(psi.T @ cube).max())
    for n_states in (5, 50):
        assert matrix_rl_constant(np.ones((n_states, 1))) == n_states
        assert matrix_rl_constant(np.eye(n_states)) == 1.0
