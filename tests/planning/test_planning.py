"""Backward induction, the optimum and policy evaluation against loops over dense arrays."""

from __future__ import annotations

from datetime import date
from itertools import product

import numpy as np
import pytest

from tests.reference import as_mixture, dense, optimal_q, policy_value, random_mdp
from upriver import FiniteMDP, agents, evaluate, features, solve
from upriver.envs import riverswim
from upriver.planning import (
    Plan,
    backward_induction,
    clip_nothing,
    clip_q,
    clip_v,
    clip_v_remaining,
    draw_tie_seed,
    start_value,
)


@pytest.mark.parametrize("per_step", [False, True])
def test_solve_is_the_bellman_optimum(rng, per_step):
    for _ in range(5):
        mdp = random_mdp(rng, 5, 3, 4, per_step=per_step)
        q = optimal_q(*dense(mdp))
        plan = solve(mdp)
        np.testing.assert_allclose(plan.v[:-1], q.max(axis=2), atol=1e-13)
        assert not plan.v[-1].any()
        np.testing.assert_array_equal(plan.policy, q.argmax(axis=2))
        for h in range(4):
            np.testing.assert_allclose(plan.q(h), q[h], atol=1e-13)


def test_no_policy_does_better_than_solve(rng):
    mdp = random_mdp(rng, 2, 2, 3, per_step=True, random_start=True)
    p, r = dense(mdp)
    best = max(
        policy_value(p, r, as_mixture(np.reshape(table, (3, 2)), 2))[0][mdp.initial_states]
        @ mdp.initial_probability
        for table in product((0, 1), repeat=6)
    )
    assert start_value(mdp, solve(mdp).v) == pytest.approx(best, abs=1e-14)


@pytest.mark.parametrize("per_step", [False, True])
def test_evaluate_is_the_value_of_the_policy(rng, per_step):
    mdp = random_mdp(rng, 5, 3, 4, per_step=per_step)
    p, r = dense(mdp)
    table = rng.integers(0, 3, (4, 5))
    for kind in (np.int64, np.int8, np.uint8):
        np.testing.assert_allclose(
            evaluate(mdp, table.astype(kind)), policy_value(p, r, as_mixture(table, 3)), atol=1e-14
        )
    one = rng.integers(0, 3, 5)
    np.testing.assert_allclose(
        evaluate(mdp, one), policy_value(p, r, as_mixture([one] * 4, 3)), atol=1e-14
    )
    mixed = rng.dirichlet(np.ones(3), (4, 5))
    np.testing.assert_allclose(evaluate(mdp, mixed), policy_value(p, r, mixed), atol=1e-14)
    np.testing.assert_allclose(
        evaluate(mdp, mixed[0]), policy_value(p, r, np.stack([mixed[0]] * 4)), atol=1e-14
    )
    np.testing.assert_allclose(evaluate(mdp, np.eye(3)[table]), evaluate(mdp, table), atol=1e-14)


def test_evaluate_refuses_what_is_no_policy(rng):
    mdp = random_mdp(rng, 5, 3, 4)
    for policy, sentence in (
        (np.full((4, 5), 3), r"policy\[0, 0\] is 3; actions are 0 to 2"),
        (np.full(5, -1), r"policy\[0\] is -1"),
        (np.zeros((3, 5), int), r"policy has shape \(3, 5\); it must be \(4, 5\) or \(5,\)"),
        (np.ones((5, 3)), "sum to 1"),
        (np.full((5, 3), np.nan), "sum to 1"),
        (np.ones((5, 2)) / 2, r"shape \(5, 2\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            evaluate(mdp, policy)


@pytest.mark.parametrize("clip", [clip_v, clip_v_remaining, clip_q, clip_nothing])
def test_clips_cut_where_they_say(rng, clip):
    mdp = random_mdp(rng, 4, 3, 5, per_step=True)
    task = mdp.true_task
    p, r = dense(mdp)
    bonus = rng.normal(0.5, 1.0, (5, 12))
    scale = rng.uniform(0.0, 4.0, 5)
    plan = backward_induction(
        task, mdp.probability, task.reward_rows, bonus, scale, clip(task), np.uint64(3)
    )
    v = np.zeros((6, 4))
    for h in reversed(range(5)):
        q = r[h] + p[h] @ v[h + 1] + scale[h] * bonus[h].reshape(4, 3)
        if clip is clip_q:
            q = np.clip(q, 0.0, 5.0)
        np.testing.assert_allclose(plan.q(h), q, atol=1e-12)
        best = q.max(axis=1)
        np.testing.assert_array_equal(
            np.take_along_axis(q, plan.policy[h][:, None].astype(int), 1)[:, 0] >= best - 1e-12,
            True,
        )
        limit = {clip_v: 5.0, clip_v_remaining: 5.0 - h, clip_q: 5.0, clip_nothing: np.inf}[clip]
        v[h] = np.minimum(best, limit)
        np.testing.assert_allclose(plan.v[h], v[h], atol=1e-12)


def test_only_v_is_clipped_so_that_large_bonuses_make_no_ties(rng):
    """Q above H still decides: the action with the larger bonus is played, always."""
    mdp = random_mdp(rng, 4, 2, 6)
    task = mdp.true_task
    bonus = np.tile([[50.0, 60.0]], (1, 4)).reshape(1, 8)
    for seed in range(20):
        tie_seed = draw_tie_seed(np.random.default_rng(seed))
        plan = backward_induction(
            task, mdp.probability, task.reward_rows, bonus, np.ones(6), clip_v(task), tie_seed
        )
        assert (plan.policy == 1).all() and (plan.v[:-1] == 6.0).all()


def test_ties_are_uniform_and_independent_across_states_and_steps():
    n_actions, horizon, n_states = 3, 4, 5
    mdp = FiniteMDP.from_arrays(
        np.ones((n_states, n_actions, n_states)) / n_states,
        np.full((n_states, n_actions), 0.5), horizon,
    )  # fmt: skip
    task = mdp.true_task
    rng = np.random.default_rng(1)
    draws = 6000
    tables = np.empty((draws, horizon, n_states), int)
    zero = np.zeros((1, n_states * n_actions))
    for i in range(draws):
        tables[i] = backward_induction(
            task, mdp.probability, task.reward_rows, zero, np.zeros(horizon), clip_v(task),
            draw_tie_seed(rng),
        ).policy  # fmt: skip
    flat = tables.reshape(draws, -1)
    share = np.stack([(flat == a).mean(axis=0) for a in range(n_actions)])
    deviation = np.sqrt(2 / 9 / draws)
    assert np.abs(share - 1 / 3).max() < 4.5 * deviation
    joint = np.array([np.mean(flat[:, i] == flat[:, j]) for i in range(20) for j in range(i)])
    assert np.abs(joint - 1 / 3).max() < 4.5 * deviation


def test_a_tie_of_two_among_three_never_picks_the_loser():
    p = np.ones((1, 3, 1))
    mdp = FiniteMDP.from_arrays(p, np.array([[0.7, 0.2, 0.7]]), 2)
    task = mdp.true_task
    zero = np.zeros((1, 3))
    rng = np.random.default_rng(0)
    picks = np.concatenate([
        backward_induction(
            task, mdp.probability, task.reward_rows, zero, np.zeros(2), clip_v(task),
            draw_tie_seed(rng),
        ).policy.ravel()
        for _ in range(2000)
    ])  # fmt: skip
    assert set(picks.tolist()) == {0, 2}
    assert abs((picks == 0).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(4000)


def test_start_value_is_the_mean_over_starts(rng):
    mdp = random_mdp(rng, 5, 2, 3, random_start=True)
    v = rng.random((4, 5))
    full = np.zeros(5)
    full[mdp.initial_states] = mdp.initial_probability
    assert start_value(mdp, v) == pytest.approx(full @ v[0])
    assert start_value(mdp, v[0]) == pytest.approx(full @ v[0])


def test_a_plan_without_action_values_says_so():
    plan = Plan(np.zeros((2, 3), np.int8), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="keeps no action values"):
        plan.q(0)
    mdp = FiniteMDP.from_arrays(np.ones((1, 1, 1)), [[0.5]], 2)
    with pytest.raises(ValueError, match="h is 2; it must be between 0 and 1"):
        solve(mdp).q(2)


def test_many_actions_need_a_wider_policy():
    n_actions = 200
    reward = np.zeros((1, n_actions))
    reward[0, 171] = 1.0
    mdp = FiniteMDP.from_arrays(np.ones((1, n_actions, 1)), reward, 2)
    plan = solve(mdp)
    assert plan.policy.ravel().tolist() == [171, 171]
    assert evaluate(mdp, plan.policy)[0, 0] == 2.0


def test_a_policy_may_name_actions():
    mdp = riverswim(n_states=4)
    names = mdp.true_task.action_names
    right = np.full(4, 1)
    named = {s: names[1] for s in mdp.true_task.state_names}
    np.testing.assert_array_equal(evaluate(mdp, named), evaluate(mdp, right))
    with pytest.raises(ValueError, match="does not name state"):
        evaluate(mdp, {0: "left"})
    with pytest.raises(ValueError, match="policy names 7"):
        evaluate(mdp, dict.fromkeys(range(4), 7))


@pytest.mark.parametrize("names", [[1, 0], [False, True], [0.5, 1.5], [date(2026, 1, 1), "later"]])
def test_the_name_of_an_action_may_be_any_value(names):
    """One that is no text stands for that action in every state too, and not for its number."""
    p = np.ones((2, 2, 2)) / 2
    mdp = FiniteMDP.from_arrays(p, np.array([[1.0, 0.0], [3.0, 0.0]]), 3, actions=names)
    for number, name in enumerate(names):
        np.testing.assert_array_equal(evaluate(mdp, name), evaluate(mdp, np.full(2, number)))
    with pytest.raises(ValueError, match="policy names 7; the actions are "):
        evaluate(mdp, 7)


def test_mixtures_whose_rows_sum_to_nearly_one_are_worth_no_more():
    """Over 100,000 steps rows that are off by 9e-9 were worth 45 of 50,000 rewards more."""
    mdp = FiniteMDP.from_arrays(np.full((2, 2, 2), 0.5), [[1.0, 0.0], [1.0, 0.0]], 100_000)
    for off in (9e-9, -9e-9):
        v = evaluate(mdp, np.full((2, 2), 0.5 + off / 2))
        np.testing.assert_allclose(v[0], 50_000.0, rtol=1e-9)


@pytest.mark.parametrize("name", ["UCMatrixRL", "LSVIUCB", "UCRLVTR", "UCRLMNL"])
def test_action_values_of_an_end_are_what_is_known(name):
    """State 1 ends the episode: a step there pays 0, which is 4 of the 5 from -4 to 1."""
    transition = [[[0.5, 0.5], [0.9, 0.1]], [[0.0, 1.0], [0.0, 1.0]]]
    mdp = FiniteMDP.from_arrays(transition, [[-4.0, 1.0], [0.0, 0.0]], 3)
    task = mdp.task()
    given = {"radius": 0.1, "features": features.from_function(task, lambda s, a, s2: [1.0 + s2])}
    agent = getattr(agents, name)(task, **(given if name == "UCRLMNL" else {}))
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    for h in range(3):
        np.testing.assert_allclose(plan.q(h)[1], 0.8 * (3 - h))
        np.testing.assert_allclose(plan.to_user_units(task).q(h)[1], 0.0, atol=1e-12)
    assert plan.q(0)[0].max() >= plan.v[0, 0]
