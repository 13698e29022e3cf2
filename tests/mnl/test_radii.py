"""Gram matrix (5), elliptical norms, radii: each against its formula written out again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import upriver as up
from tests.reference import gram, matrix, random_mdp
from upriver import FiniteMDP, envs, features
from upriver.features import Features
from upriver.mnl.radii import (
    Evidence,
    constant_radius,
    corrected_radius,
    gram_matrix,
    lemma1_radius,
    scaled_radius,
    theory_regularization,
)


@pytest.mark.parametrize("kind", ["dense", "sparse", "one-hot", "indicator", "pooled"])
def test_gram_matrix(rng, kind):
    task = random_mdp(rng, 5, 2).task()
    raw = rng.standard_normal((task.n_triples, 4))
    made = {
        "dense": lambda: Features(task, raw),
        "sparse": lambda: Features(task, sparse.csr_array(raw * (rng.random(raw.shape) < 0.4))),
        "pooled": lambda: features.pooled(Features(task, raw), spread=1.7),
        "one-hot": lambda: features.one_hot(task),
        "indicator": lambda: features.one_hot_indicator(task),
    }[kind]()
    phi = matrix(made)
    counts = rng.integers(0, 4, task.n_triples).astype(float)
    expected = gram(task, phi, counts, 0.3)
    got = gram_matrix(made, counts, 0.3)
    assert sparse.issparse(got) == sparse.issparse(made.matrix)
    np.testing.assert_allclose(got.toarray() if sparse.issparse(got) else got, expected, atol=1e-12)
    with pytest.raises(ValueError, match="regularization is 0"):
        gram_matrix(made, counts, 0.0)


E = Evidence(
    k=7, horizon=24, n_states=6, max_successors=3, dimension=72, norm_bound=np.sqrt(2.0),
    regularization=1.5, logdet_ratio=4.25,
)  # fmt: skip


def test_radii_are_their_formulas():
    assert constant_radius(2.5)(E) == 2.5
    assert scaled_radius(0.1)(E) == pytest.approx(
        0.1 * np.sqrt(72 * np.log(1 + 7 * 24 * 6 / (72 * 1.5)))
    )
    assert scaled_radius(0)(E) == 0.0
    lemma = lemma1_radius(kappa=0.0175, theta_bound=6.0, delta=0.05)
    inner = 72 * np.log(2 / 2) + 36 * np.log(1 + 7 * 24 * 3 * 2 / (72 * 1.5)) + np.log(20)
    expected = (np.sqrt(2) / 4 + 6) * np.sqrt(1.5) + 4 / (np.sqrt(2) * np.sqrt(1.5)) * inner
    assert lemma(E) == pytest.approx(expected / 0.0175)
    right = corrected_radius(kappa=0.0175, theta_bound=6.0, delta=0.05)
    inner = 72 * np.log(2) + 4.25 / 2 + np.log(20)
    expected = (1 / (4 * np.sqrt(2)) + 6) * np.sqrt(1.5) + 4 * np.sqrt(2 / 1.5) * inner
    assert right(E) == pytest.approx(expected / 0.0175)


def test_the_two_theory_radii_agree_where_the_printed_one_is_right():
    """L_varphi = 1, and the determinant at its bound d log(1 + k H U / (d lambda))."""
    e = E._replace(norm_bound=1.0, logdet_ratio=72 * np.log(1 + 7 * 24 * 3 / (72 * 1.5)))
    assert lemma1_radius(0.02, 3.0)(e) == pytest.approx(corrected_radius(0.02, 3.0)(e))


def test_the_magnitudes_of_the_theory_on_riverswim():
    """S = 6, H = 24, k = 100: lambda about 1379 and a radius of about 13,500."""
    made = features.one_hot(envs.riverswim(6).task())
    lam = theory_regularization(made)(100)
    assert lam == pytest.approx(2 * 72 * np.log(100 * 24 * 3 * 2))
    assert lam == pytest.approx(1379, abs=1.0)
    e = Evidence(100, 24, 6, 3, 72, made.norm_bound, lam, 0.0)
    assert lemma1_radius(0.0175, 6.0, 0.05)(e) == pytest.approx(1.35e4, rel=0.01)
    assert theory_regularization(made, 1e-9)(1) == pytest.approx(2.0)  # at least L_varphi^2


def test_the_practical_radius_has_the_published_size():
    for n, k, value in ((6, 1, 8.9), (6, 100, 19.5), (20, 1, 29.6), (20, 200, 69.2)):
        d = n * 2 * n
        e = Evidence(k, 4 * n, n, 3, d, 1.4, 1.0, 0.0)
        assert scaled_radius(1.0)(e) == pytest.approx(value, abs=0.05)


def test_wrong_constants_are_refused():
    for call, sentence in (
        (lambda: scaled_radius(-1.0), r"scale is -1\.0"),
        (lambda: scaled_radius(np.nan), "scale is nan"),
        (lambda: constant_radius(np.inf), "beta is inf"),
        (lambda: lemma1_radius(0.0, 1.0), r"kappa is 0\.0; it must lie strictly between 0 and 1"),
        (lambda: corrected_radius(0.1, 1.0, 1.0), r"delta is 1\.0"),
        (lambda: corrected_radius(0.1, 0.0), "theta_bound is 0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()


def test_radii_where_there_is_nothing_to_learn():
    """One successor everywhere: L_varphi is 0 and every core is the true one."""
    e = E._replace(norm_bound=0.0)
    for radius in (lemma1_radius(0.1, 1.0), corrected_radius(0.1, 1.0)):
        assert np.isfinite(radius(e))
    task = FiniteMDP.from_arrays(np.eye(3)[:, None], np.zeros((3, 1)), 2).task()
    assert theory_regularization(features.one_hot(task))(5) > 0.0


def test_a_radius_for_each_step_holds_for_all_steps_at_once():
    """per_step: H cores share delta."""
    task = up.envs.riverswim(4, horizon=6).task("local")
    features = up.features.one_hot(task)
    radius = up.radii.corrected_radius(0.02, 3.0, 0.05)
    one, all_steps = (
        up.agents.UCRLMNL(task, features, radius=r, per_step=p)
        for r, p in ((up.radii.corrected_radius(0.02, 3.0, 0.05 / 6), False), (radius, True))
    )
    assert all_steps.beta(all_steps.init()) == pytest.approx(one.beta(one.init()))
    shared = up.agents.UCRLMNL(task, features, radius=radius)
    assert all_steps.beta(all_steps.init()) > shared.beta(shared.init())
