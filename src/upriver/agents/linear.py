"""What the linear baselines share: their features, their counts, least-squares value iteration.

Features of a pair are phi (S*A, d), row s * n_actions + a; of a next state psi (S, d'); of a linear
mixture model, P = sum_j theta_j x_j, the `Features` of the MNL model serve, one row x(s, a, s') per
triple. None stands for one-hot features, for which nothing of size d x d is ever built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.agents.rewards import Payments
from upriver.agents.tabular import check_inside
from upriver.checks import Array, as_float
from upriver.display import displayed
from upriver.features import Features
from upriver.mdp import Task
from upriver.planning import Clip, Plan, backward_induction, draw_tie_seed, run_backward_pass
from upriver.planning.optimism import ones


def checked_pairs(task: Task, phi: Any) -> Array | None:
    """phi as (S*A, d), from (S*A, d) or (S, A, d); None stays None."""
    if phi is None:
        return None
    table, pairs = as_float("phi", phi), task.n_states * task.n_actions
    if table.ndim == 3 and table.shape[:2] == (task.n_states, task.n_actions):
        table = table.reshape(pairs, -1)
    return checked_table("phi", table, pairs, "pair (s, a)")


def checked_next(task: Task, psi: Any) -> Array | None:
    """psi (S, d') of full column rank, so that K_psi is invertible; None stays None."""
    if psi is None:
        return None
    table = checked_table("psi", as_float("psi", psi), task.n_states, "state")
    rank = int(np.linalg.matrix_rank(table))
    if rank < table.shape[1]:
        raise ValueError(
            f"psi has {table.shape[1]} columns of rank {rank}; they must be linearly independent"
        )
    return table


def checked_table(name: str, table: Array, rows: int, what: str) -> Array:
    if table.ndim != 2 or table.shape[0] != rows or table.shape[1] < 1:
        raise ValueError(
            f"{name} has shape {table.shape}; it must be ({rows}, d), one row per {what}"
        )
    if not np.isfinite(table).all():
        where = np.unravel_index(int(np.argmin(np.isfinite(table))), table.shape)
        raise ValueError(
            f"{name}[{where[0]}, {where[1]}] is {table[where]}; features must be finite"
        )
    return table


@lru_cache(maxsize=64)
def one_hot_mixture(task: Task) -> Features:
    """x(s, a, s') = e_(s,a,s'): theta is the table of transition probabilities itself.

    X_V(s, a) is then the vector of V on the successors of (s, a), and the regression splits into
    one small ridge for each (s, a).
    """
    n = task.n_triples
    return Features(
        task, sparse.identity(n, format="csr"),
        formal_dimension=task.n_states * task.n_actions * task.n_states,
    )  # fmt: skip


def count_visits(task: Task, counts: Array, episode: Any) -> Array:
    """Add an episode to counts (1 | H, n) in place; (T,) the pair of each step."""
    visited = np.empty(len(episode.actions), np.int64)
    bad = kernels.episodes.count_transitions(
        task.indptr, task.successors, task.n_actions, episode.states, episode.actions, counts,
        visited,
    )  # fmt: skip
    check_inside(task, episode, bad)
    return visited


@displayed
class Visits(NamedTuple):
    """What least-squares value iteration remembers: sums by step, so its cost is flat in k."""

    counts: Array
    """(H, n) visits of each triple at each step."""
    paid: Array
    """(H, S*A) reward received."""


def no_visits(task: Task) -> Visits:
    return Visits(
        np.zeros((task.horizon, task.n_triples)), np.zeros((task.horizon, len(task.sizes)))
    )


def observe(task: Task, visits: Visits, episode: Payments) -> Visits:
    counts, paid = visits.counts.copy(), visits.paid.copy()
    visited = count_visits(task, counts, episode)
    paid[np.arange(len(visited)), visited] += episode.rewards
    return Visits(counts, paid)


def one_hot_ridge(task: Task, counts: Array, lam: float) -> tuple[Array, Array]:
    """(N(s,a,s') / (N(s,a) + lam), 1 / (N(s,a) + lam)), shapes (C, n) and (C, S*A)."""
    prob, weight = np.empty_like(counts), np.empty((len(counts), len(task.sizes)))
    kernels.linear.ridge_frequencies(task.indptr, counts, lam, prob, weight)
    return prob, weight


@lru_cache(maxsize=64)
def clip_q_remaining(task: Task) -> Clip:
    """Q_h is cut to [0, H - h + 1], h from 1, as LSVI-PHE is published."""
    cap = task.units.value_range[:-1].copy()
    return Clip(0.0, cap, cap)


def value_iteration(
    agent: Any, visits: Visits, clip: Clip, noise: Callable[[Array], Array],
    one_hot_noise: Callable[[Array], Array], rng: np.random.Generator,
) -> Plan:  # fmt: skip
    """Q_h = clip(phi^T Lambda_h^-1 sum phi (r + V_{h+1}(s')) + noise_h), with the new V_{h+1}.

    noise (H, S*A) is a function of the factors (H, d, d) of Lambda_h = lam I + sum phi phi^T, or
    with one-hot phi of the norms (H, S*A) of phi in Lambda_h^-1. Then Q_h is
    clip((N_h r + sum N_h(s,a,s') V_{h+1}(s')) / (N_h + lam) + noise). A known reward is not
    regressed but added, unless the agent says `regress_reward`.
    """
    task, lam, phi = agent.task, agent.regularization, agent.phi
    known = task.reward is not None and not agent.regress_reward
    if phi is None:
        prob, weight = one_hot_ridge(task, visits.counts, lam)
        added = one_hot_noise(np.sqrt(weight))
        reward = task.reward_rows if known else visits.paid * weight
        return backward_induction(
            task, prob, reward, added, ones(task), clip, draw_tie_seed(rng),
            next_state_reward=known,
        )  # fmt: skip
    factor = np.empty((task.horizon, phi.shape[1], phi.shape[1]))
    kernels.linear.factor_gram_matrices(task.indptr, visits.counts, phi, lam, factor)
    added, paid = noise(factor), visits.paid
    if known:
        added, paid = added + task.reward_rows, np.zeros((1, len(task.sizes)))
    arguments = kernels.linear.RegressionData(visits.counts, paid), factor, added, phi
    return run_backward_pass(
        task, kernels.linear.backward_pass_regression, arguments, clip, draw_tie_seed(rng),
        next_state_reward=known,  # otherwise it is in what was paid
    )
