"""One thread or several: not a bit of a run changes, whoever learns and whatever is shared."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import upriver as up
from tests.building import build_agent
from tests.gate import cases
from upriver import kernels
from upriver.agents.table import AGENTS, NAMES_BY_CLASS
from upriver.features import Features
from upriver.planning import optimism


def leaves(value):
    """The bytes of every array and number in a tree of tuples."""
    if isinstance(value, tuple):
        return [x for part in value for x in leaves(part)]
    return [np.asarray(value).tobytes()] if isinstance(value, np.ndarray | float | int) else []


def played(mdp, agent, threads, monkeypatch):
    """Everything a run leaves, with every sweep in so many parts."""
    parts = []
    each = kernels.compiled.parallel_ranges
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: threads)
    monkeypatch.setattr(
        kernels.compiled, "parallel_ranges", lambda *x: parts.append(len(y := each(*x))) or y
    )
    run = up.simulate(mdp, agent, 6, seed=2)
    monkeypatch.undo()
    return leaves((run.returns, run.values, run.plan.policy, run.plan.v, run.state)), parts


@pytest.mark.parametrize("name", AGENTS)
def test_any_number_of_threads_gives_the_same_bytes(name, monkeypatch):
    mdp = up.envs.river_grid(3, horizon=8)
    agent = build_agent(name, mdp)
    one, _ = played(mdp, agent, 1, monkeypatch)
    for threads in (2, 3):
        several, parts = played(mdp, agent, threads, monkeypatch)
        assert several == one
        assert not parts or max(parts) >= threads


@pytest.mark.parametrize("plan", optimism.OPTIMISMS.values(), ids=list(optimism.OPTIMISMS))
@pytest.mark.parametrize("pooled", [False, True])
def test_the_plans_of_one_large_block(plan, pooled, rng, monkeypatch):
    mdp = up.envs.river_grid(3, horizon=8)
    task = mdp.task("local")
    shared = Features(task, rng.normal(size=(task.n_triples, 3)))
    phi = up.features.pooled(shared) if pooled else shared
    agent = up.agents.UCRLMNL(task, phi, radius=0.05, optimism=plan)
    one, _ = played(mdp, agent, 1, monkeypatch)
    several, parts = played(mdp, agent, 3, monkeypatch)
    assert several == one
    assert 3 in parts
    small = up.simulate(mdp, agent, 6, seed=2)
    assert leaves((small.returns, small.values, small.plan.v)) == one[:2] + one[3:4]


def test_what_goes_wrong_in_a_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: 3)

    def work(first, last):
        if first == 40:
            raise ArithmeticError("part 4")
        return last - first

    with pytest.raises(ArithmeticError, match="part 4"):
        kernels.compiled.parallel_ranges(work, 100, 10)
    assert kernels.compiled.parallel_ranges(lambda first, last: last - first, 100, 10) == [10] * 10


def test_a_part_may_be_handed_out_itself(monkeypatch):
    """A part that waits for threads that wait for it would never end."""
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: 2)
    inside = partial(kernels.compiled.parallel_ranges, lambda first, last: last - first)
    assert kernels.compiled.parallel_ranges(lambda first, last: sum(inside(last - first)), 8) == [
        4,
        4,
    ]


def results_in_threads(work, n):
    """Return the results of work(0), ..., work(n - 1) one after the other and in four threads.

    Threads switch as often as they can, so that arrays that they share are overwritten.
    """
    serial = [leaves(work(i)) for i in range(n)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            return serial, list(pool.map(lambda i: leaves(work(i)), range(n)))
    finally:
        sys.setswitchinterval(interval)


def share(agent, mdp, n_runs, **length):
    """Assert that runs of one agent in threads are those that it plays alone."""

    def work(seed):
        run = up.simulate(mdp, agent, seed=seed, **length)
        return run.returns, run.values, run.plan.policy, run.plan.v, run.state

    serial, threads = results_in_threads(work, n_runs)
    differ = [i for i in range(n_runs) if serial[i] != threads[i]]
    assert not differ, f"{len(differ)} of {n_runs} runs differ"


def build_case(name, arguments, features, support="known"):
    mdp = cases.draw_problem(7, **arguments)
    return cases.build(name, mdp, features, support, False), mdp


@pytest.mark.parametrize("features", ["one-hot", "shared"])
@pytest.mark.parametrize("name", [x for x in NAMES_BY_CLASS if x != "UCMNLK"])
def test_threads_share_an_agent(name, features):
    agent, mdp = build_case(name, {"units": True}, features)
    share(agent, mdp, 200 if name == "UCRLMNL" else 40, n_episodes=4)


@pytest.mark.parametrize("name", cases.POOLED)
def test_threads_share_pooled_features(name):
    agent, mdp = build_case(name, {"units": True}, "pooled 0.7")
    share(agent, mdp, 200 if name == "UCRLMNLSE" else 40, n_episodes=4)


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("name", cases.INFINITE_HORIZON)
def test_threads_share_an_agent_for_an_infinite_horizon(name, discount):
    agent, mdp = build_case(name, {"discount": discount}, "shared")
    share(agent, mdp, 20, n_steps=30)


@pytest.mark.parametrize("name", ["UCRLMNLSE", "UCRLMNL", "ORRLMNL", "UCBVI", "UCRLVTR"])
def test_threads_share_features_and_task_between_agents(name):
    """Each thread has an agent of its own for each run."""
    _, mdp = build_case(name, {}, "shared")
    task = mdp.task()
    given = {"features": cases.make_features("shared", task)}
    given = given if "features" in cases.field_names(name) else {}

    def work(seed):
        run = up.simulate(mdp, getattr(up.agents, name)(task=task, **given), 4, seed=seed)
        return run.returns, run.values, run.plan.v, run.state

    serial, threads = results_in_threads(work, 40)
    assert serial == threads


@pytest.mark.parametrize("name", ["UCRLMNLSE", "UCRLMNL", "PSRL"])
def test_threads_share_an_agent_that_learns_in_a_simulator(name):
    cells = list(range(5))
    task = up.Task.from_successors(
        cells, ["back", "on"], lambda s, a: cells, 6, lambda s, a: s / 5 - 0.1 * (a == "on")
    )
    given = {"features": up.features.one_hot(task)} if name != "PSRL" else {}
    agent = getattr(up.agents, name)(task=task, **given)

    class Line:
        def reset(self, seed=None):
            self.cell, self.rng = 0, np.random.default_rng(seed)
            return 0, {}

        def step(self, action):
            reward = self.cell / 5 - 0.1 * (action == "on")
            self.cell = int(self.rng.integers(5)) if action == "on" else max(self.cell - 1, 0)
            return self.cell, reward, False, False, {}

    def work(seed):
        run = up.learn(Line(), agent, 6, seed=seed)
        return run.returns, run.plan.policy, run.plan.v, run.state

    serial, threads = results_in_threads(work, 20)
    assert serial == threads


@pytest.mark.parametrize("features", ["one-hot", "shared", "pooled 0.7", "pooled"])
def test_threads_share_the_features_of_fits(features):
    phi = cases.make_features(features, cases.draw_problem(41).task("local"))

    def work(seed):
        rng = np.random.default_rng(seed)
        counts = rng.poisson(rng.choice([0.0, 1.0, 8.0], phi.task.n_triples)).astype(float)
        fitted = up.fit_mnl(phi, counts, 1.0)
        return fitted.theta, fitted.standard_errors, fitted.log_likelihood

    serial, threads = results_in_threads(work, 40)
    assert serial == threads


@pytest.mark.parametrize("features", ["shared", "pooled 0.7"])
def test_threads_share_the_features_of_a_log(features):
    task, log = cases.logged_problem().task(), cases.transition_log()
    phi = cases.make_features(features, task)
    states, actions = list(task.state_names), list(task.action_names)
    s, s2 = (np.array([states.index(x) for x in log[c]]) for c in ("state", "next_state"))
    pair = s * task.n_actions + np.array([actions.index(x) for x in log["action"]])
    key = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    row = np.searchsorted(key, pair * task.n_states + s2)

    def work(seed):
        chosen = np.random.default_rng(seed).choice(len(row), 300)
        counts = np.bincount(row[chosen], minlength=task.n_triples)
        found = up.fit_mnl(phi, counts, 1.0)
        return found.theta, found.standard_errors

    serial, threads = results_in_threads(work, 12)
    assert serial == threads


@pytest.mark.parametrize(
    "setting", [{}, {"discount": 0.9}, {"average": True}, {"temperature": 2.0}], ids=str
)
def test_threads_share_an_mdp_that_is_solved(setting):
    mdp = cases.draw_problem(37, units=True, missing=True, by_next=True)

    def work(seed):
        policy = np.random.default_rng(seed).dirichlet(np.ones(cases.CHOICES), cases.STATES)
        policy = np.where(mdp.task().available, policy, 0.0)
        policy /= policy.sum(axis=1, keepdims=True)
        plan = up.solve(mdp, **setting)
        return plan.v, plan.policy, up.evaluate(mdp, policy)

    serial, threads = results_in_threads(work, 20)
    assert serial == threads


@pytest.mark.parametrize("name", ["shared", "weights"])
def test_threads_share_a_fitted_model(name):
    model = cases.log_model(name)

    def work(seed):
        policy = np.random.default_rng(seed).integers(cases.CHOICES, size=cases.STATES)
        value = up.policy_value(model.at(start="weir"), policy)
        plan = up.plan_from_model(model.at(start="weir"), "greedy")
        return value.value, value.standard_error, value.low, value.high, plan.v

    serial, threads = results_in_threads(work, 12)
    assert serial == threads
