"""The kernels of planning and of episodes against plain NumPy references."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numba
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import upriver as up
from tests.building import from_rows
from tests.reference import random_mdp
from upriver import kernels
from upriver.kernels.compiled import njit_inline
from upriver.mnl.choices import softmax
from upriver.planning import (
    clip_nothing,
    environment_structure,
    policy_type,
    run_backward_pass,
)
from upriver.planning.induction import NO_ENDS

H, S, A = 4, 5, 3


def test_the_exponential_of_tilted_plans(rng):
    @numba.njit
    def exponentials(x):
        found = np.empty_like(x)
        for i in range(x.shape[0]):
            found[i] = kernels.optimism.exponential(x[i])
        return found

    ties = np.log(2.0) * (np.arange(-900, 900) + 0.5)  # where 2^k changes to 2^(k + 1)
    x = np.concatenate([rng.normal(size=10_000), rng.uniform(-700, 700, 10_000), ties, [0.0, -0.0]])
    x = x[np.abs(x) <= 700.0]
    np.testing.assert_allclose(exponentials(x), np.exp(x), rtol=1e-14)
    assert (exponentials(np.zeros(3)) == 1.0).all()
    np.testing.assert_allclose(
        exponentials(np.array([np.inf, 1e4, -1e4])), np.exp([700.0, 700.0, -700.0]), rtol=1e-14
    )


def problem(rng, per_step=True):
    """A task with rewards of next states, a missing pair, and arrays for one backward pass."""
    sizes = rng.integers(1, 4, (S, A))
    sizes[2, 1] = 0
    rows = {
        (int(s), int(a)): dict.fromkeys(
            rng.choice(S, sizes[s, a], replace=False).tolist(), 1 / sizes[s, a]
        )
        for s, a in zip(*np.nonzero(sizes), strict=True)
    }
    mdp = from_rows(rows, rng.random((S, A)) * (sizes > 0), H)
    task, steps = mdp.true_task, H if per_step else 1
    prob = rng.random((steps, task.n_triples))
    prob /= np.repeat(np.array([task.by_pair(p) for p in prob]), task.sizes, axis=1)
    return task, prob, rng.random((steps, S * A)), rng.random((steps, task.n_triples))


def at(array, h):
    return array[min(h, len(array) - 1)]


def run(rule, task, extra, clip, *data, seed=3):
    """(policy, v, q of the first step) of the backward pass of a rule."""
    policy, v = np.empty((H, S), policy_type(task)), np.zeros((H + 1, S))
    q = np.empty(S * A)
    low, q_cap, v_cap = clip
    kernels.planning.compile_backward_pass(rule)(
        *task.kernel_rows, extra, True, low, q_cap, v_cap, NO_ENDS, 0.0, np.uint64(seed), v, policy,
        q, 0, H, 0, S, data,
    )  # fmt: skip
    return policy, v, q


FREE = -np.inf, np.full(H, np.inf), np.full(H, np.inf)


def reference(task, extra, low, q_cap, v_cap, backup):
    """(Q (H, S, A), V) with backup(h, pair, rows, next values) -> Q before the clip."""
    v, q = np.zeros((H + 1, S)), np.full((H, S, A), -np.inf)
    for h in reversed(range(H)):
        for pair in np.flatnonzero(task.sizes):
            rows = slice(task.indptr[pair], task.indptr[pair + 1])
            ahead = v[h + 1][task.successors[rows]]
            if extra.size:
                ahead = ahead + at(extra, h)[rows]
            x = backup(h, pair, rows, ahead)
            q[h].flat[pair] = min(max(x, low), q_cap[h])
        v[h] = np.minimum(q[h].max(axis=1), v_cap[h])
    return q, v


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("with_extra", [False, True])
def test_backward_pass_with_bonus_and_clip(rng, per_step, with_extra):
    task, prob, reward, extra = problem(rng, per_step)
    extra = extra if with_extra else np.empty((1, 0))
    bonus, scale = rng.normal(0, 1, reward.shape), rng.uniform(0, 2, H)
    clip = 0.1, np.array([2.5, 2.2, 1.6, 0.9]), np.array([2.0, 1.9, 1.5, 0.8])
    q, v = reference(
        task, extra, *clip,
        lambda h, pair, rows, ahead: at(reward, h)[pair] + at(prob, h)[rows] @ ahead
        + scale[h] * at(bonus, h)[pair],
    )  # fmt: skip
    made = run(kernels.planning.bonus_rule, task, extra, clip, prob, reward, bonus, scale)
    np.testing.assert_allclose(made[1], v, atol=1e-13)
    np.testing.assert_allclose(made[2], q[0].ravel(), atol=1e-13)
    chosen = np.take_along_axis(q, made[0][..., None].astype(int), 2)[..., 0]
    np.testing.assert_allclose(chosen, q.max(axis=2), atol=1e-13)


def test_the_rule_and_the_test_of_contributing(rng):
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## Add a local rule")[1].split("## ")[0]
    names = {"__name__": "contributed"}
    exec("\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)), names)
    names["test_the_hopeful_rule_is_its_formula"](rng)


@njit_inline
def greedy_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = the largest V_{h+1} of the successors."""
    for pair in range(first, end):
        q[pair] = -np.inf
        for i in range(indptr[pair], indptr[pair + 1]):
            q[pair] = max(q[pair], v[h + 1, successors[i]] + data[0])


def test_a_plan_of_a_rule_from_outside_the_package_is_pickled(rng):
    task = problem(rng)[0]
    plan = run_backward_pass(task, greedy_rule, (0.5,), clip_nothing(task), np.uint64(3))
    assert (plan.v[0] == 0.5 * H).all()
    copied = pickle.loads(pickle.dumps(plan))
    for h in range(H):
        np.testing.assert_array_equal(copied.q(h), plan.q(h))


def test_a_bonus_of_counts_is_its_formula(rng):
    task, prob, reward, extra = problem(rng)
    visits = rng.integers(0, 4, S * A).astype(float)
    hoeffding, linear, ranges = rng.random(H), rng.random(H), 1.0 + rng.random(H)
    doubt, variance = rng.random((H, S)), 0.7

    def backup(h, pair, rows, ahead):
        p, d, n = prob[h][rows], doubt[h][task.successors[rows]], visits[pair]
        mean, spread, mean_doubt = p @ ahead, p @ ahead**2 - (p @ ahead) ** 2, p @ d
        if n == 0:
            n, mean, spread, mean_doubt = 1.0, ahead.max(), ranges[h] ** 2 / 4, d.max()
        bonus = hoeffding[h] / n**0.5 + (variance * spread / n) ** 0.5
        bonus += linear[h] / n + (mean_doubt / n) ** 0.5
        return reward[h][pair] + mean + bonus * (len(p) > 1)

    _, v = reference(task, extra, *FREE, backup)
    data = prob, reward, visits, hoeffding, variance, linear, doubt, ranges, True
    made = run(kernels.tabular.count_rule, task, extra, FREE, *data)
    np.testing.assert_allclose(made[1], v, atol=1e-12)


def test_backward_pass_over_kl_balls(rng):
    task, prob, reward, extra = problem(rng)
    radius = rng.uniform(0.0, 0.5, (H, S * A))

    def backup(h, pair, rows, ahead):
        p = prob[h][rows]
        if len(p) == 1:
            return reward[h][pair] + ahead[0]
        found = minimize(
            lambda q: -q @ ahead, p, jac=lambda q: -ahead, bounds=[(1e-9, 1)] * len(p),
            constraints=[
                {"type": "eq", "fun": lambda q: q.sum() - 1, "jac": np.ones_like},
                {"type": "ineq", "fun": lambda q: radius[h][pair] - p @ np.log(p / q),
                 "jac": lambda q: p / q},
            ],
            options={"ftol": 1e-12, "maxiter": 300},
        )  # fmt: skip
        return reward[h][pair] - found.fun

    _, v = reference(task, extra, *FREE, backup)
    data = prob, reward, radius, task.max_successors, False
    made = run(kernels.tabular.ball_rule, task, extra, FREE, *data)
    np.testing.assert_allclose(made[1], v, atol=1e-6)


def test_ties_are_broken_uniformly_by_the_shared_choice_of_actions(rng):
    """Through the L1 rule: three tied actions at each of 20 states and steps."""
    mdp = up.FiniteMDP.from_arrays(np.full((S, A, S), 1 / S), np.full((S, A), 0.5), H)
    task = mdp.true_task
    data = mdp.probability, task.reward_rows, np.zeros((1, S * A)), task.max_successors, True
    counts, seeds = np.zeros((A, H * S)), rng.integers(0, 2**63, 3000)
    for seed in seeds:
        policy, _, _ = run(
            kernels.tabular.ball_rule, task, np.empty((1, 0)), FREE, *data, seed=seed
        )
        counts[policy.ravel(), np.arange(H * S)] += 1
    chi2 = ((counts - len(seeds) / A) ** 2 / (len(seeds) / A)).sum()
    assert stats.chi2.sf(chi2, (A - 1) * H * S) > 1e-4


def test_evaluation_and_the_return_of_one_episode(rng):
    mdp = random_mdp(rng, S, A, H, per_step=True)
    task, environment = mdp.true_task, environment_structure(mdp)
    policy = rng.integers(0, A, (H, S)).astype(np.int8)
    expected = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        for s in range(S):
            pair = s * A + policy[h, s]
            rows = slice(task.indptr[pair], task.indptr[pair + 1])
            expected[h, s] = (
                at(mdp.reward_rows, h)[pair]
                + at(mdp.probability, h)[rows] @ (expected[h + 1][task.successors[rows]])
            )
    v, previous = np.zeros((H + 1, S)), np.full((H, S), -1, np.int8)
    assert kernels.planning.update_values(environment, policy, previous, v, 0, H, 0, S)
    np.testing.assert_allclose(v, expected, atol=1e-14)
    np.testing.assert_array_equal(previous, policy)
    # only steps up to the last difference are computed again
    changed = policy.copy()
    changed[1, 2] = (changed[1, 2] + 1) % A
    optimum, figures = rng.random(S), np.empty((3, 2))
    states, actions, rewards = np.empty((1, H + 1), int), np.empty((1, H), int), np.empty((1, H))
    uniforms = rng.random((1, H + 1))
    given = environment, optimum, changed, previous, v, uniforms, 0, 1
    v[2:] = 7.0  # which must not be touched
    assert kernels.episodes.play_episode(*given, states, actions, rewards, figures)
    assert (v[2:] == 7.0).all() and (previous == changed).all()
    states, actions, first = states[0], actions[0], states[0, 0]
    assert figures[:, 1] == pytest.approx([rewards.sum(), v[0, first], optimum[first]])
    for h in range(H):  # by inverse transform, within the successors of the pair
        assert actions[h] == changed[h, states[h]]
        rows = slice(*task.indptr[states[h] * A + actions[h] + np.arange(2)])
        ends = np.cumsum(at(mdp.probability, h)[rows])
        index = min(int(np.searchsorted(ends, uniforms[0, h + 1], "right")), len(ends) - 1)
        assert states[h + 1] == task.successors[rows][index]
    changed[0, 0] = A
    done = states[None], actions[None], rewards, figures
    assert not kernels.episodes.play_episode(*given, *done)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("n_rows", [1, H])  # sums over the steps, or what each step adds
def test_the_derivatives_of_a_value_are_finite_differences(rng, mixed, n_rows):
    task, prob, reward, extra = problem(rng)
    prob, reward, extra = prob[:1], reward[:1], extra[:1]
    features, start = rng.standard_normal((task.n_triples, 3)), rng.dirichlet(np.ones(S))
    available = task.available / task.available.sum(axis=1, keepdims=True)
    policy = np.tile(available.ravel(), (H, 1))
    if not mixed:
        policy = np.tile(np.where(task.available[:, 1], 1, 0), (H, 1))
    k = kernels.planning

    def value(p, policy=policy):
        shapes = (H + 1, S), (n_rows, task.n_triples), (n_rows, S * A), (n_rows, S * A * mixed)
        v, *derivatives = map(np.zeros, shapes)
        rows = task.indptr, task.successors, p, reward, extra
        k.differentiate(*rows, policy, mixed, start, v, *derivatives)
        return start @ v[0], derivatives

    _, (weight, occupancy, action_value) = value(prob)
    np.testing.assert_allclose(occupancy.sum(axis=1), H / n_rows)
    gradient = features.T @ weight.sum(axis=0)
    for j in range(3):
        step, shifted = np.eye(3)[j] * 1e-5, np.empty((2, task.n_triples))
        for sign, p in zip((1, -1), shifted, strict=True):
            p[:] = softmax(task.indptr, np.log(prob[0]) + features @ (sign * step))
        slope = (value(shifted[:1])[0] - value(shifted[1:])[0]) / 2e-5
        assert gradient[j] == pytest.approx(slope, abs=1e-8)
    if mixed:
        pair = int(np.flatnonzero(task.sizes)[3])
        up_, down = policy.copy(), policy.copy()
        up_[:, pair] += 1e-6
        down[:, pair] -= 1e-6
        slope = (value(prob, up_)[0] - value(prob, down)[0]) / 2e-6
        assert action_value[:, pair].sum() == pytest.approx(slope, rel=1e-5)


def test_extended_value_iteration_takes_the_best_model_of_an_l1_ball(rng):
    task, prob, _, extra = problem(rng)
    radius, values = rng.uniform(0, 1.5, S * A), extra[0] + rng.normal(size=S)[task.successors]
    chosen = np.empty(task.n_triples)
    kernels.tabular.choose_in_l1_balls(task.indptr, prob[0], radius, values, chosen)
    for pair in np.flatnonzero(task.sizes):
        at_pair = slice(task.indptr[pair], task.indptr[pair + 1])
        y, p = values[at_pair], prob[0][at_pair]
        order = np.argsort(y)
        moved, left = p.copy(), min(radius[pair] / 2, 1 - p[order[-1]])
        moved[order[-1]] += left
        for i in order[:-1]:
            taken = min(left, moved[i])
            moved[i] -= taken
            left -= taken
        np.testing.assert_allclose(chosen[at_pair], moved, atol=1e-14)
        assert abs(chosen[at_pair] - p).sum() <= radius[pair] + 1e-12
