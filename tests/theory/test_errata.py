"""The errata of docs/explanation/theory.md, each shown by numbers where numbers can show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upriver as up
from tests.diagnostics.problems import mnl_mdp, random_problem
from upriver.diagnostics import kappa_at, theta_star
from upriver.mnl import likelihood
from upriver.mnl import model as mnl
from upriver.mnl.radii import Evidence
from upriver.planning import start_value

COLUMNS = {(6, 24): 100, (8, 32): 100, (10, 40): 150, (20, 80): 200}
OPTIMAL_ROW = {6: (513.70, 39.67), 8: (576.50, 43.65), 10: (959.70, 57.97), 20: (1816.50, 79.89)}
LSVI_ROWS = {6: (7.52, 5.15), 8: (4.42, 5.41), 10: (5.54, 5.23), 20: (10.97, 10.17)}


def uniform_value(mdp) -> float:
    half = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
    return start_value(mdp, up.evaluate(mdp, half))


def evidence(k: int, d: int, norm: float, lam: float, horizon: int = 5, u: int = 3) -> Evidence:
    ratio = d * np.log(1.0 + (k - 1) * horizon * u * norm**2 / (d * lam))
    return Evidence(k, horizon, 4, u, d, norm, lam, float(ratio))


def group_quantities(features, theta, g):
    """(rows (U, d), p (U,), Hessian (d, d), Gram increment (d, d)) of one (s, a)."""
    rows = slice(*features.task.indptr[g : g + 2])
    x, p = features.matrix[rows], likelihood.probabilities(features, theta)[rows]
    return x, p, x.T @ (np.diag(p) - np.outer(p, p)) @ x, x.T @ x


def test_e1_the_small_reward_is_0_005():
    """Uniform play earns the LSVI rows with the figure's reward, and far more with the text's."""
    for n_states, printed in LSVI_ROWS.items():
        figure = uniform_value(up.envs.riverswim(n_states))
        text = uniform_value(up.envs.riverswim(n_states, variant="paper-text"))
        assert 0.4 < 100 * figure / np.mean(printed) < 1.8
        assert 100 * text > 3.5 * max(printed)


def test_e2_the_optimal_row_gives_the_number_of_episodes():
    for (n_states, horizon), episodes in COLUMNS.items():
        value = start_value(up.envs.riverswim(n_states, horizon), up.solve(
            up.envs.riverswim(n_states, horizon)).v)  # fmt: skip
        mean, sd = OPTIMAL_ROW[n_states]
        assert abs(mean - episodes * value) < 2 * sd / np.sqrt(10)
        for other in {50, 100, 150, 200} - {episodes}:
            assert abs(mean - other * value) > 5 * sd / np.sqrt(10)


def test_e3_kappa_over_all_of_r_d_is_zero():
    features = up.features.one_hot(up.envs.riverswim(4).task())
    direction = np.random.default_rng(0).standard_normal(features.dimension)
    norms = np.array([1.0, 5.0, 25.0, 125.0])[:, None]
    at = [likelihood.probabilities(features, theta)[None] for theta in norms * direction]
    values = [kappa_at(features.task, prob).value for prob in at]
    assert (np.diff(values) < 0).all() and values[-1] < 1e-70


def test_e3_the_estimate_may_leave_the_ball():
    """So a kappa over the ball of radius ||theta*|| does not cover the proof's mean-value point."""
    mdp = up.envs.riverswim(6)
    features = up.features.one_hot(mdp.task())
    bound = float(np.linalg.norm(theta_star(mdp, features)))
    agent = up.agents.UCRLMNL(mdp.task(), features, regularization=0.01)
    norms = [
        np.linalg.norm(up.simulate(mdp, agent, 30, seed=i).state.model.theta) for i in range(10)
    ]
    assert max(norms) > bound


def test_e4_the_printed_radius_is_right_for_unit_features_only():
    same = evidence(30, 5, 1.0, 4.0)
    printed, corrected = (r(0.1, 1.0) for r in (up.radii.lemma1_radius, up.radii.corrected_radius))
    # for L_varphi = 1 they differ by one episode in the determinant's bound and nothing else
    assert printed(same._replace(k=29)) == pytest.approx(corrected(same))
    for norm in (0.3, 3.0):
        other = evidence(30, 5, norm, 4.0 * norm**2)
        assert printed(other) != pytest.approx(corrected(other), rel=0.05)


def test_e4_the_printed_radius_can_be_negative():
    wide = evidence(1, 30, float(np.sqrt(2 * np.e)), 2 * np.e)
    assert up.radii.lemma1_radius(0.1, 1.0 / wide.norm_bound)(wide) < 0.0
    assert up.radii.corrected_radius(0.1, 1.0 / wide.norm_bound)(wide) > 0.0


def test_e4_d_log_term_changes_sign_at_sqrt_2():
    """At sqrt(2), the norm of one-hot differences, d log(2 / L_varphi^2) is 0; beyond, negative."""

    def spread(norm: float, d: int) -> float:
        e = evidence(1, d, norm, norm**2, horizon=10**9)  # the determinant's part is the same
        return up.radii.lemma1_radius(0.5, 1e-300)(e)

    for norm, sign in ((1.0, 1), (np.sqrt(2), 0), (2.0, -1)):
        at = 4.0 / norm**2 / 0.5
        part = (spread(norm, 8) - spread(norm, 4)) / at
        part -= sum(x * (d / 2) * np.log1p(3e9 / d) for x, d in ((1, 8), (-1, 4)))
        assert part == pytest.approx(4 * np.log(2 / norm**2), abs=1e-6)
        assert np.sign(round(part, 6)) == sign


def test_e5_the_bound_is_on_the_norm_not_its_square(rng):
    """Fair coins on 400 axes, 10^6 throws each: the norm obeys the quoted lemma, its square not."""
    d, n, p, lam = 400, 10**6, 0.5, 19_200.0
    log_term = d * np.log(2.0) + 0.5 * d * np.log1p(n / lam) - np.log(0.05)
    allowed = np.sqrt(lam) / 4.0 + 4.0 / np.sqrt(lam) * log_term
    s = rng.binomial(n, p, size=(50, d)) - n * p
    square = np.sum(s**2, axis=1) / (lam + n)
    assert (np.sqrt(square) < 0.3 * allowed).all()
    assert (square > allowed).all()


def test_e6_the_gram_matrix_follows_lambda():
    """A_k = lambda_k I + sum, where adding to A_{k-1} alone would keep lambda_1."""
    mdp = up.envs.riverswim(4)
    features = up.features.one_hot(mdp.task())
    agent = up.agents.UCRLMNL(
        mdp.task(), features, regularization=up.radii.theory_regularization(features)
    )
    state = up.simulate(mdp, agent, 12, seed=1).state
    lam = agent.lam(state.k)
    assert lam > 1.3 * agent.lam(1)
    gram = up.radii.gram_matrix(features, state.model.counts[0], lam).toarray()
    bare = up.radii.gram_matrix(features, state.model.counts[0], agent.lam(1)).toarray()
    np.testing.assert_allclose(gram - bare, (lam - agent.lam(1)) * np.eye(len(gram)), atol=1e-9)
    assert mnl.logdet_ratio(features, state.model) == pytest.approx(
        np.linalg.slogdet(gram)[1] - len(gram) * np.log(lam)
    )


def test_e7_the_radius_carries_one_over_kappa():
    e = evidence(10, 5, 1.0, 4.0)
    assert up.radii.lemma1_radius(0.01, 1.0)(e) == pytest.approx(
        10 * up.radii.lemma1_radius(0.1, 1.0)(e)
    )


def test_e8_the_closed_form_overshoots_by_more_than_the_lemma_says(rng):
    """Q - (r + P V) reaches past 2 H beta m, which is proved for the exact maximum, up to 3."""
    mdp, features, theta = random_problem(rng, reach=1.0, horizon=4)
    task, h = features.task, features.task.horizon
    model = mnl.start(features, 1.0, 1, with_products=True)
    worst = {}
    for name, plan_from_model in (
        ("closed", up.optimism.closed_form),
        ("exact", up.optimism.exact_maximum),
    ):
        beta = float(np.linalg.norm(theta))  # theta_hat = 0, A = I: theta* is just inside
        plan = plan_from_model(task, model, task.reward_rows, beta, np.uint64(1))
        ratios = []
        for step in range(h - 1):
            v = plan.v[step + 1]
            expected = np.add.reduceat(mdp.probability[0] * v[task.successors], task.indptr[:-1])
            gap = plan.q(step).ravel() - task.reward_rows[0] - expected
            seen = model.max_norm[0] > 0
            ratios.append((gap[seen] / (h * beta * model.max_norm[0][seen])).max())
        worst[name] = max(ratios)
    assert 2.0 < worst["closed"] <= 2.5
    assert worst["exact"] <= 2.0


def test_e9_absolute_values_are_needed(rng):
    """sum p (V - PV) x may exceed H sum p x, but never (H/2) max |x|."""
    broken = 0
    for _ in range(500):
        p, v, x = rng.dirichlet(np.ones(3)), rng.uniform(0, 1, 3), rng.standard_normal(3)
        left = float(np.sum(p * (v - p @ v) * x))
        broken += left > float(p @ x)
        assert abs(left) <= 0.5 * np.abs(x).max() + 1e-12
    assert broken > 50


def test_e10_the_sum_of_hessians_dominates_kappa_times_the_gram_matrix(rng):
    for _ in range(20):
        mdp, features, theta = random_problem(rng, max_successors=4)
        kappa = kappa_at(features.task, mdp.probability).value
        visits = rng.integers(0, 5, len(features.task.sizes))
        hessian, gram = np.eye(features.dimension), np.eye(features.dimension)
        for g, n in enumerate(visits):
            _, _, one_hessian, one_gram = group_quantities(features, theta, g)
            hessian, gram = hessian + n * one_hessian, gram + n * one_gram
        assert np.linalg.eigvalsh(hessian - kappa * gram)[0] >= -1e-9


def test_e10_it_needs_the_zero_successor():
    mdp = up.envs.riverswim(4)
    features = up.Features(mdp.task(), up.features.one_hot(mdp.task()).matrix.toarray() + 1.0)
    theta = np.zeros(features.dimension)
    _, _, hessian, gram = group_quantities(features, theta, 3)  # (s=1, a=1) has three successors
    assert np.linalg.matrix_rank(hessian) < np.linalg.matrix_rank(gram)


def test_e11_the_printed_deviation_follows_from_the_range(rng):
    """X in [-H, H]: X - E X has range 2H, so Hoeffding's lemma gives H sqrt(2 T log(1/delta))."""
    h, t, delta = 1.0, 50, 0.05
    allowed = h * np.sqrt(2 * t * np.log(1 / delta))
    for p in (0.5, 0.1):
        x = np.where(rng.random((40_000, t)) < p, h, -h)
        share = np.mean((x - (2 * p - 1) * h).sum(axis=1) > allowed)
        assert share <= delta
    # by |zeta| <= 2H alone the constant would be twice as large
    assert 2 * h * np.sqrt(2 * t * np.log(1 / delta)) == pytest.approx(2 * allowed)


def test_e12_delta_over_k_only_widens_the_radius():
    e = evidence(100, 5, 1.0, 4.0)
    union = up.radii.corrected_radius(0.1, 1.0, 0.05 / 100)(e)
    uniform = up.radii.corrected_radius(0.1, 1.0, 0.05)(e)
    assert union - uniform == pytest.approx(4.0 / 2.0 * np.log(100) / 0.1)


def test_e12_the_potential_is_summed_with_the_matrices_of_its_time(rng):
    """With A_k of the end the sum is smaller: the stated lemma follows from the proved one."""
    for norm in (0.3, 1.0, 3.0):
        mdp, features, _ = random_problem(rng, norm=norm)
        task, lam = features.task, norm**2
        agent = up.agents.UCRLMNL(task, features, 0.1, lam)
        starts, proved, before = task.indptr[:-1], 0.0, agent.init().model
        for k in range(1, 31):
            model = up.simulate(mdp, agent, k, seed=0).state.model
            visits = np.add.reduceat(model.counts[0] - before.counts[0], starts)
            proved, before = proved + float(visits @ before.max_norm[0] ** 2), model
        stated = float(np.add.reduceat(before.counts[0], starts) @ before.max_norm[0] ** 2)
        total = 30 * task.horizon * task.max_successors * features.norm_bound**2
        d = features.dimension
        bound = 2.0 * task.horizon * d * np.log(1.0 + total / (d * lam))
        assert stated <= proved <= bound


def test_e13_noise_of_one_step_is_correlated(rng):
    """Its components sum to zero, so they cannot be independent sub-Gaussian noise."""
    p = rng.dirichlet(np.ones(4))
    y = rng.multinomial(1, p, size=1000)
    noise = y - p
    np.testing.assert_allclose(noise.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.cov(noise.T), np.diag(p) - np.outer(p, p), atol=0.08)


def test_e15_known_support_leaves_nothing_to_explore_on_the_left():
    mdp = up.envs.riverswim(6)
    for support, idle in (("known", True), ("local", False)):
        task = mdp.task(support)
        width = mnl.start(up.features.one_hot(task), 1.0, 1, False).max_norm[0].reshape(6, 2)
        assert (width[:, 0] == 0.0).all() == idle
        assert (width[:, 1] > 0.0).all()


def test_mnl_models_always_pass_proposition_1(rng):
    _, features, theta = random_problem(rng)
    prob: Any = mnl_mdp(features, 100.0 * theta).probability[0]
    np.testing.assert_allclose(np.add.reduceat(prob, features.task.indptr[:-1]), 1.0)


def test_e16_one_mean_value_point_does_not_serve_all_components_but_the_integral_does():
    # the gradient of the likelihood is a map from R^d to R^d; its Hessian at one point of the
    # segment gives one component of the difference, not all of them
    varphi = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])

    def expectation(theta):
        p = np.exp(varphi @ theta)
        return p / p.sum() @ varphi

    def hessian(theta):
        p = np.exp(varphi @ theta)
        p /= p.sum()
        return (varphi.T * p) @ varphi - np.outer(p @ varphi, p @ varphi)

    step = np.array([3.0, 1.0])
    difference = expectation(step) - expectation(0.0 * step)
    at = np.linspace(0.0, 1.0, 4001)
    slopes = np.array([hessian(t * step) @ step for t in at])
    assert np.abs(slopes - difference).max(axis=1).min() > 0.01
    nodes, weights = np.polynomial.legendre.leggauss(30)
    whole = sum(w / 2 * hessian((x + 1) / 2 * step) for x, w in zip(nodes, weights, strict=True))
    np.testing.assert_allclose(whole @ step, difference, atol=1e-10)


def test_e17_lambda_of_the_theorem_may_be_negative_and_the_radius_may_fall():
    small = 3 * 5 * 3 * 0.1**2  # k H U L^2 at k = 3
    assert small < 1.0 and 0.1**2 * 2 * np.log(small) < 0.0
    features = up.features.one_hot(up.envs.riverswim(6).task())
    scaled = up.Features(features.task, 0.0316 * features.matrix, formal_dimension=10)
    lam = up.radii.theory_regularization(scaled)
    radius = up.radii.corrected_radius(0.1, 0.1, 0.05)
    task, norm = scaled.task, scaled.norm_bound
    along = [radius(evidence(k, 10, norm, lam(k), task.horizon, 3)) for k in range(1, 51)]
    assert max(along) > 1.1 * along[-1] and int(np.argmax(along)) == 6


def test_e17_growing_lambda_needs_the_first_one_in_the_potential(rng):
    """det A_{k+1} >= det A_k times the increments holds; the ratio to det(lambda_k I) does not."""
    x = rng.standard_normal((40, 3))
    x /= np.linalg.norm(x, axis=1)[:, None]
    lam = 1.0 + 50.0 * np.arange(41)
    gram, total = np.zeros((3, 3)), 0.0
    for k in range(40):
        total += x[k] @ np.linalg.solve(lam[k] * np.eye(3) + gram, x[k])
        gram += np.outer(x[k], x[k])
    last = 2.0 * np.log(np.linalg.det(lam[-1] * np.eye(3) + gram) / lam[-1] ** 3)
    first = 2.0 * np.log(np.linalg.det(lam[0] * np.eye(3) + gram) / lam[0] ** 3)
    assert last < total <= first
