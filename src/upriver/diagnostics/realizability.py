"""Find theta* of Assumption 1, which the paper calls the transition core.

Within a pair (s, a), eq. (1) says log P(s')/P(ref) = (varphi(s') - varphi(ref))^T theta*: linear
equations of which theta* is the minimum-norm solution.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from upriver.checks import Array
from upriver.display import add_repr
from upriver.features import Features, pooled, unpooled
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.names import check_same_names
from upriver.mdp.validation import check_covers
from upriver.mnl import likelihood
from upriver.mnl.fit import fit_standardized

TOLERANCE = 1e-8  # largest error of a log-odds, relative, at which the equations count as solved
RIDGES = (1e-8, 1e-6, 1e-4)  # the least ridge at which the projection is found
DENSE_LIMIT = 4_000_000  # entries beyond which an iterative solver takes over


@add_repr
class Core(NamedTuple):
    """theta* where the MDP is realizable, else its projection."""

    theta: Array
    """(1 | H, d) theta*, the one of least norm; or the minimiser of the mean KL divergence."""
    realizable: bool
    residual: float
    """Largest error of a log-odds at the least-squares solution; inf with a forbidden successor."""
    error: float
    """Largest total variation between P(. | s, a) and P_theta(. | s, a)."""
    where: tuple[int, int, int]
    """(h, s, a) of that largest error."""
    forbidden: tuple[int, int, int] | None
    """The first declared successor (s, a, s') of probability 0, which makes theta* infinite."""
    rank: int | None
    """Rank of the differences within pairs, the directions that data can identify; None where the
    matrix is too large to tell."""

    @property
    def norm(self) -> float:
        """||theta*||, the least L_theta; the largest over the steps."""
        return float(np.linalg.norm(self.theta, axis=1).max())


def true_probabilities(mdp: FiniteMDP, task: Task) -> Array:
    """Return the true probability of every triple of `task`, (1 | H, n); 0 if it is impossible."""
    known = mdp.true_task
    check_same_names(task, known)
    check_covers((task.indptr, task.successors), known, "the task of the features")
    prob = np.zeros((len(mdp.probability), task.n_triples))
    prob[:, np.searchsorted(task.triple_keys, known.triple_keys)] = mdp.probability
    return prob


def check_finite_horizon(mdp: FiniteMDP, needed_by: str) -> None:
    if mdp.true_task.infinite_horizon:
        raise ValueError(f"{mdp.name} has an infinite horizon; {needed_by} needs a finite one")


def model_probabilities(features: Features, theta: Array) -> Array:
    """Return (C, n) the probabilities (1) of each of C parameters."""
    return np.array([likelihood.probabilities(features, one) for one in theta])


def find_core(mdp: FiniteMDP, features: Features) -> Core:
    """Find theta* by minimum-norm least squares; the KL projection where there is no theta*.

    The projection minimises the mean over (s, a) of KL(P(. | s, a), P_theta(. | s, a)), with a
    ridge just large enough for a minimiser to exist.
    """
    task = features.task
    prob = true_probabilities(mdp, task)
    forbidden: Any = None  # the first declared successor with probability 0 at some step
    if len(zero := np.flatnonzero((prob <= 0.0).any(axis=0))):
        forbidden = tuple(int(x[zero[0]]) for x in task.triples)
    odds = np.log(prob) if forbidden is None else np.zeros_like(prob)
    odds -= odds[:, reference_rows(task)]
    theta, rank = least_squares(features, odds)
    residual = np.inf
    if forbidden is None:
        residual = float(np.abs(differences(features, theta) - odds).max())
    realizable = residual <= TOLERANCE * max(1.0, float(np.abs(odds).max()))
    if not realizable:
        theta = project_on_model(features, prob)
    gap = np.abs(prob - model_probabilities(features, theta))
    error = 0.5 * task.by_pair(gap)  # (1 | H, S*A) total variation
    h, pair = np.unravel_index(int(np.argmax(error)), error.shape)
    where = (int(h), *divmod(int(pair), task.n_actions))
    return Core(theta, realizable, residual, float(error[h, pair]), where, forbidden, rank)


def theta_star(mdp: FiniteMDP, features: Features) -> Array:
    """Return theta*, (1 | H, d), or raise a ValueError that says why there is none."""
    core = find_core(mdp, features)
    if core.forbidden is not None:
        s, a, s2 = core.forbidden
        why = f"successor {s2} of (s={s}, a={a}) is declared and has probability 0"
        raise ValueError(f"{why}, so theta* is infinite; use support='known'")
    if not core.realizable:
        h, s, a = core.where
        why = f"the best is off by {core.error:.3g} in total variation at (h={h}, s={s}, a={a})"
        raise ValueError(f"no theta* gives these transitions: {why}; use richer features")
    return core.theta


def reference_rows(task: Task) -> Array:
    return np.repeat(task.indptr[:-1], task.sizes)


def differences(features: Features, theta: Array) -> Array:
    """Return (varphi(s') - varphi(ref))^T theta for each of C parameters, (C, n)."""
    logits = np.asarray(features.matrix @ theta.T).T
    return logits - logits[:, reference_rows(features.task)]


def least_squares(features: Features, odds: Array) -> tuple[Array, int | None]:
    """Return the minimum-norm solution (C, d) of differences(theta) = odds (C, n), and the rank."""
    matrix = features.matrix - features.matrix[reference_rows(features.task)]
    if sparse.issparse(matrix) and np.prod(matrix.shape) > DENSE_LIMIT:
        from scipy.sparse.linalg import lsqr

        theta = [lsqr(matrix, y, atol=1e-14, btol=1e-14, iter_lim=20_000)[0] for y in odds]
        return np.array(theta), None
    largest = abs(features.matrix).max(axis=0)
    unit, dense = (x.toarray() if sparse.issparse(x) else x for x in (largest, matrix))
    # The largest entry of a column, an offset included, is its unit: rounding is then about the
    # same in all columns, and neither units nor offsets change the rank.
    unit = np.where(unit > 0.0, unit, 1.0).ravel()
    left, size, right = np.linalg.svd(dense / unit, full_matrices=False)
    rank = int((size > max(dense.shape) * np.finfo(float).eps * max(size[0], 1.0)).sum())
    known = left[:, :rank].T @ odds.T / size[:rank, None]  # = right (unit * theta)
    # Of all such theta that of least norm is in the span of these directions. QR with the rows
    # sorted by size and with pivoting is accurate in each row, however different the units.
    order = np.argsort(-unit)
    found: Any = linalg.qr((right[:rank] * unit).T[order], mode="economic", pivoting=True)
    q, r, pivot = found
    theta = np.empty((len(odds), len(unit)))
    theta[:, order] = (q @ linalg.solve_triangular(r, known[pivot], trans=1)).T
    return theta, rank


def project_on_model(features: Features, prob: Array) -> Array:
    """Minimise the mean KL(P, P_theta) by maximum likelihood with P as counts; theta is (C, d)."""
    if features.spread == "estimate":  # there are no data to estimate it from
        features = pooled(unpooled(features), features.triple_scale)
    for ridge in RIDGES:
        try:
            return np.array([fit_standardized(features, p, ridge).theta for p in prob])
        except (RuntimeError, ValueError):
            continue
    raise RuntimeError("the KL projection did not converge; rescale the features")


def has_zero_successor(features: Features) -> bool:
    """Return whether every pair (s, a) has a successor with the zero vector, as Lemma 1 needs."""
    is_zero = abs(features.matrix).sum(axis=1) == 0.0
    return bool(np.logical_or.reduceat(is_zero, features.task.first_rows).all())
