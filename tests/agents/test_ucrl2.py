"""UCRL2: radii by hand, agreement with a linear program, optimism with the paper's radius."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, frequencies, play, random_mdp, steps_left
from tests.kernels.test_tabular import l1_maximum
from upriver.agents.counts import frequencies as frequency_table
from upriver.agents.ucrl2 import original_l1


def practical_radius(c, task, visits):
    """The radius after visits (S*A,), all of them to the first successor."""
    agent = up.agents.UCRL2(task, radius=c)
    state = agent.init()
    state.model[0, task.indptr[:-1]] = visits
    return agent.ball_radius(state)


def test_radii_by_hand():
    task = up.envs.riverswim(3, horizon=5).task("known")  # left has one successor
    visits = np.array([0.0, 4, 9, 16, 25, 1])
    assert task.sizes.tolist() == [1, 2, 1, 3, 1, 2]
    assert practical_radius(0.5, task, visits) == pytest.approx(
        [2.0, *0.5 * np.sqrt([2 / 4, 1 / 9, 3 / 16, 1 / 25, 2 / 1])]
    )
    published = 14 * 3 * np.log(2 * 2 * 11 / 0.05) / np.array([1, 4, 9, 16, 25, 1])
    assert original_l1()(task, visits, 3) == pytest.approx(np.sqrt(published))
    assert (practical_radius(0.0, task, visits) == 0).all()


@pytest.mark.parametrize("support", ["known", "local", "full"])
def test_agrees_with_a_linear_program(support):
    mdp = up.envs.riverswim(3, horizon=4)
    task = mdp.task(support)
    agent = up.agents.UCRL2(task, radius=0.4)
    for episodes, _, plan in play(agent, mdp, 4):
        _, visits, prob = frequencies(task, episodes)
        radius = practical_radius(0.4, task, visits.ravel()).reshape(3, 2)

        def values(h, v, prob=prob, radius=radius):
            q = np.empty((3, 2))
            for s in range(3):
                for a in range(2):
                    reach = task.successors[task.rows(s, a)]
                    best = l1_maximum(v[reach], prob[s, a, reach], radius[s, a])
                    q[s, a] = task.reward[s, a] + best
            return q

        check_plan(plan, values, steps_left(4))


def test_nothing_seen_means_the_best_successor():
    task = up.envs.riverswim(4, horizon=6).task("local")
    agent = up.agents.UCRL2(task, radius=1e-3)
    plan = agent.plan(agent.init(), np.random.default_rng(0))
    # Three sure steps right, then a reward of 1 in each of the three steps left; even swimming left
    # at first, which pays 0.005, may lead to the right.
    assert plan.v[0, 0] == pytest.approx(3.005)


def test_optimism_with_the_papers_radius():
    for seed in range(5):
        mdp = random_mdp(seed)
        agent = up.agents.UCRL2(mdp.true_task, radius=original_l1())
        best = up.solve(mdp)
        for _, _, plan in play(agent, mdp, 30, seed):
            assert (plan.v >= best.v - 1e-9).all()


def test_the_ball_holds_the_truth_at_least_as_often_as_promised():
    missed = 0
    for seed in range(20):
        mdp = random_mdp(seed)
        agent = up.agents.UCRL2(mdp.true_task, radius=original_l1(0.05))
        run = up.simulate(mdp, agent, 200, seed)
        task, counts = mdp.true_task, run.state.model[0]
        gap = task.by_pair(np.abs(frequency_table(task, counts) - mdp.probability)[0])
        missed += (gap > original_l1(0.05)(task, task.by_pair(counts), run.state.k)).any()
    assert missed == 0  # the published radius is generous: 5% would be one of twenty


def test_bad_inputs_are_named():
    task = up.envs.riverswim(3).true_task
    with pytest.raises(ValueError, match="radius is 'x'"):
        up.agents.UCRL2(task, radius="x")
    with pytest.raises(ValueError, match="delta is 0"):
        original_l1(0.0)
