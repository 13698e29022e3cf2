"""Many episodes at once: the very episodes of `simulate`, and what they are worth on average."""

import numpy as np
import pytest

import upriver as up
from upriver.agents.base import Episode


class Recorder:
    """Plays a fixed table and keeps what it is shown."""

    def __init__(self, mdp, table):
        self.task, self.table, self.seen = mdp.task(), table, []

    def init(self):
        return None

    def plan(self, state, rng):
        return up.Plan(self.table, np.zeros((self.task.horizon + 1, self.task.n_states)))

    def update(self, state, plan, episode):
        self.seen.append(Episode(*(x.copy() for x in episode)))


@pytest.mark.parametrize("seed", [0, 7])
def test_the_episodes_are_those_of_simulate(seed):
    mdp = up.envs.riverswim(5, 9, variant="strehl")
    table = np.random.default_rng(3).integers(0, 2, (9, 5)).astype(np.int8)
    agent = Recorder(mdp, table)
    run = up.simulate(mdp, agent, 30, seed=seed)
    many = up.rollouts(mdp, table, 30, seed=seed)
    for name in Episode._fields:
        assert np.array_equal(getattr(many, name), np.stack([getattr(e, name) for e in agent.seen]))
    assert np.allclose(many.returns, run.returns, atol=1e-12)


def test_first_episodes_do_not_depend_on_how_many_follow():
    mdp = up.envs.riverswim(4, 6)
    policy = np.ones(4, np.int64)
    few, many = up.rollouts(mdp, policy, 10), up.rollouts(mdp, policy, 5000)
    for one, other in zip(few, many, strict=True):
        assert np.array_equal(one, other[:10])


def test_the_mean_return_is_the_exact_value():
    mdp = up.envs.riverswim(4, 12, variant="strehl")
    for table in (up.solve(mdp).policy, np.random.default_rng(0).integers(0, 2, (12, 4))):
        exact = up.planning.start_value(mdp, up.evaluate(mdp, table))
        returns = up.rollouts(mdp, table, 20_000, seed=1).returns
        assert abs(returns.mean() - exact) < 4 * returns.std() / np.sqrt(len(returns))


def test_probabilities_and_rewards_that_change_with_the_step():
    rng = np.random.default_rng(5)
    transition = rng.dirichlet(np.ones(3), (4, 3, 2))
    mdp = up.FiniteMDP.from_arrays(transition, rng.random((4, 3, 2)), 4, [0.2, 0.3, 0.5])
    table = rng.integers(0, 2, (4, 3))
    exact = up.planning.start_value(mdp, up.evaluate(mdp, table))
    many = up.rollouts(mdp, table, 20_000)
    error = many.returns.std() / np.sqrt(20_000)
    assert abs(many.returns.mean() - exact) < 4 * error
    assert np.allclose(np.bincount(many.states[:, 0]) / 20_000, [0.2, 0.3, 0.5], atol=0.02)
    steps = np.arange(4)
    assert np.array_equal(many.actions, table[steps, many.states[:, :-1]])
    assert np.array_equal(many.rewards, mdp.reward[steps, many.states[:, :-1], many.actions])


def test_a_policy_object_and_its_table_are_the_same():
    mdp = up.envs.riverswim(4, 6)
    plan = up.solve(mdp)
    by_object = up.rollouts(mdp, up.Policy.from_plan(plan, mdp.true_task), 20)
    assert np.array_equal(by_object.states, up.rollouts(mdp, plan.policy, 20).states)


def test_a_policy_with_chance(rng):
    """The states and actions of each step are as often met as the exact chances say."""
    mdp = up.envs.riverswim(4, 5)
    mixture, n = rng.dirichlet(np.ones(2), size=(5, 4)), 40_000
    many = up.rollouts(mdp, mixture, n, seed=1)
    here = np.eye(4)[0]
    p = np.zeros((4, 2, 4))
    p[mdp.true_task.triples] = mdp.probability[0]
    for h in range(5):
        met = np.zeros((4, 2))
        np.add.at(met, (many.states[:, h], many.actions[:, h]), 1 / n)
        both = here[:, None] * mixture[h]
        assert np.abs(met - both).max() < 5 * 0.5 / np.sqrt(n)
        here = np.einsum("sa,sat->t", both, p)
    worth = up.evaluate(mdp, mixture)[0, 0]
    assert abs(many.returns.mean() - worth) < 4 * many.returns.std() / np.sqrt(n)
    assert np.array_equal(up.rollouts(mdp, mixture, 50, seed=1).rewards.shape, (50, 5))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.full((6, 4), 2), r"policy\[0, 0\] is 2; actions are 0 to 1"),
        (np.zeros((5, 4), int), r"policy has shape \(5, 4\); it must be \(6, 4\) or \(4,\)"),
        (np.full((6, 4, 2), 0.4), r"whole numbers, or probabilities that sum to 1"),
    ],
)
def test_wrong_policies(policy, message):
    with pytest.raises(ValueError, match=message):
        up.rollouts(up.envs.riverswim(4, 6), policy, 3)


def test_wrong_numbers():
    mdp = up.envs.riverswim(4, 6)
    with pytest.raises(ValueError, match="n_episodes is 0"):
        up.rollouts(mdp, np.zeros(4, int), 0)
    with pytest.raises(ValueError, match="seed is -1"):
        up.rollouts(mdp, np.zeros(4, int), 3, seed=-1)


def test_an_infinite_horizon_has_no_rollouts():
    mdp = up.envs.riverswim(3).infinite_horizon(0.9)
    with pytest.raises(ValueError, match="infinite horizon"):
        up.rollouts(mdp, np.ones(3, int), 3)
