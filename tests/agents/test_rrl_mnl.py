"""RRL-MNL against its formulas in plain NumPy, with the same normals."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play
from tests.mnl import plain_online as plain
from upriver.mnl import online


@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize(("n_samples", "alpha"), [(4, 0.03), (1, 2.0)])  # the latter clips
def test_plans_as_the_formulas_say(n_samples, alpha, per_step):
    mdp = up.envs.riverswim(4, horizon=5)
    task = mdp.task("local")
    features = up.features.shared(task)  # one block: samples are shared by all (s, a)
    phi = plain.dense(features)
    agent = up.agents.RRLMNL(
        task, features, radius=up.radii.constant_radius(alpha), kappa=0.3, n_samples=n_samples,
        theta_bound=1.5, per_step=per_step,
    )  # fmt: skip
    cap = np.full(5, 5.0)
    for episodes, state, _ in play(agent, mdp, 6):
        plan = agent.plan(state, np.random.default_rng(7))
        normals = np.random.default_rng(7).standard_normal((5, features.dimension, n_samples))
        cores = plain.run(plain.newton, features, episodes, 5 if per_step else 1, 1.0, 0.3, 1.5)

        def action_values(h, v, cores=cores, normals=normals):
            theta, matrix = cores[min(h, len(cores) - 1)]
            xi = 5 * alpha * np.linalg.solve(np.linalg.cholesky(matrix).T, normals[h])
            noise = np.zeros((4, 2))
            for s in range(4):
                for a in range(2):
                    x = phi[task.rows(s, a)]
                    norms = np.einsum("ui,ui->u", x, np.linalg.solve(matrix, x.T).T)
                    noise[s, a] = (x[norms.argmax()] @ xi).max()
            q = plain.backup(task, plain.prediction(features, theta), noise, v)
            return np.minimum(q, 5.0)

        check_plan(plan, action_values, cap)


def test_a_singleton_gets_no_noise_and_samples_default_to_the_theory():
    task = up.envs.riverswim(4, horizon=12).task("known")
    agent = up.agents.RRLMNL(task, up.features.one_hot(task), radius=0.1)
    assert online.theory_samples(task.horizon) == 16
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    assert plan.q(11)[:, 0] == pytest.approx(task.reward[:, 0])
    assert (plan.q(11)[:, 1] != task.reward[:, 1]).all()


def test_bad_inputs_are_named():
    task = up.envs.riverswim(4, horizon=5).task()
    features = up.features.one_hot(task)
    with pytest.raises(ValueError, match="n_samples is 0"):
        up.agents.RRLMNL(task, features, n_samples=0)
    with pytest.raises(ValueError, match="kappa is -1"):
        up.agents.RRLMNL(task, features, kappa=-1)
    with pytest.raises(ValueError, match="theta_bound is 0"):
        up.agents.RRLMNL(task, features, theta_bound=0)
    with pytest.raises(ValueError, match="features were made for"):
        up.agents.RRLMNL(up.envs.riverswim(4, horizon=5).task("full"), features)
