"""Plans and values with an infinite horizon: adjoint, standard errors, lower bounds."""

from dataclasses import replace

import numpy as np
import pytest

import upriver as up
from upriver.logs.value_function import evaluate_policy, policy_table
from upriver.planning import policy_iteration
from upriver.planning.infinite_horizon import plan_model
from upriver.planning.stationary import solve_visits

from .coverage import PROBLEMS, coverage
from .test_goodness import fit, logged

MDP = up.envs.riverswim(5, 8)
TASK = MDP.true_task
PHI = up.features.shared(TASK)
SETTINGS = [{"discount": 0.0}, {"discount": 0.9}, {"discount": 0.999}, {"discount": 1.0}]
"""With a discount of 1, the average reward."""


@pytest.fixture
def model(rng):
    return fit(TASK, PHI, logged(MDP, rng, 200))


def with_next_state_reward(model):
    """The same with a reward that depends on the next state too."""
    pay = np.cos(np.arange(TASK.n_triples))[None]
    task = replace(TASK, next_state_reward=pay, reward_range=None)
    return fit(task, PHI, model.counts)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", ["one", "mixed"])
@pytest.mark.parametrize("next_state_reward", [False, True])
def test_value_and_gradient(model, rng, setting, kind, next_state_reward):
    """The value is that of `evaluate`; the gradient that of finite differences to 1e-6."""
    model = with_next_state_reward(model) if next_state_reward else model
    policy = np.ones(5, int) if kind == "one" else rng.dirichlet(np.ones(2), size=5)
    start = np.array([0.5, 0.0, 0.3, 0.2, 0.0])
    infinite = model.at(**setting)
    known = policy_table(infinite.task, policy)

    def value(theta):
        at = replace(infinite, fitted=replace(model.fitted, theta=theta))
        return evaluate_policy(at.task, at.prob, known, start)

    found = value(model.fitted.theta)
    by_hand = up.evaluate(infinite.to_mdp(), policy)
    true = by_hand.gain if setting["discount"] == 1.0 else start @ by_hand.v
    assert found.value == pytest.approx(true, abs=3e-8)
    steps = 1.0 if setting["discount"] == 1.0 else 1.0 / (1.0 - setting["discount"])
    assert found.occupancy.sum() == pytest.approx(steps)
    slope = PHI.matrix.T @ found.weight[0]
    rounding = max(1e-8, 3e-10 * steps)  # of values that grow with the number of steps
    for j, unit in enumerate(np.eye(len(slope)) * 1e-4):
        rise = value(model.fitted.theta + unit).value - value(model.fitted.theta - unit).value
        assert slope[j] == pytest.approx(rise / 2e-4, rel=1e-6, abs=rounding)


@pytest.mark.parametrize("setting", SETTINGS[1:])
def test_the_gradient_in_the_behaviour(model, setting, rng):
    """action_slope: the derivative of the value in the probability of each action."""
    task = model.at(**setting).task
    mixture, move = rng.dirichlet(np.ones(2), size=5), 1e-6 * np.array([[1.0, -1.0]] * 5)
    start = np.eye(5)[1]
    up_, down, here = (
        evaluate_policy(task, model.prob, (mixture + x).reshape(1, -1), start)
        for x in (move, -move, 0.0)
    )
    rise = (up_.value - down.value) / 2
    assert rise == pytest.approx(float(here.action_slope[0] @ move.ravel()), rel=1e-5)


def test_shares_of_time_are_the_stationary_distribution(model):
    task = model.at(discount=1.0).task
    policy = np.ones(5, int)
    reward = task.user_rewards[0][0]
    *_, visits = solve_visits(task, model.prob[0], reward, policy, np.eye(5)[0])
    p = np.zeros((5, 2, 5))
    p[task.triples] = model.prob[0]
    np.testing.assert_allclose(visits @ p[:, 1], visits, atol=1e-12)
    assert visits.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("setting", SETTINGS[1:])
def test_plans_and_their_lower_bounds(model, setting):
    model = model.at(**setting, start=model.task.state_names[0])
    greedy = up.plan_from_model(model)
    exact = up.solve(model.to_mdp())
    np.testing.assert_array_equal(greedy.policy, exact.policy)
    worth = up.policy_value(model, greedy)
    assert worth.low < worth.value < worth.high
    careful = up.plan_from_model(model, "cautious")
    promise = careful.gain if setting["discount"] == 1.0 else careful.v[0]
    own = up.policy_value(model, careful)
    assert own.low <= promise + 1e-6 and promise < own.value  # a one-sided 95% bound of its own
    gain = up.compare_policies(model, greedy, "behaviour")
    was = up.policy_value(model, "behaviour")
    assert gain.value == pytest.approx(worth.value - was.value)
    assert gain.standard_error < worth.standard_error + was.standard_error


@pytest.mark.parametrize("setting", SETTINGS[1:])
def test_the_planner_of_learners_finds_the_same_values(model, setting):
    """Of rewards in [0, 1], as those of the river are: with a discount they are not shifted."""
    infinite = model.at(**setting)
    task = infinite.task
    plan = plan_model(task, model.prob[0], task.reward_rows[0], np.uint64(0))
    greedy = up.plan_from_model(infinite)
    np.testing.assert_array_equal(plan.policy[0], greedy.policy)
    shift = greedy.v.min() if setting["discount"] == 1.0 else 0.0
    np.testing.assert_allclose(plan.v[0], greedy.v - shift, rtol=1e-5, atol=1e-5)


def test_a_cycle_settles_where_its_equations_are_not_solved(monkeypatch):
    """Three states in turn, of which one pays: values that are only iterated would go round."""
    names = ["a", "b", "c"]
    mdp = up.FiniteMDP.from_functions(
        "a", ["go"], lambda s, a: [names[(names.index(s) + 1) % 3]], lambda s, a, s2: 1.0,
        lambda s, a: float(s == "c"), 3,
    )  # fmt: skip
    monkeypatch.setattr(policy_iteration, "MAX_BAND_OPERATIONS", 0.0)
    plan = up.solve(mdp, average=True)
    assert plan.gain == pytest.approx(1 / 3, abs=1e-8) and plan.error <= 1e-8


def test_a_discount_close_to_one_is_the_average(model):
    policy = np.ones(5, int)
    gain = up.policy_value(model.at(discount=1.0), policy)
    patient = up.policy_value(model.at(discount=1.0 - 1e-6), policy)
    assert 1e-6 * patient.value == pytest.approx(gain.value, rel=1e-4)
    assert 1e-6 * patient.standard_error == pytest.approx(gain.standard_error, rel=1e-4)


def test_steps_without_data_are_reported(rng):
    three = up.Features(TASK, PHI.matrix[:, :3])  # without that of the last state
    half = fit(TASK, three, logged(MDP, rng, 50, range(4)), 0.1)
    for setting, words in ((SETTINGS[1], "discounted steps are in"), (SETTINGS[3], "of all steps")):
        result = up.policy_value(half.at(**setting), np.ones(5, int))
        assert result.unseen > 0.0 and words in result.summary()


def test_a_task_with_an_infinite_horizon_needs_no_discount(model):
    infinite = replace(model, task=MDP.infinite_horizon(0.9).true_task)
    assert up.policy_value(infinite, np.ones(5, int)).value == pytest.approx(
        up.policy_value(model.at(discount=0.9), np.ones(5, int)).value
    )


def apart():
    """Two pairs of states that one never leaves."""
    log = [0, 0, 1, 1, 2, 2, 3, 3], [0] * 8, [0, 1, 0, 1, 2, 3, 2, 3]
    return up.fit_transitions("next_state", log, horizon=4, reward={1: 1.0}, regularization=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.at(discount=1.5), r"discount is 1\.5; it must be at least 0"),
        (lambda m: m.at(discount=-1.0), "discount is -1"),
        (lambda m: m.at(discount=True), "discount is True"),
        (lambda m: m.at(horizon=3, discount=True, reward={}), "discount is True"),
        (lambda m: up.plan_from_model(m, "pessimistic"), "how is 'pessimistic'; it must be one of"),
        (lambda m: up.policy_value(m.at(discount=0.9), [[0] * 5, [1] * 5]), r"shape \(2, 5\)"),
        (lambda m: up.policy_value(apart().at(discount=1.0), [0] * 4), "has 2 sets of stat"),
        (lambda m: up.plan_from_model(apart().at(discount=1.0)), "has 2 sets of states"),
        (lambda m: m.at(discount=0.9, reward=np.zeros((8, 5, 2))), "reward has shape"),
    ],
)
def test_bad_calls_are_one_sentence(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [{"discount": 0.9}, {"discount": 1.0}])
@pytest.mark.parametrize("name", PROBLEMS)
def test_intervals_cover(name, setting):
    """95% intervals of large logs hold the true value, and difference, in 93 to 97% of logs."""
    problem = PROBLEMS[name]()
    rules = {k: p[0] if p.ndim > 2 or len(p) == 12 else p for k, p in problem.policies.items()}
    problem = problem._replace(policies=rules)
    for what, share in coverage(problem, problem.sizes[1], **setting).items():
        assert 0.93 <= share <= 0.97, what
