"""Checks that do not believe the model: by hand, against the truth, and when they disagree."""

from itertools import compress

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import upriver as up
from upriver.logs.offpolicy import (
    REPLICATES,
    build_episodes,
    doubly_robust,
    importance_ratios,
)
from upriver.logs.page import estimates_table

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


def test_importance_sampling_has_no_value_where_no_episode_follows_the_policy():
    """The policy goes right twice, and no episode of the log does: the second step is unknown."""
    task = up.Task(2, 2, 2, [0, 1, 2, 3, 4], [0, 1, 0, 1], np.array([[0.0, 1.0], [0.0, 1.0]]))
    log = {"state": [0, 1, 0, 0], "action": [1, 0, 0, 1], "next_state": [1, 0, 0, 1],
           "episode": [1, 1, 2, 2], "step": [0, 1, 0, 1]}  # fmt: skip
    phi = up.features.one_hot(task)
    model = up.fit_transitions(log, features=phi, task=task, regularization=1.0)
    found = up.check_policy_value(model, np.ones((2, 2), int), log)
    rows = {r["name"]: r for r in found.rows}
    assert np.isnan(rows["weighted importance sampling"]["value"])
    assert rows["weighted importance sampling"]["effective"] == 0.0
    assert rows["doubly robust"]["value"] == pytest.approx(2.0)  # the model says what comes
    assert "can hardly check" in found.verdict
    assert "<td>–</td>" in estimates_table(found.rows) and "NaN" not in estimates_table(found.rows)


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


def test_a_column_of_rewards_is_discounted_as_the_model_is(model, log):
    """All that was earned, as a column, gives what the rewards of the task give."""
    at = model.at(horizon=TASK.horizon, discount=0.5)
    policy = np.full((TASK.n_states, TASK.n_actions), 1 / TASK.n_actions)
    found, again = (up.check_policy_value(at, policy, log, reward=x) for x in (None, "reward"))
    for row, other in zip(found.rows, again.rows, strict=True):
        assert other["value"] == pytest.approx(row["value"]), row["name"]
        assert other["standard_error"] == pytest.approx(row["standard_error"]), row["name"]


def test_doubly_robust_needs_only_one_to_be_right(model, log):
    """With values from nowhere it is right on average, with good ones it is sharper."""
    own = up.fit_transitions(log, features=PROBLEM.phi, task=TASK, individual="episode")
    data = build_episodes(own)
    did = PROBLEM.behaviour.reshape(-1)
    ratio = importance_ratios(TASK, data, np.tile(did, (TASK.horizon, 1)), did[data.pairs])
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


def test_short_episodes_have_ended_where_the_log_says_so(model, log):
    some = np.asarray(log["step"]) < 3
    short = {k: list(compress(v, some)) for k, v in log.items()} | {"over": [1] * int(some.sum())}
    rows = up.check_policy_value(model, "behaviour", short, ended="over").rows
    paid = np.reshape(log["reward"], (600, -1))[:, :3].sum(axis=1).mean()
    assert rows[1]["value"] == pytest.approx(paid)
    assert REPLICATES >= 100 and a_log(PROBLEM, 3, 0).sum() == 36


def test_states_may_say_which_short_episodes_have_ended(model, log):
    """Actions leave these states, so without `ended` all short episodes are censored."""
    frame = pd.DataFrame(log)
    frame = frame[(frame["step"] < 3) | (frame["episode"] % 2 == 0)]
    ends = list(TASK.state_names)[:4]
    frame = frame.assign(over=[s in ends for s in frame["next_state"]])
    column, states, censored = (
        up.check_policy_value(model, "behaviour", frame, ended=x).rows for x in ("over", ends, None)
    )
    for a, b in zip(column, states, strict=True):
        assert a == pytest.approx(b)
    assert states[1]["value"] != pytest.approx(censored[1]["value"], rel=1e-3)


def test_bad_logs_are_named(model, log):
    some = np.asarray(log["step"]) < 3
    short = {k: list(compress(v, some)) for k, v in log.items()}
    for options, message in (
        ({"episode": "visit"}, "the log has no column 'visit'"),
        ({}, "no episode of the log is followed beyond step 3; the horizon is 12"),
        ({"ended": ["gone"]}, "ended names the state 'gone'; it must be one of"),
        ({"ended": 3}, "ended is 3; it must be a list"),
        ({"ended": "reward"}, "column 'reward' of the log must hold true and false"),
        ({"propensity": "step"}, "propensity 'step' is 0 somewhere; it must be above 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            up.check_policy_value(model, "behaviour", short, **options)


class TestTheOrderOfAnEpisode:
    """Rows of an episode are a chain: each starts in the state to which the one before it goes."""

    policy = PROBLEM.policies["randomised"]

    def check(self, model, rows, **options):
        return up.check_policy_value(model, self.policy, rows, **options).rows

    def test_only_the_order_of_the_steps_counts(self, model, log):
        rows = pd.DataFrame(log)
        found = self.check(model, rows)
        dates = pd.Timestamp("2026-01-01") + pd.to_timedelta(rows["step"] ** 2, "D")
        for steps in (10 * rows["step"] - 3, rows["step"] / 7, dates):
            again = rows.assign(step=steps).sample(frac=1.0, random_state=0)
            for row, other in zip(found, self.check(model, again), strict=True):
                assert other["value"] == pytest.approx(row["value"]), row["name"]

    def test_what_is_no_chain_is_refused(self, model, log):
        rows = pd.DataFrame(log)
        at = (rows["episode"] == 17) & (rows["step"] == 4)
        broken = np.flatnonzero((rows["state"] != rows["next_state"]) & (rows["step"] == 4))[0]
        episode = rows["episode"][broken]
        for frame, message in (
            (rows.assign(step=rows["step"].astype(str)), "column 'step' of the log holds words"),
            (rows.assign(step=rows["step"].where(~at, 3)), "episode 17 .* more than one row of step"
                                                           " 3;"),
            (rows.drop(index=broken), f"episode {episode} of the log goes to another state at step "
                                      "3 than it is in at step 5"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=message):
                self.check(model, frame)
        late = up.fit_transitions(log, features=PROBLEM.phi, task=TASK).at(horizon=4)
        # beyond the horizon nothing is used
        up.check_policy_value(late, "behaviour", rows.drop(index=broken))
        with pytest.raises(ValueError, match=r"17 is in more than one 'who'; .* one cluster"):
            self.check(model, rows.assign(who=1 + at), cluster="who")
        for first, second, weight in ((1, 2, 1 + at), (1, 0, 1 - at)):
            with pytest.raises(ValueError, match=f"holds ({first} and {second}|{second} and "
                               f"{first}) for episode 17; .* one weight"):  # fmt: skip
                self.check(model, rows.assign(times=weight), weights="times")

    @pytest.mark.parametrize("column", ["action", "reward"])
    def test_an_episode_is_followed_up_to_its_first_gap(self, model, log, column):
        """Later rows moved one step earlier, also where the chain goes on without the row."""
        rows = pd.DataFrame(log)
        gap = np.zeros(len(rows), bool)
        stays = rows["state"] == rows["next_state"]
        for e, step in ((3, 0), (5, 4), (8, 11)):
            gap |= (rows["episode"] == e) & (rows["step"] == step)
        gap |= stays & (rows["step"] == 6)
        first = rows["step"].where(gap).groupby(rows["episode"]).transform("min")
        cut = rows[~(rows["step"] >= first)]
        wanted = self.check(model, cut, reward="reward")
        dropped = rows.assign(**{column: rows[column].where(~gap)})
        found = self.check(model, dropped, reward="reward", missing="drop")
        assert found == wanted

    def test_a_hole_beside_gaps_is_refused_unless_a_row_has_no_step(self, model, log):
        rows = pd.DataFrame(log)
        moves = rows["state"] != rows["next_state"]
        hole, other = np.flatnonzero(moves & (rows["step"] == 4))[:2]
        rows["reward"] = rows["reward"].where(rows.index != other)
        options = {"reward": "reward", "missing": "drop"}
        with pytest.raises(ValueError, match=f"episode {rows['episode'][hole]} .* another state"):
            self.check(model, rows.drop(index=hole), **options)
        first = rows.index[[hole, other]]
        after = [(rows["episode"] == rows["episode"][i]) & (rows["step"] >= 4) for i in first]
        wanted = self.check(model, rows[~(after[0] | after[1])], **options)
        rows["step"] = rows["step"].where(rows.index != hole)
        assert self.check(model, rows, **options) == wanted

    def test_rows_without_an_episode_may_have_any_weight(self, model, log):
        rows = pd.DataFrame(log).assign(times=2)
        last = rows["episode"] == 599
        wanted = self.check(model, rows[~last], weights="times")
        rows["times"] = rows["times"].where(~last, rows["step"])
        rows["episode"] = rows["episode"].where(~last)
        assert self.check(model, rows, weights="times", missing="drop") == wanted

    def test_no_episode_has_a_first_row(self, model, log):
        rows = pd.DataFrame(log)
        rows["reward"] = rows["reward"].where(rows["step"] > 0)
        with pytest.raises(ValueError, match="the first row of every episode"):
            self.check(model, rows, reward="reward", missing="drop")


@pytest.fixture(scope="module")
def mortal():
    """A log of four steps whose first state ends episodes, and its model."""
    rng, rows = np.random.default_rng(0), []
    for episode in range(120):
        state = "ill"
        for step in range(4):
            action = rng.choice(["rest", "treat"])
            dies = 0.3 if state == "ill" else 0.1
            after = rng.choice(["dead", "ill", "well"], p=[dies, 0.5 - dies, 0.5])
            rows.append((episode, episode // 3, step, state, action, after))
            state = after
            if state == "dead":
                break
    names = ["episode", "who", "step", "state", "action", "next_state"]
    rows = pd.DataFrame(rows, columns=names)
    formula = "next_state:state + next_state:action"
    return rows, up.fit_transitions(formula, rows, horizon=4, reward={"well": 1.0})


@pytest.mark.parametrize("cluster", [None, "who"])
def test_an_episode_without_a_first_row_does_not_start_in_the_first_state(mortal, cluster):
    """The first state is one that no action leaves, in which an episode would stay."""
    rows, model = mortal
    lost = rows["episode"] < 30
    found = [
        up.check_policy_value(model, "behaviour", x, missing="drop", cluster=cluster).rows
        for x in (rows.assign(action=rows["action"].where(~lost | (rows["step"] > 0))), rows[~lost])
    ]
    assert found[0] == found[1]
    never = rows.assign(action=rows["action"].where(rows["step"] > 0))
    with pytest.raises(ValueError, match="the first row of every episode"):
        up.check_policy_value(model, "behaviour", never, missing="drop", cluster=cluster)


def test_an_episode_is_followed_until_its_covariates_change(mortal):
    """It was left out, so that those stayed that had ended before: they earn less than others."""
    rows, _ = mortal
    changed = (rows["episode"] < 60) & (rows["step"] >= 2)
    rows = rows.assign(old=1.0 * changed)
    formula = "next_state:state + next_state:action + next_state:old"
    model = up.fit_transitions(formula, rows, horizon=4, reward={"well": 1.0})
    young = model.at(old=0.0)
    found, cut = (up.check_policy_value(young, "behaviour", x) for x in (rows, rows[~changed]))
    assert found.rows == cut.rows
    with pytest.raises(ValueError, match="followed beyond step 1; the horizon is 4"):
        up.check_policy_value(model.at(old=[0.0, 5.0, 5.0, 5.0]), "behaviour", rows)
    with pytest.raises(ValueError, match="no episode of the log has old = 5"):
        up.check_policy_value(model.at(old=5.0), "behaviour", rows)


def test_the_dead_do_not_say_what_the_living_earn(mortal):
    """Beyond the last row only those that have ended were followed."""
    rows, model = mortal
    with pytest.raises(ValueError, match="followed beyond step 4; the horizon is 6"):
        up.check_policy_value(model.at(horizon=6), "behaviour", rows)
    ended = rows[rows.groupby("episode")["next_state"].transform("last") == "dead"]
    found = up.check_policy_value(model.at(horizon=6), "behaviour", ended).rows[1]["value"]
    paid = (ended["state"] == "well").groupby(ended["episode"]).sum()
    assert found == pytest.approx(paid.mean())
    # one that was left earlier is like the others, which were followed to their ends
    left = rows[rows["episode"] == rows["episode"][rows["step"] == 3].iloc[0]].head(1)
    up.check_policy_value(model.at(horizon=6), "behaviour", pd.concat([ended, left]))


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
    with pytest.raises(ValueError, match="for episode 0; all rows of an individual"):
        up.check_policy_value(model, policy, {**log, "times": torn}, weights="times")
    # a state that only an episode of weight 0 has need not be one of the model
    states = [s if n > 0 else (9, 9, 9) for s, n in zip(log["state"], by_row, strict=True)]
    odd = {**log, "state": states, "times": by_row}
    assert up.check_policy_value(model, policy, odd, weights="times").rows == one.rows


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
    by_step = up.fit_transitions("next_state:action:C(state):C(step)", log, **options)
    changing = by_step.at(step=[0, 1, 2])
    alike = up.fit_transitions("next_state:action:C(state)", log, **options)
    act = np.array([1, 1])
    found = {m: up.check_policy_value(m, act, log).rows[-1] for m in (changing, alike)}
    assert found[changing]["name"] == "fitted-Q evaluation, by step"
    assert found[changing]["value"] == pytest.approx(1.0)
    assert found[alike]["name"] == "fitted-Q evaluation, steps pooled"
    assert abs(found[alike]["value"] - 1.0) > 0.05


class TestTwoSteps:
    """Two states, two actions, two steps: every estimate against loops over the definitions."""

    # (state, action, next state, action at the second step or None, last state)
    rows = (
        (0, 0, 0, 0, 1), (0, 0, 1, 1, 1), (0, 1, 1, 0, 0), (0, 1, 1, None, None),
        (1, 0, 0, 1, 1), (1, 1, 1, 1, 0), (0, 1, 0, None, None), (1, 0, 1, 0, 1),
    ) * 3  # fmt: skip
    reward = np.array([[0.0, 0.5], [1.0, 2.0]])
    policy = np.array([[[0.3, 0.7], [0.6, 0.4]], [[0.9, 0.1], [0.2, 0.8]]])

    def log(self, rows, **more):
        cells = [
            (i, h, *x)
            for i, (s, a, t, b, u) in enumerate(rows)
            for h, x in enumerate([(s, a, t)] + ([] if b is None else [(t, b, u)]))
        ]
        names = "episode", "step", "state", "action", "next_state"
        made = {name: [x[i] for x in cells] for i, name in enumerate(names)}
        return made | {k: [v(*x) for x in cells] for k, v in more.items()}

    def model(self, log):
        task = up.Task(2, 2, 2, np.arange(5) * 2, [0, 1] * 4, self.reward)
        return up.fit_transitions(
            log, features=up.features.one_hot(task), task=task, regularization=1.0
        )

    def values(self, model):
        """Q and V of the policy under the model, backwards by hand."""
        p = model.probability.reshape(2, 2, 2)
        v, q = np.zeros((3, 2)), np.zeros((2, 2, 2))
        for h in (1, 0):
            q[h] = self.reward + p @ v[h + 1]
            v[h] = (self.policy[h] * q[h]).sum(axis=1)
        return q, v

    def shares(self, rows):
        """How often each action was taken in each state."""
        count = np.zeros((2, 2))
        for s, a, t, b, _ in rows:
            count[s, a] += 1
            if b is not None:
                count[t, b] += 1
        return count / count.sum(axis=1, keepdims=True)

    def reference(self, rows, model, did):
        """Weighted importance sampling and doubly robust, episode by episode."""
        q, v = self.values(model)
        left = [t for _, _, t, b, _ in rows if b is None]
        first, second, earned = [], [], []
        for s, a, t, b, _ in rows:
            met = [x[2] for x in rows]
            share = (left.count(t) + 5 * len(left) / len(rows)) / (met.count(t) + 5)
            first.append(self.policy[0, s, a] / did[s, a])
            go_on = 0.0 if b is None else self.policy[1, t, b] / did[t, b] / (1 - share)
            second.append(first[-1] * go_on)
            earned.append((self.reward[s, a], 0.0 if b is None else self.reward[t, b]))
        w = np.array([first, second])
        w /= w.mean(axis=1, keepdims=True)
        sampled = sum(np.mean(w[h] * [x[h] for x in earned]) for h in (0, 1))
        means = [np.mean(w[h] * [x[h] for x in earned]) for h in (0, 1)]
        off = [w[0][i] * (x[0] - means[0]) + w[1][i] * (x[1] - means[1])
               for i, x in enumerate(earned)]  # fmt: skip
        robust = []
        for i, (s, a, t, b, _) in enumerate(rows):
            total = v[0, s] + w[0, i] * (earned[i][0] - q[0, s, a]) + w[0, i] * v[1, t]
            robust.append(total + (0 if b is None else w[1, i] * (earned[i][1] - q[1, t, b])))
        n = len(rows)
        return (sampled, np.std(off) / np.sqrt(n)), (np.mean(robust), np.std(robust) / np.sqrt(n))

    @pytest.mark.parametrize("censored", [False, True])
    def test_by_loops(self, censored):
        rows = [x for x in self.rows if censored or x[3] is not None]
        log = self.log(rows)
        model = self.model(log)
        found = {r["name"]: r for r in up.check_policy_value(model, self.policy, log).rows}
        expected = self.reference(rows, model, self.shares(rows))
        for name, (value, error) in zip(
            ("weighted importance sampling", "doubly robust"), expected, strict=True
        ):
            assert found[name]["value"] == pytest.approx(value), name
            assert found[name]["standard_error"] == pytest.approx(error), name
            reach = stats.t.ppf(0.975, len(rows) - 1) * error
            low, high = value - reach, value + reach
            assert (found[name]["low"], found[name]["high"]) == pytest.approx((low, high))

    def test_logged_propensities_and_clusters(self):
        rows = [x for x in self.rows if x[3] is not None]
        did = np.array([[0.5, 0.5], [0.25, 0.75]])
        log = self.log(
            rows, p=lambda i, h, s, a, t: did[s, a], person=lambda i, h, s, a, t: i % len(rows[:6])
        )
        model = self.model(log)
        found = up.check_policy_value(model, self.policy, log, propensity="p")
        (value, error), _ = self.reference(rows, model, did)
        assert found.rows[1]["value"] == pytest.approx(value)
        assert found.rows[1]["standard_error"] == pytest.approx(error)
        again = up.check_policy_value(model, self.policy, log, propensity="p", cluster="person")
        assert again.rows[1]["value"] == pytest.approx(value)
        # three copies of six episodes are six clusters, with sums three times as large; with few
        # clusters the variance has C - 1 in the place of C
        assert again.rows[1]["standard_error"] == pytest.approx(error * np.sqrt(3 * 6 / 5))
        ratio = again.rows[3]["standard_error"] / found.rows[3]["standard_error"]
        assert 1.4 < ratio < 2.6  # with six clusters not all pairs are met in every draw

    def test_fitted_q_goes_on_where_an_episode_was_left(self):
        """Tables by hand: rows of all steps, and the next state counts although it was left."""
        log = self.log(self.rows)
        found = up.check_policy_value(self.model(log), self.policy, log).rows[3]["value"]
        moves = np.zeros((2, 2, 2))
        for s, a, t, b, u in self.rows:
            moves[s, a, t] += 1
            if b is not None:
                moves[t, b, u] += 1
        p = moves / moves.sum(axis=2, keepdims=True)
        last = (self.policy[1] * self.reward).sum(axis=1)
        first = (self.policy[0] * (self.reward + p @ last)).sum(axis=1)
        starts = [x[0] for x in self.rows]
        assert found == pytest.approx(np.mean([first[s] for s in starts]))

    def test_the_error_of_fitted_q_evaluation(self):
        """One step, one action: the bootstrap's error is that of a mean."""
        rng = np.random.default_rng(0)
        paid = rng.normal(size=400)
        log = {"state": [0] * 400, "action": [0] * 400, "next_state": [0] * 400,
               "episode": range(400), "step": [0] * 400, "paid": paid}  # fmt: skip
        task = up.Task(1, 1, 1, [0, 1], [0], np.zeros((1, 1)))
        model = up.fit_transitions(
            log, features=up.features.one_hot(task), task=task, regularization=1.0
        )
        row = up.check_policy_value(model, np.array([0]), log, reward="paid").rows[3]
        assert row["value"] == pytest.approx(paid.mean())
        assert row["standard_error"] == pytest.approx(paid.std() / 20, rel=0.15)
        width = 2 * stats.t.ppf(0.975, 399) * row["standard_error"]
        assert row["high"] - row["low"] == pytest.approx(width)


def test_a_state_that_is_never_left_goes_on_paying():
    """Half of the episodes are absorbed at once: by hand 0.5 + 1 + 1 against 0.5 + 0.5 + 0.5."""
    log = {"state": ["a"] * 40 + ["a"] * 40, "action": ["go"] * 80, "next_state": ["end"] * 20
           + ["a"] * 60, "episode": [*range(20), *np.repeat(np.arange(20, 40), 3)],
           "step": [0] * 20 + [0, 1, 2] * 20}  # fmt: skip
    model = up.fit_transitions(
        "next_state", log, horizon=3, reward={"a": 0.5, "end": 1.0}, regularization=0.1
    )
    rows = up.check_policy_value(model, "behaviour", log).rows
    assert rows[1]["value"] == pytest.approx((2.5 + 1.5) / 2)
    log["over"] = [x == "end" for x in log["next_state"]]
    for ended in ("over", ["end"]):
        short = up.check_policy_value(model, "behaviour", log, ended=ended).rows
        assert short[1]["value"] == pytest.approx(rows[1]["value"])


def test_only_episodes_with_the_same_covariates_are_compared(rng):
    """Two groups with opposite habits; at one of them the model agrees with its own episodes."""
    rows = []
    for i in range(400):
        old, s = i % 2, 0
        for h in range(4):
            t = int(rng.random() < (0.9 if old else 0.1))
            rows.append((i, h, s, "wait", t, old))
            s = t
    log = pd.DataFrame(rows, columns=["episode", "step", "state", "action", "next_state", "old"])
    model = up.fit_transitions("C(next_state) + old:C(next_state)", log, successors="all")
    options = {"horizon": 4, "reward": {1: 1.0}}
    for old, truth in ((0, 0.3), (1, 2.7)):
        found = up.check_policy_value(model.at(old=old, **options), "behaviour", log)
        assert all(abs(r["value"] - truth) < 0.3 for r in found.rows)
        assert found.rows[0]["effective"] == 200 and "agree with it" in found.verdict
    with pytest.raises(ValueError, match="no episode of the log has old = 5"):
        up.check_policy_value(model.at(old=5, **options), "behaviour", log)


def test_propensities_by_a_formula(rng):
    """Actions depend on a covariate that also pays: shares by state are wrong, a formula right."""
    n = 4000
    ill = rng.integers(2, size=n)
    action = (rng.random(n) < np.where(ill, 0.8, 0.2)).astype(int)
    paid = 1.0 - ill + 0.0 * action  # the action does nothing, and who is ill earns nothing
    log = {"state": ["here"] * n, "action": action, "next_state": ["here"] * n, "ill": ill,
           "episode": np.arange(n), "step": [0] * n, "paid": paid}  # fmt: skip
    task = up.Task(1, 2, 1, [0, 1, 2], [0, 0], np.zeros((1, 2)), states=["here"], actions=[0, 1])
    phi = up.features.one_hot(task)
    model = up.fit_transitions(log, features=phi, task=task, regularization=1.0)
    act = np.array([1])
    plain = up.check_policy_value(model, act, log, reward="paid").rows[1]
    assert plain["value"] == pytest.approx(0.2, abs=0.03)
    formula = up.check_policy_value(
        model, act, log, reward="paid", propensity="action + action:ill"
    ).rows[1]
    assert formula["value"] == pytest.approx(0.5, abs=0.05)
    alone = up.check_policy_value(model, act, log, reward="paid", propensity="action").rows[1]
    assert alone["value"] == pytest.approx(plain["value"], abs=1e-3)
    with pytest.raises(ValueError, match="column 'word' of the log holds words; it must hold num"):
        up.check_policy_value(model, act, {**log, "word": ["a"] * n}, propensity="word")
    # one situation for each value of `ill`: the probabilities are the shares there
    share = np.array([action[ill == x].mean() for x in (0, 1)])[ill]
    w = action / share
    assert formula["value"] == pytest.approx((w @ paid) / w.sum(), rel=1e-3)


def panel(rng, seed, n, censored, by_state=False):
    """Episodes of 10 steps; censored ones are followed for 3 to 10, or left where they are low."""
    done = up.rollouts(PANEL, PROBLEM.behaviour, n, seed=seed)
    log = {k: np.asarray(v) for k, v in frame(done, PANEL.true_task).items()}
    followed = np.full(n, 10)
    if censored:
        followed = rng.integers(3, 11, n)
    if by_state:
        gone = (done.states[:, 1:10] < 3) & (rng.random((n, 9)) < 0.3)
        followed = np.where(gone.any(axis=1), 1 + gone.argmax(axis=1), 10)
    return {k: v[log["step"] < followed[log["episode"]]] for k, v in log.items()}


PANEL = up.FiniteMDP(
    up.Task(**{**{f: getattr(TASK, f) for f in ("n_states", "n_actions", "indptr", "successors",
                                                "reward")}, "horizon": 10}),
    MDP.probability, MDP.initial_states, MDP.initial_probability,
)  # fmt: skip


def verdicts(n_logs, censored, wrong=False, n=200, by_state=False):
    """The share of logs in which the checks disagree with the model."""
    task, off = PANEL.true_task, 0
    phi = up.Features(task, PROBLEM.phi.matrix)
    policy = np.tile([0.5, 0.5], (10, 1))
    for seed in range(n_logs):
        log = panel(np.random.default_rng([seed, 1]), seed, n, censored, by_state)
        if wrong:
            x = up.Features(task, phi.matrix[:, :2])
            model = up.fit_transitions(log, features=x, task=task, regularization=1e-3)
        else:
            model = up.fit_transitions(log, features=phi, task=task, regularization=1e-3)
        off += "disagrees" in up.check_policy_value(model, policy, log).verdict
    return off / n_logs


@pytest.mark.slow
@pytest.mark.parametrize("by_state", [False, True])
def test_an_unbalanced_panel_does_not_condemn_a_right_model(by_state):
    share = verdicts(200, not by_state, by_state=by_state)
    print(f"a right model, censored {'by state' if by_state else 'at random'}: {share:.3f}")
    assert share <= 0.07


@pytest.mark.slow
def test_a_wrong_model_is_found_as_often_as_on_complete_data():
    """With as many rows: episodes followed for 3 to 10 steps have 6.5 on average."""
    found = verdicts(100, True, wrong=True, n=200)
    complete = verdicts(100, False, wrong=True, n=130)
    print(f"a wrong model: found in {found:.2f} censored logs, in {complete:.2f} complete ones")
    assert complete > 0.2 and found > complete - 0.1
