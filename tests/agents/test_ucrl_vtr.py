"""UCRL-VTR: by hand, against plain regression on the history, and optimistic as proved."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play, random_mdp
from tests.agents.plain_linear import optimal_q, right_then_stay, two_states
from upriver import kernels


def mixed(task, matrix, v):
    """(S*A, d) X_V(s, a) = sum_s' V(s') x(s, a, s')."""
    x = np.zeros((len(task.sizes), matrix.shape[1]))
    for row, (s, a, s2) in enumerate(zip(*task.triples, strict=True)):
        x[s * task.n_actions + a] += v[s2] * matrix[row]
    return x


def check_against_plain_regression(agent, mdp, matrix, n_episodes):
    """One dense regression over all coordinates, on every step ever taken."""
    task, lam, d = agent.task, agent.regularization, matrix.shape[1]
    gram, target, planned = lam * np.eye(d), np.zeros(d), None
    for episodes, state, plan in play(agent, mdp, n_episodes):
        if episodes:
            e = episodes[-1]
            for h in range(mdp.horizon):
                x = mixed(task, matrix, planned.v[h + 1])
                x = x[e.states[h] * task.n_actions + e.actions[h]]
                gram += np.outer(x, x)
                target += x * planned.v[h + 1][e.states[h + 1]]
        inverse, beta = np.linalg.inv(gram), agent.radius(len(episodes) + 1)
        np.testing.assert_allclose(state.model.theta, inverse @ target, atol=1e-9)

        def action_values(h, v, inverse=inverse, theta=inverse @ target, beta=beta):
            x = mixed(task, matrix, v)
            width = np.sqrt(np.einsum("gi,ij,gj->g", x, inverse, x))
            q = task.reward.ravel() + x @ theta + beta * width
            return np.clip(q, 0, task.horizon).reshape(task.n_states, task.n_actions)

        check_plan(plan, action_values, [float(task.horizon)] * task.horizon)
        planned = plan


def test_by_hand():
    agent = up.agents.UCRLVTR(two_states().task("full"), bonus=0.5, regularization=4.0)
    first = agent.plan(agent.init(), np.random.default_rng(0))
    v = np.array([0.2, 0.4])  # the last step has nothing to look forward to, and so no bonus
    assert first.v[1] == pytest.approx(v)
    assert first.q(0) == pytest.approx(np.array([[0.1, 0.2], [0.3, 0.4]]) + 0.5 * np.hypot(*v) / 2)
    state = agent.update(agent.init(), first, right_then_stay())
    # The step from (0, 1) to state 1 is regressed: X = v, y = v[1], M = 4 I + v v^T.
    scale = 4 + v @ v
    expected = np.zeros(8)
    expected[2:4] = v[1] * v / scale
    assert state.model.theta == pytest.approx(expected)
    q = agent.plan(state, np.random.default_rng(0)).q(0)
    width = np.sqrt(v @ v / scale)
    assert q[0, 1] == pytest.approx(0.2 + v[1] * (v @ v) / scale + 0.5 * width)


@pytest.mark.parametrize("support", ["full", "known"])
def test_one_hot_agrees_with_plain_regression(support):
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task(support)
    agent = up.agents.UCRLVTR(task, bonus=lambda k: 0.3 * np.sqrt(k), regularization=0.5)
    check_against_plain_regression(agent, mdp, np.eye(task.n_triples), 12)


def test_mixtures_agree_with_plain_regression(rng):
    mdp = random_mdp(3)
    task = mdp.task("full")
    kernels_of = rng.dirichlet(np.ones(3), (6, 4)).transpose(0, 2, 1).reshape(18, 4)
    agent = up.agents.UCRLVTR(task, up.Features(task, kernels_of), bonus=0.2, regularization=0.5)
    check_against_plain_regression(agent, mdp, kernels_of, 12)


def test_one_hot_given_explicitly_is_the_default():
    mdp = up.envs.riverswim(4)
    task = mdp.task("local")
    explicit = up.agents.UCRLVTR(task, up.Features(task, np.eye(task.n_triples)))
    one = up.simulate(mdp, up.agents.UCRLVTR(task), 30, seed=1)
    two = up.simulate(mdp, explicit, 30, seed=1)
    np.testing.assert_allclose(one.plan.v, two.plan.v, atol=1e-9)
    np.testing.assert_array_equal(one.returns, two.returns)


def test_optimistic_with_the_theory():
    mdp = random_mdp(1, n_states=2, horizon=3)
    task = mdp.task("full")
    # lambda = H^2 d with d = S A S, and beta_k with C = sqrt(S A)
    agent = up.agents.UCRLVTR(
        task, regularization=9 * 8,
        bonus=lambda k: 4 * 2 * 3 * np.sqrt(8 * np.log(1 + 3 * k)) * np.log((k + 1) ** 2 * 3 / 0.1),
    )  # fmt: skip
    for _, _, plan in play(agent, mdp, 20):
        assert all((plan.q(h) >= optimal_q(mdp, h) - 1e-12).all() for h in range(3))


def test_optimistic_with_the_self_normalised_radius():
    """sqrt(lam) ||theta*|| + (H / 2) sqrt(2 log(1 / delta) + log(det M / lam^d)), bounded."""
    mdp = random_mdp(1, n_states=2, horizon=3)
    task, lam, n = mdp.task("full"), 0.1, 3000
    spread = 8 * np.log(1 + n * 3 * 18 / (8 * lam)) + 2 * np.log(10)
    radius = np.sqrt(lam) * np.linalg.norm(mdp.probability) + 1.5 * np.sqrt(spread)
    for seed in range(3):
        plan = up.simulate(
            mdp, up.agents.UCRLVTR(task, bonus=radius, regularization=lam), n, seed
        ).plan
        assert plan.q(0).min() < mdp.horizon  # the clip is not what makes it optimistic
        assert all((plan.q(h) >= optimal_q(mdp, h) - 1e-12).all() for h in range(3))


def test_the_factor_survives_rounding():
    """X and its Gram matrix of rank one, 1e12 times the ridge: a pivot cancels to nothing."""
    x, lam = np.array([3.0, 1.0, 7.0]), 1e-6
    matrix = 1e12 * np.outer(x, x) + lam * np.eye(3)
    factor = kernels.linear.factor_matrices(matrix[None].copy(), lam)[0]
    assert (np.diag(factor) >= np.sqrt(lam)).all()
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-12)


def test_unknown_rewards_are_learned():
    mdp = up.envs.riverswim(3)
    run = up.simulate(mdp, up.agents.UCRLVTR(mdp.task("full").with_unknown_reward()), 40, seed=0)
    assert run.state.rewards.visits.sum() == 40 * mdp.horizon and run.state.k == 41


def test_bad_input():
    task = two_states().task("full")
    other = up.envs.riverswim(3).task("full")
    with pytest.raises(ValueError, match="features were made for a task"):
        up.agents.UCRLVTR(task, up.Features(other, np.eye(18)))
    with pytest.raises(ValueError, match="bonus is -1"):
        up.agents.UCRLVTR(task, bonus=-1)
    with pytest.raises(ValueError, match="bonus is nan"):
        agent = up.agents.UCRLVTR(task, bonus=lambda k: np.nan)
        agent.plan(agent.init(), np.random.default_rng(0))
    with pytest.raises(ValueError, match="regularization is 0"):
        up.agents.UCRLVTR(task, regularization=0)


@pytest.mark.parametrize("name, most", [("riverswim-6", 40.0), ("deep-sea-10", 60.0)])
def test_the_default_learns_with_local_support(name, most):
    """With lambda = 30 it never left the near bank: 195 and 175 of 200 episodes lost."""
    mdp = up.envs.make(name)
    runs = [up.simulate(mdp, up.agents.UCRLVTR(mdp.task("local")), 200, seed=s) for s in range(5)]
    assert np.mean([run.regret.sum() / run.optimal_values[0] for run in runs]) < most


def test_a_plan_in_the_users_units_is_refused():
    """`update` regresses on the values of the plan, so their scale matters."""
    mdp = up.FiniteMDP.from_arrays(np.full((2, 2, 2), 0.5), [[-40.0, 7.0], [3.0, 90.0]], 4)
    agent = up.agents.UCRLVTR(mdp.task("full"))
    run = up.simulate(mdp, agent, 2)
    episode = up.agents.base.Episode(np.zeros(5, int), np.zeros(4, int), np.zeros(4))
    with pytest.raises(ValueError, match="plan is in the user's units"):
        agent.update(run.state, run.plan, episode)
    agent.update(run.state, agent.plan(run.state, np.random.default_rng(0)), episode)
