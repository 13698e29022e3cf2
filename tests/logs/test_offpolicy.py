"""Checks that do not believe the model: by hand, against the truth, and when they disagree."""

import numpy as np
import pandas as pd
import pytest

import upriver as up
from upriver.logs.offpolicy import (
    REPLICATES,
    action_probabilities,
    doubly_robust,
    importance_ratios,
    read_episodes,
)

from .coverage import PROBLEMS, a_log

PROBLEM = PROBLEMS["drawn"]()
MDP, TASK = PROBLEM.mdp, PROBLEM.mdp.true_task


def frame(done, task):
    """The episodes of rollouts as columns."""
    n, horizon = done.actions.shape
    states = task.states or range(task.n_states)
    actions = task.actions or range(task.n_actions)
    return {
        "state": [states[s] for s in done.states[:, :-1].ravel()],
        "action": [actions[a] for a in done.actions.ravel()],
        "next_state": [states[s] for s in done.states[:, 1:].ravel()],
        "episode": np.repeat(np.arange(n), horizon),
        "step": np.tile(np.arange(horizon), n),
        "reward": done.rewards.ravel(),
    }


@pytest.fixture(scope="module")
def log():
    return frame(up.rollouts(MDP, PROBLEM.behaviour, 600, seed=4), TASK)


@pytest.fixture(scope="module")
def model(log):
    return up.fit_transitions(log, features=PROBLEM.phi, task=TASK)


def test_by_hand():
    """Two arms, four episodes: the weights and the estimates by hand."""
    task = up.Task(2, 2, 1, [0, 1, 2, 3, 4], [1, 1, 1, 1], np.array([[0.25, 1.0], [0, 0]]))
    log = {"state": [0] * 4, "action": [0, 0, 0, 1], "next_state": [1] * 4,
           "episode": [1, 2, 3, 4], "step": [0] * 4}  # fmt: skip
    phi = up.features.one_hot(task)
    model = up.fit_transitions(log, features=phi, task=task, regularization=1.0)
    found = up.check_policy_value(model, np.array([[0.5, 0.5], [0.5, 0.5]]), log)
    rows = {r["name"]: r for r in found.rows}
    # weights 2/3, 2/3, 2/3, 2: mean 1
    assert rows["weighted importance sampling"]["value"] == pytest.approx(0.625)
    assert rows["weighted importance sampling"]["effective"] == pytest.approx(16 / (4 / 3 + 4))
    assert (
        rows["doubly robust"]["value"]
        == rows["fitted-Q evaluation, steps pooled"]["value"]
        == 0.625
    )
    assert "can hardly check" in found.verdict


def test_they_find_the_truth_and_agree(model, log):
    mixed = 0.5 * PROBLEM.behaviour + 0.25
    found = up.check_policy_value(model, mixed, log)
    true = up.evaluate(MDP, mixed)[0].mean()
    for r in found.rows:
        # the starts are the log's own, so the truth moves a little
        assert abs(r["value"] - true) < 4 * r["standard_error"] + 0.1, r["name"]
    assert "agree with it" in found.verdict and "doubly robust" in found.summary()


def test_the_behaviour_is_what_was_earned(model, log):
    """Reweighed to itself, a log is worth its mean return; every episode counts."""
    found = {
        r["name"]: r for r in up.check_policy_value(model, "behaviour", log, reward="reward").rows
    }
    earned = np.reshape(log["reward"], (600, -1)).sum(axis=1)
    sampled = found["weighted importance sampling"]
    assert sampled["value"] == pytest.approx(earned.mean())
    assert sampled["standard_error"] == pytest.approx(earned.std() / np.sqrt(600))
    assert sampled["effective"] == pytest.approx(600)


def test_doubly_robust_needs_only_one_to_be_right(log):
    """With values from nowhere it is right on average, with good ones it is sharper."""
    data = read_episodes(
        TASK, log, ("state", "action", "next_state"), "episode", "step", None, None
    )
    did = PROBLEM.behaviour.reshape(-1)
    ratio = importance_ratios(TASK, data, action_probabilities(TASK, did[None]), did)
    rng, groups = np.random.default_rng(1), len(TASK.sizes)
    q = rng.random((TASK.horizon, groups))
    v = np.vstack([
        (q * did).reshape(TASK.horizon, TASK.n_states, -1).sum(axis=2), np.zeros(TASK.n_states)
    ])  # fmt: skip
    wild, error = doubly_robust(TASK, data, ratio, q, v)
    assert abs(wild - data.rewards.sum(axis=1).mean()) < 4 * error


def test_a_wrong_model_is_found(log):
    """Features that say nothing: the model's value is off, and the checks say so."""
    nothing = up.Features(TASK, 1e-9 * np.ones((TASK.n_triples, 1)) * TASK.successors[:, None])
    wrong = up.fit_transitions(log, features=nothing, task=TASK, regularization=1.0)
    found = up.check_policy_value(wrong, "behaviour", log)
    assert "disagrees with weighted importance sampling" in found.verdict


def test_short_episodes_have_ended_and_bad_logs_are_named(model, log):
    short = {k: np.array(v, object)[np.asarray(log["step"]) < 3] for k, v in log.items()}
    found = {r["name"]: r["value"] for r in up.check_policy_value(model, "behaviour", short).rows}
    paid = np.reshape(log["reward"], (600, -1))[:, :3].sum(axis=1).mean()
    assert found["weighted importance sampling"] == pytest.approx(paid)
    with pytest.raises(ValueError, match="the log has no column 'visit'"):
        up.check_policy_value(model, "behaviour", log, episode="visit")
    assert REPLICATES >= 100 and a_log(PROBLEM, 3, 0).sum() == 36


def test_weights_count_episodes(model, log):
    """An episode of weight 3 is that episode three times, of weight 0 none."""
    policy = PROBLEM.policies["randomised"]
    times = np.arange(600) % 4
    by_row = np.repeat(times, TASK.horizon)
    row = np.repeat(np.arange(len(by_row)), by_row)
    again = {k: [x[i] for i in row] for k, x in log.items()}
    copy = np.concatenate([np.arange(n) for n in by_row])  # which copy of its episode a row is in
    again["episode"] = np.array(again["episode"]) * 4 + copy
    one = up.check_policy_value(model, policy, {**log, "times": by_row}, weights="times")
    other = up.check_policy_value(model, policy, again)
    for r, t in zip(one.rows, other.rows, strict=True):
        for key in ("value", "effective"):
            assert r[key] == pytest.approx(t[key]), r["name"]
        assert r["standard_error"] == pytest.approx(t["standard_error"], rel=0.2), r["name"]
    assert one.rows[1]["standard_error"] == pytest.approx(other.rows[1]["standard_error"])
    torn = by_row.copy()
    torn[5] = 7
    with pytest.raises(ValueError, match="in episode 0; all rows of an episode"):
        up.check_policy_value(model, policy, {**log, "times": torn}, weights="times")


def test_fitted_q_evaluation_by_step_where_the_world_changes():
    """Two states; at step 0 the action leads to the state that pays, at step 1 away from it.

    By hand the policy that always acts earns 1 at step 1 and 0 at step 2; tables of all steps
    would average both steps.
    """
    rows = []
    for i in range(200):
        action = (i % 2, i // 2 % 2)
        first = action[0]  # step 0: acting leads to state 1, which pays at step 1
        last = 1 - action[1] if first else 0  # step 1: acting leads back to state 0
        rows += [(i, 0, 0, action[0], first, 0.0), (i, 1, first, action[1], last, float(first)),
                 (i, 2, last, 0, last, float(last))]  # fmt: skip
    log = pd.DataFrame(rows, columns=["episode", "step", "state", "action", "next_state", "paid"])
    options = {"regularization": 0.01, "horizon": 3, "reward": {1: 1.0}, "successors": "all"}
    changing = up.fit_transitions("next_state:action:C(state)", log, per_step="step", **options)
    alike = up.fit_transitions("next_state:action:C(state)", log, **options)
    act = np.array([1, 1])
    found = {m: up.check_policy_value(m, act, log).rows[-1] for m in (changing, alike)}
    assert found[changing]["name"] == "fitted-Q evaluation, by step"
    assert found[changing]["value"] == pytest.approx(1.0)
    assert found[alike]["name"] == "fitted-Q evaluation, steps pooled"
    assert abs(found[alike]["value"] - 1.0) > 0.05
