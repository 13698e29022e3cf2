"""Generated inputs: every valid MDP is accepted and solved, every broken one refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import dense, matrix, mnl_log_probabilities, optimal_q
from upriver import FiniteMDP, features, simulate, solve
from upriver.agents import UCRLMNL
from upriver.features import Features
from upriver.mnl.likelihood import log_probabilities

SETTINGS = settings(
    max_examples=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@st.composite
def problems(draw):
    """(transition, reward, horizon, initial): any small valid MDP, degenerate ones included."""
    n_states = draw(st.integers(1, 4))
    n_actions = draw(st.integers(1, 3))
    horizon = draw(st.integers(1, 4))
    # rewards (H, S, A) that may be (S, A, S) are refused
    steps = 0 if n_states == n_actions == horizon else draw(st.sampled_from([0, horizon]))
    weight = st.sampled_from([0.0, 0.0, 1e-6, 0.5, 1.0, 3.0])
    shape = (max(steps, 1), n_states, n_actions, n_states)
    raw = np.array(
        draw(st.lists(weight, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    )
    p = raw.reshape(shape)
    home = draw(st.integers(0, n_states - 1))
    p[..., home] += p.sum(axis=-1) == 0  # an all-zero row goes home
    p = p / p.sum(axis=-1, keepdims=True)
    pay = st.sampled_from([0.0, 0.005, 0.5, 1.0])
    size = n_states * n_actions * (horizon if steps else 1)
    reward = np.array(draw(st.lists(pay, min_size=size, max_size=size)))
    reward = reward.reshape((horizon, n_states, n_actions) if steps else (n_states, n_actions))
    start = draw(st.one_of(st.integers(0, n_states - 1), st.just("spread")))
    initial = np.full(n_states, 1.0 / n_states) if start == "spread" else start
    return p if steps else p[0], reward, horizon, initial


@SETTINGS
@given(problems())
def test_valid_problems_are_kept_as_they_are_and_solved(problem):
    transition, reward, horizon, initial = problem
    mdp = FiniteMDP.from_arrays(transition, reward, horizon, initial)
    p, r = dense(mdp)
    np.testing.assert_array_equal(p, np.broadcast_to(transition, p.shape))
    np.testing.assert_array_equal(r, np.broadcast_to(reward, r.shape))
    np.testing.assert_allclose(solve(mdp).v[:-1], optimal_q(p, r).max(axis=2), atol=1e-12)
    if transition.ndim == 3:
        flat = sparse.csr_array(transition.reshape(-1, transition.shape[-1]))
        again = FiniteMDP.from_arrays(flat, reward, horizon, initial)
        np.testing.assert_array_equal(again.probability, mdp.probability)
        assert again.true_task.same_support(mdp.true_task)


@SETTINGS
@given(problems(), st.sampled_from(["known", "full"]), st.integers(0, 2**32))
def test_a_learner_runs_on_any_valid_problem(problem, support, seed):
    mdp = FiniteMDP.from_arrays(*problem)
    task = mdp.task(support)
    run = simulate(mdp, UCRLMNL(task, features.one_hot(task)), 3, seed=seed)
    assert np.isfinite(run.returns).all() and (run.regret >= -1e-9).all()
    assert run.state.model.counts.sum() == 3 * mdp.horizon


BREAKS = {
    "nan": lambda x, i: x.__setitem__(i, np.nan),
    "negative": lambda x, i: x.__setitem__(i, -0.25),
    "infinite": lambda x, i: x.__setitem__(i, np.inf),
    "too large": lambda x, i: x.__setitem__(i, x[i] + 0.5),
}


@SETTINGS
@given(problems(), st.sampled_from(list(BREAKS)), st.data())
def test_a_broken_probability_is_refused_by_name(problem, how, data):
    transition, reward, horizon, initial = problem
    index = tuple(data.draw(st.integers(0, n - 1)) for n in transition.shape)
    bad = transition.copy()
    BREAKS[how](bad, index)
    kept = bad.copy()
    s, a = index[-3], index[-2]
    with pytest.raises(ValueError, match=rf"transition row \((h=\d+, )?s={s}, a={a}\)"):
        FiniteMDP.from_arrays(bad, reward, horizon, initial)
    np.testing.assert_array_equal(bad, kept)
    if transition.ndim == 3:
        with pytest.raises(ValueError, match=rf"transition row \(s={s}, a={a}\)"):
            FiniteMDP.from_arrays(
                sparse.csr_array(bad.reshape(-1, bad.shape[-1])), reward, horizon, initial
            )


@SETTINGS
@given(problems(), st.sampled_from([np.nan, np.inf, -np.inf, 1e300]), st.data())
def test_a_broken_reward_is_refused_by_name(problem, value, data):
    transition, reward, horizon, initial = problem
    index = tuple(data.draw(st.integers(0, n - 1)) for n in reward.shape)
    bad = reward.copy()
    bad[index] = value
    s, a = index[-2:]
    with pytest.raises(ValueError, match=rf"reward of .*s={s}, a={a}.* must be a finite number"):
        FiniteMDP.from_arrays(transition, bad, horizon, initial)


@SETTINGS
@given(problems(), st.sampled_from([0, -3, 1.5, "many", np.nan]))
def test_a_broken_horizon_is_refused_by_name(problem, horizon):
    transition, reward, _, initial = problem
    with pytest.raises(ValueError, match=r"horizon is|transition has \d+ steps"):
        FiniteMDP.from_arrays(transition, reward, horizon, initial)


@SETTINGS
@given(problems(), st.data())
def test_a_local_support_must_be_of_states_that_cover_the_truth(problem, data):
    mdp = FiniteMDP.from_arrays(*problem)
    task = mdp.true_task
    sets = [
        task.successors[task.indptr[g] : task.indptr[g + 1]].tolist()
        for g in range(len(task.sizes))
    ]

    def declare(sets):
        indptr = np.cumsum([0, *map(len, sets)])
        flat = np.array([s for each in sets for s in each], np.int64)
        return replace(mdp, local=(indptr, flat)).task("local")

    assert declare(sets).same_support(task)
    g = data.draw(st.integers(0, len(sets) - 1))
    s, a = divmod(g, mdp.n_actions)
    name = rf"\(s={s}, a={a}\)|state {s} has no action"
    for wrong in (
        [],
        [*sets[g], mdp.n_states],
        [-1, *sets[g]],
        [*sets[g], sets[g][0]],
        [x for x in range(mdp.n_states) if x != sets[g][0]],
    ):
        with pytest.raises(ValueError, match=name):
            declare([*sets[:g], wrong, *sets[g + 1 :]])


@SETTINGS
@given(problems(), st.integers(1, 3), st.integers(0, 2**32), st.sampled_from([1.0, 50.0, 1e6]))
def test_any_finite_features_give_a_distribution(problem, d, seed, size):
    mdp = FiniteMDP.from_arrays(*problem)
    rng = np.random.default_rng(seed)
    task = mdp.task("full")
    raw = rng.standard_normal((task.n_triples, d)) * (rng.random((task.n_triples, d)) < 0.6)
    theta = size * rng.standard_normal(d)
    for given_ in (raw, sparse.csr_array(raw)):
        made = Features(task, given_)
        log_p = log_probabilities(made, theta)
        np.testing.assert_allclose(
            log_p, mnl_log_probabilities(task, matrix(made), theta), rtol=1e-9, atol=1e-9
        )
        totals = np.add.reduceat(np.exp(log_p), task.indptr[:-1])
        np.testing.assert_allclose(totals, 1.0, rtol=1e-12)


@SETTINGS
@given(problems(), st.sampled_from([np.nan, np.inf, -np.inf]), st.booleans(), st.data())
def test_broken_features_are_refused_by_name(problem, value, as_sparse, data):
    task = FiniteMDP.from_arrays(*problem).true_task
    bad = np.ones((task.n_triples, 2))
    row = data.draw(st.integers(0, task.n_triples - 1))
    bad[row, data.draw(st.integers(0, 1))] = value
    s, a, s2 = (int(x[row]) for x in task.triples)
    with pytest.raises(ValueError, match=rf"row {row} \(s={s}, a={a}, s'={s2}\)"):
        Features(task, sparse.csr_array(bad) if as_sparse else bad)


@SETTINGS
@given(problems(), st.sampled_from([0.0, -1.0, np.nan, np.inf, "strong", None]))
def test_broken_regularizations_are_refused_by_name(problem, value):
    task = FiniteMDP.from_arrays(*problem).true_task
    made = features.one_hot(task)
    with pytest.raises(ValueError, match="regularization is"):
        UCRLMNL(task, made, regularization=value)
