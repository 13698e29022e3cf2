"""PSRL-MNL: its draws scatter as the posterior says, and its plan is the optimum of the draw."""

import numpy as np
import pytest

import upriver as up
from tests.mnl import plain_online as plain
from upriver.mnl import likelihood
from upriver.mnl.model import sample


def learned(per_step=False, **fields):
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task("local")
    agent = up.agents.PSRLMNL(task, up.features.shared(task), per_step=per_step, **fields)
    return mdp, agent, up.simulate(mdp, agent, 30, seed=1).state


@pytest.mark.parametrize("per_step", [False, True])
def test_the_plan_is_the_optimum_of_the_drawn_model(per_step):
    _, agent, state = learned(per_step)
    theta = sample(agent.features, state.model, np.random.default_rng(7))
    plan = agent.plan(state, np.random.default_rng(7))
    v = np.zeros(4)
    for h in reversed(range(6)):
        prob = plain.prediction(agent.features, theta[min(h, len(theta) - 1)])
        q = plain.backup(agent.task, prob, 0.0, v)
        assert plan.q(h) == pytest.approx(q)
        v = q.max(axis=1)
        assert plan.v[h] == pytest.approx(v)


def test_draws_have_the_covariance_of_the_laplace_posterior(monkeypatch):
    _, agent, state = learned(inflation=4.0)
    model, seen = state.model, []
    inverse = np.linalg.inv(
        likelihood.hessian(agent.features, model.theta[0], model.counts[0], 1.0)
    )
    monkeypatch.setattr(
        "upriver.agents.psrl_mnl.probabilities",
        lambda features, core: seen.append(core) or likelihood.probabilities(features, core),
    )
    rng = np.random.default_rng(3)
    for _ in range(4000):
        agent.plan(state, rng)
    scatter = np.cov(np.array(seen).T)
    size = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    assert scatter / size == pytest.approx(4.0 * inverse / size, abs=0.4)
    assert np.mean(seen, axis=0) == pytest.approx(model.theta[0], abs=0.15)


def test_unknown_rewards_are_drawn():
    mdp = up.FiniteMDP.from_arrays(np.ones((1, 2, 1)), [[0.25, 0.75]], 1)
    task = mdp.true_task.with_unknown_reward()
    run = up.simulate(mdp, up.agents.PSRLMNL(task, up.features.one_hot(task)), 60, seed=0)
    assert run.values[-10:].mean() > 0.7
    assert 0.25 in run.values  # it tried both


@pytest.mark.slow
@pytest.mark.parametrize("name", ["riverswim-6", "riverswim-20", "deep-sea-10", "river-grid-6"])
def test_it_learns_with_shared_features(name):
    mdp = up.envs.make(name)
    task = mdp.task("local")
    agent = up.agents.PSRLMNL(task, up.envs.find(name).shared(task))
    runs = [up.simulate(mdp, agent, 200, seed=seed) for seed in range(20)]
    assert np.mean([run.regret.sum() / run.optimal_values[0] for run in runs]) < 8.0


def test_bad_inputs_are_named():
    task = up.envs.riverswim(4, horizon=5).task()
    with pytest.raises(ValueError, match="inflation is 0"):
        up.agents.PSRLMNL(task, up.features.one_hot(task), inflation=0)
