"""A radius with a meaning: the scale c of `scaled_radius(c)` from simulated coverage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from upriver.agents.ucrl_mnl import UCRLMNL
from upriver.checks import Array, positive_integer, positive_number
from upriver.diagnostics.coverage import Coverage, coverage
from upriver.diagnostics.realizability import (
    differences,
    least_squares,
    softmax_rows,
    theta_star,
)
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mnl.radii import scaled_radius
from upriver.planning import optimism as optimistic


def calibrated_radius(
    problem: Task | FiniteMDP,
    features: Features,
    theta_bound: float | None = None,
    regularization: float = 1.0,
    optimism: optimistic.Optimism = optimistic.closed_form,
    n_episodes: int = 100,
    n_runs: int = 100,
    delta: float = 0.05,
    seed: int = 0,
    rounds: int = 2,
) -> float:
    """A scale c for `scaled_radius(c)`, from simulated coverage.

    For a task, whose core nobody knows, each run draws its own core, uniform on the sphere
    ||theta|| = theta_bound within the directions that the features can tell apart; by default the
    log-odds are of order one. For an MDP its own theta* is used. c is the smallest scale that
    would have covered theta* for all k in a share 1 - delta of the runs (see `covering_scale`).
    How the agent acts depends on c in turn, hence the rounds, each with fresh runs.
    """
    rng = np.random.default_rng(np.random.SeedSequence((positive_integer("n_runs", n_runs), seed)))
    task = problem.true_task if isinstance(problem, FiniteMDP) else problem
    if not isinstance(problem, FiniteMDP):
        features.check_task(task)
    c = 1e-3
    for turn in range(positive_integer("rounds", rounds)):
        agent = UCRLMNL(features.task, features, c, regularization, optimism)
        if isinstance(problem, FiniteMDP):
            problems = [(problem, features, agent)] * n_runs
        else:
            problems = (
                (mnl_mdp(features, draw_core(features, rng, theta_bound), rng), features, agent)
                for _ in range(n_runs)
            )
        seen = coverage_over(
            problems, {"unit": scaled_radius(1.0)}, n_episodes, delta, seed + turn * n_runs
        )
        c = covering_scale(seen, "unit")
    return c


def coverage_over(
    problems: Iterable[tuple[FiniteMDP, Features, UCRLMNL]], radii: Any, n_episodes: int,
    delta: float, seed: int = 0,
) -> Coverage:  # fmt: skip
    """Return `coverage` with one run for each problem (mdp, features, agent).

    `radii` may be a function (features, theta*, agent) -> {name: radius}.
    """
    seen = []
    for i, (mdp, features, agent) in enumerate(problems):
        own: Any = radii(features, theta_star(mdp, features), agent) if callable(radii) else radii
        seen.append(coverage(mdp, features, agent, own, n_episodes, 1, delta, seed + i))
    return Coverage(
        delta, np.concatenate([x.distance for x in seen]),
        {name: np.concatenate([x.radii[name] for x in seen]) for name in seen[0].radii},
        np.concatenate([x.optimistic for x in seen]),
    )  # fmt: skip


def covering_scale(measured: Coverage, name: str) -> float:
    """Return the factor on a radius at which one more run is covered with probability 1 - delta.

    It is an order statistic of the ratios of the runs, so the claim holds for exchangeable runs of
    any distribution.
    """
    ratios = np.sort(measured.ratio(name))
    rank = ceil((len(ratios) + 1) * (1.0 - measured.delta) - 1e-9)
    if rank > len(ratios):
        raise ValueError(
            f"n_runs is {len(ratios)}; level 1 - {measured.delta:g} needs at least "
            f"{ceil(1.0 / measured.delta - 1e-9) - 1} runs"
        )
    return float(ratios[rank - 1])


def draw_core(features: Features, rng: np.random.Generator, norm: float | None = None) -> Array:
    """(d,) a core of the given norm, uniform among the directions that change a probability.

    The default norm makes the log-odds of order one: sqrt(rank) / L_varphi.
    """
    free = rng.standard_normal((1, features.dimension))
    core, rank = least_squares(features, differences(features, free))
    length = float(np.linalg.norm(core))
    if length == 0.0:
        return core[0]
    if norm is None:
        norm = np.sqrt(rank or features.dimension) / features.norm_bound
    return core[0] * (positive_number("theta_bound", norm) / length)


def mnl_mdp(features: Features, theta: Array, rng: np.random.Generator | None = None) -> FiniteMDP:
    """The MDP whose transitions are P_theta on the features' task, starting in state 0.

    A task without known rewards gets uniform ones from `rng`.
    """
    task = features.task
    if task.reward is None:
        if rng is None:
            raise ValueError("this task has no known reward, and there is no rng to draw one")
        task = replace(task, reward=rng.random((task.n_states, task.n_actions)))
    prob = softmax_rows(task, differences(features, np.atleast_2d(theta)))
    return FiniteMDP(replace(task, support="known"), prob, np.zeros(1, int), np.ones(1))
