"""What the linear baselines share: their features, their counts, least-squares value iteration.

Features of a pair are phi (S*A, d), row s * n_actions + a; of a next state psi (S, d'). For a
linear mixture model, P = sum_j theta_j x_j, the `Features` of the MNL model serve, one row
x(s, a, s') per triple. None stands for one-hot features, for which no d x d matrix is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.agents.fields import validate_fields
from upriver.agents.protocol import Episode
from upriver.agents.tabular import check_support
from upriver.checks import Array, as_float
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import Task
from upriver.planning import Clip, Plan, backward_induction, draw_tie_seed, run_backward_pass
from upriver.planning.optimism import ones


@add_repr
class Visits(NamedTuple):
    """What least-squares value iteration keeps: sums by step, so its cost does not grow with k."""

    counts: Array
    """(H, n) visits of each triple at each step."""
    paid: Array
    """(H, S*A) sum of the rewards of each pair at each step."""


@dataclass(frozen=True, eq=False)
class LeastSquaresLearner:
    """The base of LSVI-UCB and LSVI-PHE: regressions on phi(s, a), one for each step h."""

    task: Task
    _: KW_ONLY
    regularization: float = 1e-6
    """lambda; the papers have 1."""
    regress_reward: bool = False
    """True regresses the rewards even where they are known, as published."""
    phi: Any = None
    """(S*A, d) or (S, A, d) features of pairs; the default is one-hot."""

    def __post_init__(self) -> None:
        validate_fields(self)
        object.__setattr__(self, "phi", checked_pairs(self.task, self.phi))

    def init(self) -> Visits:
        """Return counts of 0."""
        steps, task = self.task.horizon, self.task
        return Visits(np.zeros((steps, task.n_triples)), np.zeros((steps, len(task.sizes))))

    def update(self, state: Visits, plan: Plan, episode: Episode) -> Visits:
        """Return the counts with one more episode."""
        counts, paid = state.counts.copy(), state.paid.copy()
        pairs = count_visits(self.task, counts, episode)
        paid[np.arange(len(pairs)), pairs] += episode.rewards
        return Visits(counts, paid)

    def plan_with_bonus(
        self, visits: Visits, clip: Clip, bonus: Callable[[Array], Array],
        one_hot_bonus: Callable[[Array], Array], rng: np.random.Generator,
    ) -> Plan:  # fmt: skip
        """Q_h = clip(phi^T Lambda_h^-1 sum phi (r + V_{h+1}(s')) + bonus_h), with the new V_{h+1}.

        The bonus (H, S*A) is a function of the Cholesky factors (H, d, d) of
        Lambda_h = lambda I + sum phi phi^T; with one-hot phi of the norms (H, S*A) of phi in
        Lambda_h^-1, and Q_h is
        clip((N_h r + sum N_h(s,a,s') V_{h+1}(s')) / (N_h + lambda) + bonus).
        A known reward is added and not regressed, unless `regress_reward` says so.
        """
        task, lam, phi = self.task, self.regularization, self.phi
        known = task.reward is not None and not self.regress_reward
        if phi is None:
            prob, weight = one_hot_ridge(task, visits.counts, lam)
            added = one_hot_bonus(np.sqrt(weight))
            reward = task.reward_rows if known else visits.paid * weight
            return backward_induction(
                task, prob, reward, added, ones(task), clip, draw_tie_seed(rng),
                next_state_reward=known,
            )  # fmt: skip
        factor = np.empty((task.horizon, phi.shape[1], phi.shape[1]))
        kernels.linear.factor_gram_matrices(task.indptr, visits.counts, phi, lam, factor)
        added, paid = bonus(factor), visits.paid
        if known:
            added, paid = added + task.reward_rows, np.zeros((1, len(task.sizes)))
        arguments = kernels.linear.RegressionData(visits.counts, paid), factor, added, phi
        return run_backward_pass(
            task, kernels.linear.backward_pass_regression, arguments, clip, draw_tie_seed(rng),
            next_state_reward=known,  # a regressed reward contains it
        )  # fmt: skip


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
