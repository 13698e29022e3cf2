"""Small random MNL-MDPs, drawn directly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import upriver as up
from upriver.diagnostics import Coverage, theta_star
from upriver.diagnostics.realizability import differences, least_squares


def softmax_rows(task, logits):
    """Return the probabilities of logits (..., n) within each pair (s, a); eq. (1)."""
    top = np.repeat(task.by_pair(logits, np.maximum), task.sizes, axis=-1)
    weights = np.exp(logits - top)
    return weights / np.repeat(task.by_pair(weights), task.sizes, axis=-1)


def random_features(
    rng: np.random.Generator,
    n_states: int = 4,
    n_actions: int = 2,
    max_successors: int = 3,
    dimension: int = 3,
    norm: float = 1.0,
    horizon: int = 5,
    zero: bool = True,
) -> up.Features:
    """Gaussian features of largest norm `norm`; the first successor of each (s, a) has zero."""
    sets = [
        sorted(rng.choice(n_states, size=rng.integers(2, max_successors + 1), replace=False))
        for _ in range(n_states * n_actions)
    ]
    task = up.Task(
        n_states,
        n_actions,
        horizon,
        np.cumsum([0] + [len(x) for x in sets]),
        np.concatenate(sets),
        reward=rng.random((n_states, n_actions)),
    )
    matrix = rng.standard_normal((task.n_triples, dimension))
    if zero:
        matrix[task.indptr[:-1]] = 0.0
    matrix *= norm / np.linalg.norm(matrix, axis=1).max()
    return up.Features(task, matrix)


def random_problem(rng: np.random.Generator, reach: float | None = None, **shape: float):
    """(mdp, features, theta*) with L_varphi ||theta*|| = reach, uniform in [0.5, 2] by default."""
    features = random_features(rng, **shape)  # type: ignore[arg-type]
    reach = rng.uniform(0.5, 2.0) if reach is None else reach
    theta = draw_theta(features, rng, reach / features.norm_bound)
    return mnl_mdp(features, theta), features, theta


def draw_theta(features: up.Features, rng: np.random.Generator, norm: float) -> np.ndarray:
    """Return theta (d,) of a norm, uniform among the directions that change a probability."""
    free = rng.standard_normal((1, features.dimension))
    theta = least_squares(features, differences(features, free))[0][0]
    return theta * (norm / np.linalg.norm(theta))


def mnl_mdp(features: up.Features, theta: Any) -> up.FiniteMDP:
    """Return the MDP whose transitions are P_theta on the features' task, starting in state 0."""
    task = replace(features.task, support="known")
    prob = softmax_rows(task, differences(features, np.atleast_2d(theta)))
    return up.FiniteMDP(task, prob, np.zeros(1, int), np.ones(1))


def coverage_over(problems: Any, radii: Any, n_episodes: int, delta: float) -> Coverage:
    """Return `coverage` with one run for each problem (mdp, features, agent).

    `radii` is a function (features, theta*, agent) -> {name: radius}.
    """
    seen = [
        up.coverage(
            mdp, features, agent, radii(features, theta_star(mdp, features), agent),
            n_episodes, 1, delta, seed,
        )
        for seed, (mdp, features, agent) in enumerate(problems)
    ]  # fmt: skip
    return Coverage(
        delta, np.concatenate([x.distance for x in seen]),
        {name: np.concatenate([x.radii[name] for x in seen]) for name in seen[0].radii},
        np.concatenate([x.optimistic for x in seen]),
    )  # fmt: skip
