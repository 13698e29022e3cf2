"""Learning in factored problems: posterior draws, exploration, the same numbers everywhere."""

import numpy as np
import pytest
from studies.factored_problems import switches

import upriver as up
from tests.factored.problems import ring
from tests.factored.test_rollouts import exact_value, start_of


def climb(x, h):
    """Press the first switch that is off."""
    for i in range(x.shape[0]):
        if x[i] == 0:
            return i + 1
    return 0


def test_the_estimate_is_that_of_all_transitions_played():
    net = ring(4, 3, features=True)
    agent = up.agents.FactoredGreedy(net.task(), scenarios=4, depth=3, base=0)
    run = up.simulate(net, agent, n_episodes=6, seed=3)
    states = np.concatenate([e.states[:-1] for e in run.episodes])
    after = np.concatenate([e.states[1:] for e in run.episodes])
    counts = net.count(states, np.concatenate([e.actions for e in run.episodes]), after)
    fitted = up.fit_mnl(up.features.components(net), counts)
    np.testing.assert_allclose(run.model.theta, fitted.theta, atol=1e-10)
    assert run.state.k == 7 and "standard errors" in run.model.summary()
    logits = run.greedy_policy.problem.logits
    np.testing.assert_allclose(logits[net.support], net.matrix @ run.model.theta)
    assert run.returns == pytest.approx([e.rewards.sum() for e in run.episodes])
    again = up.simulate(net, agent, n_episodes=3, seed=3)
    np.testing.assert_array_equal(again.returns, run.returns[:3])


def test_draws_have_the_moments_of_the_laplace_posterior():
    net = ring(4, 3, features=True)
    agent = up.agents.FactoredPSRL(net.task(), base=0)
    run = up.simulate(net, agent, n_episodes=2, seed=0)
    rng = np.random.default_rng(0)
    draws = np.array([agent.choose_theta(run.model, rng) for _ in range(4000)])
    covariance = np.linalg.inv(run.model.information)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert (np.abs(draws.mean(axis=0) - run.model.theta) < 4 * error).all()
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.1 * np.abs(covariance).max())


def test_draws_find_the_row_of_switches_and_greed_does_not():
    """Of 20 runs of 40 episodes, posterior draws are at the optimum in at least 19."""
    net = switches(4)
    mdp = net.to_finite()
    best, task = float(up.solve(mdp).v[0] @ start_of(mdp)), net.task()

    def count_optimal(kind):
        agent = kind(task, base=climb, depth=12, regularization=0.25)
        runs = [up.simulate(net, agent, n_episodes=40, seed=seed) for seed in range(20)]
        return sum(exact_value(net, mdp, run.greedy_policy) > 0.99 * best for run in runs)

    draws, greedy = count_optimal(up.agents.FactoredPSRL), count_optimal(up.agents.FactoredGreedy)
    print(f"at the optimum: draws {draws} of 20, greedy {greedy} of 20")
    assert draws >= 19 and greedy <= 5


def test_learning_through_reset_and_step():
    """The environment tells only vectors; its estimate is as good as that of a simulation."""
    net = ring(4, 3)
    agent = up.agents.FactoredPSRL(net.task(), scenarios=4, depth=3, base=0)
    run = up.learn(up.envs.to_gymnasium(net), agent, n_episodes=30, seed=1)
    true = net.logits - net.logits[:, :1]
    error = np.abs(run.model.theta - true[:, 1:].ravel()) / run.model.standard_errors
    assert error.max() < 4.5  # the ridge adds a little
    assert len(run.returns) == 30 and run.episodes[0].states.shape == (13, 4)


def test_a_policy_is_played_by_simulate_as_it_is_evaluated():
    net = ring(4, 3)
    policy = up.rollout_policy(net, 4, 3, base=1)
    run = up.simulate(net, policy, n_episodes=5, seed=4)
    np.testing.assert_array_equal(run.returns, up.evaluate(net, policy, 5, seed=4).returns)
    assert run.model is None and run.policy is policy


def test_bad_agents_get_one_sentence():
    net = ring(4, 3)
    for arguments, sentence in (
        ({"regularization": 0.0}, "regularization is 0"),
        ({"scenarios": -1}, "scenarios is -1"),
        ({"base": 9}, "base 9 is unknown"),
    ):
        with pytest.raises(ValueError, match=sentence):
            up.agents.FactoredPSRL(net.task(), **arguments)
    agent = up.agents.FactoredPSRL(net.task())
    with pytest.raises(ValueError, match="n_values"):
        up.simulate(ring(3, 3), agent, n_episodes=1)
    with pytest.raises(ValueError, match="no logits"):
        up.simulate(net.task(), agent, n_episodes=1)
    with pytest.raises(ValueError, match="no parameter"):
        fixed = up.FactoredMDP([0], 1, 1, lambda x, a, i: 0, 1, lambda x, a: 0.0, 3, [[0.0]])
        up.features.components(fixed)


def test_arguments_without_a_meaning_are_refused():
    net = ring(4, 3)
    agent = up.agents.FactoredPSRL(net.task(), scenarios=4, depth=3, base=0)
    with pytest.raises(ValueError, match="n_steps is 5; it is not for factored problems"):
        up.simulate(net, agent, n_steps=5)
    with pytest.raises(ValueError, match="end is 3; it is not for agents of factored problems"):
        up.learn(up.envs.to_gymnasium(net), agent, n_episodes=1, end=3)
    with pytest.raises(ValueError, match=r"discount is 0.9; it is not for factored problems"):
        up.evaluate(net, 0, 3, discount=0.9)
    with pytest.raises(ValueError, match="n_episodes is 3; it is not for problems whose values"):
        up.evaluate(net.to_finite(), np.zeros(81, int), 3)
