"""What all yardstick agents have in common: the contract, the support, unknown rewards."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import play
from upriver.agents.table import AGENTS

NAMES = ["ucbvi", "ucbvi-bf", "psrl", "rlsvi", "ucrl2", "epsilon-greedy"]


def build(name, task, **numbers):
    if name == "epsilon-greedy":
        return AGENTS[name](task, up.features.one_hot(task), **numbers)
    return AGENTS[name](task, **numbers)


def arrays(state):
    """All arrays in a state, however nested."""
    if isinstance(state, np.ndarray):
        return [state]
    return [x for part in state for x in arrays(part)] if isinstance(state, tuple) else []


@pytest.mark.parametrize("support", ["known", "local", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name, support):
    mdp = up.envs.riverswim(4, horizon=7)
    agent = build(name, mdp.task(support))
    for episodes, state, plan in play(agent, mdp, 4):
        before = [x.copy() for x in arrays(state)]
        again = agent.plan(state, np.random.default_rng(3))
        twice = agent.plan(state, np.random.default_rng(3))
        assert np.array_equal(again.policy, twice.policy) and np.array_equal(again.v, twice.v)
        v, policy = plan.v.copy(), plan.policy.copy()
        if episodes:
            agent.update(state, plan, episodes[-1])
        assert np.array_equal(plan.v, v) and np.array_equal(plan.policy, policy)
        assert all(np.array_equal(x, y) for x, y in zip(before, arrays(state), strict=True))
        assert plan.policy.shape == (7, 4) and np.isfinite(plan.v).all()
        assert np.isin(plan.policy, [0, 1]).all()
        assert all(np.isfinite(plan.q(h)).all() for h in range(7))


@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_the_grid_can_be_built_and_there_are_not_too_many(name):
    task = up.envs.riverswim(3, horizon=4).true_task
    grid = AGENTS[name].GRID
    points = np.stack(np.meshgrid(*grid.values(), indexing="ij"), axis=-1).reshape(-1, len(grid))
    assert 1 < len(points) <= 28
    for point in points:
        agent = build(name, task, **dict(zip(grid, map(float, point), strict=True)))
        plan = agent.plan(agent.init(), np.random.default_rng(0))
        assert np.isfinite(plan.v).all()


@pytest.mark.parametrize("name", NAMES)
def test_unknown_rewards_are_learned(name):
    mdp = up.FiniteMDP.from_arrays(
        np.full((2, 2, 2), 0.5), np.array([[0.2, 0.9], [0.8, 0.1]]), horizon=4
    )
    agent = build(name, mdp.task("full").with_unknown_reward())
    run = up.simulate(mdp, agent, 400, seed=0)
    sums = run.state.rewards
    assert sums.visits.sum() == 1600 and (sums.visits > 0).all()
    np.testing.assert_allclose(sums.total / sums.visits, mdp.reward.ravel())
    assert run.regret[-100:].mean() < 0.05 * run.optimal_values[0] < run.regret[0]


@pytest.mark.parametrize("name", NAMES)
def test_known_rewards_keep_no_sums(name):
    assert build(name, up.envs.riverswim(3).true_task).init().rewards is None


@pytest.mark.parametrize("name", ["ucbvi", "ucbvi-bf", "psrl", "ucrl2"])
def test_the_defaults_learn_the_river(name):
    mdp = up.envs.riverswim(6)
    run = up.simulate(mdp, build(name, mdp.task("local")), 100, seed=0)
    assert run.values[-25:].mean() > 0.9 * up.solve(mdp).v[0, 0]
