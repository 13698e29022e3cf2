"""The value of a policy and its standard error: finite differences, bootstrap, coverage."""

from dataclasses import replace

import numpy as np
import pytest

import upriver as up
from upriver.logs.value import gradient, mixture_of, sweep

from .test_goodness import fit, logged

MDP = up.envs.riverswim(5, 8)
TASK = MDP.known
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
    mixture = mixture_of(model, policy)

    def value(theta):
        at = replace(model, fitted=replace(model.fitted, theta=theta))
        return sweep(TASK, at.prob, mixture, start)

    found = value(model.fitted.theta)
    estimate = up.FiniteMDP(TASK, model.probability, [0], [1.0])
    assert found.value == pytest.approx(start @ up.evaluate(estimate, policy)[0], rel=1e-12)
    assert found.occupancy.sum() == pytest.approx(8.0)
    slope = gradient(model.steps, found.weight)
    for j, unit in enumerate(np.eye(len(slope)) * 1e-5):
        up_, down = value(model.fitted.theta + unit).value, value(model.fitted.theta - unit).value
        assert slope[j] == pytest.approx((up_ - down) / 2e-5, rel=1e-6, abs=1e-8)


def test_the_standard_error_is_the_delta_method(model, rng):
    policy = policies(rng)["mixed"]
    result = up.policy_value(model, policy, start=2)
    found = sweep(TASK, model.prob, mixture_of(model, policy), np.eye(5)[2])
    slope = gradient(model.steps, found.weight)
    assert result.standard_error == pytest.approx(np.sqrt(slope @ model.fitted.covariance @ slope))
    assert result.high - result.value == pytest.approx(1.959964 * result.standard_error)
    assert sum(r["share"] for r in result.shares) == pytest.approx(1.0)
    assert result.unseen == 0.0 and "95% interval" in result.summary()


def test_the_bootstrap_agrees(rng):
    model = fit(TASK, PHI, logged(MDP, rng, 2000))
    for policy in (np.ones(5, int), "behaviour"):
        delta, drawn = (up.policy_value(model, policy, method=m) for m in ("delta", "bootstrap"))
        assert drawn.standard_error == pytest.approx(delta.standard_error, rel=0.15)


def test_a_difference_has_its_own_interval(model):
    new, old = np.ones(5, int), np.zeros(5, int)
    result = up.compare_policies(model, new, old)
    values = [up.policy_value(model, p) for p in (new, old)]
    assert result.value == pytest.approx(values[0].value - values[1].value)
    same = up.compare_policies(model, new, new)
    assert same.value == 0.0 and same.standard_error == 0.0
    assert 0.5 < up.compare_policies(model, new).probability_positive <= 1.0


def test_policies_are_matched_by_name(model):
    plan = up.plan_with(model)
    value = up.policy_value(model, plan).value
    told = up.Policy(plan.policy, 2, None, TASK.actions)
    assert up.policy_value(model, told).value == value
    turned = up.Policy(1 - plan.policy, 2, None, list(TASK.actions)[::-1])
    assert up.policy_value(model, turned).value == pytest.approx(value)
    with pytest.raises(ValueError, match="the policy plays 'up', which is no action here"):
        up.policy_value(model, up.Policy(plan.policy, 2, None, ["up", "down"]))
    with pytest.raises(ValueError, match="the only word is 'behaviour'"):
        up.policy_value(model, "greedy")
    with pytest.raises(ValueError, match="start 9 is unknown"):
        up.policy_value(model, plan, start=9)
    with pytest.raises(ValueError, match="'delta' or 'bootstrap'"):
        up.policy_value(model, plan, method="exact")


def test_steps_without_data_are_told(rng):
    half = fit(TASK, PHI, logged(MDP, rng, 50, range(4)), 0.1)
    result = up.policy_value(half, np.ones(5, int))
    assert result.unseen > 0.0 and "the log has no row" in result.summary()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one", "mixed", "behaviour"])
@pytest.mark.parametrize("per_pair", [60, 400])
def test_intervals_cover(kind, per_pair, rng):
    """95% intervals hold the true value in 93 to 97% of logs."""
    policy = "behaviour" if kind == "behaviour" else policies(rng)[kind]
    played = np.full((5, 2), 0.5) if kind == "behaviour" else policy
    true = up.evaluate(MDP, played)[0, 1]
    held = 0
    for _ in range(1000):
        # the log's actions are drawn too, evenly, so that the behaviour is random
        counts = np.zeros(TASK.n_triples)
        for s in range(5):
            n = rng.binomial(2 * per_pair, 0.5)
            for a, m in enumerate((n, 2 * per_pair - n)):
                at = TASK.rows(s, a)
                counts[at] = rng.multinomial(m, MDP.probability[0, at])
        result = up.policy_value(fit(TASK, PHI, counts, 1e-6), policy, start=1)
        held += result.low <= true <= result.high
    print(f"{kind}, {per_pair} rows per pair: {held / 1000:.3f}")
    assert 0.93 <= held / 1000 <= 0.97
