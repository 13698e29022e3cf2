"""What all successors of UCRL-MNL promise: the contract, a constant size, a good default."""

import numpy as np
import pytest

import upriver as up
from upriver.agents.table import AGENTS
from upriver.mnl import online

NAMES = (
    "rrl-mnl", "orrl-mnl", "ucrl-mnl-plus", "ucrl-mnl-ol", "ucrl-mnl-ll", "ucrl-mnl-l1"
)  # fmt: skip
ONLINE = [name for name in NAMES if name != "ucrl-mnl-ll"]


def leaves(x):
    """The arrays and numbers of a nested tuple."""
    if isinstance(x, tuple):
        return [y for part in x for y in leaves(part)]
    return [] if x is None else [np.array(x)]


def make(name, support="local", reward=True, **numbers):
    task = up.envs.riverswim(4, horizon=6).task(support)
    task = task if reward else task.with_unknown_reward()
    return AGENTS[name](task, up.features.one_hot(task), **numbers)


@pytest.mark.parametrize("reward", [True, False])
@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name, per_step, reward):
    """Inputs unchanged, deterministic given the generator, finite plans."""
    agent = make(name, per_step=per_step, reward=reward)
    mdp = up.envs.riverswim(4, horizon=6)
    state = up.simulate(mdp, agent, 5, seed=4).state
    before = leaves(state)
    plan = agent.plan(state, np.random.default_rng(1))
    again = agent.plan(state, np.random.default_rng(1))
    assert np.array_equal(plan.policy, again.policy) and np.array_equal(plan.v, again.v)
    assert plan.policy.shape == (6, 4) and plan.v.shape == (7, 4)
    assert np.isfinite(plan.v).all() and (plan.v[6] == 0).all()
    assert all(np.isfinite(plan.q(h)).all() for h in range(6))
    episode = up.agents.base.Episode(
        np.array([0, 1, 2, 3, 3, 3, 2]), np.array([1, 1, 1, 1, 1, 1]), np.zeros(6)
    )
    policy, v = plan.policy.copy(), plan.v.copy()
    new = agent.update(state, plan, episode)
    assert np.array_equal(plan.policy, policy) and np.array_equal(plan.v, v)
    assert all(np.array_equal(x, y) for x, y in zip(before, leaves(state), strict=True))
    assert new.k == state.k + 1
    one, two = (up.simulate(mdp, agent, 8, seed=2) for _ in range(2))
    assert np.array_equal(one.values, two.values)


@pytest.mark.parametrize("name", NAMES)
def test_state_does_not_grow(name):
    agent = make(name)
    mdp = up.envs.riverswim(4, horizon=6)
    sizes = [sum(x.nbytes for x in leaves(up.simulate(mdp, agent, n).state)) for n in (1, 60)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("support", ["known", "local"])
@pytest.mark.parametrize("name", NAMES)
def test_the_default_learns_a_short_river(name, support):
    mdp = up.envs.riverswim(4, horizon=12)
    task = mdp.task(support)
    run = up.simulate(mdp, AGENTS[name](task, up.features.one_hot(task)), 400, seed=1)
    assert run.values[-100:].mean() > 0.95 * run.optimal_values[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_the_grid_can_be_built(name):
    grid = AGENTS[name].GRID
    assert int(np.prod([len(values) for values in grid.values()])) <= 28
    for field, values in grid.items():
        for value in values:
            make(name, **{field: value})


@pytest.mark.parametrize("name", NAMES)
def test_a_saturating_radius_and_no_features_at_all_still_plan(name):
    agent = make(name, radius=up.radii.constant_radius(1e6))
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    assert np.isfinite(plan.v).all() and plan.v.max() <= 6.0
    sure = up.FiniteMDP.from_arrays(np.eye(2)[None].repeat(2, 0).transpose(1, 0, 2), np.eye(2), 3)
    task = sure.task()
    run = up.simulate(sure, AGENTS[name](task, up.features.one_hot(task)), 3)
    assert run.regret == pytest.approx(0.0)


@pytest.mark.parametrize("name", ONLINE)
def test_the_ball_holds(name):
    agent = make(name, theta_bound=0.5)
    state = up.simulate(up.envs.riverswim(4, horizon=6), agent, 30).state
    norms = np.linalg.norm(state.model.theta, axis=1)
    assert norms.max() == pytest.approx(0.5, rel=1e-9)


def test_theory_constants_plan_with_saturated_values():
    task = up.envs.riverswim(4, horizon=6).task("known")
    features = up.features.one_hot(task)
    agent = up.agents.UCRLMNLPlus(
        task, features, radius=online.mirror_radius(3.0), theta_bound=3.0,
        step_size=online.theory_step(features, 3.0),
        regularization=online.mirror_regularization(features, 3.0),
    )  # fmt: skip
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    assert (plan.v[0] == 6.0).all()
