"""The feature map varphi(s, a, s'): one row per reachable triple, dense or scipy.sparse.

Features enter the model only through their differences within a group (s, a), so one successor may
always have the zero vector (Remark 1 of the paper); `recentre` makes it so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.mdp import Task


class Layout(NamedTuple):
    """Features packed for the kernels: small dense groups, and the blocks that they form.

    Group g = (s, a) has a dense matrix (U_g, width) in `values`, row by row; its column j is the
    feature columns[first column + j]. Features that meet in a group belong to one block: neither
    the Hessian nor the Gram matrix couples two blocks. Few arrays, because a kernel that takes
    many compiles and starts slowly.
    """

    group_table: Array
    """(G + 1, 5) first row, width, first column, first value, block; -1 where no feature is."""
    block_table: Array
    """(B + 1, 3) first feature, first group, number of features."""
    columns: Array
    """The feature of each column of each group."""
    slots: Array
    """The place in its block of each column of each group."""
    features: Array
    """(d,) the features, block by block, ascending within each."""
    groups: Array
    """The groups that have features, block by block, ascending within each."""
    values: Array
    max_size: int
    max_successors: int

    @property
    def width(self) -> Array:
        """(G,) number of columns of each group."""
        return self.group_table[:-1, 1]

    @property
    def column_start(self) -> Array:
        return self.group_table[:-1, 2]

    @property
    def value_start(self) -> Array:
        return self.group_table[:-1, 3]

    @property
    def block(self) -> Array:
        """(G,) block of each group, -1 where all features are zero."""
        return self.group_table[:-1, 4]

    @property
    def feature_start(self) -> Array:
        return self.block_table[:, 0]

    @property
    def group_start(self) -> Array:
        return self.block_table[:, 1]

    @property
    def size(self) -> Array:
        """(B,) number of features of each block."""
        return self.block_table[:-1, 2]

    @property
    def slot(self) -> Array:
        """(d,) place of each feature in its block."""
        place = np.empty(len(self.features), np.int64)
        within = np.arange(len(place)) - np.repeat(self.feature_start[:-1], self.size)
        place[self.features] = within
        return place


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """varphi on the triples of a task: `matrix` (n, d), dense or scipy.sparse."""

    task: Task
    matrix: Any
    names: Sequence[str] | None = None
    """One name per feature, for summaries."""
    formal_dimension: int | None = None
    """The d of the radius formulas, where it counts more coordinates than can ever be reached."""

    def __post_init__(self) -> None:
        matrix: Any
        if sparse.issparse(self.matrix):
            matrix = sparse.csr_array(self.matrix, dtype=np.float64)
            matrix.sum_duplicates()
        else:
            try:
                matrix = np.ascontiguousarray(self.matrix, dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError("features must be an array of numbers (n, d)") from None
        n = self.task.n_triples
        if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] < 1:
            raise ValueError(
                f"features have shape {matrix.shape}; with {n} reachable triples they must be "
                f"({n}, d), one row per triple, d at least 1"
            )
        data: Any = matrix.data if sparse.issparse(matrix) else matrix
        if not np.isfinite(data).all():
            rows = sparse.coo_array(matrix).row if sparse.issparse(matrix) else None
            flat = int(np.argmin(np.isfinite(data)))
            row = int(rows[flat]) if rows is not None else flat // matrix.shape[1]
            s, a, s2 = (int(x[row]) for x in self.task.triples)
            raise ValueError(
                f"features of row {row} (s={s}, a={a}, s'={s2}) hold "
                f"{np.ravel(data)[flat]}; they must be finite"
            )
        if self.names is not None and len(self.names) != matrix.shape[1]:
            raise ValueError(
                f"names has {len(self.names)} entries; there must be {matrix.shape[1]}, "
                "one per feature"
            )
        object.__setattr__(self, "matrix", matrix)
        if self.formal_dimension is None:
            object.__setattr__(self, "formal_dimension", matrix.shape[1])

    def __repr__(self) -> str:
        kind = "sparse" if sparse.issparse(self.matrix) else "dense"
        return f"Features({self.dimension} {kind} columns on {self.task!r})"

    @property
    def dimension(self) -> int:
        """d, the number of columns."""
        return self.matrix.shape[1]

    @cached_property
    def norm_bound(self) -> float:
        """L_varphi, the largest Euclidean norm of a row."""
        if sparse.issparse(self.matrix):
            squares = self.matrix.multiply(self.matrix).sum(axis=1)
        else:
            squares = np.einsum("ij,ij->i", self.matrix, self.matrix)
        return float(np.sqrt(np.max(squares)))

    @cached_property
    def layout(self) -> Layout:
        return pack(self.task, self.matrix)

    @cached_property
    def matrix_start(self) -> Array:
        """(B + 1,) where the flat m x m matrix of each block begins."""
        size = self.layout.size.astype(np.int64)
        return np.concatenate([[0], np.cumsum(size * size)]).astype(np.int64)

    def check_task(self, task: Task) -> None:
        """Refuse a task whose rows are other triples."""
        if not self.task.same_support(task):
            raise ValueError(
                f"features were made for a task with {self.task.describe()}, this task has "
                f"{task.describe()}; build the features from the task that the agent gets"
            )


def pack(task: Task, matrix: Any) -> Layout:
    """The packed layout of a feature matrix (n, d)."""
    n_groups = len(task.sizes)
    d = matrix.shape[1]
    if sparse.issparse(matrix):
        width, column_start, columns, value_start, values = pack_sparse(task, matrix)
    else:
        width = np.full(n_groups, d, np.int64)
        column_start = np.zeros(n_groups, np.int64)
        columns = np.arange(d)
        value_start = task.indptr[:-1] * d
        values = matrix.reshape(-1)
    joined = connect(width, column_start, columns, d, dense=not sparse.issparse(matrix))
    block_of_feature = np.unique(joined, return_inverse=True)[1]
    n_blocks = int(block_of_feature.max()) + 1
    size = np.bincount(block_of_feature, minlength=n_blocks)
    features = np.argsort(block_of_feature, kind="stable")
    feature_start = np.concatenate([[0], np.cumsum(size)])
    slot = np.empty(d, np.int64)
    slot[features] = np.arange(d) - np.repeat(feature_start[:-1], size)
    block = np.full(n_groups, -1)
    some = width > 0
    block[some] = block_of_feature[columns[column_start[some]]]
    groups = np.argsort(block, kind="stable")[int((block < 0).sum()) :]
    per_block = np.bincount(block[groups], minlength=n_blocks)
    group_table = np.zeros((n_groups + 1, 5), np.int64)
    group_table[:, 0] = task.indptr
    for column, entries in enumerate((width, column_start, value_start, block), start=1):
        group_table[:-1, column] = entries
    block_table = np.zeros((n_blocks + 1, 3), np.int64)
    block_table[:, 0] = feature_start
    block_table[1:, 1] = np.cumsum(per_block)
    block_table[:-1, 2] = size
    return Layout(
        group_table=group_table,
        block_table=block_table,
        columns=columns.astype(np.int32),
        slots=slot[columns].astype(np.int32),
        features=features.astype(np.int32),
        groups=groups.astype(np.int32),
        values=values,
        max_size=int(size.max()),
        max_successors=task.max_successors,
    )


def pack_sparse(task: Task, matrix: Any) -> tuple[Array, Array, Array, Array, Array]:
    """(width, column_start, columns, value_start, values) of a csr matrix."""
    n_groups = len(task.sizes)
    d = matrix.shape[1]
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    group = np.repeat(np.arange(n_groups), task.sizes)[row]
    pairs, place = np.unique(group.astype(np.int64) * d + matrix.indices, return_inverse=True)
    pair_group = pairs // d
    width = np.bincount(pair_group, minlength=n_groups)
    column_start = np.concatenate([[0], np.cumsum(width)])
    value_start = np.concatenate([[0], np.cumsum(width * task.sizes)])
    values = np.zeros(value_start[-1])
    row_in_group = row - task.indptr[group]
    values[value_start[group] + row_in_group * width[group] + place - column_start[group]] = (
        matrix.data
    )
    return width, column_start[:-1], pairs % d, value_start[:-1], values


def connect(width: Array, column_start: Array, columns: Array, d: int, dense: bool) -> Array:
    """(d,) component of each feature when features that share a group are joined."""
    if dense:
        return np.zeros(d, np.int64)
    from scipy.sparse import csgraph  # slow to import, and dense features do without

    first = np.repeat(columns[column_start[width > 0]], width[width > 0])
    edges = sparse.coo_array((np.ones(len(first), np.int8), (first, columns)), shape=(d, d))
    return csgraph.connected_components(edges, directed=False)[1]


def one_hot(task: Task) -> Features:
    """Difference features e_(s,a) (x) (e_s' - e_ref), ref the first successor: L_varphi = sqrt(2).

    The formal dimension is S*A*S, as in the formulas of the paper; only coordinates that can be
    reached are kept, so nothing of that size is ever stored. Where (s, a) has one successor there
    is nothing to learn and no feature.
    """
    return tabular(task, -1.0)


def one_hot_indicator(task: Task) -> Features:
    """Indicator features e_(s,a,s'), zero for the first successor of each (s, a): L_varphi = 1."""
    return tabular(task, 0.0)


def tabular(task: Task, at_reference: float) -> Features:
    """+1 at each triple's own coordinate except the reference's, `at_reference` at the latter."""
    first = np.repeat(task.indptr[:-1], task.sizes)
    rows = np.arange(task.n_triples)
    other = rows != first
    data = np.concatenate([np.ones(other.sum()), np.full(other.sum(), at_reference)])
    matrix = sparse.csr_array(
        (data, (np.tile(rows[other], 2), np.concatenate([rows[other], first[other]]))),
        shape=(task.n_triples, task.n_triples),
    )
    matrix.eliminate_zeros()
    used = np.unique(matrix.indices)
    if not len(used):
        used = np.array([0])  # every (s, a) has one successor: keep one idle coordinate
    s, a, s2 = task.triples
    return Features(
        task,
        matrix[:, used],
        names=[f"s={s[i]} a={a[i]} s'={s2[i]}" for i in used] if len(used) <= 10_000 else None,
        formal_dimension=task.n_states * task.n_actions * task.n_states,
    )


def shared(task: Task) -> Features:
    """Indicators of (action, where on the line, direction): d does not grow with the states.

    For states on a line. Where: the first state, the last one, or in between. Direction: one step
    left, staying, one step right, or anywhere else; staying has the zero vector (where a state
    cannot stay, so has its first successor). Two actions with local support give d = 8.
    """
    if task.states is not None and not all(isinstance(s, int) for s in task.states):
        raise ValueError(
            "shared features need states on a line, numbered from left to right; "
            "use features.from_function for other states"
        )
    place = np.arange(task.n_states) if task.states is None else np.asarray(task.states)
    s, a, s2 = task.triples
    offset = place[s2] - place[s]
    direction = np.where(np.abs(offset) <= 1, offset, 2)
    if task.support != "full" and (direction == 2).mean() > 0.2:
        raise ValueError(
            f"{int((direction == 2).sum())} of {task.n_triples} transitions leap over neighbours, "
            "so these states are not on a line; use features.from_function"
        )
    where = np.where(s == np.argmin(place), 0, np.where(s == np.argmax(place), 2, 1))
    code = (a * 3 + where) * 4 + direction + 1
    group = s * task.n_actions + a
    stays = np.zeros(len(task.sizes), bool)
    stays[group[direction == 0]] = True
    is_first = np.arange(task.n_triples) == np.repeat(task.indptr[:-1], task.sizes)
    reference = np.where(stays[group], direction == 0, is_first)
    used, column = np.unique(code[~reference], return_inverse=True)
    matrix = np.zeros((task.n_triples, max(len(used), 1)))
    matrix[np.flatnonzero(~reference), column] = 1.0
    towards = {0: "left", 1: "stay", 2: "right", 3: "elsewhere"}
    names = [
        f"a={c // 12} {('first', 'interior', 'last')[c // 4 % 3]} {towards[c % 4]}" for c in used
    ]
    return Features(task, matrix, names=names or ["nothing to learn"])


def from_function(
    task: Task, function: Callable[[Any, Any, Any], Any], names: Sequence[str] | None = None
) -> Features:
    """varphi from a function (s, a, s') -> vector, called once per reachable triple.

    States and actions are passed by the task's own names where it has them, else by number.
    """
    states = task.states if task.states is not None else range(task.n_states)
    actions = task.actions if task.actions is not None else range(task.n_actions)
    rows = []
    for s, a, s2 in zip(*task.triples, strict=True):
        try:
            row = np.asarray(function(states[s], actions[a], states[s2]), dtype=np.float64)
        except (TypeError, ValueError) as error:
            if "array" not in str(error) and "float" not in str(error):
                raise
            raise ValueError(
                f"the features of (s={states[s]!r}, a={actions[a]!r}, s'={states[s2]!r}) are not "
                "a vector of numbers"
            ) from error
        rows.append(np.atleast_1d(row))
        if rows[-1].shape != rows[0].shape or rows[-1].ndim != 1:
            raise ValueError(
                f"the features of (s={states[s]!r}, a={actions[a]!r}, s'={states[s2]!r}) have "
                f"shape {rows[-1].shape}; the first triple has {rows[0].shape}"
            )
    return Features(task, np.array(rows), names=names)


def recentre(features: Features, reference: Array | None = None) -> Features:
    """Subtract one successor's row from each group, so that it has the zero vector (Remark 1).

    reference (S*A,) is the position of that successor within each group; the first by default. The
    model and its likelihood do not change; L_varphi and the Gram matrix do.
    """
    task = features.task
    place = np.zeros(len(task.sizes), np.int64) if reference is None else np.asarray(reference)
    if place.shape != task.sizes.shape or ((place < 0) | (place >= task.sizes)).any():
        raise ValueError(
            f"reference must hold, for each of the {len(task.sizes)} pairs (s, a), a position "
            "within its successors"
        )
    rows = np.repeat(task.indptr[:-1] + place, task.sizes)
    return Features(
        task, features.matrix - features.matrix[rows], features.names, features.formal_dimension
    )


FEATURES: dict[str, Callable[[Task], Features]] = {
    "one-hot": one_hot,
    "one-hot-indicator": one_hot_indicator,
}
"""Feature maps that any task has; a spec's "shared" means the environment's own."""
