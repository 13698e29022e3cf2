"""What the linear baselines share: their features, their counts, ridge regression of frequencies.

Features of a pair are phi (S*A, d), row s * n_actions + a; of a next state psi (S, d'). For a
linear mixture model, P = sum_j theta_j x_j, the `Features` of the MNL model serve, one row
x(s, a, s') per triple. None stands for one-hot features, for which no d x d matrix is built.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.agents.base import Episode
from upriver.agents.tabular import check_support
from upriver.checks import Array, as_float
from upriver.features import Features
from upriver.mdp import Task


def checked_pairs(task: Task, phi: Any) -> Array | None:
    """Return phi as (S*A, d), from (S*A, d) or (S, A, d); None stays None."""
    if phi is None:
        return None
    table, pairs = as_float("phi", phi), task.n_states * task.n_actions
    if table.ndim == 3 and table.shape[:2] == (task.n_states, task.n_actions):
        table = table.reshape(pairs, -1)
    return checked_table("phi", table, pairs, "pair (s, a)")


def checked_next(task: Task, psi: Any) -> Array | None:
    """Return psi (S, d') of full column rank, so that K_psi is invertible; None stays None."""
    if psi is None:
        return None
    table = checked_table("psi", as_float("psi", psi), task.n_states, "state")
    rank = int(np.linalg.matrix_rank(table))
    if rank < table.shape[1]:
        raise ValueError(
            f"psi has {table.shape[1]} columns of rank {rank}; they must be independent"
        )
    return table


def checked_table(name: str, table: Array, rows: int, what: str) -> Array:
    """Return a finite table with one row per pair or state."""
    if table.ndim != 2 or table.shape[0] != rows or table.shape[1] < 1:
        raise ValueError(
            f"{name} has shape {table.shape}; it must be ({rows}, d), a row per {what}"
        )
    if not np.isfinite(table).all():
        i, j = np.unravel_index(int(np.argmin(np.isfinite(table))), table.shape)
        raise ValueError(f"{name}[{i}, {j}] is {table[i, j]}; features must be finite")
    return table


@lru_cache(maxsize=64)
def one_hot_mixture(task: Task) -> Features:
    """Return x(s, a, s') = e_(s,a,s'), for which theta is the table of probabilities itself:
    X_V(s, a) is V on the successors of (s, a), and the regression is one small ridge per pair."""
    rows = sparse.identity(task.n_triples, format="csr")
    return Features(task, rows, formal_dimension=task.n_states * task.n_actions * task.n_states)


def count_visits(task: Task, counts: Array, episode: Episode) -> Array:
    """Add an episode to counts (1 | H, n) in place and return the pair of each step (T,)."""
    pairs = np.empty(len(episode.actions), np.int64)
    first_fault = kernels.episodes.count_transitions(
        task.indptr, task.successors, task.n_actions, episode.states, episode.actions, counts, pairs
    )
    check_support(task, episode, first_fault)
    return pairs


def one_hot_ridge(task: Task, counts: Array, lam: float) -> tuple[Array, Array]:
    """Return N(s,a,s') / (N(s,a) + lam) (C, n) and 1 / (N(s,a) + lam) (C, S*A)."""
    prob, weight = np.empty_like(counts), np.empty((len(counts), len(task.sizes)))
    kernels.linear.ridge_frequencies(task.indptr, counts, lam, prob, weight)
    return prob, weight
