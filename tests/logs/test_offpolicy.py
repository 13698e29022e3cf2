"""Checks that do not believe the model: by hand, against the truth, and when they disagree."""

from itertools import compress

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import upriver as up
from tests.building import fit_features
from upriver.logs.offpolicy import (
    build_episodes,
    importance_ratios,
    importance_value,
    mean_and_error,
    robust_parts,
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


EPISODES = {"individual": "episode", "step": "step"}


def fit(log, **options):
    return fit_features(PROBLEM.phi, log, **(EPISODES | options))


@pytest.fixture(scope="module")
def model(log):
    return fit(log)


def same_episodes(one, other):
    """Whether the episodes of two models have the same rows; their propensities are estimates."""
    names = "states", "pairs", "following", "rewards", "there", "weights", "left", "stays"
    one, other = build_episodes(one), build_episodes(other)
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in names)


def test_by_hand():
    """Two arms, four episodes: the weights and the estimates by hand."""
    log = {"state": [0] * 4, "action": [0, 0, 0, 1], "next_state": [1, 2, 1, 2],
           "episode": [1, 2, 3, 4], "step": [0] * 4}  # fmt: skip
    model = up.fit_transitions(
        "next_state", log, successors=lambda s, a: [] if s else [1, 2], regularization=1.0,
        horizon=1, reward=np.array([[0.25, 1.0], [0, 0], [0, 0]]), **EPISODES,
    )  # fmt: skip
    found = up.check_policy_value(model, np.full((3, 2), 0.5))
    rows = {r["name"]: r for r in found.rows}
    # weights 2/3, 2/3, 2/3, 2: mean 1
    assert rows["weighted importance sampling"]["value"] == pytest.approx(0.625)
    assert rows["weighted importance sampling"]["effective"] == pytest.approx(16 / (4 / 3 + 4))
    assert rows["doubly robust"]["value"] == 0.625
    assert "can hardly check" in found.verdict


def test_importance_sampling_has_no_value_where_no_episode_follows_the_policy():
    """The policy goes right twice, and no episode of the log does: the second step is unknown."""
    log = {"state": [0, 1, 0, 0], "action": [1, 0, 0, 1], "next_state": [1, 0, 0, 1],
           "episode": [1, 1, 2, 2], "step": [0, 1, 0, 1]}  # fmt: skip
    model = up.fit_transitions(
        "next_state", log, successors="all", regularization=1.0, horizon=2,
        reward=np.array([[0.0, 1.0], [0.0, 1.0]]), **EPISODES,
    )  # fmt: skip
    found = up.check_policy_value(model, np.ones((2, 2), int))
    rows = {r["name"]: r for r in found.rows}
    assert np.isnan(rows["weighted importance sampling"]["value"])
    assert rows["weighted importance sampling"]["effective"] == 0.0
    assert rows["doubly robust"]["value"] == pytest.approx(2.0)  # the model says what comes
    assert "can hardly check" in found.verdict
    assert "<td>–</td>" in estimates_table(found.rows) and "NaN" not in estimates_table(found.rows)


def test_they_find_the_truth_and_agree(model):
    mixed = 0.5 * PROBLEM.behaviour + 0.25
    found = up.check_policy_value(model, mixed)
    true = up.evaluate(MDP, mixed)[0].mean()
    for r in found.rows:
        # the starts are the log's own, so the truth moves a little
        assert abs(r["value"] - true) < 4 * r["standard_error"] + 0.1, r["name"]
    assert "agree with it" in found.verdict and "doubly robust" in found.summary()


def test_the_behaviour_is_what_was_earned(model, log):
    """Reweighed to itself, a log is worth its mean return; every episode counts."""
    found = {r["name"]: r for r in up.check_policy_value(model, "behaviour").rows}
    earned = np.reshape(log["reward"], (600, -1)).sum(axis=1)
    sampled = found["weighted importance sampling"]
    assert sampled["value"] == pytest.approx(earned.mean())
    assert sampled["standard_error"] == pytest.approx(earned.std(ddof=1) / np.sqrt(600))
    assert sampled["effective"] == pytest.approx(600)


def test_a_column_of_rewards_is_discounted_as_the_model_is(log):
    """All that was earned, as a column, gives what the rewards of the task give."""
    formula, horizon = "C(next_state):C(state):C(action)", TASK.horizon
    text = {k: [str(x) for x in v] if "st" in k[:4] or k == "next_state" else v
            for k, v in log.items() if k != "step"}  # fmt: skip
    fitted = up.fit_transitions(
        formula, text, individual="episode", regularization=1.0, reward="reward"
    ).at(horizon=horizon, discount=0.5)
    paid = dict(zip(zip(text["state"], text["action"], strict=True), log["reward"], strict=True))
    given = fitted.at(reward=lambda s, a: paid[s, a], horizon=horizon, discount=0.5)
    found, again = (up.check_policy_value(m, "behaviour") for m in (given, fitted))
    for row, other in zip(found.rows[1:], again.rows[1:], strict=True):
        assert other["value"] == pytest.approx(row["value"]), row["name"]
        assert other["standard_error"] == pytest.approx(row["standard_error"]), row["name"]


def test_what_was_earned_does_not_depend_on_the_covariates_of_the_formula():
    """Those who go to bad are followed half as often: an age of their own hides no state."""
    rng, rows = np.random.default_rng(0), []
    for patient in range(400):
        state, age = "good", rng.uniform(40.0, 80.0)
        for visit in range(4):
            then = rng.choice(["good", "bad"], p=[0.8, 0.2] if state == "good" else [0.2, 0.8])
            rows.append((patient, visit, age, state, rng.choice(["a", "b"]), then))
            state = then
            if rng.random() < (0.5 if then == "bad" else 0.0):
                break
    names = ["patient", "visit", "age", "state", "action", "next_state"]
    frame = pd.DataFrame(rows, columns=names)
    earned = []
    for more in ("", " + age:next_state"):
        formula = "next_state:state + next_state:action" + more
        ill = up.fit_transitions(formula, frame, individual="patient", step="visit",
                                 horizon=4, reward={"good": 1.0})  # fmt: skip
        earned.append(up.check_policy_value(ill, "behaviour").rows[1]["value"])
    assert earned[1] == pytest.approx(earned[0])
    here = np.array([1.0, 0.0])
    chain, expected = np.array([[0.8, 0.2], [0.2, 0.8]]), 0.0
    for _ in range(4):
        expected, here = expected + here[0], here @ chain
    assert earned[0] == pytest.approx(expected, abs=0.15)


def test_doubly_robust_needs_only_one_to_be_right(model):
    """With values from nowhere it is right on average, with good ones it is sharper."""
    data = build_episodes(model)
    did = PROBLEM.behaviour.reshape(-1)
    ratio = importance_ratios(TASK, data, np.tile(did, (TASK.horizon, 1)), did[data.pairs])
    rng, groups = np.random.default_rng(1), len(TASK.sizes)
    q = rng.random((TASK.horizon, groups))
    v = np.vstack([
        (q * did).reshape(TASK.horizon, TASK.n_states, -1).sum(axis=2), np.zeros(TASK.n_states)
    ])  # fmt: skip
    wild, error = mean_and_error(robust_parts(TASK, data, ratio, q, v), data)
    assert abs(wild - data.rewards.sum(axis=1).mean()) < 4 * error


def test_a_wrong_model_is_found(log):
    """Features that say nothing: the model's value is off, and the checks say so."""
    nothing = up.Features(TASK, 1e-9 * np.ones((TASK.n_triples, 1)) * TASK.successors[:, None])
    wrong = fit_features(nothing, log, regularization=1.0, **EPISODES)
    found = up.check_policy_value(wrong, "behaviour")
    assert "disagrees with weighted importance sampling" in found.verdict


def test_short_episodes_have_ended_where_the_log_says_so(log):
    some = np.asarray(log["step"]) < 3
    short = {k: list(compress(v, some)) for k, v in log.items()} | {"over": [1] * int(some.sum())}
    rows = up.check_policy_value(fit(short, ended="over"), "behaviour").rows
    paid = np.reshape(log["reward"], (600, -1))[:, :3].sum(axis=1).mean()
    assert rows[1]["value"] == pytest.approx(paid)
    assert a_log(PROBLEM, 3, 0).sum() == 36


def test_bad_logs_are_named(log):
    some = np.asarray(log["step"]) < 3
    short = {k: list(compress(v, some)) for k, v in log.items()}
    for options, message in (
        ({"individual": "visit"}, "the frame has no column 'visit'"),
        ({"individual": None, "step": None, "ended": "gone"}, "ended is .*; it needs individual"),
        ({}, "no episode of the log is followed beyond step 3; the horizon is 12"),
        ({"ended": "gone"}, "the frame has no column 'gone'"),
        ({"ended": 3}, "ended is an int; it must be text"),
        ({"ended": "reward"}, "column 'reward' of the log must hold true and false"),
        ({"propensity": "step"}, "propensity 'step' is 0 somewhere; it must be above 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            given = EPISODES | options
            model = fit(short, **given)
            up.check_policy_value(model, "behaviour")


class TestTheOrderOfAnEpisode:
    """Rows of an episode are a chain: each starts in the state to which the one before it goes."""

    def test_only_the_order_of_the_steps_counts(self, model, log):
        rows = pd.DataFrame(log)
        dates = pd.Timestamp("2026-01-01") + pd.to_timedelta(rows["step"] ** 2, "D")
        for steps in (10 * rows["step"] - 3, rows["step"] / 7, dates):
            again = rows.assign(step=steps).sample(frac=1.0, random_state=0)
            assert same_episodes(model, fit(again))

    def test_what_is_no_chain_is_refused(self, log):
        rows = pd.DataFrame(log)
        at = (rows["episode"] == 17) & (rows["step"] == 4)
        broken = np.flatnonzero((rows["state"] != rows["next_state"]) & (rows["step"] == 4))[0]
        episode = rows["episode"][broken]
        for frame, message in (
            (rows.assign(step=rows["step"].astype(str)), "column 'step' of the frame holds words"),
            (rows.assign(step=rows["step"].where(~at, 3)), "episode 17 .* more than one row of step"
                                                           " 3;"),
            (rows.drop(index=broken), f"episode '?{episode}'? of the log goes to another state at "
                                      "step 3 than it is in at step 5"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=message):
                build_episodes(fit(frame))
        build_episodes(fit(rows.drop(index=broken)).at(horizon=4))  # beyond it nothing is used
        words = rows.assign(state=rows["state"].astype(str), who=1 + at,
                            next_state=rows["next_state"].astype(str))  # fmt: skip
        who = up.fit_transitions("C(next_state)", words, horizon=12, reward=lambda s, a: 1.0,
                                 regularization=1.0, cluster="who", **EPISODES)  # fmt: skip
        with pytest.raises(ValueError, match=r"17 is in more than one 'who'; .* one cluster"):
            build_episodes(who)
        for first, second, weight in ((1, 2, 1 + at), (1, 0, 1 - at)):
            with pytest.raises(ValueError, match=f"holds ({first} and {second}|{second} and "
                               f"{first}) for episode 17; .* one weight"):  # fmt: skip
                fit(rows.assign(times=weight), weights="times")

    def test_rows_of_an_episode_are_not_left_out(self, log):
        rows = pd.DataFrame(log)
        for name in ("action", "step", "episode"):
            gaps = rows.assign(**{name: rows[name].where(rows.index != 20)})
            with pytest.raises(ValueError, match="has no '" + name):
                fit(gaps)
            with pytest.raises(ValueError, match="each episode from its first gap on"):
                fit(gaps, missing="drop")


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
    return rows


def follow(rows, horizon=4, **options):
    formula = "next_state:state + next_state:action"
    return up.fit_transitions(
        formula, rows, horizon=horizon, reward={"well": 1.0}, **EPISODES, **options
    )


def test_an_episode_is_followed_until_its_covariates_change(mortal):
    """It was left out, so that those stayed that had ended before: they earn less than others."""
    changed = (mortal["episode"] < 60) & (mortal["step"] >= 2)
    formula = "next_state:state + next_state:action + next_state:old"

    rows = mortal.assign(old=1.0 * changed)
    model = up.fit_transitions(formula, rows, horizon=4, reward={"well": 1.0}, **EPISODES)
    assert same_episodes(model.at(old=0.0), follow(mortal[~changed]))
    with pytest.raises(ValueError, match="followed beyond step 1; the horizon is 4"):
        up.check_policy_value(model.at(old=[0.0, 5.0, 5.0, 5.0]), "behaviour")
    with pytest.raises(ValueError, match="no episode of the log has old = 5"):
        up.check_policy_value(model.at(old=5.0), "behaviour")


def test_the_dead_do_not_say_what_the_living_earn(mortal):
    """Beyond the last row only those that have ended were followed."""
    with pytest.raises(ValueError, match="followed beyond step 4; the horizon is 6"):
        up.check_policy_value(follow(mortal, 6), "behaviour")
    ended = mortal[mortal.groupby("episode")["next_state"].transform("last") == "dead"]
    found = up.check_policy_value(follow(ended, 6), "behaviour").rows[1]["value"]
    paid = (ended["state"] == "well").groupby(ended["episode"]).sum()
    assert found == pytest.approx(paid.mean())
    # one that was left earlier is like the others, which were followed to their ends
    left = mortal[mortal["episode"] == mortal["episode"][mortal["step"] == 3].iloc[0]].head(1)
    up.check_policy_value(follow(pd.concat([ended, left]), 6), "behaviour")


def test_weights_count_episodes(log):
    """An episode of weight 3 is that episode three times, of weight 0 none."""
    policy = PROBLEM.policies["randomised"]
    times = np.arange(600) % 4
    by_row = np.repeat(times, TASK.horizon)
    row = np.repeat(np.arange(len(by_row)), by_row)
    again = {k: [x[i] for i in row] for k, x in log.items()}
    copy = np.concatenate([np.arange(n) for n in by_row])  # which copy of its episode a row is in
    again["episode"] = np.array(again["episode"]) * 4 + copy
    one = up.check_policy_value(fit({**log, "times": by_row}, weights="times"), policy)
    other = up.check_policy_value(fit(again), policy)
    for r, t in zip(one.rows[:2], other.rows[:2], strict=True):  # copies may be in other folds
        for key in ("value", "effective", "standard_error"):
            assert r[key] == pytest.approx(t[key]), r["name"]
    assert one.rows[2]["value"] == pytest.approx(other.rows[2]["value"], rel=0.02)
    torn = by_row.copy()
    torn[5] = 7
    with pytest.raises(ValueError, match="for episode 0; all rows of an individual"):
        fit({**log, "times": torn}, weights="times")
    # a state that only an episode of weight 0 has need not be one of the model
    states = [s if n > 0 else (9, 9, 9) for s, n in zip(log["state"], by_row, strict=True)]
    odd = fit({**log, "state": states, "times": by_row}, weights="times")
    assert up.check_policy_value(odd, policy).rows == one.rows


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

    def model(self, log, **options):
        task = up.Task(2, 2, 2, np.arange(5) * 2, [0, 1] * 4, self.reward)
        phi = up.features.one_hot(task)
        return fit_features(phi, log, regularization=1.0, **EPISODES, **options)

    def values(self, model):
        """Q and V of the policy under the model, backwards by hand."""
        p = model.prob[0].reshape(2, 2, 2)
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
        # what an episode deviates by is enlarged by its share of the weights
        off = [sum(w[h][i] * (x[h] - means[h]) / np.sqrt(1 - w[h][i] / len(rows)) for h in (0, 1))
               for i, x in enumerate(earned)]  # fmt: skip
        robust = []
        for i, (s, a, t, b, _) in enumerate(rows):
            total = v[0, s] + w[0, i] * (earned[i][0] - q[0, s, a]) + w[0, i] * v[1, t]
            robust.append(total + (0 if b is None else w[1, i] * (earned[i][1] - q[1, t, b])))
        n = len(rows)
        error = np.std(robust, ddof=1) / np.sqrt(n)
        return (sampled, np.linalg.norm(off) / n), (np.mean(robust), error)

    @pytest.mark.parametrize("censored", [False, True])
    def test_by_loops(self, censored):
        # nine individuals: of ten or more the doubly robust values are cross-fitted
        rows = [x for x in self.rows if censored or x[3] is not None][:9]
        model = self.model(self.log(rows))
        found = {r["name"]: r for r in up.check_policy_value(model, self.policy).rows}
        expected = self.reference(rows, model, self.shares(rows))
        for name, (value, error) in zip(
            ("weighted importance sampling", "doubly robust"), expected, strict=True
        ):
            assert found[name]["value"] == pytest.approx(value), name
            assert found[name]["standard_error"] == pytest.approx(error), name
            count = found[name]["effective"] if "sampling" in name else len(rows)
            reach = stats.t.ppf(0.975, count - 1) * error
            low, high = value - reach, value + reach
            assert (found[name]["low"], found[name]["high"]) == pytest.approx((low, high))

    def test_logged_propensities_and_clusters(self):
        rows = [x for x in self.rows if x[3] is not None]
        did = np.array([[0.5, 0.5], [0.25, 0.75]])
        log = self.log(
            rows, p=lambda i, h, s, a, t: did[s, a], person=lambda i, h, s, a, t: i % len(rows[:6])
        )
        model = self.model(log, propensity="p")
        found = up.check_policy_value(model, self.policy)
        (value, error), _ = self.reference(rows, model, did)
        assert found.rows[1]["value"] == pytest.approx(value)
        assert found.rows[1]["standard_error"] == pytest.approx(error)
        # three copies of six episodes are six clusters, which say what the six episodes would
        data = build_episodes(model)._replace(cluster=np.array(log["person"])[::2])
        ratio = importance_ratios(
            model.task, data, self.policy.reshape(2, -1), data.propensity
        )  # fmt: skip
        clustered = importance_value(data, ratio)
        assert clustered == pytest.approx(self.reference(rows[:6], model, did)[0])


def test_a_state_that_is_never_left_goes_on_paying():
    """Half of the episodes are absorbed at once: by hand 0.5 + 1 + 1 against 0.5 + 0.5 + 0.5."""
    log = {"state": ["a"] * 40 + ["a"] * 40, "action": ["go"] * 80, "next_state": ["end"] * 20
           + ["a"] * 60, "episode": [*range(20), *np.repeat(np.arange(20, 40), 3)],
           "step": [0] * 20 + [0, 1, 2] * 20}  # fmt: skip

    def fitted(**options):
        return up.fit_transitions("next_state", log, horizon=3, reward={"a": 0.5, "end": 1.0},
                                  regularization=0.1, **EPISODES, **options)  # fmt: skip

    rows = up.check_policy_value(fitted(), "behaviour").rows
    assert rows[1]["value"] == pytest.approx((2.5 + 1.5) / 2)
    log["over"] = [x == "end" for x in log["next_state"]]
    short = up.check_policy_value(fitted(ended="over"), "behaviour").rows
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
    model = up.fit_transitions(
        "C(next_state) + old:C(next_state)", log, successors="all", **EPISODES
    )
    options = {"horizon": 4, "reward": {1: 1.0}}
    for old, truth in ((0, 0.3), (1, 2.7)):
        found = up.check_policy_value(model.at(old=old, **options), "behaviour")
        assert all(abs(r["value"] - truth) < 0.3 for r in found.rows)
        assert found.rows[0]["effective"] == 200 and "agree with it" in found.verdict
    with pytest.raises(ValueError, match="no episode of the log has old = 5"):
        up.check_policy_value(model.at(old=5, **options), "behaviour")


def test_the_model_of_the_actions_gives_the_propensities(rng):
    """Actions depend on a covariate that also pays: shares by state are wrong, the model right."""
    n = 4000
    ill = rng.integers(2, size=n)
    action = np.where(rng.random(n) < np.where(ill, 0.8, 0.2), "act", "wait")
    paid = 1.0 - ill  # the action does nothing, and who is ill earns nothing
    log = {"state": ["here"] * n, "action": action, "next_state": rng.choice(["l", "r"], n),
           "ill": ill, "who": np.arange(n), "paid": paid}  # fmt: skip
    values = {}
    for formula in ("next_state", "next_state + ill:next_state"):
        model = up.fit_transitions(formula, log, individual="who", horizon=1,
                                   reward="paid")  # fmt: skip
        values[formula] = up.check_policy_value(model, "act").rows[1]["value"]
    plain, with_ill = values.values()
    assert plain == pytest.approx(0.2, abs=0.03)
    # the probabilities are the shares at each value of `ill`
    share = np.array([(action[ill == x] == "act").mean() for x in (0, 1)])[ill]
    w = (action == "act") / share
    assert with_ill == pytest.approx((w @ paid) / w.sum(), rel=1e-6)
    assert with_ill == pytest.approx(0.5, abs=0.05)


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
        x = up.Features(task, phi.matrix[:, :2]) if wrong else phi
        model = fit_features(x, log, regularization=1e-3, **EPISODES)
        off += "disagrees" in up.check_policy_value(model, policy).verdict
    return off / n_logs


@pytest.mark.slow
@pytest.mark.parametrize("by_state", [False, True])
def test_an_unbalanced_panel_does_not_condemn_a_right_model(by_state):
    share = verdicts(200, not by_state, by_state=by_state)
    print(f"a right model, censored {'by state' if by_state else 'at random'}: {share:.3f}")
    assert share <= 0.07


@pytest.mark.slow
def test_a_wrong_model_is_found_less_often_where_episodes_are_left():
    """With as many rows: episodes followed for 3 to 10 steps have 6.5 on average.

    Importance sampling and the doubly robust value give the few that are followed to the end most
    of the weight: 7 to 9 of 100 wrong models are found, and 34 to 42 on complete data.
    """
    found = verdicts(100, True, wrong=True, n=200)
    complete = verdicts(100, False, wrong=True, n=130)
    print(f"a wrong model: found in {found:.2f} censored logs, in {complete:.2f} complete ones")
    assert complete > 0.2 and found > 0.02


def test_covariates_by_step_are_equal_up_to_rounding(rng):
    """0.1 + 0.2 is the third dose of an individual, and 0.3 that of the model."""
    doses = [0.1, 0.2, 0.1 + 0.2]
    log = {"state": ["ill"] * 600, "action": ["drug", "rest"] * 300, "dose": doses * 200,
           "next_state": rng.choice(["ill", "cured"], 600), "who": np.arange(600) // 3}  # fmt: skip
    log["state"] = [s if i % 3 == 0 else log["next_state"][i - 1]
                    for i, s in enumerate(log["state"])]  # fmt: skip
    model = up.fit_transitions("next_state + next_state:dose", log, individual="who", horizon=3,
                               reward={"cured": 1.0})  # fmt: skip
    rows = up.check_policy_value(model.at(dose=[0.1, 0.2, 0.3]), "behaviour").rows
    assert rows[0]["effective"] == 200 and rows[1]["effective"] == pytest.approx(200)


def test_weights_may_sum_to_less_than_one(mortal):
    """They say how often rows count, so the errors are large, and nothing else changes."""
    one, small = (follow(mortal.assign(times=x), weights="times")
                  for x in (1.0, 0.001))  # fmt: skip
    found, again = (up.check_policy_value(x, "behaviour").rows for x in (one, small))
    for row, other in zip(found, again, strict=True):
        assert other["value"] == pytest.approx(row["value"], rel=1e-6)
        assert other["standard_error"] > 20 * row["standard_error"]


def test_one_episode_with_all_of_the_weight_has_no_interval():
    """Of two patients one followed the policy; what that one earned says nothing of its error."""
    log = {"state": ["s"] * 8, "action": ["a"] + ["b"] * 7, "next_state": list("xyxyxyxy"),
           "who": range(8)}  # fmt: skip
    model = up.fit_transitions(
        "next_state", log, individual="who", horizon=1, reward=lambda s, a, t: float(t == "x")
    )
    row = up.check_policy_value(model, "a").rows[1]
    assert row["value"] == 1.0 and (row["low"], row["high"]) == (-np.inf, np.inf)
    assert "<td>–</td>" in estimates_table([row, row | {"low": 0.0, "high": 1.0}])
