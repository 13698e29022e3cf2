"""RLSVI: the noise by hand, agreement with plain loops, optimism often enough."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, frequencies, play, random_mdp, steps_left
from upriver.agents.rlsvi import russo_noise


def test_noises():
    task = up.envs.riverswim(3, horizon=4).true_task
    assert up.agents.RLSVI(task, noise=0.5).sigma(7).tolist() == [1.5, 1.0, 0.5, 0.0]
    expected = np.sqrt(4**3 * 3 * np.log(2 * 4 * 3 * 2 * 7) / 2)
    assert russo_noise(task, 7) == pytest.approx([expected] * 4)


@pytest.mark.parametrize("support", ["known", "local", "full"])
def test_agrees_with_plain_loops(support):
    mdp = up.envs.riverswim(3, horizon=4)
    task = mdp.task(support)
    agent = up.agents.RLSVI(task, noise=0.3, regularization=0.5)
    again = np.random.default_rng(11)
    for episodes, state, _ in play(agent, mdp, 5):
        plan = agent.plan(state, np.random.default_rng(11))
        again = np.random.default_rng(11).standard_normal((4, 6)).reshape(4, 3, 2)
        _, visits, prob = frequencies(task, episodes)
        sure = task.sizes.reshape(3, 2) == 1

        def values(h, v, visits=visits, prob=prob, z=again, sure=sure):
            expected = visits / (visits + 0.5) * (prob @ v) + 0.3 * (3 - h) * z[h] / np.sqrt(
                visits + 0.5
            )
            return task.reward + np.where(sure, prob @ v, expected)

        check_plan(plan, values, steps_left(4))


def test_without_noise_and_ridge_it_plans_with_the_frequencies():
    mdp = up.envs.riverswim(3, horizon=4)
    agent = up.agents.RLSVI(mdp.true_task, noise=0.0, regularization=1e-12)
    *_, (episodes, _, plan) = play(agent, mdp, 4)
    _, visits, prob = frequencies(mdp.true_task, episodes)
    seen = ((visits > 0) | (mdp.true_task.sizes.reshape(3, 2) == 1))[..., None]
    check_plan(plan, lambda h, v: mdp.reward + (prob * seen) @ v, steps_left(4))


def test_optimistic_with_a_constant_probability():
    optimistic = total = 0
    for seed in range(10):
        mdp = random_mdp(seed)
        agent = up.agents.RLSVI(mdp.true_task, noise=russo_noise, regularization=1.0)
        best = up.solve(mdp).v[0, 0]
        for _, _, plan in play(agent, mdp, 20, seed):
            optimistic += plan.v[0, 0] >= best
            total += 1
    assert optimistic / total >= 0.158  # Phi(-1), the constant of the proof


def test_bad_inputs_are_named():
    task = up.envs.riverswim(3).true_task
    with pytest.raises(ValueError, match="noise is -1"):
        up.agents.RLSVI(task, noise=-1)
    with pytest.raises(ValueError, match="regularization is 0"):
        up.agents.RLSVI(task, regularization=0)
