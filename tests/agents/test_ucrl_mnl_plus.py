"""UCRL-MNL+ and UCRL-MNL-OL against their formulas in plain NumPy."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play
from tests.mnl import plain_online as plain

SECOND = {up.agents.UCRLMNLPlus: 3.0, up.agents.UCRLMNLOL: 2.5}


@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("beta", [0.02, 1.0])  # 1.0 saturates: what is clipped is seen
@pytest.mark.parametrize("kind", SECOND)
def test_plans_as_the_formulas_say(kind, beta, per_step):
    mdp = up.envs.riverswim(4, horizon=5)
    task = mdp.task("local")
    features = up.features.one_hot(task)
    agent = kind(
        task, features, radius=up.radii.constant_radius(beta), step_size=0.8, theta_bound=1.5,
        regularization=0.5, per_step=per_step,
    )  # fmt: skip
    cap = np.full(5, 5.0)
    for episodes, _, plan in play(agent, mdp, 6):
        cores = plain.run(plain.mirror, features, episodes, 5 if per_step else 1, 0.5, 0.8, 1.5)

        def action_values(h, v, cores=cores):
            theta, matrix = cores[min(h, len(cores) - 1)]
            bonus = plain.local_bonus(features, theta, matrix, 5 * beta, SECOND[kind] * 5 * beta**2)
            q = plain.backup(task, plain.prediction(features, theta), bonus, v)
            return np.clip(q, 0.0, 5.0) if kind is up.agents.UCRLMNLOL else q

        check_plan(plan, action_values, cap)


def test_both_are_one_estimator():
    mdp = up.envs.riverswim(4, horizon=8)
    task = mdp.task("known")
    features = up.features.one_hot(task)
    agents = [kind(task, features, radius=0.0) for kind in SECOND]
    one, two = (up.simulate(mdp, agent, 20, seed=1) for agent in agents)
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.state.model.theta, two.state.model.theta)


def test_optimism_holds_where_the_truth_is_in_the_ellipsoid(rng):
    """Q of the plan is at least Q* at every step when ||theta - theta*||_B <= beta."""
    mdp = up.envs.riverswim(4, horizon=8)
    task = mdp.task("known")
    features = up.features.one_hot(task)
    phi = plain.dense(features)
    log_p = np.log(mdp.probability[0])
    first = np.repeat(task.indptr[:-1], task.sizes)
    truth = np.linalg.lstsq(phi - phi[first], log_p - log_p[first], rcond=None)[0]
    best = up.solve(mdp)
    plays = play(up.agents.UCRLMNLPlus(task, features), mdp, 12)
    for _, state, _ in plays:
        beta = 0.0
        for c in range(8):
            matrix = up.mnl.likelihood.from_blocks(features, state.model.matrix[c])
            gap = state.model.theta[c] - truth
            beta = max(beta, float(np.sqrt(gap @ (matrix @ gap))))
        agent = up.agents.UCRLMNLPlus(task, features, radius=up.radii.constant_radius(beta))
        plan = agent.plan(state, rng)
        for h in range(8):
            assert (plan.q(h) >= best.q(h) - 1e-9).all()
