"""ORRL-MNL against its formulas in plain NumPy, with the same normals."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play
from tests.mnl import plain_online as plain
from upriver.mnl import online


@pytest.mark.parametrize("per_step", [True, False])
def test_plans_as_the_formulas_say(per_step):
    mdp = up.envs.riverswim(4, horizon=5)
    task = mdp.task("local")
    features = up.features.shared(task)  # one block: samples are shared by all (s, a)
    phi, beta = plain.dense(features), 0.03
    agent = up.agents.ORRLMNL(
        task, features, radius=up.radii.constant_radius(beta), step_size=0.8, n_samples=4,
        theta_bound=1.5, per_step=per_step,
    )  # fmt: skip
    cap = np.full(5, 5.0)
    for episodes, state, _ in play(agent, mdp, 6):
        plan = agent.plan(state, np.random.default_rng(7))
        normals = np.random.default_rng(7).standard_normal((5, features.dimension, 4))
        cores = plain.run(plain.mirror, features, episodes, 5 if per_step else 1, 1.0, 0.8, 1.5)

        def action_values(h, v, cores=cores, normals=normals):
            theta, matrix = cores[min(h, len(cores) - 1)]
            xi = 5 * beta * np.linalg.solve(np.linalg.cholesky(matrix).T, normals[h])
            prob = plain.prediction(features, theta)
            bonus = plain.local_bonus(features, theta, matrix, 0.0, 3 * 5 * beta**2)
            for s in range(4):
                for a in range(2):
                    rows = task.rows(s, a)
                    centred = phi[rows] - prob[rows] @ phi[rows]
                    bonus[s, a] += prob[rows] @ (centred @ xi).max(axis=1)
            return np.minimum(plain.backup(task, prob, bonus, v), 5.0)

        check_plan(plan, action_values, cap)


def test_one_sample_explores_by_the_second_order_term_alone():
    """With M = 1 the random part is zero, so two generators plan alike but for ties."""
    task = up.envs.riverswim(4, horizon=12).task("local")
    features = up.features.one_hot(task)
    one = up.agents.ORRLMNL(task, features, radius=0.01, n_samples=1)
    values = [one.plan(one.init(), np.random.default_rng(seed)).v for seed in (0, 1)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    many = up.agents.ORRLMNL(task, features, radius=0.01)
    assert online.theory_samples(task.horizon * task.max_successors) == 22
    values = [many.plan(many.init(), np.random.default_rng(seed)).v for seed in (0, 1)]
    assert np.abs(values[0] - values[1]).max() > 1e-3


def test_bad_inputs_are_named():
    task = up.envs.riverswim(4, horizon=5).task()
    features = up.features.one_hot(task)
    with pytest.raises(ValueError, match=r"n_samples is 1\.5"):
        up.agents.ORRLMNL(task, features, n_samples=1.5)
    with pytest.raises(ValueError, match="step_size is 0"):
        up.agents.ORRLMNL(task, features, step_size=0)
    with pytest.raises(ValueError, match="radius is -1"):
        up.agents.ORRLMNL(task, features, radius=-1)
