"""Inputs are compared with what they are for; frozen objects cannot be changed."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass

import numpy as np
import pytest

import upriver as up
from tests.building import build_agent
from upriver.agents.base import Episode
from upriver.agents.fixed import Random
from upriver.agents.table import AGENTS

RIVER = up.envs.riverswim(5, 10)


LEARNERS = sorted(set(AGENTS) - {"always", "optimal", "random"})


@pytest.mark.parametrize("name", LEARNERS)
def test_a_checkpoint_of_a_short_river_is_not_resumed_on_a_long_one(name):
    checkpoint = up.simulate(RIVER, build_agent(name, RIVER), 2).checkpoint
    longer = up.envs.riverswim(30, 10)
    with pytest.raises(ValueError, match="resume is a run with another agent"):
        up.simulate(longer, build_agent(name, longer), 2, resume=checkpoint)


@pytest.mark.parametrize("name", LEARNERS)
def test_states_and_actions_out_of_range_are_refused(name):
    agent = build_agent(name, RIVER)
    run = up.simulate(RIVER, agent, 1)
    good = Episode(np.zeros(11, np.int64), np.zeros(10, np.int64), np.zeros(10))
    agent.update(run.state, run.plan, good)
    for field, value, sentence in (
        ("states", 10**6, r"states\[3\] of the episode is 1000000; states are 0 to 4"),
        ("states", -1, r"states\[3\] of the episode is -1"),
        ("actions", 2, r"actions\[3\] of the episode is 2; actions are 0 to 1"),
        ("rewards", np.nan, r"rewards\[3\] of the episode is nan; rewards are finite"),
    ):
        bad = getattr(good, field).copy()
        bad[3] = value
        with pytest.raises(ValueError, match=sentence):
            agent.update(run.state, run.plan, good._replace(**{field: bad}))
    with pytest.raises(ValueError, match="the episode has 10 states, 10 actions"):
        agent.update(run.state, run.plan, good._replace(states=good.states[:-1]))


def test_a_state_of_another_task_is_refused():
    other = up.envs.riverswim(6, 10)
    strange = up.simulate(other, build_agent("ucrl-mnl", other), 1).state
    agent = build_agent("ucrl-mnl", RIVER)
    with pytest.raises(ValueError, match="not one of this UCRLMNL and its task"):
        agent.plan(strange, np.random.default_rng(0))


def test_a_state_with_a_nan_and_a_plan_of_another_task_are_refused(tmp_path):
    agent = build_agent("ucrl-mnl", RIVER)
    checkpoint = up.simulate(RIVER, agent, 2).checkpoint
    model = checkpoint.state.model
    spoiled = checkpoint.state._replace(
        model=model._replace(theta=np.full_like(model.theta, np.nan))
    )
    with pytest.raises(ValueError, match="UCRLMNL holds numbers that are not finite"):
        up.simulate(RIVER, agent, 2, resume=checkpoint._replace(state=spoiled))
    up.save_agent(tmp_path / "a.npz", checkpoint._replace(state=spoiled))
    with pytest.raises(ValueError, match="UCRLMNL holds numbers that are not finite"):
        up.load_agent(tmp_path / "a.npz", agent)
    reader = build_agent("ucrl-vtr", RIVER)
    run = up.simulate(RIVER, reader, 1)
    good = Episode(np.zeros(11, np.int64), np.zeros(10, np.int64), np.zeros(10))
    without_values = run.plan._replace(v=np.full_like(run.plan.v, np.nan))
    for plan in (None, up.solve(up.envs.riverswim(6, 10)), without_values):
        with pytest.raises(ValueError, match="plan is not one of this task"):
            reader.update(run.state, plan, good)


def test_a_run_goes_on_only_with_its_agent_and_its_mdp(tmp_path):
    agent = build_agent("ucrl-mnl", RIVER)
    run = up.simulate(RIVER, agent, 3)
    up.save_agent(tmp_path / "a.npz", run)
    checkpoint = up.load_agent(tmp_path / "a.npz", agent)
    again = up.envs.riverswim(5, 10)  # another object, the same MDP
    whole = up.simulate(RIVER, agent, 6).values[3:]
    np.testing.assert_array_equal(up.simulate(again, agent, 3, resume=checkpoint).values, whole)
    wilder = up.FiniteMDP(
        RIVER.true_task,
        np.tile(1 / np.repeat(RIVER.true_task.sizes, RIVER.true_task.sizes), (1, 1)),
        [0],
        [1.0],
    )
    for given in (checkpoint, run.checkpoint):
        with pytest.raises(ValueError, match="run with another mdp: the MDP is not what it was"):
            up.simulate(wilder, agent, 1, resume=given)
    bolder = up.agents.UCRLMNL(agent.task, agent.features, radius=1.0)
    with pytest.raises(ValueError, match="run with another agent"):
        up.simulate(RIVER, bolder, 1, resume=checkpoint)


def test_arrays_inside_frozen_objects_are_read_only_copies():
    task, mdp = RIVER.true_task, RIVER
    mine = task.successors.copy()
    other = up.Task(task.n_states, task.n_actions, task.horizon, task.indptr, mine, task.reward)
    mine[:] = 10**6
    np.testing.assert_array_equal(other.successors, task.successors)
    policy = up.Policy.from_plan(up.solve(mdp))
    for array in (
        task.indptr, task.successors, task.reward, mdp.probability, mdp.initial_states,
        mdp.initial_probability, *mdp.local, policy.actions,
    ):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    matrix = np.random.default_rng(0).standard_normal((task.n_triples, 2))
    features = up.Features(task, matrix)
    matrix[:] = np.nan
    assert np.isfinite(features.matrix).all()


def test_a_spread_in_the_state_of_features_without_triple_effects_is_not_used():
    """With it the loops would read triple effects that are not there, past the end of arrays."""
    task = RIVER.task()
    agent = up.agents.UCRLMNLLL(task, up.features.one_hot(task))
    run = up.simulate(RIVER, agent, 3)
    played = up.rollouts(RIVER, run.plan, 1)
    episode = Episode(played.states[0], played.actions[0], played.rewards[0])
    forged = run.state._replace(model=run.state.model._replace(spread=-1.0))
    after, right = (agent.update(s, run.plan, episode).model for s in (forged, run.state))
    np.testing.assert_array_equal(after.theta, right.theta)
    np.testing.assert_array_equal(after.max_norm, right.max_norm)


def test_counts_below_0_are_one_sentence_of_psrl():
    agent = up.agents.PSRL(RIVER.task())
    state = up.simulate(RIVER, agent, 2).state
    with pytest.raises(ValueError, match="PSRL holds counts below 0"):
        agent.plan(state._replace(model=state.model - 100.0), np.random.default_rng(0))


def test_a_truth_value_is_no_step_and_a_class_is_no_agent():
    run = up.simulate(RIVER, up.agents.UCRLMNL(RIVER.task(), up.features.one_hot(RIVER.task())), 2)
    with pytest.raises(ValueError, match="h is True; steps are"):
        run.policy.act(0, True)
    forged = run.checkpoint._replace(fingerprint=(up.agents.UCRLMNL, RIVER))
    agent = up.agents.UCRLMNL(RIVER.task(), up.features.one_hot(RIVER.task()))
    with pytest.raises(ValueError, match="another agent"):
        up.simulate(RIVER, agent, 2, resume=forged)


def test_a_small_archive_that_would_fill_the_memory_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a0.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(320):
            member.write(bytes(2**20))
    monkeypatch.setattr(np, "load", lambda *given, **options: pytest.fail("it was read"))
    with pytest.raises(ValueError, match=r"bomb\.npz is damaged, or was not written by Upriver"):
        up.load_policy(path)


@pytest.mark.parametrize("depth", [2000, 200_000])
def test_a_deep_head_is_a_damaged_file(tmp_path, depth):
    path = tmp_path / "deep.npz"
    np.savez(path, upriver=np.array("[" * depth + "]" * depth))
    with pytest.raises(ValueError, match=r"deep\.npz is damaged, or was not written by Upriver"):
        up.load_policy(path)


def one_state(horizon):
    return up.FiniteMDP.from_arrays(np.ones((1, 1, 1)), [[0.0]], horizon)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: up.simulate(RIVER, up.agents.Random(RIVER.true_task), 10**15),
            "n_episodes is 10{15}; it",
        ),
        (lambda: one_state(10**12), "horizon is 10{12}; it must be at most"),
        (lambda: one_state(float("inf")), "horizon is inf"),
        (lambda: up.agents.PSRL(RIVER.true_task, prior=10**400), "prior is 1000"),
    ],
)
def test_huge_sizes_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("field", "value"),
    [("k", 0), ("k", -3), ("k", np.nan), ("k", True), ("k", 10**30), ("model", None)],
)
def test_a_counter_below_one_and_no_model_are_refused(field, value, tmp_path):
    agent = build_agent("epsilon-greedy", RIVER)
    sentence = "the state is not one of this EpsilonGreedy"
    with pytest.raises(ValueError, match=sentence):
        agent.plan(agent.init()._replace(**{field: value}), np.random.default_rng(0))
    checkpoint = up.simulate(RIVER, agent, 2).checkpoint
    spoiled = checkpoint._replace(state=checkpoint.state._replace(**{field: value}))
    with pytest.raises(ValueError, match=sentence):
        up.simulate(RIVER, agent, 1, resume=spoiled)
    up.save_agent(tmp_path / "a.npz", spoiled)
    with pytest.raises(ValueError, match=sentence):
        up.load_agent(tmp_path / "a.npz", agent)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_a_ridge_that_is_not_above_zero_is_refused(value):
    agent = build_agent("ucrl-mnl", RIVER)
    state = agent.init()
    spoiled = state._replace(model=state.model._replace(regularization=value))
    with pytest.raises(ValueError, match="the state is not one of this UCRLMNL"):
        agent.plan(spoiled, np.random.default_rng(0))


def test_flags_and_counters_from_zero_in_a_state_may_change():
    """A state of somebody's own agent: what begins at 0 may grow, a flag may turn."""

    @dataclass(frozen=True)
    class Counting(Random):
        def init(self):
            return True, 0

        def update(self, state, plan, episode):
            return False, state[1] + 1

    agent = Counting(RIVER.true_task)
    run = up.simulate(RIVER, agent, 3)
    up.simulate(RIVER, agent, 3, resume=run.checkpoint)
