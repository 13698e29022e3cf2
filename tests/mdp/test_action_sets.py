"""Action sets that differ by state: a pair without triples does not exist for any function."""

import inspect
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upriver as up
from upriver.agents.base import Episode
from upriver.agents.table import AGENTS
from upriver.checks import Array
from upriver.mdp import FiniteMDP, Task

S, A, H = 3, 3, 3


@st.composite
def problems(draw: st.DrawFn) -> FiniteMDP:
    """A small MDP in which every state has some of three actions."""
    available = draw(
        st.lists(
            st.lists(st.booleans(), min_size=A, max_size=A).filter(any), min_size=S, max_size=S
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prob = rng.dirichlet(np.ones(S), (S, A)) * (rng.random((S, A, S)) < 0.7)
    prob[prob.sum(axis=2) == 0] = np.eye(S)[0]
    prob /= prob.sum(axis=2, keepdims=True)
    prob[~np.array(available)] = 0.0
    return FiniteMDP.from_arrays(
        prob, rng.random((S, A)), H, rng.dirichlet(np.ones(S)), actions=["a", "b", "c"]
    )


def dense(mdp: FiniteMDP) -> Array:
    table = np.zeros((S, A, S))
    s, a, s2 = mdp.true_task.triples
    table[s, a, s2] = mdp.probability[0]
    return table


def brute_force(mdp: FiniteMDP) -> Array:
    """(S,) the best value of each state over all policies of existing actions."""
    prob, best = dense(mdp), np.full(S, -np.inf)
    rules = list(product(*(np.flatnonzero(x) for x in mdp.true_task.available)))
    for plan in product(rules, repeat=H):
        v = np.zeros(S)
        for rule in reversed(plan):
            at = np.arange(S), list(rule)
            v = mdp.reward[at] + prob[at] @ v
        best = np.maximum(best, v)
    return best


@settings(max_examples=15, deadline=None)
@given(problems())
def test_the_optimum_is_that_of_all_policies(mdp: FiniteMDP) -> None:
    plan = up.solve(mdp)
    np.testing.assert_allclose(plan.v[0], brute_force(mdp), atol=1e-12)
    assert mdp.true_task.available[np.arange(S), plan.policy].all()
    assert (np.isneginf(plan.q(0)) == ~mdp.true_task.available).all()
    discounted = up.solve(mdp, discount=0.9)
    assert mdp.true_task.available[np.arange(S), discounted.policy].all()
    v = np.zeros(S)
    for _ in range(400):
        q = np.where(mdp.true_task.available, mdp.reward + 0.9 * dense(mdp) @ v, -np.inf)
        v = q.max(axis=1)
    np.testing.assert_allclose(discounted.v, v, atol=1e-7)


def built(name: str, task: Task, mdp: FiniteMDP) -> Any:
    kind = AGENTS[name]
    if name == "optimal":
        return kind(mdp)
    if name == "always":
        return kind(task, int(np.flatnonzero(task.available.all(axis=0))[0]))
    fields = inspect.signature(kind).parameters
    if "features" in fields and fields["features"].default is inspect.Parameter.empty:
        return kind(task, up.features.one_hot(task))
    return kind(task)


@pytest.mark.parametrize("name", AGENTS)
@settings(max_examples=6, deadline=None)
@given(mdp=problems(), support=st.sampled_from(["known", "full"]), hidden=st.booleans())
def test_no_agent_takes_a_missing_action(
    name: str, mdp: FiniteMDP, support: str, hidden: bool
) -> None:
    task = mdp.task(support)
    if name == "always" and not task.available.all(axis=0).any():
        with pytest.raises(ValueError, match="does not have the action 'a'"):
            up.agents.Always(task)
        return
    if hidden:
        task = task.with_unknown_reward()
    agent = built(name, task, mdp)
    state, rng = agent.init(), np.random.default_rng(0)
    episode = up.rollouts(mdp, up.simulate(mdp, up.agents.Random(task), 1).plan, 1)
    state = agent.update(
        state,
        agent.plan(state, rng),
        Episode(episode.states[0], episode.actions[0], episode.rewards[0]),
    )
    plan = agent.plan(state, rng)
    assert mdp.true_task.available[np.arange(S), plan.policy].all()
    run = up.simulate(mdp, agent, 4)  # refuses a missing action
    assert np.isfinite(run.values).all()
    assert np.isfinite(run.plan.v).all()


@pytest.mark.parametrize("spread", ["estimate", 1.0])
@pytest.mark.parametrize("name", ["ucrl-mnl-se", "ucrl-mnl", "psrl-mnl"])
def test_pooled_features_leave_out_missing_actions(name: str, spread: float | str) -> None:
    mdp = corridor()
    task = mdp.task("full")
    shared = up.features.from_function(task, lambda s, a, t: [float(t > s), float(t == s)])
    pooled = up.features.pooled(shared, spread)
    assert pooled.n_shared == shared.dimension
    run = up.simulate(mdp, AGENTS[name](task, pooled), 30, seed=1)
    fit = up.fit_mnl(pooled, run.state.model.counts[0])
    assert fit.features is not None  # of the spread that was given or estimated
    explicit = up.Features(task, fit.features.matrix)
    np.testing.assert_allclose(
        fit.theta, up.fit_mnl(explicit, run.state.model.counts[0]).theta, atol=1e-6
    )


def corridor() -> FiniteMDP:
    """Four states in a row; the two ends have one action each."""
    return FiniteMDP.from_functions(
        0,
        lambda s: [a for a in ("left", "right") if (s, a) not in ((0, "left"), (3, "right"))],
        lambda s, a: [s, s - 1 if a == "left" else s + 1],
        lambda s, a, t: 0.5,
        lambda s, a: float(s == 3),
        6,
    )


def test_actions_as_a_function_of_the_state() -> None:
    mdp = corridor()
    assert mdp.true_task.actions == ("right", "left")
    assert mdp.true_task.available.tolist() == [
        [True, False],
        [True, True],
        [True, True],
        [False, True],
    ]
    task = Task.from_successors(
        range(4),
        lambda s: [a for a in ("left", "right") if (s, a) not in ((0, "left"), (3, "right"))],
        lambda s, a: [s, s - 1 if a == "left" else s + 1],
        6,
        reward=lambda s, a: {(3, "left"): 1.0}.get((s, a), 0.0),
    )
    assert task.available.sum() == 6
    assert task.reward is not None
    with pytest.raises(ValueError, match=r"actions\(1\) is empty"):
        Task.from_successors(range(2), lambda s: [] if s else [0], lambda s, a: [s], 3)
    with pytest.raises(ValueError, match=r"successors\(0, 1\) is empty"):
        Task.from_successors([0], [0, 1], lambda s, a: [0] if a == 0 else [], 3)


def test_files_keep_action_sets(tmp_path) -> None:
    mdp = corridor()
    mdp.save(path := tmp_path / "corridor.npz")
    again = FiniteMDP.load(path)
    np.testing.assert_array_equal(again.true_task.indptr, mdp.true_task.indptr)
    np.testing.assert_array_equal(again.probability, mdp.probability)
    np.testing.assert_array_equal(again.reward, mdp.reward)
    assert again.true_task.actions == mdp.true_task.actions


def test_gymnasium_masks_missing_actions() -> None:
    mdp = corridor()
    env = up.envs.to_gymnasium(mdp)
    _, info = env.reset(seed=0)
    assert info["action_mask"].dtype == np.int8
    np.testing.assert_array_equal(info["action_mask"], [1, 0])
    with pytest.raises(ValueError, match=r"state 0 has the actions \[0\]"):
        env.step(1)
    for _ in range(5):
        state, _, _, _, info = env.step(env.action_space.sample(info["action_mask"]))
        np.testing.assert_array_equal(info["action_mask"], mdp.true_task.available[state])


def test_learning_in_a_black_box_takes_available_actions() -> None:
    mdp = corridor()
    env = up.envs.to_gymnasium(mdp)
    task = Task.from_successors(  # the same states and actions, nothing paid is known
        range(4),
        lambda s: ["right", "left"][s == 3 : 1 + (s > 0)],
        lambda s, a: [s, s - 1 if a == "left" else s + 1],
        6,
    )
    run = up.learn(env, up.agents.UCRLMNLSE(task, up.features.one_hot(task)), 20)
    assert np.isfinite(run.returns).all()


def test_the_average_reward_uses_available_actions_only() -> None:
    mdp = corridor()
    gain = up.solve(mdp, average=True)
    held = up.evaluate(mdp, gain.policy, average=True)
    assert gain.gain == pytest.approx(held.gain)
    assert mdp.true_task.available[np.arange(4), gain.policy].all()


TABLE = np.array([[[0.5, 0.5], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
MDP = FiniteMDP.from_arrays(TABLE, np.full((2, 2), 0.5), 3)

REFUSED = {
    "a table that takes it": (
        lambda: up.evaluate(MDP, [1, 1]), r"policy\[0\] is 1; state 0 does not have the action 1"),
    "a mixture that takes it": (
        lambda: up.evaluate(MDP, np.full((2, 2), 0.5)), "probability 0.5 where state 0 does not"),
    "rollouts": (lambda: up.rollouts(MDP, [1, 1], 3), "does not have the action"),
    "discounted": (
        lambda: up.evaluate(MDP, np.array([1, 1]), discount=0.9), "state 0 does not have"),
    "always one action": (
        lambda: up.agents.Always(MDP.true_task, 1), "state 0 does not have the action 1"),
    "a state without actions": (
        lambda: FiniteMDP.from_arrays(TABLE * [[[1], [0]], [[0], [0]]], np.zeros((2, 2)), 3),
        "state 1 has no action"),
    "a support with one more": (
        lambda: replace(MDP, local=([0, 2, 4, 6, 8], [0, 1] * 4)),
        r"local has successors for \(s=0, a=1\)"),
    "an episode that takes it": (
        lambda: up.agents.UCBVI(MDP.true_task).update(
            up.agents.UCBVI(MDP.true_task).init(), None, ([0, 1], [1], [0.0])),
        r"actions\[0\] of the episode is 1; actions must be those of the state"),
    "an agent whose task has it": (
        lambda: up.simulate(MDP, up.agents.Random(Task(2, 2, 3, [0, 1, 2, 3, 4], [0, 0, 0, 0])), 1),
        r"has the pair \(s=0, a=1\), which the MDP does not have"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_missing_actions_are_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_full_support_keeps_the_action_sets() -> None:
    assert MDP.task("full").sizes.tolist() == [2, 0, 2, 2]
    np.testing.assert_array_equal(MDP.task("full").available, MDP.true_task.available)
