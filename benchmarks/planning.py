"""Backward induction: nanoseconds per reachable triple and step; plans by the exact maximum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import peers
from benchmarks.timing import Line, Skipped, interleaved
from upriver import envs, features
from upriver.agents.table import AGENTS
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.building import assemble
from upriver.mnl.model import Model
from upriver.planning import optimism, reevaluate, solve
from upriver.play.simulate import simulate

N_ACTIONS = 4
HORIZON = 20
ALLOWED = {3: 0.6, 10: 0.7}


def random_mdp(n_states: int, n_successors: int, near: bool, seed: int = 0) -> FiniteMDP:
    """`n_successors` successors of each pair, neighbours or anywhere, with random numbers."""
    rng = np.random.default_rng(seed)
    groups = n_states * N_ACTIONS
    places = np.arange(n_successors)
    if near:
        first = np.arange(groups) // N_ACTIONS - n_successors // 2
        successors = np.clip(first, 0, n_states - n_successors)[:, None] + places
    else:  # one of each of U equal parts of the state space: distinct and ascending
        width = n_states // n_successors
        successors = rng.integers(0, width, (groups, n_successors)) + width * places
    weights = rng.random((groups, n_successors)) + 0.01
    weights /= weights.sum(axis=1, keepdims=True)
    return assemble(
        np.repeat(np.arange(groups), n_successors), successors.ravel(), weights.reshape(1, -1),
        n_states, N_ACTIONS, rng.random((n_states, N_ACTIONS)), HORIZON, 0, {},
    )  # fmt: skip


def products(mdp: FiniteMDP) -> None:
    """H products of the transition matrix with a vector: what any backward induction has to do."""
    task = mdp.true_task
    shape = task.n_states * task.n_actions, task.n_states
    matrix = sparse.csr_array((mdp.probability[0], task.successors, task.indptr), shape=shape)
    v = np.zeros(task.n_states)
    for _ in range(task.horizon):
        v = (matrix @ v).reshape(task.n_states, -1)[:, 0]


def backward(quick: bool, with_peers: bool) -> Iterator[Line | Skipped]:
    """Successors next door, as in rivers and grids, and anywhere, which strains the cache."""
    for n_successors in (3, 10):
        for n_states in (1_000,) if quick else (1_000, 10_000, 100_000):
            for near in (True, False):
                yield from one_size(n_states, n_successors, near, quick, with_peers)
    yield from exact(quick)


def one_size(
    n_states: int, n_successors: int, near: bool, quick: bool, with_peers: bool
) -> Iterator[Line | Skipped]:
    mdp = random_mdp(n_states, n_successors, near)
    case = f"S={n_states}, U={n_successors}, {'next door' if near else 'anywhere'}"
    works: dict[str, Callable[[], Any]] = {
        "ours": lambda: solve(mdp), "product": lambda: products(mdp),
    }  # fmt: skip
    note = ""
    if with_peers and peers.missing("quantecon"):
        yield Skipped("backward induction", case, peers.missing("quantecon"))
    elif with_peers:
        works["QuantEcon"] = peers.quantecon_solver(mdp)
        error = float(np.abs(works["QuantEcon"]()[0] - solve(mdp).v).max())
        if error > 1e-10:
            raise ArithmeticError(f"QuantEcon's optimum differs by {error:.3g} at {case}")
        note = f"optima differ by {error:.0e}"
    taken = interleaved(works, 3 if quick else 8 + 200_000 // n_states)
    per = 1e9 / (mdp.true_task.n_triples * HORIZON)
    ours = per * taken["ours"]
    yield Line(
        "backward induction", case, ours, "ns/triple/step", "scipy.sparse products alone",
        per * taken["product"],
    )  # fmt: skip
    if "QuantEcon" in taken:
        yield Line(
            "backward induction", case, ours, "ns/triple/step", "QuantEcon DiscreteDP",
            per * taken["QuantEcon"], most=None if quick else ALLOWED[n_successors], note=note,
        )  # fmt: skip


def threads(quick: bool, _: bool = False) -> Iterator[Line]:
    """The optimum and the value of a large problem in two threads against one, by the clock."""
    from numba.core import config as settings

    config: Any = settings

    def in_threads(count: int, work: Callable[[], Any]) -> None:
        before, config.NUMBA_NUM_THREADS = config.NUMBA_NUM_THREADS, count
        work()
        config.NUMBA_NUM_THREADS = before

    mdp = random_mdp(2_000 if quick else 100_000, 3, near=True)
    policy, v = solve(mdp).policy, np.zeros((HORIZON + 1, mdp.true_task.n_states))
    works: dict[str, Callable[[], Any]] = {
        "solve": lambda: solve(mdp), "evaluate": lambda: reevaluate(mdp, policy, ~policy, v),
    }  # fmt: skip
    for name, work in works.items():
        taken = interleaved(
            {str(n): partial(in_threads, n, work) for n in (1, 2)}, 3 if quick else 15, perf_counter
        )
        yield Line(
            "threads", f"{name}, S={mdp.true_task.n_states}, U=3, 2 threads", 1e3 * taken["2"], "ms",
            "one thread", 1e3 * taken["1"], most=None if quick or name != "solve" else 1 / 1.6,
        )  # fmt: skip


def many(how: optimism.Optimism, model: Model, task: Task, beta: float, times: int) -> None:
    """The same plan again and again, so that it is in the cache."""
    for _ in range(times):
        how(task, model, task.reward_rows, beta, np.uint64(0))


def exact(quick: bool) -> Iterator[Line]:
    """Eq. (4) against the closed form (6), for what 100 episodes have taught, one-hot."""
    pair = optimism.exact_maximum, optimism.closed_form
    rivers = {"river-grid-6": envs.river_grid(6), "riverswim-20": envs.riverswim(20)}
    for name, mdp in rivers.items():
        phi = features.one_hot(mdp.task("local"))
        task, n_episodes, times = phi.task, 10 if quick else 100, 1 if quick else 20
        agent = AGENTS["ucrl-mnl"](task, phi, 0.01, optimism=optimism.gradient)
        state = simulate(mdp, agent, n_episodes).state
        for c in (1e-3, 1e-1, 1.0):
            beta = replace(agent, radius=c).beta(state)
            taken = interleaved(
                {how.__name__: partial(many, how, state.model, task, beta, times) for how in pair},
                1 if quick else 15,
            )
            ours, theirs = (1e6 * taken[how.__name__] / times for how in pair)
            yield Line(
                "exact maximum", f"{name}, c={c:g}", ours, "us", "closed form", theirs,
                most=None if quick else 10.0,
            )  # fmt: skip
