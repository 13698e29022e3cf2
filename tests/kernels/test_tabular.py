"""The kernels of the tabular learners against linear programs and plain NumPy."""

import numpy as np
import pytest
from scipy.optimize import linprog

from upriver import envs, kernels
from upriver.planning import Clip, run_backward_pass


def l1_maximum(values, p, radius):
    """max p' . values over the simplex and the ball, as a linear program in (p', |p' - p|)."""
    n = len(p)
    eye = np.eye(n)
    answer = linprog(
        np.concatenate([-values, np.zeros(n)]),
        A_ub=np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, n)), np.ones((1, n))]]),
        b_ub=np.concatenate([p, -p, [radius]]),
        A_eq=np.concatenate([np.ones(n), np.zeros(n)])[None],
        b_eq=[1.0],
        bounds=(0, None),
    )
    return -answer.fun


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.7, 1.5, 2.0, 5.0])
def test_inner_maximum_is_the_linear_program(radius):
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 6):
        p = rng.dirichlet(np.full(n, 0.5))
        values = rng.random(n).round(1)  # with ties
        chosen = p.copy()
        got = kernels.tabular.maximize_in_l1_ball(values, n, radius, chosen)
        assert got == pytest.approx(l1_maximum(values, p, radius), abs=1e-8)
        assert got == pytest.approx(chosen @ values, abs=1e-12)
        assert chosen.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.abs(chosen - p).sum() <= radius + 1e-12


def test_inner_maximum_by_hand():
    # 0.1 of mass moves from value 0 to value 2, as far as it is there; the rest from value 1.
    values, p = np.array([0.0, 1.0, 2.0]), np.array([0.05, 0.5, 0.45])
    got = kernels.tabular.maximize_in_l1_ball(values, 3, 0.2, p)
    assert got == pytest.approx(0.45 * 1.0 + 0.55 * 2.0)


@pytest.mark.parametrize("support", ["known", "local", "full"])
@pytest.mark.parametrize("per_step", [False, True])
def test_backward_pass_is_backward_induction_over_the_balls(support, per_step):
    task = envs.riverswim(4, horizon=3).task(support)
    rng = np.random.default_rng(2)
    steps = 3 if per_step else 1
    prob = rng.random((steps, task.n_triples))
    prob /= np.repeat(np.add.reduceat(prob, task.indptr[:-1], axis=1), task.sizes, axis=1)
    radius = rng.uniform(0, 1.2, (steps, 8))
    cap = np.array([1.6, 1.5, 1.0])
    plan = run_backward_pass(
        task, kernels.tabular.ball_rule,
        (prob, task.reward_rows, radius, task.max_successors, True),
        Clip(-np.inf, np.array([np.inf]), cap), np.uint64(7), next_state_reward=False,
    )  # fmt: skip
    expected = np.zeros(4)
    for h in (2, 1, 0):
        at = h if per_step else 0
        table = np.empty((4, 2))
        for s in range(4):
            for a in range(2):
                rows = task.rows(s, a)
                table[s, a] = task.reward[s, a] + l1_maximum(
                    expected[task.successors[rows]], prob[at, rows], radius[at, s * 2 + a]
                )
        expected = np.minimum(table.max(axis=1), cap[h])
        assert plan.v[h] == pytest.approx(expected, abs=1e-7)
        best = np.isclose(table, table.max(axis=1, keepdims=True), atol=1e-7)
        assert best[np.arange(4), plan.policy[h]].all()
        assert plan.q(h) == pytest.approx(table, abs=1e-7)


def test_a_better_successor_that_was_not_seen_takes_the_mass_that_is_left():
    """p = (1, 0): the least q of the first successor has -log q = radius."""
    found = kernels.tabular.maximize_in_kl_ball(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 2, 0.3)
    assert found == pytest.approx(1.0 - np.exp(-0.3))
