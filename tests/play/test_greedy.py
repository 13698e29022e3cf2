"""What was learned, without optimism: greedy policies and fitted models of runs."""

import numpy as np
import pytest

import upriver as up
from tests.building import from_rows
from upriver.agents.base import Episode
from upriver.planning import start_value


@pytest.mark.parametrize("name", ["UCRLMNL", "UCRLMNLSE", "PSRL", "UCRL2", "UCBVI", "RRLMNL"])
@pytest.mark.parametrize("unknown", [False, True])
def test_the_greedy_policy_is_the_optimum_of_the_estimates(name, unknown):
    mdp = up.envs.riverswim(4, 12)
    task = mdp.task("local").with_unknown_reward() if unknown else mdp.task("local")
    make = getattr(up.agents, name)
    learns_features = "features" in make.__dataclass_fields__
    agent = make(task, up.features.one_hot(task)) if learns_features else make(task)
    run = up.simulate(mdp, agent, 300, seed=1)
    value = start_value(mdp, up.evaluate(mdp, run.greedy_policy))
    assert value >= 0.97 * start_value(mdp, up.solve(mdp).v)


def test_an_action_that_was_never_tried_is_not_greedy():
    """Action 1 was never played: optimism would try it, the greedy policy would not."""
    mdp = from_rows({(0, a): {0: 1.0} for a in range(2)}, {(0, 0): 0.3, (0, 1): 0.9}, 5)
    task = mdp.true_task.with_unknown_reward()
    agent = up.agents.UCRLMNLSE(task, up.features.one_hot(task))
    state, plan = agent.init(), agent.plan(agent.init(), np.random.default_rng(0))
    zeros = np.zeros(5, np.int64)
    state = agent.update(state, plan, Episode(np.zeros(6, np.int64), zeros, zeros + 0.3))
    assert (agent.plan(state, np.random.default_rng(0)).policy[:, 0] == 1).all()
    run = up.simulate(mdp, agent, 1)._replace(state=state)
    assert (run.greedy_policy.actions == 0).all()


def test_the_model_of_a_run_is_the_fit_of_its_counts():
    mdp = up.envs.riverswim(5, 15)
    task = mdp.task("local")
    agent = up.agents.UCRLMNL(task, up.features.shared(task), radius=1e-3)
    run = up.simulate(mdp, agent, 40, seed=0)
    expected = up.fit_mnl(agent.features, run.state.model.counts[0], agent.regularization)
    np.testing.assert_allclose(run.model.theta, expected.theta)
    np.testing.assert_allclose(run.model.theta, run.state.model.theta[0], atol=1e-5)
    assert "observations" in str(run.model.summary())
    with pytest.raises(ValueError, match="UCRL2 keeps no counts for an MNL model"):
        _ = up.simulate(mdp, up.agents.UCRL2(task), 3).model


def test_pooled_features_keep_the_spread_of_the_run():
    mdp = up.envs.riverswim(5, 15)
    agent = up.agents.UCRLMNLSE(mdp.task("local"))
    run = up.simulate(mdp, agent, 40, seed=0)
    assert run.model.features.spread == run.state.model.spread
    stream = up.envs.riverswim(5).infinite_horizon(0.9)
    task = stream.task("local")
    run = up.simulate(stream, up.agents.UCRLMNLSE(task), n_steps=2_000, seed=0)
    assert run.greedy_policy.act(4) == "right"


def test_the_model_of_a_run_has_the_ridge_and_the_units_of_the_agent():
    """Columns in other units are divided by their range before the ridge, whatever these are."""
    mdp = up.envs.riverswim(5, 15)
    task = mdp.task("local")
    shared = up.features.shared(task)
    scale = np.geomspace(0.01, 100.0, shared.dimension)
    features = up.features.Features(task, shared.matrix * scale)
    for given, spread in ((features, 0.0), (up.features.pooled(features, 0.5), 0.5)):
        run = up.simulate(mdp, up.agents.UCRLMNLSE(task, given), 30, seed=0)
        model, m = run.model, features.dimension
        prob = [row["probability"] for row in model.transitions(2, "right")]
        np.testing.assert_allclose(prob, run.state.model.prob[0][task.rows_of(2, "right")], 1e-5)
        plain = shared if not spread else up.features.pooled(shared, spread)
        expected = up.fit_mnl(plain, run.state.model.counts[0], 1.0)
        np.testing.assert_allclose(model.theta[:m] * scale, expected.theta[:m], atol=1e-6)
        np.testing.assert_allclose(model.standard_errors * scale, expected.standard_errors, 1e-6)
        np.testing.assert_allclose(np.diag(model.cov_params()), model.standard_errors**2, 1e-6)
        rows, other = model.transitions(2, "right"), expected.transitions(2, "right")
        errors = [[row["standard_error"] for row in x] for x in (rows, other)]
        np.testing.assert_allclose(*errors, rtol=1e-5)
        assert model.summary().count("warning") == expected.summary().count("warning")
    agent = up.agents.UCRLMNL(task, shared, regularization=lambda k: 3.0 + k)
    run = up.simulate(mdp, agent, 10, seed=0)
    assert run.model.regularization == 14.0
    np.testing.assert_allclose(run.model.theta, run.state.model.theta[0], atol=1e-5)


def test_pairs_with_equal_rows_share_a_greedy_estimate():
    """Both actions have the same rows: what was seen of one is believed of the other."""
    p = [[[0.9, 0.1], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]]]
    mdp = up.FiniteMDP.from_arrays(p, [[0.1, 0.0], [1.0, 1.0]], 4)
    task = mdp.task()
    features = up.features.from_function(task, lambda s, a, s2: [s2 * (s == 0), s2 * (s == 1)])
    agent = up.agents.UCRLMNLLR(task, features)
    state, plan = agent.init(), agent.plan(agent.init(), np.random.default_rng(0))
    zeros = np.zeros(4, np.int64)
    state = agent.update(state, plan, Episode(np.zeros(5, np.int64), zeros, zeros + 0.0))
    run = up.simulate(mdp, agent, 1)._replace(state=state)
    assert (run.greedy_policy.actions[:, 0] == 0).all()  # a uniform row would be worth .5
