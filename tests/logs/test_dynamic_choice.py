"""The likelihood of dynamic choices: derivatives, known optima, recovery of known rewards."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

import upriver as up
from upriver.logs.dynamic_choice import DynamicLogit, maximize_likelihood


def maximize(model):
    """Return (w, evaluation, converged) of one problem."""
    return maximize_likelihood(model, np.zeros(2))


def draw_problem(rng, n_states=5, n_actions=3, n_features=2, discount=0.9):
    """Return a likelihood of random counts; two states lack an action."""
    p = rng.dirichlet(np.ones(n_states), (n_states, n_actions))
    p[1, 0] = p[3, 2] = 0.0
    mdp = up.FiniteMDP.from_arrays(p, np.zeros((n_states, n_actions)), 1)
    psi = rng.normal(size=(n_states * n_actions, n_features))
    exists = mdp.task().available.ravel()
    counts = rng.integers(0, 20, n_states * n_actions) * exists
    return DynamicLogit(mdp.task(), mdp.probability[0], psi, counts.astype(float), discount)


@pytest.mark.parametrize("seed", range(5))
def test_gradient_and_hessian_are_those_of_finite_differences(seed):
    """In the rewards and in two parameters of the transitions, which tilt the probabilities."""
    rng = np.random.default_rng(seed)
    model = draw_problem(rng)
    model = replace(model, phi=rng.normal(size=(model.task.n_triples, 2)))
    beta, size = np.concatenate([rng.normal(size=2), np.zeros(2)]), 1e-5

    def evaluate(beta):
        weight = model.prob * np.exp(model.phi @ beta[2:])
        prob = weight / np.repeat(model.task.by_pair(weight), model.task.sizes)
        return replace(model, prob=prob).evaluate(beta[:2])

    found = evaluate(beta)
    scale = max(1.0, abs(found.gradient).max())
    bend = abs(found.hessian).max()
    for i in range(4):
        above, below = (evaluate(beta + x * np.eye(4)[i]) for x in (size, -size))
        gradient = model.counts @ found.scores[:, i]
        assert abs((above.value - below.value) / (2 * size) - gradient) < 1e-7 * scale
        assert i >= 2 or gradient == pytest.approx(found.gradient[i])
        curvature = (above.gradient - below.gradient) / (2 * size)
        np.testing.assert_allclose(found.hessian[:, i], curvature, atol=1e-7 * bend)
        exists = model.task.sizes > 0
        slopes = np.log(above.probability[exists]) - np.log(below.probability[exists])
        scores = found.scores[exists, i]
        np.testing.assert_allclose(scores, slopes / (2 * size), atol=1e-7 * scale)


def test_without_a_future_it_is_a_conditional_logit():
    """With discount 0 the fit is that of `fit_choices`, standard errors included."""
    rng = np.random.default_rng(2)
    model = draw_problem(rng, discount=0.0)
    w, found, converged = maximize(model)
    assert converged
    rows, chosen, situation = [], [], []
    for pair in np.flatnonzero(model.counts):
        state = pair // 3
        actions = [g for g in range(3 * state, 3 * state + 3) if model.task.available.ravel()[g]]
        for _ in range(int(model.counts[pair])):
            situation += [len(rows)] * len(actions)
            chosen += [g == pair for g in actions]
            rows.append(actions)
    features = model.features[np.concatenate(rows)]
    plain = up.fit_choices(features, chosen, situation)
    np.testing.assert_allclose(w, plain.theta, atol=1e-7)
    errors = np.sqrt(np.diag(np.linalg.inv(-found.hessian)))
    np.testing.assert_allclose(errors, plain.standard_errors, rtol=1e-6)


def test_known_rewards_are_recovered_from_expected_counts():
    """Counts in proportion to the choice probabilities have their maximum at the true rewards."""
    rng = np.random.default_rng(3)
    model, truth = draw_problem(rng, discount=0.99), np.array([1.2, -0.7])
    chance = model.evaluate(truth).probability
    visits = np.repeat(rng.integers(50, 100, 5), 3)
    exact = DynamicLogit(model.task, model.prob, model.features, visits * chance, model.discount)
    w, found, converged = maximize(exact)
    assert converged and abs(found.gradient).max() < 1e-5
    np.testing.assert_allclose(w, truth, atol=1e-6)


def test_newton_steps_reach_the_maximum_from_where_the_likelihood_is_not_concave():
    """There the outer product of the scores takes over; a search without derivatives agrees."""
    rng, n = np.random.default_rng(5), 8
    p, psi = np.zeros((n, 2, n)), np.zeros((2 * n, 2))
    for s in range(n):  # a machine ages or is replaced
        p[s, 0, min(s + 1, n - 1)] = p[s, 1, 0] = 1.0
        psi[2 * s, 1], psi[2 * s + 1, 0] = -s / 4, -1.0
    mdp = up.FiniteMDP.from_arrays(p, np.zeros((n, 2)), 1)
    counts = rng.integers(0, 20, 2 * n).astype(float)
    model = DynamicLogit(mdp.task(), mdp.probability[0], psi, counts, 0.95)
    w, found, converged = maximize(model)
    assert converged
    starts = 3.0 * rng.normal(size=(100, 2))
    concave = [np.linalg.eigvalsh(-model.evaluate(x).hessian)[0] > 0 for x in starts]
    assert not all(concave)
    again, *_ = maximize_likelihood(model, starts[concave.index(False)])
    np.testing.assert_allclose(again, w, atol=1e-6)
    plain = optimize.minimize(lambda w: -model.evaluate(w).value, np.zeros(2), method="Nelder-Mead")
    assert -plain.fun <= found.value + 1e-9
    np.testing.assert_allclose(plain.x, w, atol=1e-3)
