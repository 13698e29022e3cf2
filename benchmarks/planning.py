"""Backward induction in nanoseconds per reachable triple and step; exact maximum; threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

import upriver as up
from benchmarks import peers
from benchmarks.timing import Measurement, SkippedComparison, measure_interleaved
from upriver.planning import optimism

N_ACTIONS = 4
HORIZON = 20


def draw_mdp(n_states: int, n_successors: int, near: bool, seed: int = 0) -> up.FiniteMDP:
    """Return an MDP with `n_successors` successors of each pair, neighbours or anywhere."""
    rng = np.random.default_rng(seed)
    n_pairs, offsets = n_states * N_ACTIONS, np.arange(n_successors)
    if near:
        first = np.arange(n_pairs) // N_ACTIONS - n_successors // 2
        successors = np.clip(first, 0, n_states - n_successors)[:, None] + offsets
    else:  # one in each of U equal parts of the state space: distinct and ascending
        width = n_states // n_successors
        successors = rng.integers(0, width, (n_pairs, n_successors)) + width * offsets
    weights = rng.random((n_pairs, n_successors)) + 0.01
    weights /= weights.sum(axis=1, keepdims=True)
    indptr = np.arange(0, n_pairs * n_successors + 1, n_successors)
    data: Any = weights.ravel(), successors.ravel(), indptr
    matrix: Any = sparse.csr_array(data, (n_pairs, n_states))
    return up.FiniteMDP.from_arrays(matrix, rng.random((n_states, N_ACTIONS)), HORIZON)


def multiply_by_transitions(mdp: up.FiniteMDP) -> None:
    """Multiply the transition matrix by a vector H times, as any backward induction has to."""
    task = mdp.task()
    shape = task.n_states * task.n_actions, task.n_states
    matrix: Any = sparse.csr_array((mdp.probability[0], task.successors, task.indptr), shape=shape)
    v = np.zeros(task.n_states)
    for _ in range(task.horizon):
        v = (matrix @ v).reshape(task.n_states, -1)[:, 0]


def measure_backward_induction(
    quick: bool, with_peers: bool
) -> Iterator[Measurement | SkippedComparison]:
    """Use neighbouring successors, as in rivers and grids, and distant ones, outside the cache."""
    for n_successors in (3, 10):
        for n_states in (1_000,) if quick else (1_000, 10_000, 100_000):
            for near in (True, False):
                yield from measure_one_size(n_states, n_successors, near, quick, with_peers)


def measure_one_size(
    n_states: int, n_successors: int, near: bool, quick: bool, with_peers: bool
) -> Iterator[Measurement | SkippedComparison]:
    mdp = draw_mdp(n_states, n_successors, near)
    case = f"S={n_states}, U={n_successors}, {'neighbours' if near else 'anywhere'}"
    works: dict[str, Callable[[], Any]] = {
        "scipy.sparse products alone": lambda: multiply_by_transitions(mdp)
    }
    if with_peers and (reason := peers.explain_missing("quantecon")):
        yield SkippedComparison("backward induction", case, reason)
    elif with_peers:
        works["QuantEcon DiscreteDP"] = solver = peers.quantecon_solver(mdp)
        error = float(np.abs(solver()[0] - up.solve(mdp).v).max())
        if error > 1e-10:
            raise ArithmeticError(f"QuantEcon's optimum differs by {error:.3g} at {case}")
    repeats = 3 if quick else 8 + 200_000 // n_states
    seconds = measure_interleaved({"ours": lambda: up.solve(mdp), **works}, repeats)
    scale = 1e9 / (mdp.task().n_triples * HORIZON)
    for name in works:
        yield Measurement(
            "backward induction",
            case,
            scale * seconds["ours"],
            "ns/triple/step",
            name,
            scale * seconds[name],
        )


def measure_threads(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """Time the optimum of a large problem in two threads beside one, by the wall clock."""
    from numba.core import config as settings

    config: Any = settings

    def solve_in_threads(mdp: up.FiniteMDP, count: int) -> None:
        before, config.NUMBA_NUM_THREADS = config.NUMBA_NUM_THREADS, count
        up.solve(mdp)
        config.NUMBA_NUM_THREADS = before

    mdp = draw_mdp(2_000 if quick else 100_000, 3, near=True)
    works = {str(count): partial(solve_in_threads, mdp, count) for count in (1, 2)}
    seconds = measure_interleaved(works, 3 if quick else 15, perf_counter)
    case = f"solve, S={mdp.n_states}, U=3, 2 threads"
    one, two = 1e3 * seconds["1"], 1e3 * seconds["2"]
    yield Measurement("threads", case, two, "ms", "one thread", one)


def measure_exact_maximum(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """Time a plan by (4) beside the closed form (6), after 100 episodes with one-hot features."""
    for name, mdp in {"river-grid-6": up.envs.river_grid(6), "riverswim-20": None}.items():
        mdp = mdp or up.envs.riverswim(20)
        phi = up.features.one_hot(mdp.task("local"))
        agent = up.agents.UCRLMNL(phi.task, phi, 0.01, optimism=optimism.gradient)
        state = up.simulate(mdp, agent, 10 if quick else 100).state
        times = 1 if quick else 20
        for scale in (1e-3, 1e-1, 1.0):
            beta = replace(agent, radius=scale).beta(state)

            def plan(how: optimism.Optimism) -> None:
                for _ in range(times):  # noqa: B023
                    how(phi.task, state.model, phi.task.reward_rows, beta, np.uint64(0))  # noqa: B023

            works = {
                "exact": partial(plan, optimism.exact_maximum),
                "closed": partial(plan, optimism.closed_form),
            }
            seconds = measure_interleaved(works, 1 if quick else 15)
            ours, theirs = (1e6 * seconds[key] / times for key in works)
            case = f"{name}, c={scale:g}"
            yield Measurement("exact maximum", case, ours, "us", "closed form", theirs)
