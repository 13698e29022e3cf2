"""Features packed for the kernels: each pair's small dense matrix, and the blocks they form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import displayed
from upriver.mdp import Task


@displayed
class Layout(NamedTuple):
    """Group g = (s, a) has a dense matrix (U_g, width) in `values`, row by row; its column j is the
    feature columns[first column + j]. Features that meet in a group belong to one block: neither
    the Hessian nor the Gram matrix couples two blocks. Few arrays, because a kernel that takes
    many compiles and starts slowly.

    Own effects (pooled features) are not packed: triple i of group g, unless the first of its
    group, has the value `own` in the feature `own place` + i, after the packed features.
    They meet no feature outside their group, so the kernels eliminate them group by group, and the
    blocks are those of the packed features. A group with own effects alone is a block of size 0.
    """

    group_table: Array
    """(G + 1, 6) first row, width, first column, first value, block (-1 where no feature is), and
    own place."""
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
    own: float = 0.0
    """The value of every own effect; 0 where there are none."""

    @property
    def width(self) -> Array:
        """(G,) number of columns of each group."""
        return self.group_table[:-1, 1]

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
        place[self.features] = np.arange(len(place)) - np.repeat(self.feature_start[:-1], self.size)
        return place


def pack(task: Task, matrix: Any, own: float = 0.0) -> Layout:
    """The packed layout of a feature matrix (n, d), without the columns of own effects."""
    n_groups, d = len(task.sizes), matrix.shape[1]
    if sparse.issparse(matrix):
        width, column_start, columns, value_start, values = pack_sparse(task, matrix)
    else:
        width = np.where(task.sizes > 0, d, 0)
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
    if own:
        alone = (block < 0) & (task.sizes > 1)
        block[alone] = n_blocks + np.arange(alone.sum())
        n_blocks += int(alone.sum())
        size = np.pad(size, (0, int(alone.sum())))
        feature_start = np.concatenate([[0], np.cumsum(size)])
    groups = np.argsort(block, kind="stable")[int((block < 0).sum()) :]
    per_block = np.bincount(block[groups], minlength=n_blocks)
    group_table = np.zeros((n_groups + 1, 6), np.int64)
    group_table[:, 0] = task.indptr
    group_table[:-1, 5] = d - np.cumsum(task.sizes > 0)  # a pair's first triple has no own effect
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
        own=own,
    )


def pack_sparse(task: Task, matrix: Any) -> tuple[Array, Array, Array, Array, Array]:
    """(width, column_start, columns, value_start, values) of a csr matrix."""
    n_groups, d = len(task.sizes), matrix.shape[1]
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    group = np.repeat(np.arange(n_groups), task.sizes)[row]
    pairs, place = np.unique(group.astype(np.int64) * d + matrix.indices, return_inverse=True)
    pair_group = pairs // d
    width = np.bincount(pair_group, minlength=n_groups)
    column_start = np.concatenate([[0], np.cumsum(width)])
    value_start = np.concatenate([[0], np.cumsum(width * task.sizes)])
    values = np.zeros(value_start[-1])
    cell = (row - task.indptr[group]) * width[group] + place - column_start[group]
    values[value_start[group] + cell] = matrix.data
    return width, column_start[:-1], pairs % d, value_start[:-1], values


def connect(width: Array, column_start: Array, columns: Array, d: int, dense: bool) -> Array:
    """(d,) component of each feature when features that share a group are joined."""
    if dense:
        return np.zeros(d, np.int64)
    from scipy.sparse import csgraph  # slow to import, and dense features do without

    first = np.repeat(columns[column_start[width > 0]], width[width > 0])
    edges = sparse.coo_array((np.ones(len(first), np.int8), (first, columns)), shape=(d, d))
    return csgraph.connected_components(edges, directed=False)[1]
