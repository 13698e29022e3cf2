"""UCBVI: bonuses by hand, agreement with plain loops, optimism with the paper's constants."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, frequencies, play, random_mdp, steps_left
from upriver.agents.base import Episode
from upriver.agents.ucbvi import theory_bernstein, theory_hoeffding


def one_visit_each(agent, horizon=2):
    """The state after visiting both actions of state 0 of a two-state MDP once and staying."""
    state = agent.init()
    for a in (0, 1):
        episode = Episode(np.zeros(horizon + 1, int), np.full(horizon, a), np.zeros(horizon))
        state = agent.update(state, agent.plan(state, np.random.default_rng(0)), episode)
    return state


def two_states():
    prob = np.full((2, 2, 2), 0.5)
    return up.FiniteMDP.from_arrays(prob, np.array([[0.1, 0.2], [0.3, 0.4]]), 2)


def test_by_hand():
    task = two_states().task("full")
    agent = up.agents.UCBVI(task, bonus=0.5)
    plan = agent.plan(one_visit_each(agent), np.random.default_rng(0))
    # Last step: no bonus. First: seen pairs stay in 0, N = 2 and H - h = 1; unseen ones may reach
    # the better state, 1, and have the bonus of one visit.
    assert plan.v[1].tolist() == [0.2, 0.4]
    bonus = 0.5 / np.sqrt(2)
    expected = [[0.1 + 0.2 + bonus, 0.2 + 0.2 + bonus], [0.3 + 0.4 + 0.5, 0.4 + 0.4 + 0.5]]
    assert plan.q(0) == pytest.approx(np.array(expected))
    assert plan.v[0] == pytest.approx([0.4 + bonus, 1.3])


def test_bernstein_by_hand():
    task = two_states().task("full")
    agent = up.agents.UCBVIBF(task, bonus=0.5)
    state = one_visit_each(agent)
    # One more visit of (0, 0), to state 1: P = (2/3, 1/3), N = 3, Var V = (2/9)(0.2)^2.
    state = agent.update(state, None, Episode(np.array([0, 1, 0]), np.array([0, 1]), np.zeros(2)))
    plan = agent.plan(state, np.random.default_rng(0))
    mean, variance = (2 * 0.2 + 0.4) / 3, 2 / 9 * 0.2**2
    expected = 0.1 + mean + 0.5 * np.sqrt(variance / 3) + 0.5 / 3
    assert plan.q(0)[0, 0] == pytest.approx(expected)
    assert state.model.states.tolist() == [[3, 0], [2, 1], [3, 0]]


def test_theory_constants():
    task = two_states().task("full")
    size = np.log(5 * 2 * 2 * 10 * 2 / 0.1)
    assert theory_hoeffding(10, 0.1)(task) == pytest.approx([14 * size] * 2)
    state_visits = np.array([[5.0, 0], [1e9, 0], [3, 2]])
    variance, linear, doubt = theory_bernstein(10, 0.1)(task, state_visits)
    assert variance == pytest.approx(8 * size) and linear == pytest.approx([28 * size / 3] * 2)
    assert doubt[0] == pytest.approx([8 * 1e4 * 8 * 4 * 2 * size**2 / 1e9, 32])
    assert doubt[1] == pytest.approx([32, 32])


@pytest.mark.parametrize("bernstein", [False, True])
@pytest.mark.parametrize("support", ["known", "local", "full"])
def test_agrees_with_plain_loops(support, bernstein):
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task(support)
    c = 0.3
    agent = (up.agents.UCBVIBF if bernstein else up.agents.UCBVI)(task, bonus=c)
    for episodes, _, plan in play(agent, mdp, 6):
        _, visits, prob = frequencies(task, episodes)

        def values(h, v, visits=visits, prob=prob):
            q = np.empty((4, 2))
            left = 5 - h
            for s in range(4):
                for a in range(2):
                    reach = task.successors[task.rows(s, a)]
                    n, p = visits[s, a], prob[s, a]
                    mean, spread = p @ v, p @ v**2 - (p @ v) ** 2
                    if n == 0:
                        n, mean, spread = 1, v[reach].max(), left**2 / 4
                    if bernstein:
                        bonus = c * np.sqrt(max(spread, 0) / n) + c * left / n
                    else:
                        bonus = c * left / np.sqrt(n)
                    q[s, a] = task.reward[s, a] + mean + (bonus if len(reach) > 1 else 0)
            return q

        check_plan(plan, values, steps_left(6))


def test_greedy_has_no_bonus_and_no_optimism():
    mdp = up.envs.riverswim(4, horizon=6)
    task = mdp.task("full")
    plans = [
        agent.plan(agent.init(), np.random.default_rng(1))
        for agent in (up.agents.UCBVI(task, bonus=0.0), up.agents.UCBVIBF(task, bonus=0.0))
    ]
    for plan in plans:
        check_plan(plan, lambda h, v: task.reward + v.mean(), steps_left(6))


@pytest.mark.parametrize("bernstein", [False, True])
def test_optimism_with_the_papers_constants(bernstein):
    for seed in range(5):
        mdp = random_mdp(seed)
        bonus = theory_bernstein(30) if bernstein else theory_hoeffding(30)
        agent = (up.agents.UCBVIBF if bernstein else up.agents.UCBVI)(mdp.true_task, bonus=bonus)
        best = up.solve(mdp)
        for _, _, plan in play(agent, mdp, 30, seed):
            assert (plan.v >= best.v - 1e-9).all()


def test_bonus_shrinks_to_nothing():
    mdp = random_mdp(0)
    agent = up.agents.UCBVI(mdp.true_task, bonus=0.05)
    run = up.simulate(mdp, agent, 3000, seed=1)
    assert run.regret[-500:].mean() < 0.01 * run.optimal_values[0]


def test_bad_inputs_are_named():
    task = two_states().true_task
    with pytest.raises(ValueError, match="bonus is -1"):
        up.agents.UCBVI(task, bonus=-1)
    with pytest.raises(ValueError, match="delta is 2"):
        theory_hoeffding(10, 2)
    with pytest.raises(ValueError, match="bonus is nan"):
        up.agents.UCBVIBF(task, bonus=float("nan"))


def test_an_episode_outside_the_support_is_refused():
    task = up.envs.riverswim(4).true_task
    agent = up.agents.UCBVI(task)
    episode = Episode(np.array([0, 3]), np.array([1]), np.zeros(1))
    with pytest.raises(ValueError, match=r"step 0 .* \(s=0, a=.right.\) to 3.*\[0, 1\]"):
        agent.update(agent.init(), None, episode)
