"""Small random MNL-MDPs, drawn directly."""

from __future__ import annotations

import numpy as np
from studies.calibration import draw_core, mnl_mdp

import upriver as up


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
    theta = draw_core(features, rng, reach / features.norm_bound)
    return mnl_mdp(features, theta), features, theta
