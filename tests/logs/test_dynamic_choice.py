"""The likelihood of dynamic choices: derivatives, known optima, recovery of known rewards."""

import numpy as np
import pytest

import upriver as up
from upriver.logs.dynamic_choice import DynamicLogit, maximize_likelihood


def draw_problem(rng, horizon=None, n_states=5, n_actions=3, n_features=2, discount=0.9):
    """Return a likelihood of random counts; two states lack an action."""
    p = rng.dirichlet(np.ones(n_states), (n_states, n_actions))
    p[1, 0] = p[3, 2] = 0.0
    mdp = up.FiniteMDP.from_arrays(p, np.zeros((n_states, n_actions)), horizon or 1)
    steps = horizon or 1
    psi = rng.normal(size=(1, n_states * n_actions, n_features))
    exists = mdp.task().available.ravel()
    counts = rng.integers(0, 20, (steps, n_states * n_actions)) * exists
    return DynamicLogit(mdp.task(), mdp.probability, psi, counts.astype(float), discount, horizon)


@pytest.mark.parametrize("horizon", [None, 4])
@pytest.mark.parametrize("seed", range(5))
def test_gradient_and_hessian_are_those_of_finite_differences(horizon, seed):
    rng = np.random.default_rng(seed)
    model, w = draw_problem(rng, horizon), rng.normal(size=2)
    found, size = model.evaluate(w), 1e-5
    for i in range(2):
        step = np.zeros(2)
        step[i] = size
        above, below = model.evaluate(w + step), model.evaluate(w - step)
        scale = max(1.0, abs(found.gradient).max())
        slope = (above.value - below.value) / (2 * size)
        assert abs(slope - found.gradient[i]) < 1e-7 * scale
        curvature = (above.gradient - below.gradient) / (2 * size)
        np.testing.assert_allclose(found.hessian[i], curvature, atol=1e-6 * scale)


@pytest.mark.parametrize("horizon", [None, 4])
def test_scores_in_the_transitions_are_those_of_finite_differences(horizon):
    """Theta shifts the logits of one pair; the slope of P V there is p (V - PV)."""
    rng = np.random.default_rng(1)
    model, w = draw_problem(rng, horizon), np.array([0.4, -0.8])
    task, direction = model.task, rng.normal(size=model.prob.shape[1])

    def shifted(size):
        prob = model.prob[0] * np.exp(size * direction)
        total = np.repeat(task.by_pair(prob), task.sizes)
        return DynamicLogit(
            task, (prob / total)[None], model.features, model.counts, model.discount, horizon
        )

    def slopes(_, v):
        p, after = model.prob[0], v[task.successors]
        mean = np.repeat(task.by_pair(p * after), task.sizes)
        return task.by_pair(p * (after - mean) * direction)[:, None]

    found = model.evaluate(w)
    scores = model.transition_scores(found, slopes)
    slope = np.einsum("hg,hg->", model.counts, scores[:, :, 0])
    above, below = shifted(1e-5).evaluate(w), shifted(-1e-5).evaluate(w)
    assert slope == pytest.approx((above.value - below.value) / 2e-5, abs=1e-5)


def test_without_a_future_it_is_a_conditional_logit():
    """With discount 0 the fit is that of `fit_choices`, standard errors included."""
    rng = np.random.default_rng(2)
    model = draw_problem(rng, discount=0.0)
    w, found, _, converged = maximize_likelihood(model, np.zeros(2))
    assert converged
    rows, chosen, situation = [], [], []
    for pair in np.flatnonzero(model.counts[0]):
        state = pair // 3
        actions = [g for g in range(3 * state, 3 * state + 3) if model.task.available.ravel()[g]]
        for _ in range(int(model.counts[0, pair])):
            situation += [len(rows)] * len(actions)
            chosen += [g == pair for g in actions]
            rows.append(actions)
    features = model.features[0][np.concatenate(rows)]
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
    w, found, _, converged = maximize_likelihood(exact, np.zeros(2))
    assert converged and abs(found.gradient).max() < 1e-5
    np.testing.assert_allclose(w, truth, atol=1e-6)
