"""Propositions 1 and 2: when a linear transition model can be a distribution at all.

With state-action features Phi (S*A, d) and next-state features Psi (S, d'), exactly:

    linear (low rank), P = Phi mu:   possible  <=>  1 is in the range of Phi
    bilinear, P = Phi M Psi^T:       possible  <=>  that, and some v has Psi v >= 0, 1^T Psi v = 1

If Phi w = 1, then mu = w q^T for any distribution q, and M = w v^T, are models. If not, the
residual r of the least-squares problem has Phi^T r = 0 and 1^T r > 0, which no w survives. And if
there is no v, some y > 0 has Psi^T y = 0 (Stiemke). So Proposition 1 holds for some features, not
for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from upriver.checks import Array, as_float
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import FiniteMDP

TOLERANCE = 1e-9


@add_repr
class ProperModel(NamedTuple):
    """Whether rows Phi mu can sum to one, with a certificate either way."""

    possible: bool
    residual: float
    """Distance of the vector of ones from the range of Phi."""
    weights: Array
    """(d,) w, the least-squares solution of Phi w = 1: a certificate where possible."""
    obstruction: Array
    """(S*A,) r with Phi^T r = 0 and 1^T r = |r|^2 > 0: a certificate where impossible, else 0."""

    def model(self, distribution: Any) -> Array:
        """(d, S) mu = w q^T, whose every row Phi mu is the distribution q."""
        if not self.possible:
            raise ValueError("no linear model of these features is a distribution")
        return np.outer(self.weights, np.asarray(distribution, dtype=np.float64))


@add_repr
class ProperBilinear(NamedTuple):
    """Whether Phi M Psi^T can be stochastic, with certificates either way."""

    possible: bool
    rows: ProperModel
    """The condition on Phi."""
    direction: Array | None
    """(d',) v with Psi v >= 0 and 1^T Psi v = 1, where there is one."""
    obstruction: Array | None
    """(S,) y > 0 with Psi^T y = 0, where there is no such v."""


@add_repr
class Representation(NamedTuple):
    """How far the given P is from the nearest Phi mu (or Phi M Psi^T), in Frobenius norm."""

    residual: float
    relative: float
    """residual / ||P||."""
    exact: bool


@add_repr
class LinearModels(NamedTuple):
    """Propositions 1 and 2 for phi(s, a) and psi(s')."""

    derived: bool
    """Whether phi is the mean of varphi over the successors, since none was given."""
    linear: ProperModel
    bilinear: ProperBilinear | None
    """Only where next-state features were given."""
    representation: Representation
    """The given P as Phi mu, or as Phi M Psi^T."""
    matrix_rl_constant: float
    """C_psi of Proposition 2; 1 for one-hot psi, which is meant where none is given."""
    worst_constant: float
    """S, which C_psi reaches with a feature of size 1 in every state."""


def examine(mdp: FiniteMDP, features: Features, phi: Any = None, psi: Any = None) -> LinearModels:
    """Test both propositions for phi (S*A, m) and psi (S, m').

    Without phi, phi(s, a) is the mean of varphi(s, a, .) over the successors; without psi, psi is
    one-hot.
    """
    table = mean_features(features) if phi is None else phi
    return LinearModels(
        derived=phi is None,
        linear=linear_model(table),
        bilinear=None if psi is None else bilinear_model(table, psi),
        representation=represent(mdp, table, psi),
        matrix_rl_constant=1.0 if psi is None else matrix_rl_constant(psi),
        worst_constant=float(mdp.n_states),
    )


def linear_model(phi: Any) -> ProperModel:
    """The exact test for P = Phi mu; phi (S*A, d), dense or scipy.sparse."""
    matrix = checked("state-action features", phi)
    ones = np.ones(matrix.shape[0])
    weights = np.zeros(matrix.shape[1])
    for rows, columns, block in components(matrix):
        weights[columns] = np.linalg.lstsq(block, ones[rows], rcond=None)[0]
    rest = ones - np.asarray(matrix @ weights)
    residual = float(np.linalg.norm(rest))
    possible = bool(residual <= TOLERANCE * np.sqrt(len(ones)))
    return ProperModel(possible, residual, weights, np.zeros_like(rest) if possible else rest)


def bilinear_model(phi: Any, psi: Any) -> ProperBilinear:
    """The exact test for P = Phi M Psi^T; what it asks of Psi (S, d') is a small linear program."""
    rows = linear_model(phi)
    following = dense(checked("next-state features", psi))
    direction = nonnegative_direction(following)
    if direction is not None:
        return ProperBilinear(rows.possible, rows, direction, None)
    return ProperBilinear(False, rows, None, positive_null_vector(following))


def nonnegative_direction(psi: Array) -> Array | None:
    """v with Psi v >= 0 and 1^T Psi v = 1, or None."""
    return feasible(psi.sum(axis=0)[None], [1.0], (None, None), A_ub=-psi, b_ub=np.zeros(len(psi)))


def positive_null_vector(psi: Array) -> Array | None:
    """y >= 1 with Psi^T y = 0, which shows that no v has Psi v >= 0 other than Psi v = 0."""
    return feasible(psi.T, np.zeros(psi.shape[1]), (1.0, None))


def feasible(equal: Array, to: Any, bounds: tuple[float | None, None], **more: Array) -> Any:
    """x with equal x = to within the bounds, and A_ub x <= b_ub; None where there is none."""
    from scipy.optimize import linprog

    n = equal.shape[1]
    answer = linprog(np.zeros(n), A_eq=equal, b_eq=to, bounds=[bounds] * n, method="highs", **more)
    return answer.x if answer.status == 0 else None


def represent(mdp: FiniteMDP, phi: Any, psi: Any = None) -> Representation:
    """Whether the true P is Phi mu for some mu, or Phi M Psi^T where psi is given.

    The residual is that of the two-sided orthogonal projection; the largest over the steps.
    """
    matrix = checked("state-action features", phi)
    task = mdp.true_task
    if matrix.shape[0] != len(task.sizes):
        raise ValueError(
            f"state-action features have {matrix.shape[0]} rows; there must be "
            f"{len(task.sizes)}, one for each (s, a) in the order s * n_actions + a"
        )
    right = None
    if psi is not None:
        following = checked("next-state features", psi)
        if following.shape[0] != task.n_states:
            raise ValueError(
                f"next-state features have {following.shape[0]} rows; there must be {task.n_states}"
            )
        right = range_basis(dense(following))
    residual = relative = 0.0
    for p in mdp.probability:
        transition = sparse.csr_array(
            (p, task.successors, task.indptr), shape=(len(task.sizes), task.n_states)
        )
        total = float(p @ p)
        kept = 0.0
        for rows, _, block in components(matrix):
            inner = range_basis(block).T @ transition[rows]
            kept += float(np.sum(inner**2 if right is None else (inner @ right) ** 2))
        residual = max(residual, float(np.sqrt(max(total - kept, 0.0))))
        relative = max(relative, float(np.sqrt(max(1.0 - kept / total, 0.0))))
    return Representation(residual, relative, relative <= 1e-7)


def matrix_rl_constant(psi: Any) -> float:
    """Proposition 2: the least C with ||Psi^T v||_inf <= C ||v||_inf, for psi (S, d').

    It is the largest column sum of |Psi|: up to S max|Psi| for dense features, which is the growth
    with S that the proposition speaks of, but 1 for one-hot ones, where d' = S pays instead.
    """
    matrix = checked("next-state features", psi)
    return float(np.max(abs(matrix).sum(axis=0)))


def mean_features(features: Features) -> Any:
    """(S*A, d) phi(s, a), the mean of varphi(s, a, .) over the successors, dense or sparse."""
    task = features.task
    groups = np.repeat(np.arange(len(task.sizes)), task.sizes)
    average = sparse.csr_array(
        (1.0 / np.repeat(task.sizes, task.sizes), (groups, np.arange(task.n_triples))),
        shape=(len(task.sizes), task.n_triples),
    )
    return average @ features.matrix


def with_constant(phi: Any) -> Any:
    """Phi with a column of ones, which always makes the linear model possible."""
    matrix = checked("state-action features", phi)
    ones = np.ones((matrix.shape[0], 1))
    if sparse.issparse(matrix):
        return sparse.hstack([matrix, sparse.csr_array(ones)], format="csr")
    return np.hstack([matrix, ones])


def components(matrix: Any) -> Iterator[tuple[Any, Any, Array]]:
    """(rows, columns, dense block) of each independent part; a dense matrix is a single part."""
    n, d = matrix.shape
    if not sparse.issparse(matrix):
        yield slice(n), slice(d), matrix
        return
    entries = sparse.coo_array(matrix)
    edges = sparse.coo_array((np.ones(entries.nnz), (entries.row, n + entries.col)), (n + d, n + d))
    label = csgraph.connected_components(edges, directed=False)[1]
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    for part in parts:
        rows, columns = part[part < n], part[part >= n] - n
        if len(rows) and len(columns):
            yield rows, columns, matrix[rows][:, columns].toarray()


def dense(matrix: Any) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def range_basis(matrix: Array) -> Array:
    """(n, r) orthonormal columns that span the range."""
    left, size, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, size > size[:1] * max(matrix.shape) * np.finfo(float).eps]


def checked(name: str, values: Any) -> Any:
    matrix: Any = sparse.csr_array(values) if sparse.issparse(values) else as_float(name, values)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} have shape {matrix.shape}; they must be a matrix with a column")
    data: Any = matrix.data if sparse.issparse(matrix) else matrix
    if not np.isfinite(data).all():
        raise ValueError(f"{name} hold {data[~np.isfinite(data)][0]}; they must be finite")
    return matrix


COUNTEREXAMPLES: dict[str, tuple[Array, Array | None]] = {
    "bilinear": (np.array([[1.0, 1], [1, 2], [3, 1], [2, 3]]), np.array([[1.0], [-2]])),
    "low-rank": (np.array([[1.0, 1, 1], [1, 2, 0], [3, 1, 4], [2, 3, 7]]), None),
}
"""The two examples in the proof of Proposition 1: (Phi, Psi)."""
