"""Partial pooling: features, fits, spreads and files; the running model is in test_model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import upriver as up
from tests.reference import matrix, random_mdp
from upriver.features import Features, pooled
from upriver.mnl import likelihood


def problem(rng, lam=0.5, spread=0.8, empty=True):
    task = random_mdp(rng, 4, 2).task("full")
    made = pooled(Features(task, rng.standard_normal((task.n_triples, 3))), spread)
    counts = rng.integers(0, 6, task.n_triples).astype(float)
    if empty:
        counts[task.rows(2, 1)] = 0.0
    return made, counts, up.fit_mnl(made, counts, lam)


def test_the_columns_are_the_shared_ones_and_an_indicator_per_triple_but_the_first(rng):
    task = random_mdp(rng, 4, 2).task()
    shared = Features(task, rng.standard_normal((task.n_triples, 2)), names=["x", "y"])
    made = pooled(shared, 0.3)
    whole = matrix(made)
    np.testing.assert_array_equal(whole[:, :2], shared.matrix)
    first = np.zeros(task.n_triples, bool)
    first[task.indptr[:-1]] = True
    np.testing.assert_array_equal(whole[:, 2:], 0.3 * np.eye(task.n_triples)[:, ~first])
    assert made.n_shared == 2 and made.dimension == made.formal_dimension
    np.testing.assert_array_equal(matrix(up.features.unpooled(made)), shared.matrix)
    theta = rng.standard_normal(made.dimension)
    again = up.features.recentre(made)
    np.testing.assert_allclose(
        likelihood.probabilities(again, theta), likelihood.probabilities(made, theta), rtol=1e-12
    )


def test_a_pooled_fit_agrees_with_the_dense_one(rng):
    made, counts, fitted = problem(rng)
    dense = up.fit_mnl(Features(made.task, matrix(made)), counts, 0.5)
    np.testing.assert_allclose(fitted.theta, dense.theta, atol=1e-9)
    np.testing.assert_allclose(fitted.information.toarray(), dense.information, atol=1e-9)
    errors = dense.standard_errors[: made.n_shared]
    np.testing.assert_allclose(fitted.standard_errors, errors, atol=1e-9)
    np.testing.assert_allclose(
        fitted.covariance @ np.eye(made.dimension), dense.covariance, atol=1e-9
    )
    vector = rng.standard_normal(made.dimension)
    np.testing.assert_allclose(vector @ fitted.covariance, dense.covariance @ vector, atol=1e-9)
    assert fitted.log_likelihood == pytest.approx(dense.log_likelihood, rel=1e-12)


def test_the_evidence_is_that_of_the_dense_hessian(rng):
    from upriver.mnl.pooled import log_evidence

    made, counts, fitted = problem(rng)
    _, logdet = np.linalg.slogdet(fitted.information.toarray())
    expected = (
        0.5 * made.dimension * np.log(0.5) - 0.5 * logdet
        - likelihood.loss(made, fitted.theta, counts, 0.5)
    )  # fmt: skip
    effects = np.zeros(made.dimension)
    found = log_evidence(made, effects[None], counts[None], 0.5, made.spread)
    assert found == pytest.approx(expected, abs=1e-9)
    effects[made.n_shared :] /= made.spread
    np.testing.assert_allclose(effects, fitted.theta, atol=1e-7)


def test_the_limits_are_shared_and_one_hot_features(rng):
    """A spread of nearly 0 leaves the shared model; without shared columns it is one-hot."""
    task = random_mdp(rng, 4, 2).task("full")
    counts = rng.integers(0, 30, task.n_triples).astype(float)
    shared = Features(task, rng.standard_normal((task.n_triples, 3)))
    narrow = up.fit_mnl(pooled(shared, 1e-6), counts)
    np.testing.assert_allclose(narrow.theta[:3], up.fit_mnl(shared, counts).theta, atol=1e-8)
    nothing = Features(task, np.zeros((task.n_triples, 1)))
    alone = up.fit_mnl(pooled(nothing, 1.0), counts)
    indicator = up.fit_mnl(up.features.one_hot_indicator(task), counts)
    np.testing.assert_allclose(alone.theta[1:], indicator.theta, atol=1e-9)
    variances = np.diag(alone.covariance @ np.eye(alone.features.dimension))[1:]
    np.testing.assert_allclose(np.sqrt(variances), indicator.standard_errors, atol=1e-9)
    single = up.FiniteMDP.from_arrays(np.eye(3)[:, None], np.zeros((3, 1)), 2).task()
    without = pooled(Features(single, np.ones((3, 2))))
    assert without.dimension == 2
    np.testing.assert_allclose(up.fit_mnl(without, np.ones(3)).theta, 0.0, atol=1e-12)


def simulated(rng, deviation, n_states=60, visits=300):
    """Counts of a line of states whose log-odds differ from shared ones by this deviation."""
    task = up.envs.riverswim(n_states).task("local")
    shared = up.features.shared(task)
    made = pooled(shared, 1.0)
    theta = np.r_[rng.normal(0, 0.7, made.n_shared), rng.normal(0, 1, made.dimension)]
    theta = theta[: made.dimension]
    theta[made.n_shared :] *= deviation
    p = likelihood.probabilities(made, theta)
    counts = np.concatenate(
        [rng.multinomial(visits, p[a:b] / p[a:b].sum())
         for a, b in zip(task.indptr[:-1], task.indptr[1:], strict=True)]
    )  # fmt: skip
    return shared, counts.astype(float), theta


@pytest.mark.parametrize("deviation", [0.2, 0.6, 1.5])
def test_the_spread_is_found_where_it_is_known(rng, deviation):
    shared, counts, _ = simulated(rng, deviation)
    open_spread = pooled(shared, spread="estimate")
    for lam in (1.0, 0.25):
        fitted = up.fit_mnl(open_spread, counts, lam)
        found = fitted.features.spread / np.sqrt(lam)
        assert found == pytest.approx(deviation, rel=0.2)


def test_states_that_do_not_differ_get_no_spread(rng):
    shared, counts, _ = simulated(rng, 0.0)
    fitted = up.fit_mnl(pooled(shared, spread="estimate"), counts)
    assert fitted.features.spread < 0.06


def test_the_summary_lists_the_shared_coefficients(rng):
    shared, counts, _ = simulated(rng, 0.5)
    fitted = up.fit_mnl(pooled(shared, 0.5), counts, 4.0)
    n_effects = fitted.features.dimension - shared.dimension
    text = fitted.summary()
    assert f"triple effects (not listed): {n_effects}, with the standard" in text
    assert "deviation 0.25" in text and "a=1 interior right" in text
    assert len(fitted.table()) == len(fitted.params) == shared.dimension
    assert fitted.cov_params().shape == (shared.dimension, shared.dimension)


@pytest.mark.parametrize(
    ("spread", "words"),
    [
        (0, "spread is 0; it must be a finite number above 0"),
        (-1.0, r"spread is -1\.0"),
        (np.nan, "spread is nan"),
        (np.inf, "spread is inf"),
        ("wide", "spread is 'wide'; it must be a finite number above 0, or 'estimate'"),
    ],
)
def test_wrong_spreads_get_one_clear_sentence(rng, spread, words):
    task = random_mdp(rng).task()
    shared = Features(task, np.ones((task.n_triples, 1)))
    with pytest.raises(ValueError, match=words):
        pooled(shared, spread)


def test_what_pooled_features_cannot_be_used_for_is_said(rng):
    task = up.envs.riverswim(4).task("local")
    shared = up.features.shared(task)
    made = pooled(shared)
    with pytest.raises(ValueError, match="triple effects already"):
        pooled(made)
    with pytest.raises(ValueError, match="pooled features need a positive one"):
        up.fit_mnl(made, np.ones(task.n_triples), 0.0)
    for agent in (
        up.agents.RRLMNL(task, made),
        up.agents.ORRLMNL(task, made),
        up.agents.UCRLMNLPlus(task, made),
    ):
        with pytest.raises(ValueError, match="online estimators do not support pooled"):
            agent.init()
    with pytest.raises(ValueError, match=r"make them with features\.pooled"):
        Features(task, sparse.csr_array(np.ones((task.n_triples, 30))), spread=1.0)


def test_an_agent_with_pooled_features_can_be_kept_and_gone_on_with(tmp_path):
    mdp = up.envs.riverswim(5)
    task = mdp.task("local")
    agent = up.agents.UCRLMNL(task, pooled(up.features.shared(task), 0.5))
    run = up.simulate(mdp, agent, n_episodes=10, seed=0)
    up.save_agent(tmp_path / "agent.npz", run)
    checkpoint = up.load_agent(tmp_path / "agent.npz", agent)
    on = up.simulate(mdp, agent, n_episodes=10, seed=0, resume=checkpoint)
    np.testing.assert_array_equal(on.returns, up.simulate(mdp, agent, 20, seed=0).returns[10:])


def test_counts_are_fitted_planned_with_and_diagnosed(rng):
    """The plan agrees with that of the same columns as a dense matrix."""
    mdp = up.envs.riverswim(4)
    task = mdp.task()
    made = pooled(up.features.shared(task), 0.6)
    played = up.rollouts(mdp, up.solve(mdp).policy, 40, seed=1)
    key = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    pair = played.states[:, :-1] * task.n_actions + played.actions
    rows = np.searchsorted(key, pair * task.n_states + played.states[:, 1:]).ravel()
    counts = np.bincount(rows, minlength=task.n_triples)
    plain = up.Features(task, matrix(made))
    ours, theirs = (up.solve(up.fit_mnl(f, counts, 0.5).to_mdp()) for f in (made, plain))
    np.testing.assert_allclose(ours.v, theirs.v, atol=1e-6)
    found, expected = (up.diagnose(mdp, f) for f in (made, plain))
    assert found.core.realizable and expected.core.realizable
    np.testing.assert_allclose(found.core.theta, expected.core.theta, atol=1e-8)
    assert found.features.norm_bound == pytest.approx(expected.features.norm_bound)
    assert found.core.rank == expected.core.rank
