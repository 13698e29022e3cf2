"""The running model against dense linear algebra: probabilities, widths, geometry, determinants."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, sparse

from tests.mnl.test_sampling import play
from tests.reference import gram, groups, matrix, mnl_gradient, mnl_log_probabilities, mnl_loss
from tests.reference import random_mdp as any_mdp
from upriver import features
from upriver.features import Features
from upriver.mnl import model


def make(kind, rng, task):
    raw = rng.standard_normal((task.n_triples, 3))
    return {
        "dense": lambda: Features(task, raw),
        "sparse": lambda: Features(task, sparse.csr_array(raw * (rng.random(raw.shape) < 0.4))),
        "one-hot": lambda: features.one_hot(task),
        "pooled": lambda: features.pooled(Features(task, raw), spread=0.7),
        "pooled sparse": lambda: features.pooled(
            Features(task, sparse.csr_array(raw * (rng.random(raw.shape) < 0.2))), spread=2.0
        ),
        "pooled alone": lambda: features.pooled(Features(task, 0.0 * raw)),
    }[kind]()


KINDS = ("dense", "sparse", "one-hot", "pooled", "pooled sparse", "pooled alone")


def information(task, phi, theta, counts, lam):
    """The Hessian of (2), written out."""
    p = np.exp(mnl_log_probabilities(task, phi, theta))
    total = lam * np.eye(phi.shape[1])
    for _, _, rows in groups(task):
        centred = phi[rows] - p[rows] @ phi[rows]
        total += counts[rows].sum() * (p[rows, None] * centred).T @ centred
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_parameters", [1, 5])
@pytest.mark.parametrize("local", [False, True])
def test_every_part_of_the_model(rng, kind, n_parameters, local):
    task = any_mdp(rng, 4, 2, horizon=5).task()
    made = make(kind, rng, task)
    phi = matrix(made)
    running = play(rng, task, made, n_parameters, local=local)
    for c in range(n_parameters):
        counts, theta = running.counts[c], running.theta[c]
        best = optimize.minimize(
            lambda x, n=counts: mnl_loss(task, phi, x, n, 0.4), np.zeros(made.dimension),
            jac=lambda x, n=counts: mnl_gradient(task, phi, x, n, 0.4), method="BFGS",
            options={"gtol": 1e-9},
        )  # fmt: skip
        np.testing.assert_allclose(theta, best.x, atol=1e-6)
        assert np.abs(mnl_gradient(task, phi, theta, counts, 0.4)).max() < 1e-8
        np.testing.assert_allclose(
            running.prob[c], np.exp(mnl_log_probabilities(task, phi, theta)), rtol=1e-9
        )
        whole = (
            information(task, phi, theta, counts, 0.4) if local else gram(task, phi, counts, 0.4)
        )
        inner = phi @ np.linalg.inv(whole) @ phi.T
        for g, (_, _, rows) in enumerate(groups(task)):
            block = inner[np.ix_(rows, rows)]
            at = slice(task.square_start[g], task.square_start[g + 1])
            np.testing.assert_allclose(running.inverse_products[c, at], block.ravel(), atol=1e-9)
            assert running.max_norm[c, g] == pytest.approx(
                np.sqrt(block.diagonal().max()), abs=1e-9
            )
        logdet = np.linalg.slogdet(whole)[1]
        assert running.logdet[c].sum() == pytest.approx(logdet, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_information_gathered_is_that_of_the_core_that_has_most(rng, kind):
    """Several cores with different data: the largest log(det A / lambda^d) counts."""
    task = any_mdp(rng, 4, 2, horizon=5).task()
    made = make(kind, rng, task)
    running = play(rng, task, made, 5, local=False)
    gathered = [
        np.linalg.slogdet(gram(task, matrix(made), counts, 0.4) / 0.4)[1]
        for counts in running.counts
    ]
    assert np.ptp(gathered) > 1e-3
    assert model.logdet_ratio(made, running) == pytest.approx(max(gathered), abs=1e-9)
    one = play(rng, task, made, 1, local=False)
    expected = np.linalg.slogdet(gram(task, matrix(made), one.counts[0], 0.4) / 0.4)[1]
    assert model.logdet_ratio(made, one) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["pooled", "one-hot"])
@pytest.mark.parametrize("n_states", [3, 40])  # few and many successors: two forms of products
def test_errors_are_multiplied_pair_by_pair(rng, kind, n_states):
    """As if the model had been told other weights of the errors, one pair at a time."""
    task = any_mdp(rng, n_states, 2, horizon=5).task()
    made = make(kind, rng, task)
    counts = rng.integers(0, 3, (1, task.n_triples)).astype(float)

    def fitted(errors):
        weights, kept = (errors, errors), {"local": True, "factored": True}
        new = model.start(made, 0.4, 1, with_products=True, weights=weights, **kept)
        return model.refit(made, new, counts, weights)

    once, factor = fitted(1.0), rng.choice([1.0, 3.0], len(task.sizes))
    found = model.multiply_errors(made, once, factor).inverse_products
    is_more = np.repeat(factor > 1.0, np.diff(made.layout.product_start))
    expected = np.where(is_more, fitted(3.0).inverse_products, once.inverse_products)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
