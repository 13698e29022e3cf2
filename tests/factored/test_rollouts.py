"""Rollouts against the exact optimum, and what simulated values promise."""

import threading

import numpy as np
import pytest
from studies.factored_problems import joint_inventory, maintenance, switches

import upriver as up
from tests.factored.problems import not_twice, random_problem, ring, ring_kind, sum_reward
from upriver.planning.rollouts import simulate_policy


def exact_value(net, mdp, policy):
    """Return the exact value of a policy that acts on states, by listing all that it does."""
    task = mdp.true_task
    number = task.action_names.number
    table = [[number(policy.act(s, h)) for s in task.states] for h in range(net.horizon)]
    return float(up.evaluate(mdp, np.array(table))[0] @ start_of(mdp))


def start_of(mdp):
    weights = np.zeros(mdp.n_states)
    weights[mdp.initial_states] = mdp.initial_probability
    return weights


def test_rollouts_are_near_the_optimum_of_random_problems():
    """Within 3% of the optimum in the mean over 30 problems; none is worse than its base.

    The scale is what the best constant action leaves to be gained, or the optimum, as the bar says.
    """
    shares = []
    for seed in range(30):
        net = random_problem(seed)
        mdp = net.to_finite()
        policy = up.rollout_policy(net)
        best = float(up.solve(mdp).v[0] @ start_of(mdp))
        found = exact_value(net, mdp, policy)
        base = exact_value(
            net, mdp, up.planning.rollouts.RolloutPolicy(net, 0, base=policy.constant)
        )
        assert found <= best + 1e-9
        assert found >= base - 0.01 * abs(best), seed
        shares.append((best - found) / abs(best))
    print("lost", np.round(shares, 4), "mean", np.mean(shares))
    assert np.mean(shares) <= 0.03


def test_evaluation_agrees_with_the_exact_value():
    """Within four standard errors, for an action and for rollouts."""
    for net in (ring(3, 2), ring(3, 3), joint_inventory((1.0, 2.0), shelf=4, horizon=10)):
        mdp = net.to_finite()
        for policy in (1, up.rollout_policy(net, 10, 4, base=0)):
            value = up.evaluate(net, policy, 2000, seed=4)
            as_rollouts = policy if policy != 1 else up.planning.rollouts.as_policy(net, 1)
            exact = exact_value(net, mdp, as_rollouts)
            assert abs(value.mean - exact) < 4 * value.standard_error


def test_a_discounted_problem():
    net = up.FactoredMDP(
        np.zeros(3), 2, 4, ring_kind, 3, sum_reward, None, ring(3, 2).logits, discount=0.9
    )
    mdp = net.to_finite()
    value = up.evaluate(net, 2, 4000, seed=0)
    exact = up.evaluate(mdp, np.full(mdp.n_states, 2)).v @ start_of(mdp)
    assert abs(value.mean - exact) < 4 * value.standard_error
    best = up.solve(mdp)
    policy = up.rollout_policy(net, depth=15)
    table = np.array([policy.act(s) for s in mdp.true_task.states])
    found = up.evaluate(mdp, table).v @ start_of(mdp)
    assert 0.97 * (best.v @ start_of(mdp)) <= found <= best.v @ start_of(mdp) + 1e-6


def test_the_policy_is_a_function_of_state_and_step():
    net = ring(4, 2)
    one, other = (up.rollout_policy(net, 8, 4, base=0, seed=s) for s in (0, 0))
    states = np.random.default_rng(0).integers(2, size=(20, 4))
    assert [one.act(x, 3) for x in states] == [other.act(x, 3) for x in states]
    played = up.simulate(net, one, n_episodes=5, seed=2)
    for episode in played.episodes:
        acts = [one.act(x, h) for h, x in enumerate(episode.states[:-1])]
        assert acts == episode.actions.tolist()


def test_threads_and_the_number_of_episodes_change_nothing(monkeypatch):
    net = ring(4, 2)
    policy = up.rollout_policy(net, 8, 4, base=0)
    all_at_once = up.evaluate(net, policy, 40, seed=1).returns
    few = up.evaluate(net, policy, 7, seed=1).returns
    np.testing.assert_array_equal(all_at_once[:7], few)
    found = {}

    def run(i):
        found[i] = up.evaluate(net, policy, 40, seed=1).returns

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[i] == all_at_once).all() for i in range(4))


def test_common_random_numbers_make_differences_precise():
    net = ring(6, 2, horizon=10)
    one, other = (up.evaluate(net, a, 400, seed=0) for a in (1, 2))
    apart = np.hypot(one.standard_error, other.standard_error)
    assert (one - other).standard_error < 0.8 * apart
    assert (one - other).mean == pytest.approx(one.mean - other.mean)
    with pytest.raises(ValueError, match="a difference needs the same ones"):
        one - up.evaluate(net, 2, 400, seed=1)


def test_a_base_policy_is_played_as_it_is():
    """Of the row of switches only a base that presses the first one ever sees the reward."""
    net = switches(4)

    def climb(x, h):
        for i in range(x.shape[0]):
            if x[i] == 0:
                return i + 1
        return 0

    mdp = net.to_finite()
    best = float(up.solve(mdp).v[0] @ start_of(mdp))
    value = up.evaluate(net, climb, 4000, seed=0)
    assert abs(value.mean - best) < 4 * value.standard_error  # climbing is the optimum
    assert exact_value(net, mdp, up.rollout_policy(net, base=climb)) > 0.99 * best
    assert exact_value(net, mdp, up.rollout_policy(net)) < 0.5 * best  # a far goal


def test_only_allowed_actions_are_played():
    net = up.FactoredMDP(
        np.zeros(4), 2, 5, ring_kind, 3, sum_reward, 12, ring(4, 2).logits, allowed=not_twice
    )
    for policy in (3, up.rollout_policy(net, 8, 4), up.rollout_policy(net, 8, 4, base=2)):
        for episode in up.simulate(net, policy, n_episodes=20, seed=0).episodes:
            pairs = zip(episode.states[:-1], episode.actions, strict=True)
            assert all(not_twice(x, a) for x, a in pairs)


def test_one_round_without_halving_is_the_mean_over_the_same_scenarios():
    """With one step to go and enough scenarios, both find the best one-step action."""
    net = ring(3, 2)
    x = [1, 0, 1]
    rewards = [net.reward(np.array(x), a) for a in range(4)]
    for halving in (True, False):
        policy = up.rollout_policy(net, 20, 5, base=1, halving=halving)
        assert rewards[policy.act(x, net.horizon - 1)] == max(rewards)


def test_a_maintenance_network_is_better_kept_by_rollouts_than_left_alone():
    graph = np.roll(np.eye(6), 1, axis=1)
    net = maintenance(graph)
    gain = up.evaluate(net, up.rollout_policy(net), 60, 0) - up.evaluate(net, "nothing", 60, 0)
    assert gain.mean > 5 * gain.standard_error


def test_bad_settings_get_one_sentence():
    net = ring(3, 2)
    for arguments, sentence in (
        ({"scenarios": 0}, "scenarios is 0"),
        ({"depth": 0}, "depth is 0"),
        ({"base": 9}, "base 9 is unknown"),
        ({"base": lambda x: 0}, "base"),
        ({"base": lambda x, h: 0.5}, "base returns 0.5"),
        ({"base": lambda x, h: x[h]}, r"base\(.*\) reads past the end of an array"),
        ({"seed": -1}, "seed is -1"),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence):
            up.rollout_policy(net, **arguments)
    with pytest.raises(ValueError, match="base returns 9 in state"):
        up.evaluate(net, lambda x, h: 9 * (h > 2), 2, seed=0)
    with pytest.raises(ValueError, match="n_episodes"):
        up.evaluate(net, 0)
    with pytest.raises(ValueError, match="x has shape"):
        up.rollout_policy(net).act([0, 0])
    with pytest.raises(ValueError, match="horizon"):
        up.evaluate(net, up.rollout_policy(ring(3, 2, horizon=5)), 2, seed=0)


def test_uniform_numbers_are_uniform_and_independent():
    """Means, lag correlations and the correlation between neighbouring keys of the hash."""
    from upriver.kernels import factored as kernels

    rows = np.empty((400, 500))
    for i, row in enumerate(rows):
        kernels.fill_uniforms(np.uint64(kernels.derive_key(np.uint64(3), i)), row)
    n = rows.size
    assert rows.min() >= 0.0 and rows.max() < 1.0
    assert abs(rows.mean() - 0.5) < 4 / np.sqrt(12 * n)
    centred = (rows - 0.5) * np.sqrt(12)
    for product in (centred[:, 1:] * centred[:, :-1], centred[1:] * centred[:-1]):
        assert abs(product.mean()) < 4 / np.sqrt(product.size)
    counts = np.histogram(rows, 100, (0, 1))[0]
    assert ((counts - n / 100) ** 2).sum() / (n / 100) < 99 + 4 * np.sqrt(2 * 99)


def test_states_are_recorded_only_where_asked():
    net = ring(3, 2)
    policy = up.planning.rollouts.as_policy(net, 0)
    assert simulate_policy(net, policy, 3, 0)[0].size == 0
