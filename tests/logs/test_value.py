"""The value of a policy and its standard error: finite differences, bootstrap, coverage."""

from dataclasses import replace

import numpy as np
import pytest

import upriver as up
from upriver.logs.value_function import evaluate_policy, policy_table, shifted_probabilities

from .coverage import PROBLEMS, coverage
from .test_goodness import fit, logged

MDP = up.envs.riverswim(5, 8)
TASK = MDP.true_task
PHI = up.features.shared(TASK)


@pytest.fixture
def model(rng):
    return fit(TASK, PHI, logged(MDP, rng, 200))


def policies(rng):
    mixed = rng.dirichlet(np.ones(2), size=(8, 5))
    return {"one": np.ones(5, int), "per step": rng.integers(2, size=(8, 5)), "mixed": mixed}


@pytest.mark.parametrize("kind", ["one", "per step", "mixed"])
def test_value_and_gradient(model, rng, kind):
    """The value is that of `evaluate`; the gradient that of finite differences to 1e-6."""
    policy = policies(rng)[kind]
    start = np.array([0.5, 0.0, 0.3, 0.2, 0.0])
    known = policy_table(TASK, policy)

    def value(theta):
        at = replace(model, fitted=replace(model.fitted, theta=theta))
        return evaluate_policy(TASK, at.prob, known, start)

    found = value(model.fitted.theta)
    estimate = up.FiniteMDP(TASK, model.prob[0], [0], [1.0])
    assert found.v[0] @ start == pytest.approx(start @ up.evaluate(estimate, policy)[0], rel=1e-12)
    assert found.occupancy.sum() == pytest.approx(8.0)
    slope = PHI.matrix.T @ found.weight[0]
    for j, unit in enumerate(np.eye(len(slope)) * 1e-5):
        rise = (
            value(model.fitted.theta + unit).v[0] - value(model.fitted.theta - unit).v[0]
        ) @ start
        assert slope[j] == pytest.approx(rise / 2e-5, rel=1e-6, abs=1e-8)


def test_a_discount_needs_no_reward_yet(model, rng):
    unpaid = fit(replace(TASK, reward=None), PHI, logged(MDP, rng, 200))
    unpaid = unpaid.at(horizon=4, discount=0.5)
    reward = {MDP.true_task.state_names[0]: 1.0}
    paid = model.at(horizon=4, discount=0.5, reward=reward)
    found = unpaid.at(reward=reward).task
    np.testing.assert_array_equal(found.reward, paid.task.reward)


def test_the_standard_error_is_the_delta_method(model, rng):
    policy = policies(rng)["mixed"]
    result = up.policy_value(model.at(start=2), policy)
    found = evaluate_policy(TASK, model.prob, policy_table(TASK, policy), np.eye(5)[2])
    slope = PHI.matrix.T @ found.weight[0]
    assert result.standard_error == pytest.approx(np.sqrt(slope @ model.fitted.covariance @ slope))
    assert result.unseen == 0.0 and "95% interval" in result.summary()


def test_the_interval_is_the_extremes_of_the_ellipsoid(model, rng):
    """No core in the ellipsoid has a value outside, some come close; it is nearly symmetric when
    the log is long."""
    policy = policies(rng)["mixed"]
    result = up.policy_value(model.at(start=2), policy, confidence=0.99)
    root = np.linalg.cholesky(model.fitted.covariance) * 2.575829
    u = rng.normal(size=(20_000, 4))
    shifts = (u / np.linalg.norm(u, axis=1, keepdims=True)) @ root.T
    known = policy_table(TASK, policy)
    values = np.array([
        evaluate_policy(TASK, shifted_probabilities(model, x), known, np.eye(5)[2]).value
        for x in shifts
    ])  # fmt: skip
    width = result.high - result.low
    assert result.low <= values.min() + 1e-3 * width
    assert result.high >= values.max() - 1e-3 * width
    assert width == pytest.approx(np.ptp(values), rel=0.03)
    long = up.policy_value(fit(TASK, PHI, logged(MDP, rng, 10**6)).at(start=2), policy)
    for end in (long.low, long.high):
        assert abs(end - long.value) == pytest.approx(1.959964 * long.standard_error, rel=0.01)


def test_standard_errors_are_those_of_logs_drawn_from_the_model(rng):
    """A parametric bootstrap: values of the estimates from logs that the fitted model draws."""
    model = fit(TASK, PHI, logged(MDP, rng, 5000))
    policy = np.ones(5, int)
    values = []
    for _ in range(300):
        drawn = np.zeros(TASK.n_triples)
        for g, n in enumerate(TASK.by_pair(model.counts).astype(int)):
            at = slice(TASK.indptr[g], TASK.indptr[g + 1])
            drawn[at] = rng.multinomial(n, model.prob[0][at] / model.prob[0][at].sum())
        values.append(up.policy_value(fit(TASK, PHI, drawn), policy).value)
    error = up.policy_value(model, policy).standard_error
    assert np.std(values, ddof=1) == pytest.approx(error, rel=0.12)


def test_a_difference_has_its_own_interval(model):
    new, old = np.ones(5, int), np.zeros(5, int)
    result = up.compare_policies(model, new, old)
    values = [up.policy_value(model, p) for p in (new, old)]
    assert result.value == pytest.approx(values[0].value - values[1].value)
    same = up.compare_policies(model, new, new)
    assert same.value == 0.0 and same.standard_error == 0.0
    assert up.compare_policies(model, new).value > 0.0


def test_policies_are_matched_by_name(model):
    plan = up.plan_from_model(model)
    value = up.policy_value(model, plan).value
    told = up.Policy(plan.policy, 2, None, TASK.actions)
    assert up.policy_value(model, told).value == value
    turned = up.Policy(1 - plan.policy, 2, None, list(TASK.actions)[::-1])
    assert up.policy_value(model, turned).value == pytest.approx(value)
    with pytest.raises(ValueError, match=r"the policy's action '(up|down)' is unknown"):
        up.policy_value(model, up.Policy(plan.policy, 2, None, ["up", "down"]))
    with pytest.raises(ValueError, match="policy names"):
        up.policy_value(model, "greedy")
    always = up.policy_value(model, TASK.actions[0]).value
    assert always == up.policy_value(model, np.zeros(TASK.n_states, int)).value
    assert always == up.policy_value(model, dict.fromkeys(TASK.state_names, TASK.actions[0])).value
    with pytest.raises(ValueError, match="start 9 is unknown"):
        model.at(start=9)


def test_steps_without_data_are_told(rng):
    three = up.Features(TASK, PHI.matrix[:, :3])  # without that of the last state
    half = fit(TASK, three, logged(MDP, rng, 50, range(4)), 0.1)
    result = up.policy_value(half, np.ones(5, int))
    assert result.unseen > 0.0 and "the log has no row" in result.summary()


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", PROBLEMS)
def test_intervals_cover(name, size):
    """95% intervals hold the true value, and the true difference, in 93 to 97% of logs."""
    problem = PROBLEMS[name]()
    for what, share in coverage(problem, problem.sizes[size]).items():
        assert 0.93 <= share <= 0.97, what


def clinicians(rng, n_clusters=40, n_rows=15):
    """A log of clinicians who each prefer one of two actions, of which the second helps."""
    prefers = rng.random(n_clusters) < 0.5
    who = np.repeat(np.arange(n_clusters), n_rows)
    action = (rng.random(len(who)) < np.where(prefers[who], 0.9, 0.1)).astype(int)
    following = (rng.random(len(who)) < np.array([0.2, 0.8])[action]).astype(int)
    state = rng.integers(2, size=len(who))
    return {"who": who, "state": state, "action": action, "next_state": following}


@pytest.mark.parametrize(
    ("n_logs", "close"), [(20, 0.4), pytest.param(400, 0.15, marks=pytest.mark.slow)]
)
def test_clusters_count_in_the_behaviour(rng, n_logs, close):
    """Standard errors of what was done are the spread over logs; without clusters too small.

    Those of a difference are a tenth too large with 40 clusters, which is the safe side.
    """
    options = {"cluster": "who", "horizon": 5, "reward": {1: 1.0}}
    formula = "C(next_state):C(action):C(state)"
    values, errors, alone, gains, of_gain = [], [], [], [], []
    for _ in range(n_logs):
        model = up.fit_transitions(formula, clinicians(rng), **options)
        found = up.policy_value(model.at(start=0), "behaviour")
        gain = up.compare_policies(model.at(start=0), np.array([1, 1]), "behaviour")
        values.append(found.value)
        errors.append(found.standard_error)
        gains.append(gain.value)
        of_gain.append(gain.standard_error)
        classical = up.policy_value(model.with_errors("classical").at(start=0), "behaviour")
        alone.append(classical.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=close)
    assert np.mean(of_gain) == pytest.approx(np.std(gains), rel=close)
    assert np.mean(alone) < 0.7 * np.mean(errors)


def test_the_joint_sandwich_is_that_of_the_clusters_written_out(rng):
    """By loops over clusters; of theta alone it is the covariance of the fitted model."""
    from upriver.logs.value_function import build_value_function

    log = clinicians(rng, 12)
    options = {"cluster": "who", "horizon": 3, "reward": {1: 1.0}}
    model = up.fit_transitions("C(next_state):C(action)", log, **options)
    function = build_value_function(model.at(start=0), [("behaviour", 1.0)])
    d, slope = len(model.theta), rng.normal(size=len(function.origin))
    first = np.concatenate([slope[:d], np.zeros(len(slope) - d)])
    np.testing.assert_allclose(function.image(first)[:d], model.cov_params() @ slope[:d])
    pair = log["state"] * 2 + log["action"]
    n, share = np.bincount(log["state"])[[0, 0, 1, 1]], function.done()[0]
    parts = []
    for c in range(12):
        mine = log["who"] == c
        here = np.bincount(log["state"][mine], minlength=2)[[0, 0, 1, 1]]
        rest = (np.bincount(pair[mine], minlength=4) - here * share) / (n * share)
        parts.append(rest / np.sqrt(1 - here / n))  # adjusted for few clusters
    parts = np.array(parts)
    last = np.concatenate([np.zeros(d), slope[d:]])
    np.testing.assert_allclose(function.image(last)[d:], parts.T @ (parts @ slope[d:]), rtol=1e-9)
