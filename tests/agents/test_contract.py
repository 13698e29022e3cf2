"""One contract for every agent of the table: pure, deterministic, finite, within its actions.

New entries of AGENTS are picked up by themselves.
"""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from tests.reference import random_mdp
from upriver import FiniteMDP, envs, features, simulate
from upriver.agents.protocol import Episode
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


def build(name, mdp, support):
    kind = AGENTS[name]
    names = {f.name for f in fields(kind)}
    if "mdp" in names:
        return kind(mdp)
    task = mdp.task(support)
    return kind(task, features.one_hot(task)) if "features" in names else kind(task)


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
    agent = build(name, mdp, support)
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


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_depends_on_the_seed_alone(name):
    mdp = PROBLEMS["random"]()
    one, two = (simulate(mdp, build(name, mdp, "local"), 15, seed=3) for _ in range(2))
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
    agent = build(name, mdp, "known")
    for key, values in kind.GRID.items():
        for value in values:  # every point of the grid is a valid agent
            given = {f.name: getattr(agent, f.name) for f in fields(kind) if f.init}
            kind(**{**given, key: value})
    with pytest.raises(AttributeError):
        agent.task = None  # frozen
