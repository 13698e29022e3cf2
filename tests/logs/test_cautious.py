"""The cautious plan: its promise, what its choice costs, how close it is to the truth."""

from dataclasses import replace

import numpy as np
import pytest

import upriver as up
from tests.building import fit_counts
from upriver.logs import planning
from upriver.logs.value_function import build_value_function, shifted_probabilities

from .coverage import PROBLEMS, a_log


def fitted(problem, n_episodes, seed=0):
    counts = a_log(problem, n_episodes, seed)
    return fit_counts(problem.phi, counts, 1e-6, problem.mdp.true_task)


def arms(chances, rows, rng):
    """Bandits (S, A) whose arms lead to a state that pays or to one that does not, and a log."""
    chances = np.atleast_2d(chances)
    n, n_arms = chances.shape
    p = np.zeros((n + 2, n_arms, n + 2))
    p[:n, :, n], p[:n, :, n + 1] = chances, 1.0 - chances
    p[n, :, n] = p[n + 1, :, n + 1] = 1.0
    mdp = up.FiniteMDP.from_arrays(p, (np.arange(n + 2) == n)[:, None].repeat(n_arms, 1) * 1.0, 2)
    task, counts = mdp.true_task, np.zeros(mdp.true_task.n_triples)
    for s, a in np.ndindex(n, n_arms):
        counts[task.rows(s, a)] = rng.multinomial(rows, mdp.probability[0, task.rows(s, a)])
    phi = up.features.one_hot(task)
    return mdp, fit_counts(phi, counts, 1e-3, task)


def test_where_no_other_plan_is_plausible_nothing_is_paid_for():
    """On a long river log the promise is the one-sided bound of the greedy plan."""
    model = fitted(PROBLEMS["river"](), 2000)
    plan, greedy = up.plan_from_model(model.at(start=2), "cautious"), up.plan_from_model(model)
    bound = up.policy_value(model.at(start=2), greedy, confidence=0.9)
    assert plan.v[0, 2] == pytest.approx(bound.low, rel=2e-3)
    deeper = up.plan_from_model(model.at(start=2), "cautious", confidence=0.99)
    assert deeper.v[0, 2] < plan.v[0, 2] < greedy.v[0, 2]


def test_a_choice_is_seen(rng):
    """Equal arms are a choice, in one state or in many; an arm that is far better is none."""
    for n_states, other, chosen in ((1, 0.5, True), (300, 0.5, True), (1, 0.1, False)):
        _, model = arms(np.tile([0.5, other], (n_states, 1)), 200, rng)
        worth = build_value_function(
            model.at(start=dict.fromkeys(range(n_states), 1 / n_states)), []
        )
        best = planning.build_candidate(worth, worth.origin)
        assert planning.is_chosen(best, 1.645, rng) == chosen


def test_what_chose_the_plan_does_not_judge_it(rng):
    """Of 300 states with two equal arms: the greedy plan's bound is above the truth by many
    standard errors, the cautious one's below it by as many as half of the log leaves open."""
    _, model = arms(np.full((300, 2), 0.5), 200, rng)
    start = dict.fromkeys(range(300), 1 / 300)
    greedy = up.policy_value(model.at(start=start), up.plan_from_model(model))
    assert greedy.low > 0.5 + 5 * greedy.standard_error
    plan = up.plan_from_model(model.at(start=start), "cautious")
    below = 0.5 - plan.v[0, :300].mean()
    assert -1.5 < below / greedy.standard_error - 1.645 * np.sqrt(2) < 1.5 * np.sqrt(2) + 1.5
    again = up.plan_from_model(model.at(start=start), "cautious")
    assert (again.v == plan.v).all()


def test_an_arm_that_is_little_known_is_not_chosen(rng):
    _, model = arms([0.5, 0.6], 1000, rng)
    counts = model.counts.copy()
    counts[model.task.rows(0, 1)] = [6, 4]  # as good as it looks, but of ten rows
    few = fit_counts(model.steps[0], counts, 1e-3, model.task)
    assert up.plan_from_model(few).policy[0, 0] == 1
    careful = up.plan_from_model(few, "cautious")
    assert careful.policy[0, 0] == 0 and 0.43 < careful.v[0, 0] < 0.5
    assert up.plan_from_model(model, "cautious").policy[0, 0] == 1


def test_a_bound_is_not_above_the_estimate():
    """Of equal arms the half that chooses may be worse than the half that judges."""
    start = dict.fromkeys(range(3), 1 / 3)
    above = 0
    for seed in range(60):
        _, model = arms(np.full((3, 4), 0.5), 30, np.random.default_rng(seed))
        plan = up.plan_from_model(model.at(start=start), "cautious", 0.55)
        estimate = up.policy_value(model.at(start=start), plan).value
        above += plan.v[0, :3].mean() > estimate + 1e-12
    assert above == 0


def test_draws_are_errors_of_the_estimate(rng):
    """Their covariance is that of the estimate."""
    model = fitted(PROBLEMS["river"](), 60)
    function, d = build_value_function(model, []), len(model.theta)
    drawn = np.array([function.draw(rng)[:d] for _ in range(4000)])
    slope = rng.normal(size=drawn.shape[1])
    expected = float(slope @ model.fitted.covariance @ slope)
    assert (drawn @ slope).var() == pytest.approx(expected, rel=0.1)
    assert abs((drawn @ slope).mean()) < 4 * np.sqrt(expected / 4000)


def test_rewards_and_starts(rng):
    model = fitted(PROBLEMS["river"](), 300)
    n = model.task.n_states
    left = np.zeros((n, 2))
    left[0] = 1.0
    plan = up.plan_from_model(model.at(reward=left).at(start={1: 0.5, 2: 0.5}), "cautious")
    assert (plan.policy[0, :3] == 0).all()
    with pytest.raises(ValueError, match="start 99 is unknown"):
        up.plan_from_model(model.at(start=99), "cautious")
    shift = rng.normal(size=4) * 0.1
    assert np.allclose(model.task.by_pair(shifted_probabilities(model, shift)[0]), 1.0)


def promises(problem, n_episodes, n_logs):
    """(n_logs, 3): promised and true values of the cautious plan, and the estimated value of the
    optimal plan."""
    mdp, task = problem.mdp, problem.mdp.true_task
    start = {s: 1 / task.n_states for s in task.states or range(task.n_states)}
    best, rows = up.solve(mdp), []
    for seed in range(n_logs):
        model = fitted(problem, n_episodes, seed)
        plan = up.plan_from_model(model.at(start=start), "cautious")
        said = up.evaluate(model.to_mdp(), best)[0].mean()
        rows.append([plan.v[0].mean(), up.evaluate(mdp, plan)[0].mean(), said])
    return np.array(rows)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", PROBLEMS)
def test_promises_hold_and_are_close(name, size):
    """A 95% bound of a plan that nobody chose is 1.645 deviations of the estimate too low.

    What the choice costs on top is less than a third of that.
    """
    problem = PROBLEMS[name]()
    promised, earned, said = promises(problem, problem.sizes[size], 400).T
    held, far = np.mean(promised <= earned), np.mean(earned - promised) / (1.645 * said.std())
    print(f"{name}, {problem.sizes[size]}: {held:.3f} of promises hold, {far:.2f} times as far")
    assert held >= 0.95 - 1.96 * np.sqrt(0.05 * 0.95 / 400)
    assert far <= 1.3


@pytest.mark.slow
@pytest.mark.parametrize(("n_states", "n_arms"), [(1, 2), (1, 5), (1, 20), (10, 2), (100, 2)])
@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_promises_among_many_choices(n_states, n_arms, gap, rng):
    """The hardest cases of choosing: arms that are equally good, or nearly so."""
    held, start = 0, dict.fromkeys(range(n_states), 1 / n_states)
    for _ in range(1000):
        chances = np.clip(0.5 + gap * rng.standard_normal((n_states, n_arms)), 0.05, 0.95)
        mdp, model = arms(chances, 200, rng)
        plan = up.plan_from_model(model.at(start=start), "cautious")
        earned = up.evaluate(mdp, plan)[0, :n_states].mean()
        held += plan.v[0, :n_states].mean() <= earned + 1e-12
    print(f"{n_states} states, {n_arms} arms, gaps {gap}: {held / 1000:.3f} of promises hold")
    assert held / 1000 >= 0.93


def test_the_same_in_other_units():
    """Rewards 10 + 5 r, some of it of the next state: 10 H + 5 value, all of it."""
    problem = PROBLEMS["river"]()
    counts, task = a_log(problem, 60, 0), problem.mdp.true_task
    pay = np.random.default_rng(1).uniform(size=task.n_triples)
    said = []
    for low, unit in ((0.0, 1.0), (10.0, 5.0)):
        there = replace(task, reward=low + unit * task.reward, next_state_reward=unit * pay,
                        reward_range=None)  # fmt: skip
        phi = up.Features(there, problem.phi.matrix)
        model = fit_counts(phi, counts, 1e-6, there)
        plan = up.plan_from_model(model.at(start=2), "cautious")
        greedy = up.plan_from_model(model)
        found = [up.policy_value(model.at(start=2), p) for p in (greedy, plan, "behaviour")]
        gain = up.compare_policies(model.at(start=2), plan)
        assert greedy.v[0, 2] == pytest.approx(found[0].value)
        for h in range(task.horizon):
            np.testing.assert_allclose(greedy.q(h).max(axis=1), greedy.v[h])
        said.append((plan, greedy, found, gain))
    (plan, greedy, found, gain), (plan2, greedy2, found2, gain2) = said
    base = 10.0 * np.arange(task.horizon, -1, -1)[:, None]
    assert (plan.policy == plan2.policy).all()
    np.testing.assert_allclose(plan2.v, base + 5 * plan.v)
    np.testing.assert_allclose(greedy2.v, base + 5 * greedy.v)
    for one, other in zip(found, found2, strict=True):
        for name in ("value", "low", "high"):
            assert getattr(other, name) == pytest.approx(base[0, 0] + 5 * getattr(one, name))
        assert other.standard_error == pytest.approx(5 * one.standard_error)
    assert gain2.low == pytest.approx(5 * gain.low) and gain2.high == pytest.approx(5 * gain.high)
