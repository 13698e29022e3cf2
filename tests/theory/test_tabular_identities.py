"""What one-hot features must reduce to, and how fast the ellipsoid can shrink."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import groups, random_mdp
from upriver import envs, features, simulate
from upriver.agents import UCRLMNL
from upriver.features import Features
from upriver.mnl import model as mnl
from upriver.mnl.likelihood import gradient
from upriver.mnl.radii import gram_matrix


def counted(task, rng, visits=8):
    counts = rng.integers(0, visits, task.n_triples).astype(float)
    counts[task.rows(1, 0)] = 0.0
    return counts


@pytest.mark.parametrize("lam", [1e-3, 1.0, 30.0])
def test_the_width_of_an_indicator_is_one_over_visits_plus_lambda(rng, lam):
    """||varphi(s, a, s')||^2 = 1 / (N(s, a) + lambda), and zero at the reference."""
    task = random_mdp(rng, 5, 2).task()
    counts = counted(task, rng)
    phi = features.one_hot_indicator(task)
    inverse = np.linalg.inv(gram_matrix(phi, counts, lam).toarray())
    squares = ((phi.matrix @ inverse) * phi.matrix.toarray()).sum(axis=1)
    for _, _, rows in groups(task):
        assert squares[rows[0]] == 0.0
        np.testing.assert_allclose(squares[rows[1:]], 1.0 / (counts[rows].sum() + lam), rtol=1e-12)


def test_the_running_model_has_the_same_widths(rng):
    mdp = envs.riverswim(5, 10)
    task = mdp.task("local")
    made = features.one_hot_indicator(task)
    run = simulate(mdp, UCRLMNL(task, made, 0.01, 0.3), 30, seed=0)
    model = run.state.model
    visits = np.add.reduceat(model.counts[0], task.indptr[:-1])
    assert visits.sum() == 300
    np.testing.assert_allclose(model.max_norm[0] ** 2, 1.0 / (visits + 0.3), rtol=1e-12)


@pytest.mark.parametrize("make", [features.one_hot, features.one_hot_indicator])
def test_theta_becomes_the_log_ratios_of_counts(rng, make):
    """As lambda -> 0 the fitted probabilities are the empirical ones."""
    task = random_mdp(rng, 5, 2).task()
    made = make(task)
    counts = 1.0 + counted(task, rng)
    model = mnl.start(made, 1e-9, 1, False)
    model.counts[0] = counts
    nothing = np.empty(0, np.int64)
    mnl.bring_up_to_date(made, model, nothing, nothing, True, local=False)
    assert np.abs(gradient(made, model.theta[0], counts, 1e-9)).max() < 1e-9
    matrix = made.matrix.toarray()
    for _, _, rows in groups(task):
        share = counts[rows] / counts[rows].sum()
        np.testing.assert_allclose(model.prob[0, rows], share, atol=1e-7)
        logits = matrix[rows] @ model.theta[0]
        np.testing.assert_allclose(logits - logits[0], np.log(share / share[0]), atol=1e-6)
        if make is features.one_hot_indicator and len(rows) > 1:
            columns = [int(np.flatnonzero(matrix[i])[0]) for i in rows[1:]]
            np.testing.assert_allclose(
                model.theta[0, columns], np.log(counts[rows[1:]] / counts[rows[0]]), atol=1e-6
            )


def test_a_large_lambda_keeps_the_uniform_model(rng):
    task = random_mdp(rng, 5, 2).task()
    made = features.one_hot(task)
    model = mnl.start(made, 1e9, 1, False)
    model.counts[0] = counted(task, rng)
    nothing = np.empty(0, np.int64)
    mnl.bring_up_to_date(made, model, nothing, nothing, True, local=False)
    np.testing.assert_allclose(model.prob[0], 1.0 / np.repeat(task.sizes, task.sizes), rtol=1e-6)


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_elliptical_potential(rng, kind):
    """sum over k, h of max ||varphi||^2_{A_k^-1} <= 2 H d log(1 + K H U L^2 / (d lambda)), and
    log det(A_k) - d log(lambda) <= d log(1 + (k - 1) H U L^2 / (d lambda)), for lambda >= L^2.
    """
    mdp = random_mdp(rng, 5, 2, 6)
    task = mdp.task("full")
    made = (
        features.one_hot(task)
        if kind == "one-hot"
        else Features(task, rng.standard_normal((task.n_triples, 3)))
    )
    lam, d, big = made.norm_bound**2, made.dimension, made.norm_bound**2
    agent = UCRLMNL(task, made, 0.02, lam)
    dice = np.random.default_rng(0)
    state, total = agent.init(), 0.0
    from tests.agents.test_contract import walk

    for k in range(1, 201):
        ratio = mnl.logdet_ratio(made, state.model)
        bound = d * np.log(1 + (k - 1) * 6 * 5 * big / (d * lam))
        assert -1e-9 <= ratio <= bound + 1e-9
        plan = agent.plan(state, dice)
        episode = walk(mdp, plan, dice)
        visited = episode.states[:-1] * 2 + episode.actions
        total += (state.model.max_norm[0][visited] ** 2).sum()
        assert total <= 2 * 6 * d * np.log(1 + k * 6 * 5 * big / (d * lam))
        new = agent.update(state, plan, episode)
        assert (new.model.max_norm <= state.model.max_norm + 1e-12).all()  # data narrow it
        state = new
    assert total > 1.0
