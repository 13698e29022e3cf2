"""One contract for every agent of the table, new ones included.

An agent changes none of its inputs, depends on its generator alone, returns finite plans of actions
that exist, and works unchanged inside another agent, in other units, with unknown rewards, missing
actions, names and infinite horizons.
"""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

import upriver as up
from tests.building import Wrapper, build_agent
from tests.reference import random_mdp
from upriver import FiniteMDP, envs, simulate
from upriver.agents import FACTORED
from upriver.agents.base import Episode
from upriver.agents.table import AGENTS
from upriver.features import Features
from upriver.mdp import Task

SUPPORTS = ("known", "local", "full")
PROBLEMS = {
    "river": lambda: envs.riverswim(4, 6),
    "random": lambda: random_mdp(np.random.default_rng(8), 4, 3, 3, random_start=True),
    "per step": lambda: random_mdp(np.random.default_rng(9), 3, 2, 4, per_step=True),
    "one state": lambda: FiniteMDP.from_arrays(
        np.ones((1, 2, 1)), [[0.25, 0.75]], 2,
        local=(np.arange(3), np.zeros(2, dtype=int)),
    ),
    "one action": lambda: FiniteMDP.from_arrays(
        [[[0.5, 0.5]], [[0.25, 0.75]]], [[0.0], [1.0]], 1,
        local=(np.array([0, 2, 4]), np.array([0, 1, 0, 1])),
    ),
}  # fmt: skip


def arrays(x, path="", seen=None):
    """Every array held by x, by path: through tuples, dicts, dataclasses and their caches."""
    seen = set() if seen is None else seen
    if id(x) in seen or isinstance(x, Task | Features | FiniteMDP):
        return
    seen.add(id(x))
    if isinstance(x, np.ndarray):
        yield path, x
    elif isinstance(x, tuple | list):
        for i, y in enumerate(x):
            yield from arrays(y, f"{path}[{i}]", seen)
    elif isinstance(x, dict):
        for key, y in x.items():
            yield from arrays(y, f"{path}[{key!r}]", seen)
    elif is_dataclass(x) and not isinstance(x, type):
        for key, y in vars(x).items():
            yield from arrays(y, f"{path}.{key}", seen)


def snapshot(*things):
    return [(path, a.copy()) for x in things for path, a in arrays(x)]


def assert_same(before, after):
    assert [p for p, _ in before] == [p for p, _ in after]
    for (path, a), (_, b) in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)


def held(task, mdp):
    parts = [task.indptr, task.successors, mdp.probability, mdp.initial_probability]
    return parts if task.reward is None else [*parts, task.reward]


def walk(mdp, plan, rng):
    task = mdp.true_task
    states = [int(rng.choice(mdp.initial_states, p=mdp.initial_probability))]
    actions, rewards = [], []
    for h in range(task.horizon):
        s = states[-1]
        a = int(plan.policy[h, s])
        rows = task.rows(s, a)
        p = mdp.probability[min(h, len(mdp.probability) - 1)][rows]
        paid = task.reward_rows[min(h, len(task.reward_rows) - 1)]
        rewards.append(float(paid[s * task.n_actions + a]))
        actions.append(a)
        states.append(int(rng.choice(task.successors[rows], p=p)))
    return Episode(np.array(states), np.array(actions), np.array(rewards))


@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", AGENTS)
def test_the_contract(name, problem, support):
    mdp = PROBLEMS[problem]()
    agent = build_agent(name, mdp, support)
    task = agent.task
    frozen = [x.copy() for x in held(task, mdp)]
    config = snapshot(agent)
    state = agent.init()
    dice = np.random.default_rng(1)
    for k in range(4):
        before = snapshot(state)
        plan = agent.plan(state, np.random.default_rng(k))
        assert_same(before, snapshot(state))
        # what a plan is
        assert plan.policy.shape == (task.horizon, task.n_states)
        assert plan.policy.dtype == (np.int8 if task.n_actions <= 127 else np.int32)
        assert ((plan.policy >= 0) & (plan.policy < task.n_actions)).all()
        assert plan.v.shape == (task.horizon + 1, task.n_states)
        assert np.isfinite(plan.v).all() and not plan.v[-1].any()
        if plan.backup is not None:
            for h in range(task.horizon):
                q = plan.q(h)
                assert q.shape == (task.n_states, task.n_actions) and np.isfinite(q).all()
                np.testing.assert_array_equal(q, plan.q(h))
        # the same generator, the same plan
        again = agent.plan(state, np.random.default_rng(k))
        np.testing.assert_array_equal(plan.policy, again.policy)
        np.testing.assert_array_equal(plan.v, again.v)
        # learning changes nothing but what it returns, and does so twice alike
        episode = walk(mdp, plan, dice)
        before = snapshot(state, plan[:2], episode)
        new = agent.update(state, plan, episode)
        assert_same(before, snapshot(state, plan[:2], episode))
        assert_same(snapshot(new), snapshot(agent.update(state, plan, copy.deepcopy(episode))))
        for path, a in arrays(new):
            assert a.dtype.kind not in "f" or np.isfinite(a).all(), path
        state = new
    if config:  # caches may appear; what was there stays
        now = dict(snapshot(agent))
        for path, a in config:
            np.testing.assert_array_equal(a, now[path], err_msg=path)
    for a, b in zip(frozen, held(task, mdp), strict=True):
        np.testing.assert_array_equal(a, b)


RNG = np.random.default_rng(11)
PROB = RNG.dirichlet(np.ones(4), (4, 3))
REWARD = RNG.uniform(-43.0, 118.0, (4, 3))
REWARD[0, :2] = -43.0, 118.0
TERMINAL = [40.0, -200.0, 0.0, 3.0]
MISSING = PROB.copy()
MISSING[1, 2] = MISSING[3, 0] = 0.0
NAMES = {"states": ["a", "b", "c", "d"], "actions": ["x", "y", "z"]}

SETTINGS = {
    "rewards in [0, 1]": FiniteMDP.from_arrays(PROB, (REWARD + 43.0) / 161.0, 5),
    "rewards in -43 to 118": FiniteMDP.from_arrays(PROB, REWARD, 5),
    "terminal values": FiniteMDP.from_arrays(PROB, REWARD, 5, terminal=TERMINAL),
    "missing actions": FiniteMDP.from_arrays(MISSING, REWARD, 5),
    "names": FiniteMDP.from_arrays(PROB, REWARD, 5, **NAMES),
    "discounted reward": FiniteMDP.from_arrays(PROB, REWARD, 5).infinite_horizon(0.9),
    "average reward": FiniteMDP.from_arrays(PROB, REWARD, 5).infinite_horizon(),
}


def task_of(mdp, known):
    task = mdp.task("full")
    return task if known else task.with_unknown_reward()


def supports(name, mdp):
    """Whether the agent can play here: its horizon, and one action that every state has."""
    if name == "always" and not mdp.true_task.available.all():
        return False
    return not mdp.true_task.infinite_horizon or hasattr(AGENTS[name], "steps_until_replan")


def run_once(mdp, agent):
    if mdp.true_task.infinite_horizon:
        return simulate(mdp, agent, n_steps=150, seed=3)
    return simulate(mdp, agent, 15, seed=3)


def assert_same_run(one, two):
    figures = [field for field in one._fields if field not in ("seconds", "checkpoint", "task")]
    for field in figures:
        left, right = getattr(one, field), getattr(two, field)
        assert_same(snapshot(left), snapshot(right))


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_inside_another_gives_the_same_run(name, setting, known):
    mdp = SETTINGS[setting]
    if not supports(name, mdp):
        with pytest.raises(ValueError, match=r"infinite horizon|does not have the action"):
            build_agent(name, mdp, task_of(mdp, known))
        return
    agent = build_agent(name, mdp, task_of(mdp, known))
    alone = run_once(mdp, agent)
    assert_same_run(alone, run_once(mdp, Wrapper(agent)))
    assert_same_run(alone, run_once(mdp, Wrapper(Wrapper(agent))))
    assert np.isfinite(alone.plan.v).all() and alone.plan.in_user_units
    assert alone.visits.sum() == (150 if mdp.horizon is None else 15 * 5)
    assert not alone.visits[~mdp.true_task.available].any()
    for path, a in arrays(alone.state):
        assert a.dtype.kind != "f" or np.isfinite(a).all(), path


class Stepper:
    """The MDP as a black box with Gymnasium's methods."""

    def __init__(self, mdp):
        self.mdp = mdp

    def reset(self, seed=None):
        self.rng, self.state = np.random.default_rng(seed), 0
        return self.state, {}

    def step(self, action):
        task = self.mdp.true_task
        rows, reward = task.rows(self.state, action), float(task.reward[self.state, action])
        p = self.mdp.probability[0][rows]
        self.state = int(self.rng.choice(task.successors[rows], p=p))
        return self.state, reward, False, False, {}


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_inside_another_learns_the_same_in_a_black_box(name, known):
    mdp = SETTINGS["rewards in -43 to 118"]
    agent = build_agent(name, mdp, task_of(mdp, known))
    alone = up.learn(Stepper(mdp), agent, 10, seed=2)
    assert_same_run(alone, up.learn(Stepper(mdp), Wrapper(agent), 10, seed=2))


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", AGENTS)
def test_units_change_figures_and_nothing_else(name, known):
    """The same problem in [0, 1] and in other units: values are converted, once."""
    low, unit = -43.0, 161.0
    plain, other = SETTINGS["rewards in [0, 1]"], SETTINGS["rewards in -43 to 118"]
    one, two = (
        run_once(mdp, build_agent(name, mdp, task_of(mdp, known))) for mdp in (plain, other)
    )
    np.testing.assert_array_equal(one.visits, two.visits)
    np.testing.assert_array_equal(one.plan.policy, two.plan.policy)
    np.testing.assert_allclose(two.values, unit * one.values + 5 * low, rtol=1e-9)
    np.testing.assert_allclose(two.returns, unit * one.returns + 5 * low, rtol=1e-9)
    if name not in ("random", "always"):  # they plan without values
        left = np.arange(5, -1, -1)[:, None]
        np.testing.assert_allclose(two.plan.v, unit * one.plan.v + low * left, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(AGENTS) - {"optimal"}))
def test_the_mdp_in_place_of_its_task_is_refused(name):
    mdp = PROBLEMS["river"]()
    phi = up.features.one_hot(mdp.task())
    given = {"features": phi} if "features" in AGENTS[name].__dataclass_fields__ else {}
    with pytest.raises(TypeError, match=r"task is a FiniteMDP; use mdp\.task\(\)"):
        AGENTS[name](mdp, **given)


@pytest.mark.parametrize(
    "name", [n for n in AGENTS if "features" in AGENTS[n].__dataclass_fields__]
)
def test_features_of_another_task_are_refused(name):
    mdp = PROBLEMS["river"]()
    with pytest.raises(ValueError, match="features were made for a task with 4 states"):
        AGENTS[name](mdp.task("full"), features=up.features.one_hot(mdp.task("local")))
    with pytest.raises(TypeError, match="features is a ndarray; it must be a Features"):
        AGENTS[name](mdp.task("full"), features=np.ones((3, 2)))


@pytest.mark.parametrize("name", sorted(set(AGENTS) - {"optimal", "random", "always"}))
def test_rewards_off_the_unit_scale_are_refused_where_they_are_learned(name):
    mdp = SETTINGS["rewards in -43 to 118"]
    agent = build_agent(name, mdp, task_of(mdp, known=False))
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    episode = Episode(np.zeros(3, np.int64), np.zeros(2, np.int64), np.array([0.5, 118.0]))
    with pytest.raises(ValueError, match=r"rewards\[1\] of the episode is 118; .*unit scale"):
        agent.update(agent.init(), plan, episode)


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_depends_on_the_seed_alone(name):
    mdp = PROBLEMS["random"]()
    one, two = (simulate(mdp, build_agent(name, mdp), 15, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.returns, two.returns)
    np.testing.assert_array_equal(one.values, two.values)
    assert (one.regret >= -1e-12).all()
    assert_same(snapshot(one.state), snapshot(two.state))


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_declares_its_grid(name):
    kind = AGENTS[name]
    names = {f.name for f in fields(kind)}
    assert isinstance(kind.GRID, dict)
    assert set(kind.GRID) <= names
    assert all(len(values) > 0 for values in kind.GRID.values())
    mdp = PROBLEMS["river"]()
    agent = build_agent(name, mdp, "known")
    for key, values in kind.GRID.items():
        for value in values:  # every point of the grid is a valid agent
            given = {f.name: getattr(agent, f.name) for f in fields(kind) if f.init}
            kind(**{**given, key: value})
    with pytest.raises(AttributeError):
        agent.task = None  # frozen


def test_the_table_is_the_only_list_of_agents_of_a_task():
    assert dir(up.agents) == sorted([*(kind.__name__ for kind in AGENTS.values()), *FACTORED])
    for name, kind in AGENTS.items():
        assert getattr(up.agents, kind.__name__) is kind is AGENTS[name]
    with pytest.raises(AttributeError, match="has no attribute 'UCRLMNLX'"):
        up.agents.UCRLMNLX  # noqa: B018
