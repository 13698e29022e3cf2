"""UC-MatrixRL: by hand, against plain regression on the history, and optimistic as proved."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play, random_mdp
from tests.agents.plain_linear import (
    many_visits,
    optimal_q,
    right_then_stay,
    samples,
    two_states,
)
from upriver.agents.base import State


def reference(task, episodes, phi, psi, lam, bonus):
    """(h, v) -> (S, A), from one regression on all samples."""
    gram, cross = lam * np.eye(phi.shape[1]), np.zeros((phi.shape[1], psi.shape[1]))
    for _, g, _, s2 in samples(task, episodes):
        gram += np.outer(phi[g], phi[g])
        cross += np.outer(phi[g], psi[s2])
    core = np.linalg.inv(gram) @ cross @ np.linalg.inv(psi.T @ psi)
    prob = phi @ core @ psi.T
    allowed = np.zeros_like(prob)
    s, a, s2 = task.triples
    allowed[s * task.n_actions + a, s2] = 1.0
    width = np.sqrt(np.einsum("gi,ij,gj->g", phi, np.linalg.inv(gram), phi))

    def action_values(h, v):
        q = task.reward.ravel() + (prob * allowed) @ v + bonus * task.horizon * width
        return np.clip(q, 0, task.horizon).reshape(task.n_states, task.n_actions)

    return action_values


def test_by_hand():
    agent = up.agents.UCMatrixRL(two_states().task("full"), bonus=0.1, regularization=0.5)
    state = agent.update(agent.init(), None, right_then_stay())
    plan = agent.plan(state, np.random.default_rng(0))
    # N = 1 at (0, 1) and (1, 0), else 0; bonus c H / sqrt(N + lambda), shrinkage 1 / 1.5.
    new, old = 0.2 / np.sqrt(0.5), 0.2 / np.sqrt(1.5)
    last = np.array([[0.1 + new, 0.2 + old], [0.3 + old, 0.4 + new]])
    assert plan.q(1) == pytest.approx(last)
    v = last.max(axis=1)
    first = last + np.array([[0, v[1]], [v[0], 0]]) / 1.5
    assert plan.q(0) == pytest.approx(first) and plan.v[0] == pytest.approx(first.max(axis=1))


@pytest.mark.parametrize("support", ["full", "known"])
def test_one_hot_agrees_with_plain_regression(support):
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task(support)
    agent = up.agents.UCMatrixRL(task, bonus=0.05, regularization=0.3)
    for episodes, _, plan in play(agent, mdp, 12):
        check_plan(plan, reference(task, episodes, np.eye(8), np.eye(4), 0.3, 0.05), [6.0] * 6)


def test_general_features_agree_with_plain_regression(rng):
    mdp = random_mdp(3)
    task = mdp.task("full")
    phi, psi = rng.random((6, 4)), rng.random((3, 2))
    agent = up.agents.UCMatrixRL(task, bonus=0.05, regularization=0.3, phi=phi, psi=psi)
    for episodes, _, plan in play(agent, mdp, 12):
        check_plan(plan, reference(task, episodes, phi, psi, 0.3, 0.05), [4.0] * 4)


def test_one_hot_given_explicitly_is_the_default():
    mdp = up.envs.riverswim(4)
    task = mdp.task("local")
    phi = np.eye(8)
    plain = up.simulate(mdp, up.agents.UCMatrixRL(task), 30, seed=1)
    explicit = up.simulate(mdp, up.agents.UCMatrixRL(task, phi=phi, psi=np.eye(4)), 30, seed=1)
    np.testing.assert_allclose(plain.plan.v, explicit.plan.v, atol=1e-9)
    np.testing.assert_array_equal(plain.returns, explicit.returns)


def test_optimistic_with_the_theory(rng):
    mdp = random_mdp(1, n_states=2, horizon=2)
    task = mdp.task("full")
    n = 30_000
    # 2 C_psi sqrt(beta) of the self-normalised bound, the columns of M added up; one-hot features:
    # C_psi = sqrt(S), C_phi = C'_psi = 1, d = S A = 4, d' = S = 2, ||M*|| <= sqrt(S A)
    noise = 2 * (4 * np.log(1 + 4 * n * 2) + 2 * np.log(2 / 0.1))
    agent = up.agents.UCMatrixRL(
        task, bonus=2 * np.sqrt(2) * (2 + np.sqrt(noise)), regularization=1.0
    )
    for _ in range(20):
        state = State(1, many_visits(mdp, n, rng).model.counts[:1], None)
        plan = agent.plan(state, rng)
        assert plan.q(0).min() < mdp.horizon  # the clip is not what makes it optimistic
        assert all((plan.q(h) >= optimal_q(mdp, h)).all() for h in range(mdp.horizon))


def test_data_without_end_gives_the_optimum(rng):
    mdp = random_mdp(1)
    counts = 1e12 * mdp.probability
    plan = up.agents.UCMatrixRL(mdp.task("full")).plan(State(1, counts, None), rng)
    np.testing.assert_allclose(plan.v, up.solve(mdp).v, atol=1e-6)


def test_unknown_rewards_are_learned():
    mdp = up.envs.riverswim(3)
    agent = up.agents.UCMatrixRL(mdp.task("full").with_unknown_reward(), bonus=0.0)
    run = up.simulate(mdp, agent, 60, seed=0)
    assert run.plan.q(mdp.horizon - 1)[0] == pytest.approx([0.005, 0], abs=0.2)
    assert run.state.rewards.visits.sum() == 60 * mdp.horizon


def test_bad_input():
    task = two_states().task("full")
    with pytest.raises(ValueError, match=r"phi has shape \(3, 2\); .* of shape \(4, d\)"):
        up.agents.UCMatrixRL(task, phi=np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"phi has shape .*must be finite"):
        up.agents.UCMatrixRL(task, phi=np.where(np.arange(8).reshape(4, 2) == 5, np.nan, 1.0))
    with pytest.raises(ValueError, match="psi has 2 columns of rank 1"):
        up.agents.UCMatrixRL(task, psi=np.ones((2, 2)))
    with pytest.raises(ValueError, match="bonus is -1"):
        up.agents.UCMatrixRL(task, bonus=-1)
    with pytest.raises(ValueError, match="regularization is 0"):
        up.agents.UCMatrixRL(task, regularization=0)


def test_a_transition_outside_the_support_is_refused():
    agent = up.agents.UCMatrixRL(up.envs.riverswim(3, horizon=2).task("known"))
    with pytest.raises(ValueError, match=r"step 0 .* to 1, .* successors \[0\]"):
        agent.update(agent.init(), None, right_then_stay()._replace(actions=np.array([0, 0])))
