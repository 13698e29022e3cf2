"""PSRL: its draws follow the Dirichlet posterior on the support, its plan is optimal."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, frequencies, play
from upriver.agents import counts
from upriver.agents.base import Episode


def draws_of(agent, state, n):
    """(n, triples) models of n plans, from a copy of the generator; the first are checked."""
    rng = np.random.default_rng(0)
    task = agent.task
    shape = agent.prior / np.repeat(task.sizes, task.sizes) + state.model[0]
    drawn = np.empty((n, task.n_triples))
    for i in range(n):
        copy = np.random.Generator(np.random.PCG64())
        copy.bit_generator.state = rng.bit_generator.state
        out = counts.frequencies(task, copy.standard_gamma(shape / agent.inflation))
        plan = agent.plan(state, rng)
        if i < 10:
            dense = np.zeros((task.n_states, task.n_actions, task.n_states))
            dense[task.triples] = out[0]
            free = np.full(task.horizon, np.inf)
            check_plan(plan, lambda h, v, dense=dense: task.reward + dense @ v, free)
        drawn[i] = out[0]
    return drawn


def test_the_plan_is_optimal_for_a_posterior_draw():
    mdp = up.envs.riverswim(3, horizon=5)
    task = mdp.task("local")
    agent = up.agents.PSRL(task)
    for episodes, state, _ in play(agent, mdp, 4):
        counts, visits, _ = frequencies(task, episodes)
        assert np.array_equal(state.model[0], counts[task.triples])
        assert np.array_equal(task.by_pair(state.model[0]), visits.ravel())
    drawn = draws_of(agent, state, 2000)
    alpha = 1 / np.repeat(task.sizes, task.sizes) + counts[task.triples]
    total = np.repeat(np.add.reduceat(alpha, task.indptr[:-1]), task.sizes)
    mean, variance = alpha / total, alpha * (total - alpha) / (total**2 * (total + 1))
    error = np.sqrt(variance / 2000)
    assert (np.abs(drawn.mean(axis=0) - mean) <= 5 * error + 1e-12).all()
    assert drawn.var(axis=0) == pytest.approx(variance, rel=0.3, abs=1e-4)


def test_inflation_spreads_the_draws():
    task = up.envs.riverswim(3, horizon=5).task("local")
    episode = Episode(np.array([0, 1, 0, 1, 1, 0]), np.array([1, 0, 1, 1, 0]), np.zeros(5))
    spread = []
    for inflation in (0.1, 1.0, 10.0):
        agent = up.agents.PSRL(task, inflation=inflation)
        state = agent.update(agent.init(), None, episode)
        spread.append(draws_of(agent, state, 200).var(axis=0).sum())
    assert spread[0] < spread[1] < spread[2]


def test_a_draw_that_underflows_is_uniform():
    task = up.FiniteMDP.from_arrays(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), 2).task()
    prob = counts.frequencies(task, np.array([0.0, 0.0, 3.0, 1.0]))
    assert prob.tolist() == [[0.5, 0.5, 0.75, 0.25]]


def test_it_learns_the_river():
    mdp = up.envs.riverswim(6)
    run = up.simulate(mdp, up.agents.PSRL(mdp.task("local")), 200, seed=0)
    assert run.values[-50:].mean() > 0.95 * up.solve(mdp).v[0, 0]


@pytest.mark.parametrize("name", ["prior", "inflation"])
def test_bad_inputs_are_named(name):
    with pytest.raises(ValueError, match=f"{name} is 0; it must be a finite number above 0"):
        up.agents.PSRL(up.envs.riverswim(3).true_task, **{name: 0})


def test_a_dirichlet_of_tiny_shapes_draws_vertices():
    """All gamma variables of a pair underflow in half of the draws, which were uniform then."""
    mdp = up.FiniteMDP.from_arrays(
        np.full((3, 1, 3), 1 / 3), np.zeros((3, 1)), 1, terminal=[0.0, 0.0, 1.0]
    )
    agent, rng = up.agents.PSRL(mdp.task(), prior=1e-3), np.random.default_rng(0)
    values = [agent.plan(agent.init(), rng).v[0, 0] for _ in range(2000)]
    assert np.var(values) == pytest.approx(2 / 9, abs=0.02)  # the limit: a vertex each time
