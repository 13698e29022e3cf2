"""UCRL-MNL on the paper's four rivers, and the growth of its regret."""

from __future__ import annotations

import numpy as np
import pytest

from upriver import envs, features, simulate, solve
from upriver.agents import UCRLMNL, UCMatrixRL
from upriver.planning import start_value

COLUMNS = {(6, 24): 100, (8, 32): 100, (10, 40): 150, (20, 80): 200}


def totals(size, scale, seeds):
    """(returns, values) summed over the episodes of each seed, as shares of K V*."""
    mdp = envs.riverswim(*size)
    task = mdp.task("known")
    agent = UCRLMNL(task, features.one_hot(task), radius=scale, regularization=1.0)
    whole = COLUMNS[size] * start_value(mdp, solve(mdp).v)
    runs = [simulate(mdp, agent, COLUMNS[size], seed=seed) for seed in range(seeds)]
    return (
        np.array([run.returns.sum() for run in runs]) / whole,
        np.array([run.values.sum() for run in runs]) / whole,
    )


@pytest.mark.parametrize("size", COLUMNS)
def test_ten_seeds_of_each_column(size):
    """Exact values instead of returns, whose noise over ten seeds is about two per cent."""
    returns, values = totals(size, 1e-4, 10)
    assert values.mean() >= 0.97
    spread = (returns - values).std() / np.sqrt(10)
    assert abs((returns - values).mean()) < 5 * spread


def test_without_a_bonus_short_rivers_are_swum_and_the_long_one_never():
    assert totals((6, 24), 0.0, 10)[1].mean() >= 0.97
    mdp = envs.riverswim(20, 80)
    task = mdp.task("known")
    agent = UCRLMNL(task, features.one_hot(task), radius=0.0, regularization=1.0)
    for seed in range(3):
        run = simulate(mdp, agent, 200, seed=seed)
        np.testing.assert_allclose(run.returns, 0.4, atol=1e-12)  # always left


@pytest.mark.slow
@pytest.mark.parametrize("size", COLUMNS)
def test_two_hundred_seeds_of_each_column(size):
    returns, _ = totals(size, 1e-4, 200)
    assert returns.mean() >= 0.98
    greedy, _ = totals(size, 0.0, 200)
    if size == (20, 80):
        np.testing.assert_allclose(greedy, 0.4 / 9.230224, rtol=1e-6)
    else:
        difference = greedy - returns  # the same environment stream: paired
        assert abs(difference.mean()) < 0.01


@pytest.mark.slow
def test_regret_grows_like_the_square_root_of_the_episodes():
    """Slope of log regret against log K from 10^3 to 10^4: clearly sublinear, about a half."""
    mdp = envs.riverswim(6, 24)
    task = mdp.task("local")
    agent = UCRLMNL(task, features.one_hot(task), radius=0.03, regularization=1.0)
    curve = np.mean(
        [np.cumsum(simulate(mdp, agent, 10_000, seed=seed).regret) for seed in range(8)], axis=0
    )
    k = np.unique(np.geomspace(1_000, 10_000, 30).astype(int))
    slope = np.polyfit(np.log(k), np.log(curve[k - 1]), 1)[0]
    assert 0.3 < slope < 0.7


def test_uc_matrix_rl_with_one_bonus_earns_its_printed_row():
    """lambda = 1 and the bonus 0.12 in every column, over 20 runs; printed over ten."""
    printed = {6: 372.47, 8: 334.13, 10: 632.62, 20: 682.15}
    for size, n_episodes in COLUMNS.items():
        mdp = envs.riverswim(*size)
        agent = UCMatrixRL(mdp.task("full"), bonus=0.12, regularization=1.0)
        runs = [simulate(mdp, agent, n_episodes, seed=seed) for seed in range(20)]
        mean = np.mean([run.returns.sum() for run in runs])
        print(f"S = {size[0]}: {mean:.0f}, printed {printed[size[0]]:.0f}")
        assert mean == pytest.approx(printed[size[0]], rel=0.13)


def test_the_potential_of_the_documentation():
    """Sum of max ||varphi||^2 over 100 episodes at lambda = L_varphi^2 = 2, and its bound."""
    mdp = envs.riverswim(6)
    task = mdp.task()
    varphi = features.one_hot(task)
    agent = UCRLMNL(task, varphi, radius=1e-4, regularization=2.0)
    before, total = agent.init().model, 0.0
    for k in range(1, 101):
        model = simulate(mdp, agent, k, seed=0).state.model
        visits = task.by_pair(model.counts[0] - before.counts[0])
        total, before = total + float(visits @ before.max_norm[0] ** 2), model
    bound = 2 * 24 * varphi.dimension * np.log(1 + 100 * 24 * 3 * 2 / (varphi.dimension * 2.0))
    assert total == pytest.approx(56.3, abs=0.5) and bound == pytest.approx(4694, abs=0.5)
