"""UCRL-MNL-LL against its formulas in plain NumPy and a general minimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

import upriver as up
from tests.agents.plain import check_plan, play
from tests.mnl import plain_online as plain


def fit(features, transitions, lam):
    """(theta_hat, lambda I + sum of Hessians) by a general minimiser over the list of samples."""
    phi = plain.dense(features)

    def loss(theta):
        value, slope = 0.5 * lam * theta @ theta, lam * theta
        for rows, row in transitions:
            value -= np.log(plain.softmax(phi[rows] @ theta)[row])
            slope = slope + plain.sample_terms(phi[rows], theta, row)[0]
        return value, slope

    d = features.dimension
    theta = minimize(loss, np.zeros(d), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    hessians = [plain.sample_terms(phi[rows], theta, row)[1] for rows, row in transitions]
    return theta, lam * np.eye(d) + sum(hessians)


@pytest.mark.parametrize("kind", ["one_hot", "shared"])
@pytest.mark.parametrize("per_step", [True, False])
def test_plans_as_the_formulas_say(per_step, kind):
    mdp = up.envs.riverswim(4, horizon=4)
    task = mdp.task("local")
    features = getattr(up.features, kind)(task)
    beta = 0.05
    agent = up.agents.UCRLMNLLL(
        task, features, radius=up.radii.constant_radius(beta), regularization=0.5, per_step=per_step
    )
    cap = np.full(4, 4.0)
    for episodes, state, plan in play(agent, mdp, 5):
        cores = []
        for c in range(4 if per_step else 1):
            transitions = []
            for episode in episodes:
                for h in [c] if per_step else range(4):
                    rows = task.rows(int(episode.states[h]), int(episode.actions[h]))
                    row = list(task.successors[rows]).index(episode.states[h + 1])
                    transitions.append((rows, row))
            cores.append(fit(features, transitions, 0.5))
            logdet = np.linalg.slogdet(cores[-1][1])[1]
            assert state.model.logdet[c].sum() == pytest.approx(logdet, abs=1e-5)

        for h in range(4):
            theta, matrix = cores[min(h, len(cores) - 1)]
            bonus = plain.local_bonus(features, theta, matrix, 4 * beta, 2.5 * 4 * beta**2)
            q = plain.backup(task, plain.prediction(features, theta), bonus, plan.v[h + 1])
            assert plan.q(h) == pytest.approx(np.clip(q, 0.0, 4.0), abs=1e-5)
        check_plan(plan, lambda h, v, plan=plan: plan.q(h), cap)


def test_the_local_norm_is_wider_than_that_of_the_gram_matrix():
    """The Hessian is at most the Gram matrix, so widths grow, and curvature counts."""
    mdp = up.envs.riverswim(4, horizon=12)
    task = mdp.task("local")
    features = up.features.one_hot(task)
    local = up.simulate(mdp, up.agents.UCRLMNLLL(task, features, per_step=False), 50, seed=3).state
    gram = up.agents.UCRLMNL(task, features).init().model
    gram = gram._replace(counts=local.model.counts, theta=local.model.theta.copy())
    up.mnl.model.bring_up_to_date(
        features, gram, np.empty(0, int), np.empty(0, int), True, local=False
    )
    assert gram.theta == pytest.approx(local.model.theta, abs=1e-6)
    visited = gram.max_norm < gram.max_norm.max() - 1e-9
    assert (local.model.max_norm[visited] > gram.max_norm[visited]).all()


def test_bad_inputs_are_named():
    task = up.envs.riverswim(4, horizon=5).task()
    with pytest.raises(ValueError, match="regularization is 0"):
        up.agents.UCRLMNLLL(task, up.features.one_hot(task), regularization=0)


def test_q_is_cut_at_the_horizon_where_the_bonus_is_boundless():
    """A saturating beta: every unsure Q is H, at every step, and none is above."""
    task = up.envs.riverswim(4, horizon=5).task("local")
    agent = up.agents.UCRLMNLLL(
        task, up.features.one_hot(task), radius=up.radii.constant_radius(1e3)
    )
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    for h in range(5):
        assert plan.q(h) == pytest.approx(5.0)
    assert plan.v[:5] == pytest.approx(5.0)
    assert len(np.unique(plan.policy)) == 2  # all tied


def test_the_exact_maximum_lies_between_greedy_and_the_closed_bonus():
    """Also for a set in the local norm: step by step, with the next values of the same plan."""
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task("local")
    fields = {"features": up.features.one_hot(task), "radius": up.radii.constant_radius(0.3)}
    exact = up.agents.UCRLMNLLL(task, **fields, exact=True)
    inside = 0
    for _, state, plan in play(exact, mdp, 15):
        for h in range(6):
            model, v = state.model, plan.v[h + 1]
            greedy = plain.backup(task, model.prob[h], 0.0, v)
            assert (plan.q(h) >= greedy - 1e-9).all()
            first = up.mnl.online.local_bonus(task, model, 6 * 0.3, 2.5 * 6 * 0.3**2)[h]
            assert (plan.q(h) <= greedy + first.reshape(4, 2) + 1e-9).all()
            inside += int((plan.q(h) > greedy + 1e-6).sum())
    assert inside > 100
