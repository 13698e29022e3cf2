"""What the tabular agents and epsilon-greedy have in common: grids and unknown rewards."""

import numpy as np
import pytest

import upriver as up
from tests.building import build_agent
from upriver.agents.counts import count_steps_until_doubled
from upriver.agents.table import AGENTS

NAMES = ["ucbvi", "ucbvi-bf", "psrl", "rlsvi", "ucrl2", "epsilon-greedy"]


@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_the_grid_can_be_built_and_there_are_not_too_many(name):
    task = up.envs.riverswim(3, horizon=4).true_task
    grid = AGENTS[name].GRID
    points = np.stack(np.meshgrid(*grid.values(), indexing="ij"), axis=-1).reshape(-1, len(grid))
    assert 1 < len(points) <= 28
    for point in points:
        agent = build_agent(name, None, task, **dict(zip(grid, map(float, point), strict=True)))
        plan = agent.plan(agent.init(), np.random.default_rng(0))
        assert np.isfinite(plan.v).all()


@pytest.mark.parametrize("name", NAMES)
def test_unknown_rewards_are_learned(name):
    mdp = up.FiniteMDP.from_arrays(
        np.full((2, 2, 2), 0.5), np.array([[0.2, 0.9], [0.8, 0.1]]), horizon=4
    )
    agent = build_agent(name, mdp, mdp.task("full").with_unknown_reward())
    run = up.simulate(mdp, agent, 400, seed=0)
    total, visits = (agent.task.by_pair(x) for x in run.state.rewards[:2])
    assert visits.sum() == 1600 and (visits > 0).all()
    np.testing.assert_allclose(total / visits, mdp.reward.ravel())
    assert run.regret[-100:].mean() < 0.05 * run.optimal_values[0] < run.regret[0]


@pytest.mark.parametrize("name", NAMES)
def test_known_rewards_keep_no_sums(name):
    assert build_agent(name, up.envs.riverswim(3)).init().rewards is None


@pytest.mark.parametrize("name", ["ucbvi", "ucbvi-bf", "psrl", "ucrl2"])
def test_the_defaults_learn_the_river(name):
    mdp = up.envs.riverswim(6)
    run = up.simulate(mdp, build_agent(name, mdp), 100, seed=0)
    assert run.values[-25:].mean() > 0.9 * up.solve(mdp).v[0, 0]


def test_a_stream_plans_again_where_a_pair_has_doubled():
    pairs, visits = np.array([0, 1, 1, 0, 1, 1]), np.array([5.0, 3.0, 0.0])
    assert count_steps_until_doubled(pairs, visits) == 5  # the third visit of pair 1
    assert count_steps_until_doubled(pairs, np.array([5.0, 9.0, 0.0])) == 6
    assert count_steps_until_doubled(np.array([2, 2]), visits) == 1
