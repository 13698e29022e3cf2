"""The cautious plan: its promise, what its choice costs, how close it is to the truth."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import upriver as up
from upriver.logs import cautious
from upriver.logs.extremes import moved, worth_of
from upriver.logs.fit import LogModel
from upriver.mnl.fit import fit_mnl

from .coverage import PROBLEMS, a_log


def fitted(problem, n_episodes, seed=0):
    counts = a_log(problem, n_episodes, seed)
    return LogModel(problem.mdp.known, problem.phi, counts, fit_mnl(problem.phi, counts, 1e-6))


def arms(n_arms, chances, rows, rng):
    """A bandit whose arms lead to a state that pays or to one that does not, and a log of it."""
    p = np.zeros((3, n_arms, 3))
    p[0, :, 1], p[0, :, 2] = chances, 1.0 - np.asarray(chances)
    p[1, :, 1] = p[2, :, 2] = 1.0
    mdp = up.FiniteMDP.from_arrays(p, np.array([[0.0], [1.0], [0.0]]).repeat(n_arms, 1), 2)
    task, counts = mdp.known, np.zeros(mdp.known.n_triples)
    for a, n in enumerate(np.broadcast_to(rows, n_arms)):
        counts[task.rows(0, a)] = rng.multinomial(n, mdp.probability[0, task.rows(0, a)])
    phi = up.features.one_hot(task)
    return mdp, LogModel(task, phi, counts, fit_mnl(phi, counts, 1e-3))


def test_where_no_other_plan_is_plausible_nothing_is_paid_for():
    """On a long river log the promise is the one-sided bound of the greedy plan."""
    model = fitted(PROBLEMS["river"](), 2000)
    plan, greedy = up.plan_with(model, "cautious", start=2), up.plan_with(model)
    bound = up.policy_value(model, greedy, confidence=0.9, start=2)
    assert plan.v[0, 2] == pytest.approx(bound.low, rel=2e-3)
    assert plan.v[0, 2] > up.plan_with(model, "pessimistic").v[0, 2]
    deeper = up.plan_with(model, "cautious", confidence=0.99, start=2)
    assert deeper.v[0, 2] < plan.v[0, 2] < greedy.v[0, 2]


def test_a_choice_among_many_is_paid_for(rng):
    """Between equal arms the radius is nearly that of the largest of as many independent errors."""
    _, model = arms(8, [0.5] * 8, 2000, rng)
    task, worth = model.task, worth_of(model, [], 0)
    found = [cautious.candidate(worth, model.prob)]
    for a in range(8):
        prob = model.prob.copy()
        prob[0, task.rows(0, a)] = [0.99, 0.01]
        found.append(cautious.candidate(worth, prob))
    radius = cautious.largest_error(found, 0.95)
    assert radius == pytest.approx(special.ndtri(0.95 ** (1 / 8)), abs=0.03)
    assert cautious.largest_error(found[:1], 0.95) == pytest.approx(special.ndtri(0.95))


def test_an_arm_that_is_little_known_is_not_chosen(rng):
    _, model = arms(2, [0.5, 0.6], [1000, 1000], rng)
    counts = model.counts.copy()
    counts[model.task.rows(0, 1)] = [6, 4]  # as good as it looks, but of ten rows
    few = LogModel(model.task, model.features, counts, fit_mnl(model.features, counts, 1e-3))
    assert up.plan_with(few).policy[0, 0] == 1
    careful = up.plan_with(few, "cautious")
    assert careful.policy[0, 0] == 0 and 0.43 < careful.v[0, 0] < 0.5
    assert up.plan_with(model, "cautious").policy[0, 0] == 1


def test_draws_have_the_covariance_of_the_estimate(rng):
    """For dense, one-hot and pooled features: the kernel's draws and the matrix's agree."""
    problem = PROBLEMS["river"]()
    task, counts = problem.mdp.known, a_log(problem, 60, 0)
    for phi in (problem.phi, up.features.one_hot(task), up.features.pooled(problem.phi)):
        model = LogModel(task, phi, counts, fit_mnl(phi, counts, 1.0))
        drawn = np.array([cautious.draw(model, rng) for _ in range(4000)])
        slope = rng.normal(size=drawn.shape[1])
        expected = float(slope @ (model.fitted.covariance @ slope))
        assert (drawn @ slope).var() == pytest.approx(expected, rel=0.1)
        assert abs((drawn @ slope).mean()) < 4 * np.sqrt(expected / 4000)


def test_rewards_and_starts(rng):
    model = fitted(PROBLEMS["river"](), 300)
    n = model.task.n_states
    left = np.zeros((n, 2))
    left[0] = 1.0
    plan = up.plan_with(model, "cautious", reward=left, start={1: 0.5, 2: 0.5})
    assert (plan.policy[0, :3] == 0).all()
    with pytest.raises(ValueError, match="start 99 is unknown"):
        up.plan_with(model, "cautious", start=99)
    shift = rng.normal(size=4) * 0.1
    assert np.allclose(model.task.by_pair(moved(model, shift)[0]), 1.0)


def promises(problem, n_episodes, n_logs):
    """(n_logs, 4): promised and true values of the cautious and of the pessimistic plan."""
    mdp, task = problem.mdp, problem.mdp.known
    start = {s: 1 / task.n_states for s in task.states or range(task.n_states)}
    rows = []
    for seed in range(n_logs):
        model = fitted(problem, n_episodes, seed)
        row = []
        for how in ("cautious", "pessimistic"):
            plan = up.plan_with(model, how, start=start)
            row += [plan.v[0].mean(), up.evaluate(mdp, plan)[0].mean()]
        rows.append(row)
    return np.array(rows)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", PROBLEMS)
def test_promises_hold_and_are_twice_as_close(name, size):
    problem = PROBLEMS[name]()
    promised, earned, floor, other = promises(problem, problem.sizes[size], 400).T
    held, closer = np.mean(promised <= earned), np.mean(other - floor) / np.mean(earned - promised)
    print(
        f"{name}, {problem.sizes[size]}: {held:.3f} of promises hold, {closer:.2f} times as close"
    )
    assert held >= 0.95 - 1.96 * np.sqrt(0.05 * 0.95 / 400) and closer >= 2.0
    assert earned.mean() >= other.mean() - 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("n_arms", [2, 5, 20])
def test_promises_among_equal_arms(n_arms, rng):
    """The hardest case of choosing: every arm is as good as the others."""
    held = 0
    for _ in range(400):
        mdp, model = arms(n_arms, [0.5] * n_arms, 200, rng)
        plan = up.plan_with(model, "cautious")
        held += plan.v[0, 0] <= up.evaluate(mdp, plan)[0, 0] + 1e-12
    print(f"{n_arms} equal arms: {held / 400:.3f} of promises hold")
    assert held / 400 >= 0.9


def test_the_same_in_other_units():
    """Rewards 10 + 5 r, some of it of the next state and at the end: 10 H + 5 value, all of it."""
    problem = PROBLEMS["river"]()
    counts, task = a_log(problem, 60, 0), problem.mdp.known
    last = np.linspace(-1.0, 2.0, task.n_states)
    pay = np.random.default_rng(1).uniform(size=task.n_triples)
    said = []
    for low, unit in ((0.0, 1.0), (10.0, 5.0)):
        there = replace(task, reward=low + unit * task.reward, arrival=unit * pay,
                        terminal=unit * last, reward_range=None)  # fmt: skip
        phi = up.Features(there, problem.phi.matrix)
        model = LogModel(there, phi, counts, fit_mnl(phi, counts, 1e-6))
        plan = up.plan_with(model, "cautious", start=2)
        greedy = up.plan_with(model)
        found = [up.policy_value(model, p, start=2) for p in (greedy, plan, "behaviour")]
        gain = up.compare_policies(model, plan, start=2)
        assert greedy.v[0, 2] == pytest.approx(found[0].value)
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
