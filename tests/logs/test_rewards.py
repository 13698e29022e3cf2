"""Rewards of a model: from columns of a log, of transitions, of covariates, several outcomes."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats

import upriver as up
from upriver.logs.value_function import build_value_function

from . import outcomes

FORMULA = "C(next_state):C(action):C(state) + age:C(next_state)"
POLICY = np.array([1, 0])


def visits(rng, n=600, n_who=30):
    """Two states, two actions, an age, and two columns of what each row brought."""
    state, age = rng.integers(2, size=n), rng.choice([-1.0, 0.0, 1.0], n)
    action = (rng.random(n) < 0.4 + 0.2 * state).astype(int)
    chance = 1 / (1 + np.exp(-(0.3 * state - 0.8 * action + 0.5 * age)))
    following = (rng.random(n) < chance).astype(int)
    cost = 3 * action + 2 * following + age + rng.normal(size=n) * (1 + state)
    gain = 0.5 * following - 0.1 * cost + rng.normal(size=n)
    who = rng.integers(n_who, size=n)
    return pd.DataFrame({"state": state, "action": action, "next_state": following, "age": age,
                         "cost": cost, "gain": gain, "who": who})  # fmt: skip


REWARDS = {
    "means": "cost",
    "of transitions": "cost ~ C(state):C(action):C(next_state)",
    "covariates": "cost ~ C(state) + C(action):age + next_state",
}
SETTINGS = {
    "horizon": {"age": 0.5, "horizon": 4},
    "discounted horizon": {"age": 0.5, "horizon": 4, "discount": 0.7},
    "age by step": {"age": [0.0, 0.5, 1.0, 1.0], "horizon": 4, "discount": 0.7},
    "infinite horizon": {"age": 0.5, "discount": 0.7},
    "average over ages": {"horizon": 4, "discount": 0.7},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", REWARDS)
def test_the_gradient_is_that_of_finite_differences(kind, setting, rng):
    """In theta, in the behaviour and in the coefficients of the reward, all at once."""
    model = up.fit_transitions(FORMULA, visits(rng), reward=REWARDS[kind]).at(**SETTINGS[setting])
    model = model.at(start={0: 0.3, 1: 0.7})
    function = build_value_function(model, [(POLICY, 1.0), ("behaviour", -1.0)])
    point = 0.05 * rng.normal(size=len(function.origin))
    slope, way = function.at(point).slope, rng.normal(size=len(point)) * 1e-5
    rise = function.at(point + way).value - function.at(point - way).value
    assert 2 * slope @ way == pytest.approx(rise, rel=1e-5)
    edges = np.cumsum([len(model.theta), model.behaviour.coefficients.size])
    for part in np.split(slope, edges):
        assert np.abs(part).max() > 0


@pytest.mark.parametrize("kind", REWARDS)
def test_the_errors_are_those_of_rows_written_out(kind, rng):
    """The sandwich of single rows: scores of theta beside residuals of the reward."""
    frame = visits(rng, 200)
    model = up.fit_transitions(FORMULA, frame, reward=REWARDS[kind]).with_errors("robust")
    at = model.at(age=0.5, horizon=3)
    function = build_value_function(at.at(start=0), [(POLICY, 1.0)])
    estimates, p = model.log.rewards, model.log.data.probabilities(model.theta)
    outcome, of = estimates.outcomes["cost"], model.log.situations
    pair = (frame["state"] * 2 + frame["action"]).to_numpy()
    place = [  # the row of the choice data of each row of the frame; both states are candidates
        2 * int(np.flatnonzero((of.pair == g) & (of.covariates["age"] == age))[0]) + t
        for g, age, t in zip(pair, frame["age"], frame["next_state"], strict=True)
    ]
    design = sparse.csr_array(outcome.rows).toarray()[np.searchsorted(estimates.chosen, place)]
    # least squares by another route
    by_hand = np.linalg.lstsq(design, frame["cost"].to_numpy(), rcond=None)[0]
    np.testing.assert_allclose(outcome.coefficients, by_hand, rtol=1e-8, atol=1e-8)
    residual = frame["cost"].to_numpy() - design @ by_hand
    bread = np.linalg.inv(design.T @ design)
    leverage = np.einsum("ij,jk,ik->i", design, bread, design)
    scores = np.concatenate([x for *_, x in model.log.data.scores(p)])[place]
    rows = np.hstack([scores @ model.fitted.bread, (residual[:, None] * design) @ bread])
    whole = rows.T @ rows
    d = len(model.theta)
    whole[d:, d:] = bread @ (design * (residual**2 / (1 - leverage))[:, None]).T @ design @ bread
    slope = rng.normal(size=len(function.origin))
    actions = np.s_[d : d + function.model.behaviour.coefficients.size]
    slope[actions] = 0.0
    expected = whole @ np.delete(slope, actions)
    found = np.delete(function.image(slope), actions)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    drawn = np.array([function.draw(rng) for _ in range(4000)]) @ slope
    assert drawn.std() == pytest.approx(np.sqrt(slope @ function.image(slope)), rel=0.05)


def test_clusters_of_rewards_are_written_out(rng):
    """Sums by cluster of what rows add, each divided by the root of 1 minus its share of rows."""
    frame = visits(rng, 300, 8)
    model = up.fit_transitions("C(next_state):C(action)", frame, reward="cost", cluster="who",
                               horizon=3)  # fmt: skip
    function = build_value_function(model.at(start=0), [(POLICY, 1.0)])
    pair = (frame["state"] * 2 + frame["action"]).to_numpy()
    mean = frame.groupby(pair)["cost"].mean().to_numpy()
    parts = np.zeros((8, 4))
    for c in range(8):
        mine = (frame["who"] == c).to_numpy()
        n = np.bincount(pair[mine], minlength=4) / np.bincount(pair)
        rest = np.bincount(pair[mine], (frame["cost"] - mean[pair])[mine], 4) / np.bincount(pair)
        parts[c] = rest / np.sqrt(1 - n)
    slope = np.concatenate([np.zeros(len(function.origin) - 4), rng.normal(size=4)])
    expected = parts.T @ (parts @ slope[-4:])
    np.testing.assert_allclose(function.image(slope)[-4:], expected, rtol=1e-8)
    result = up.policy_value(model.at(start=0), POLICY)
    assert model.fitted.quantile(0.95) == pytest.approx(2.364624)  # t with 7 degrees of freedom
    assert "cluster (8 clusters); 40 or more are needed" in " ".join(model.summary().split())
    ends = (result.high - result.low) / 2
    assert ends == pytest.approx(2.364624 * result.standard_error, rel=0.2)


def test_the_adjustment_for_few_clusters_is_that_of_a_linear_model(rng):
    """(I - H_cc)^(-1/2) on residuals, cluster by cluster, as Bell and McCaffrey write it."""
    from upriver.mnl.clusters import adjust_scores

    x, e, c = rng.normal(size=(60, 3)), rng.normal(size=60), np.arange(60) % 6
    bread = np.linalg.inv(x.T @ x)
    scores = np.array([x[c == i].T @ e[c == i] for i in range(6)])
    found = adjust_scores(scores, bread, enumerate(x[c == i].T @ x[c == i] for i in range(6)))
    for i in range(6):
        mine = x[c == i]
        values, axes = np.linalg.eigh(np.eye(10) - mine @ bread @ mine.T)
        root = axes @ np.diag(values**-0.5) @ axes.T
        np.testing.assert_allclose(found[i], mine.T @ root @ e[c == i], rtol=1e-8)


def test_rewards_of_transitions_by_function_and_column(rng):
    """All ways to say r(s, a, s') give one value; that of a loop over the MDP written out."""
    frame = visits(rng)
    frame["paid"] = frame["state"] + 2 * frame["action"] * frame["next_state"]
    triples = {(s, a, t): s + 2.0 * a * t for s in (0, 1) for a in (0, 1) for t in (0, 1)}
    given = [lambda s, a, t: triples[s, a, t], "paid"]
    fit = {"paid": "paid ~ C(state):C(action):C(next_state)"}
    values = []
    for reward in given:
        outcome = {"reward": fit["paid"]} if reward == "paid" else {}
        model = up.fit_transitions(FORMULA, frame, **outcome)
        at = model.at(age=0.5, horizon=5, discount=0.9, reward=reward)
        values.append(up.policy_value(at.at(start=1), POLICY).value)
        mdp = at.at(start=1).to_mdp()
        assert up.evaluate(mdp, POLICY)[0, 1] == pytest.approx(values[-1])
    v = np.zeros(2)
    for _ in range(5):
        after = [0.0, 0.0]
        for s, a in enumerate(POLICY.tolist()):
            for row in at.transitions(s, a):
                t = row["next_state"]
                after[s] += row["probability"] * (triples[s, a, t] + 0.9 * v[t])
        v = np.array(after)
    np.testing.assert_allclose(values, v[1])
    pairs = model.at(age=0.5, horizon=1, reward={(0, 1): 4.0, 1: 2.0})
    assert up.policy_value(pairs.at(start=0), POLICY).value == pytest.approx(4.0)
    with pytest.raises(ValueError, match="reward names 7; the states are 0, 1"):
        model.at(age=0.5, horizon=1, reward={7: 1.0})
    with pytest.raises(ValueError, match="reward is 'fee'; the outcomes of the model are 'paid'"):
        model.at(age=0.5, horizon=1, reward="fee")


def test_a_function_of_a_covariate_is_not_taken_for_one_of_the_next_state(rng):
    model = up.fit_transitions(FORMULA, visits(rng))
    with pytest.raises(ValueError, match=r"a function of the covariate 'age'; a column"):
        model.at(age=0.5, horizon=2, reward=lambda s, a, age: age + a)


def test_a_reward_that_the_log_does_not_identify_is_refused(rng):
    frame = visits(rng)
    few = frame[~((frame["state"] == 0) & (frame["action"] == 1) & (frame["next_state"] == 0))]
    reward = "cost ~ C(state):C(action):C(next_state)"
    with pytest.raises(ValueError, match=r"does not say what 'cost' is for \(0, 1, 0\)"):
        up.fit_transitions("C(next_state):C(action)", few, successors="all", reward=reward)


@pytest.mark.parametrize("successors", ["all", lambda s, a: [0, 1], "table"])
def test_the_mean_of_a_pair_that_was_never_taken_is_refused(rng, successors):
    """It was 0 without an error, so that plans took the action that was never tried."""
    frame = visits(rng).assign(benefit=lambda x: -x["cost"])
    few, formula = frame[(frame["state"] == 1) | (frame["action"] == 0)], "C(next_state)"
    if successors == "table":
        every = [(s, a, t) for s in (0, 1) for a in (0, 1) for t in (0, 1)]
        successors = pd.DataFrame(every, columns=["state", "action", "next_state"])
    with pytest.raises(ValueError, match=r"'benefit' is for \(0, 1\).*benefit ~ state \+ action"):
        up.fit_transitions(formula, few, successors=successors, reward="benefit", horizon=3)
    reward = "benefit ~ state + action"
    model = up.fit_transitions(formula, few, successors=successors, reward=reward, horizon=3)
    assert np.all(model.task.reward != 0.0)
    outcomes = {"benefit": "benefit", "years": {0: 1.0, 1: 0.5}}
    model = up.fit_transitions(formula, few, successors=successors, reward=outcomes)
    years = model.at(horizon=3, reward="years")  # other outcomes do not need the mean
    np.testing.assert_array_equal(years.task.reward, [[1.0, 1.0], [0.5, 0.5]])
    with pytest.raises(ValueError, match=r"does not say what 'benefit' is for \(0, 1\)"):
        up.policy_value(years, POLICY, rewards=["years", "benefit"])


@pytest.mark.parametrize("declared", [False, True])
def test_a_state_that_the_log_never_left_pays_nothing(rng, declared):
    frame = visits(rng)
    over = pd.DataFrame({"state": 1, "action": 0, "next_state": 2, "cost": 4.0}, index=range(20))
    successors = (lambda s, a: [2] if s == 2 else [0, 1, 2]) if declared else None
    model = up.fit_transitions("C(next_state)", pd.concat([frame, over]), successors=successors,
                               reward="cost", horizon=3)  # fmt: skip
    assert np.all(model.task.reward[:2] != 0.0) and np.all(model.task.reward[2] == 0.0)


def test_noise_of_rewards_widens_intervals(rng):
    """The case that was wrong: 400 rows, and noise of standard deviation 50."""
    frame = visits(rng, 400)
    frame["cost"] += 50 * rng.normal(size=400)
    model = up.fit_transitions("C(next_state):C(action)", frame, reward="cost", horizon=6)
    n = np.bincount(frame["state"] * 2 + frame["action"])
    found = up.compare_policies(model, np.array([1, 1]), np.array([0, 0]))
    assert found.low < 0 < found.high and found.standard_error > 3 * 50 / np.sqrt(n.max())
    plan = up.plan_from_model(model.at(start=0), "cautious")
    greedy = up.plan_from_model(model)
    assert plan.v[0, 0] < greedy.v[0, 0] - 50 / np.sqrt(n.max())
    few = up.fit_transitions("C(next_state):C(action)", frame[:20], reward="cost", horizon=6)
    assert "; 4 have fewer than 10 rows" in " ".join(few.summary().split())


def test_several_outcomes(rng):
    """Difference, ratio and draws follow from one joint covariance."""
    frame = visits(rng, 2000)
    outcomes = {"cost": "cost", "gain": "gain ~ C(state)*C(action)", "years": {0: 1.0, 1: 0.5}}
    model = up.fit_transitions(FORMULA, frame, reward=outcomes)
    at = model.at(age=0.0, horizon=6)
    late = at.at(horizon=6, discount=0.9, start=0)
    names = ["cost", "gain", "years"]
    found = up.compare_policies(late, POLICY, np.array([0, 0]), rewards=names)
    for name, reward in (("cost", "cost"), ("gain", "gain"), ("years", {0: 1.0, 1: 0.5})):
        alone = model.at(age=0.0, horizon=6, discount=0.9, reward=reward)
        one = up.compare_policies(alone.at(start=0), POLICY, np.array([0, 0]))
        for key in ("value", "standard_error", "low", "high"):
            assert getattr(found[name], key) == pytest.approx(getattr(one, key)), (name, key)
    errors = np.sqrt(np.diag(found.covariance))
    np.testing.assert_allclose(errors, [x.standard_error for x in found.each.values()])
    # the covariance is that of a weighted sum: V(a + b) = V(a) + V(b) + 2 cov
    both = model.at(age=0.0, horizon=6, reward={"cost": 1.0, "gain": 1.0})
    plain = up.compare_policies(at.at(start=0), POLICY, np.array([0, 0]), rewards=["cost", "gain"])
    total = up.compare_policies(both.at(start=0), POLICY, np.array([0, 0]))
    assert total.standard_error**2 == pytest.approx(plain.covariance.sum())
    assert total.value == pytest.approx(plain.values.sum())
    drawn = plain.draws(1500)
    np.testing.assert_allclose(np.cov(drawn.T), plain.covariance, rtol=0.15, atol=1e-3)
    np.testing.assert_array_equal(plain.draws(3, seed=0), drawn[:3])
    gap = plain.difference("cost", "gain")
    assert gap.value == pytest.approx(plain["cost"].value - plain["gain"].value)
    assert gap.standard_error == pytest.approx(
        np.sqrt(plain.covariance[0, 0] + plain.covariance[1, 1] - 2 * plain.covariance[0, 1])
    )
    assert gap.high - gap.value == pytest.approx(plain.quantile * gap.standard_error)
    with pytest.raises(ValueError, match="there is no 'fee'; there are cost, gain, years"):
        found.ratio("fee", "gain")


def test_at_does_not_take_other_outcomes_than_those_of_the_fit(rng):
    """A formula that was not fitted gave the rewards of another, and several outcomes gave none."""
    frame, setting = visits(rng), {"age": 0.5, "horizon": 4}
    model = up.fit_transitions(FORMULA, frame, reward="cost ~ C(state) + C(action):age")
    for same in ("cost", "cost ~ C(state) + C(action):age", None):
        found, expected = model.at(**setting, reward=same).task, model.at(**setting).task
        np.testing.assert_array_equal(found.reward, expected.reward)
    with pytest.raises(ValueError, match=r"reward is 'cost ~ age'; the outcomes .* are 'cost'"):
        model.at(**setting, reward="cost ~ age")
    several = {"price": "cost", "gain": {1: 1.0}}
    model = up.fit_transitions(FORMULA, frame, reward=several).at(**setting)
    assert model.task.reward is None
    with pytest.raises(ValueError, match="reward names the outcomes 'price', 'gain'; name one"):
        model.at(**setting, reward=several)


def test_names_of_states_that_are_outcomes_too_are_refused(rng):
    words = {"state": {0: "well", 1: "ill"}, "next_state": {0: "well", 1: "ill"}}
    frame = visits(rng).replace(words).rename(columns={"gain": "ill"})
    outcomes = {"ill": "ill", "cost": "cost"}
    model = up.fit_transitions("C(next_state)", frame, reward=outcomes)
    with pytest.raises(ValueError, match="reward names 'ill', which is a state and an outcome"):
        model.at(horizon=3, reward={"ill": 1.0})
    # one name that is not both says which they are
    mean = frame.groupby(["state", "action"])[["ill", "cost"]].mean().loc["well"].to_numpy()
    both = model.at(horizon=3, reward={"ill": 1.0, "cost": 2.0}).task
    np.testing.assert_allclose(both.reward[both.states.index("well")], mean @ [1.0, 2.0])
    states = model.at(horizon=3, reward={"ill": 1.0, "well": 2.0}).task
    np.testing.assert_array_equal(states.reward[states.states.index("well")], 2.0)


@pytest.mark.parametrize("kind", ["frame", "every row differs", "file"])
@pytest.mark.parametrize("cluster", [None, "who"])
def test_errors_do_not_depend_on_the_size_of_the_mean(rng, kind, cluster, tmp_path):
    """Sums of squares lost the digits of a spread that is small beside the mean."""
    frame = visits(rng).assign(times=lambda x: x["who"] % 3 + 1)
    frame["age"] += rng.normal(size=len(frame)) if kind == "every row differs" else 0.0
    outcomes = {"cost": "cost", "gain": "gain ~ C(state)*C(action) + age"}
    found = []
    for shift in (0.0, 1e8):
        log = frame.assign(cost=frame["cost"] + shift, gain=frame["gain"] - 3 * shift)
        if kind == "file":
            log.to_csv(tmp_path / "log.csv", index=False)
            log = tmp_path / "log.csv"
        model = up.fit_transitions(
            FORMULA, log, reward=outcomes, cluster=cluster, weights="times"
        ).at(age=0.5, horizon=4)
        found.append(up.policy_value(model, POLICY, rewards=["cost", "gain"]).covariance)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_fieller_by_hand():
    """A mean of 2 and of 4, standard errors 0.5 and 1, covariance 0.2."""
    from upriver.logs.value import PolicyValue, PolicyValues

    covariance = np.array([[0.25, 0.2], [0.2, 1.0]])

    def both(cost, qaly):
        values = {"cost": cost, "qaly": qaly}
        each = {k: PolicyValue(x, 1.0, 0.0, 0.0, 0.95, 0.0) for k, x in values.items()}
        return PolicyValues(each, covariance, 1.96, np.inf)

    found = both(2.0, 4.0)
    ratio = found.ratio("cost", "qaly")
    for x in (ratio.low, ratio.high):  # at the ends the difference is 1.96 standard errors from 0
        error = np.sqrt(0.25 - 2 * x * 0.2 + x * x)
        assert abs(2.0 - 4.0 * x) == pytest.approx(1.96 * error)
    assert ratio.low < 0.5 < ratio.high and ratio.value == 0.5
    # delta method: gradient (1/4, -1/8)
    by_hand = np.sqrt(0.25 / 16 - 2 * 0.2 / 32 + 1.0 / 64)
    assert ratio.standard_error == pytest.approx(by_hand)
    assert both(2.0, 1.0).ratio("cost", "qaly")[2:] == (-np.inf, np.inf)


def test_values_by_segment_and_their_average(rng):
    frame = visits(rng, 900)
    model = up.fit_transitions(FORMULA, frame, reward="cost ~ age + C(action)")
    at = model.at(horizon=4)
    by_age = up.policy_value(at.at(start=0), POLICY, by="age")
    shares = frame["age"].value_counts(normalize=True)
    for age, value in by_age.each.items():
        alone = up.policy_value(model.at(age=age, horizon=4).at(start=0), POLICY)
        assert value.value == pytest.approx(alone.value)
        assert value.standard_error == pytest.approx(alone.standard_error)
    whole = up.policy_value(at.at(start=0), POLICY)
    weights = np.array([shares[age] for age in by_age.each])
    assert whole.value == pytest.approx(weights @ by_age.values)
    error = np.sqrt(weights @ by_age.covariance @ weights)
    assert whole.standard_error == pytest.approx(error)
    plan = up.plan_from_model(at.at(start=0), "cautious")  # an action for each (age, state)
    assert plan.policy.shape == (4, 6) and plan.task.states[0] == (-1.0, 0)
    best = up.policy_value(at.at(start=0), plan)
    assert best.value >= whole.value - 1e-9
    with pytest.raises(
        ValueError, match="by is 'sex', which the model does not use; put it into the formula"
    ):
        up.policy_value(at, POLICY, by="sex")


def test_the_cohort_trace_is_that_of_powers(rng):
    model = up.fit_transitions(FORMULA, visits(rng)).at(age=[0.0, 0.5, 1.0], horizon=3)
    trace = up.cohort_trace(model.at(start=1), POLICY)
    share = np.array([0.0, 1.0])
    for h in range(3):
        np.testing.assert_allclose(trace.loc[h], share)
        p = np.array([
            [r["probability"] for r in model.transitions(s, int(POLICY[s]), step=h)] for s in (0, 1)
        ])  # fmt: skip
        share = share @ p
    np.testing.assert_allclose(trace.loc[3], share)
    assert trace.shape == (4, 2) and list(trace.columns) == [0, 1]


COHORT = """
import upriver as up

model = up.fit_transitions(
    "C(next_state):C(state) + C(action):next_state + age:next_state", frame, cluster="patient",
    successors=lambda s, a: [s, s + 1, 2][: 3 - s] if s < 2 else [],
    reward={"cost": "cost ~ C(state) + action", "qaly": {0: 0.9, 1: 0.5}},
)
ages = [0.02 * year for year in range(30)]
cohort = model.at(age=ages, horizon=30, discount=0.965, start=0)
new, old = np.ones(3, int), np.zeros(3, int)
gain = up.compare_policies(cohort, new, old, rewards=["cost", "qaly"])
icer = gain.ratio("cost", "qaly")
drawn = gain.draws(200)
curve = [(price * drawn[:, 1] > drawn[:, 0]).mean() for price in (0, 500, 5_000, 50_000)]
trace = up.cohort_trace(cohort, new)
"""


def test_a_cohort_model_in_thirty_lines(rng):
    """Costs and QALYs of two treatments over 30 years, as an independent cohort simulation says."""
    assert len([line for line in COHORT.splitlines() if line]) <= 30
    n, rows = 400, []
    for patient in range(n):
        state, age = 0, rng.choice([0.0, 0.2, 0.4])
        treated = patient % 2
        for _ in range(8):
            after = int(rng.choice(3, p=([0.8, 0.15, 0.05] if state == 0 else [0, 0.8, 0.2])))
            if state == 0 and treated and after == 1 and rng.random() < 0.4:
                after = 0
            cost = 100 + 400 * state + 300 * treated + 50 * rng.normal()
            rows.append((patient, state, treated, after, round(age, 2), cost))
            state, age = after, age + 0.02
            if state == 2:
                break
    columns = ["patient", "state", "action", "next_state", "age", "cost"]
    space = {"frame": pd.DataFrame(rows, columns=columns), "np": np}
    exec(compile(COHORT, "cohort", "exec"), space)
    model, gain = space["model"], space["gain"]
    outcome = model.log.rewards.outcomes["cost"]
    paid = outcome.basis @ outcome.coefficients  # intercept, state 1, action
    expected = {}
    for name in ("cost", "qaly"):
        totals = []
        for action in (1, 0):
            share, total = np.array([1.0, 0.0, 0.0]), 0.0
            for year, age in enumerate(space["ages"]):
                paying = [paid[0] + action * paid[2], paid[0] + paid[1] + action * paid[2], 0.0]
                reward = np.array(paying if name == "cost" else [0.9, 0.5, 0.0])
                total += 0.965**year * share @ reward
                table = {"state": [0, 1], "action": [action] * 2, "age": [age] * 2}
                p = np.diag([0.0, 0.0, 1.0])
                for row in model.predict(table).to_dict("records"):
                    p[row["state"], row["next_state"]] = row["probability"]
                share = share @ p
            totals.append(total)
        expected[name] = totals[0] - totals[1]
    for name, value in expected.items():
        assert gain[name].value == pytest.approx(value, rel=1e-9), name
    icer = space["icer"]
    assert icer.value == pytest.approx(expected["cost"] / expected["qaly"])
    assert icer.low < icer.value < icer.high
    assert space["curve"][0] < 0.1 < 0.9 < space["curve"][-1]
    assert space["trace"].shape == (31, 3)


@pytest.mark.slow
@pytest.mark.parametrize("case", outcomes.CASES)
def test_intervals_cover(case):
    """95% intervals hold the truth in 93 to 97% of 500 logs; with 12 clusters in 90% or more.

    500 logs leave a binomial standard error of 0.97 points, and one of it is allowed beyond the
    limits: an interval of exactly 95% is then refused once in 400 times.
    """
    error = np.sqrt(0.95 * 0.05 / 500)
    for what, share in outcomes.coverage(case).items():
        print(f"{case}, {what}: {share:.3f}")
        if case.startswith("12"):
            assert share >= 0.90, what
        else:
            assert 0.93 - error <= share <= 0.97 + error, what


def test_a_mean_of_few_rows_has_the_quantiles_of_t():
    """Four rows: with those of the normal distribution 95% intervals held the mean in 85%."""
    paid = np.array([1.0, 2.0, 4.0, 9.0])
    log = {"state": ["a"] * 4, "action": ["go"] * 4, "next_state": list("bcbc"), "paid": paid}
    model = up.fit_transitions("next_state", log, horizon=1, reward="paid")
    found = up.policy_value(model.at(start="a"), "go")
    error = paid.std(ddof=1) / 2
    assert found.standard_error == pytest.approx(error)
    reach = stats.t.ppf(0.975, 3) * error
    assert (found.low, found.high) == pytest.approx((4.0 - reach, 4.0 + reach))
    several = up.policy_value(model.at(start="a"), "go", rewards=["paid"])
    assert several["paid"].low == pytest.approx(found.low) and several.degrees == pytest.approx(3)
    # two pairs with the same errors and one value have the degrees of both
    both = {c: [*x, *x] for c, x in log.items()} | {"state": list("aaaadddd")}
    model = up.fit_transitions("next_state", both, horizon=1, reward="paid")
    assert up.policy_value(model, "go", rewards=["paid"]).degrees == pytest.approx(6)


@pytest.mark.parametrize("reward", ["cost", "cost ~ action", "cost ~ action + next_state"])
def test_a_state_that_is_never_left_pays_nothing_whatever_the_reward(rng, reward):
    """A tenth dies in each step; a linear model of the reward paid them in every later step."""
    n, died = 400, 40
    log = {"state": rng.choice(["ill", "well"], n), "action": rng.choice(["drug", "rest"], n),
           "next_state": ["dead"] * died + ["ill", "well"] * ((n - died) // 2),
           "cost": [1.0] * n}  # fmt: skip
    model = up.fit_transitions(
        "C(next_state)", log, horizon=200, reward=reward,
        successors=lambda s, a: ["dead"] if s == "dead" else ["ill", "well", "dead"],
    )  # fmt: skip
    assert up.policy_value(model, "rest").value == pytest.approx(n / died, rel=1e-6)
