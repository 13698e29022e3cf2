"""The pessimistic plan: the least expectation over the ellipsoid of each pair."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import upriver as up
from upriver import kernels
from upriver.logs.fit import fit_counts
from upriver.logs.model import TransitionModel
from upriver.logs.planning import ellipsoid, pessimistic, products

BETA = float(np.sqrt(special.chdtri(6, 0.05)))


def drawn(rng, n_rows, kind="dense"):
    """A problem whose pairs have 0 to 6 successors, and a log of it."""
    n, sizes = 8, rng.integers(1, 7, (8, 3))
    sizes[2, 1] = 0
    rows = {}
    for s, a in zip(*np.nonzero(sizes), strict=True):
        reached = rng.choice(n, sizes[s, a], replace=False).tolist()
        rows[int(s), int(a)] = dict.fromkeys(reached, 1 / sizes[s, a])
    reward = np.where(sizes > 0, rng.random((n, 3)), 0.0)
    mdp = up.FiniteMDP.from_rows(rows, reward, 5)
    task = mdp.true_task
    shared = up.Features(task, rng.standard_normal((task.n_triples, 6)))
    phi = {"dense": lambda: shared, "one-hot": lambda: up.features.one_hot(task),
           "pooled": lambda: up.features.pooled(shared)}[kind]()  # fmt: skip
    counts = rng.poisson(n_rows / task.n_triples, task.n_triples).astype(float)
    return fit_counts(phi, counts, 1.0, task)


def least(model, geometry, beta, v):
    """(S, A) r + the least expectation of v over the set of each pair, and r + the estimate's."""
    task, q = model.task, np.full((2, model.task.n_states * model.task.n_actions), -np.inf)
    for g in np.flatnonzero(task.sizes):
        at = slice(task.indptr[g], task.indptr[g + 1])
        ahead, p = v[task.successors[at]], model.prob[0, at]
        inner = geometry[0, task.square_start[g] : task.square_start[g + 1]]
        square = inner.reshape(len(p), len(p))
        minimum = kernels.ellipsoid.optimize_expectation(p, square, ahead, -beta)
        q[:, g] = task.reward_rows[0, g] + np.array([minimum, p @ ahead])
    return q.reshape(2, task.n_states, task.n_actions)


@pytest.mark.parametrize("kind", ["dense", "one-hot", "pooled"])
@pytest.mark.parametrize("n_rows", [30, 300, 3000, 100_000])
def test_the_plan_has_the_least_expectation_of_each_pair(kind, n_rows, rng):
    model = drawn(rng, n_rows, kind)
    task, geometry = model.task, products(model)
    plan = pessimistic(model, BETA)
    for h in range(task.horizon):
        exact, centre = least(model, geometry, BETA, plan.v[h + 1])
        q = plan.q(h)
        has = task.available
        np.testing.assert_allclose(q[has], exact[has], atol=1e-9)
        assert (q[has] <= centre[has] + 1e-12).all()
        np.testing.assert_allclose(plan.v[h], exact.max(axis=1), atol=1e-9)
        np.testing.assert_allclose(plan.v[h], q.max(axis=1), atol=1e-12)
        assert (q[~has] == -np.inf).all()


def test_products_are_those_of_the_covariance(rng):
    """Dense, one-hot and pooled; then centred, against a plain product of matrices."""
    for kind in ("dense", "one-hot", "pooled"):
        model = drawn(rng, 300, kind)
        task, x = model.task, model.features.matrix
        x = x if kind == "dense" else x.toarray()
        covariance = model.fitted.covariance @ np.eye(x.shape[1])
        found = products(model)
        centred = ellipsoid(model).inverse_products
        for g in np.flatnonzero(task.sizes):
            at, square = slice(*task.indptr[g : g + 2]), slice(*task.square_start[g : g + 2])
            rows, p = x[at], model.prob[0, at]
            middle = rows - p @ rows
            assert np.allclose(centred[0, square], (middle @ covariance @ middle.T).ravel())
            if kind != "pooled":  # whose own effects are counted from the first successor
                assert np.allclose(found[0, square], (rows @ covariance @ rows.T).ravel())


def test_steps_that_differ_and_pay_of_next_states(rng):
    """The sweep over all steps is that of single steps, with what a next state pays."""
    model = drawn(rng, 300)
    task = model.task
    pay = rng.random((task.horizon, task.n_triples))
    reward = rng.random((task.horizon, task.n_states, task.n_actions)) * task.available
    there = replace(task, reward=reward, next_state_reward=pay, reward_range=None)
    phi = up.Features(there, model.features.matrix)
    model = TransitionModel(model.fitted, None, there, (phi,), (0.0,), model.counts)
    plan, greedy = up.plan_from_model(model, "pessimistic"), up.plan_from_model(model)
    assert (plan.v[0] < greedy.v[0]).all()
    for h in range(task.horizon):
        assert np.allclose(plan.q(h).max(axis=1), plan.v[h])
    sure = fit_counts(phi, model.counts * 1e9, 1e-9, there)
    assert np.allclose(
        up.plan_from_model(sure, "pessimistic").v, up.plan_from_model(sure).v, atol=1e-2
    )
