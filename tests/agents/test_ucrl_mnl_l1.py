"""UCRL-MNL-L1 against a linear program for every (s, a), and what its polytope promises."""

import numpy as np
import pytest
from scipy.optimize import linprog

import upriver as up
from tests.agents.plain import check_plan, play
from tests.mnl import plain_online as plain


def best_expectation(p, values, size):
    """max of q @ values over distributions q with ||q - p||_1 <= size, by a linear program."""
    n = len(p)
    eye = np.eye(n)
    above = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, n)), np.ones((1, n))]])
    limits = np.concatenate([p, -p, [size]])
    total = np.concatenate([np.ones(n), np.zeros(n)])[None]
    solved = linprog(np.concatenate([-values, np.zeros(n)]), above, limits, total, [1.0])
    return -solved.fun


@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("beta", [0.2, 50.0])
def test_plans_as_a_linear_program_says(beta, per_step):
    mdp = up.envs.riverswim(4, horizon=4)
    task = mdp.task("local")
    features = up.features.one_hot(task)
    agent = up.agents.UCRLMNLL1(
        task, features, radius=up.radii.constant_radius(beta), per_step=per_step
    )
    for episodes, _, plan in play(agent, mdp, 4):
        cores = plain.run(
            plain.mirror, features, episodes, 4 if per_step else 1, 1.0, agent.step_size, np.inf
        )

        def action_values(h, v, cores=cores):
            theta, matrix = cores[min(h, len(cores) - 1)]
            size = beta * np.sqrt(plain.local_bonus(features, theta, matrix, 0.0, 1.0))
            prob = plain.prediction(features, theta)
            q = task.reward.copy()
            for s in range(4):
                for a in range(2):
                    rows = task.rows(s, a)
                    q[s, a] += best_expectation(prob[rows], v[task.successors[rows]], size[s, a])
            return q

        check_plan(plan, action_values, np.full(4, np.inf))


def test_values_need_no_clip():
    """However large the radius, V_h is at most the number of steps left."""
    task = up.envs.riverswim(5, horizon=10).task("full")
    agent = up.agents.UCRLMNLL1(
        task, up.features.one_hot(task), radius=up.radii.constant_radius(1e6)
    )
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    assert (plan.v <= np.arange(10, -1, -1)[:, None] + 1e-12).all()
    assert plan.v[0, 0] > 5


def test_two_cores_differ_by_at_most_the_largest_logit(rng):
    """||P_theta - P_theta*||_1 <= max |varphi^T (theta - theta*)|: why the set holds the truth."""
    features = up.features.one_hot(up.envs.riverswim(4, horizon=4).task("full"))
    task, phi = features.task, plain.dense(features)
    for scale in (0.01, 0.3, 3.0):
        theta, other = scale * rng.normal(size=(2, features.dimension))
        change = np.abs(plain.prediction(features, theta) - plain.prediction(features, other))
        for g in range(len(task.sizes)):
            rows = slice(task.indptr[g], task.indptr[g + 1])
            assert change[rows].sum() <= np.abs(phi[rows] @ (theta - other)).max() + 1e-12
