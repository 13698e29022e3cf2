"""Features packed for the kernels: each pair's small dense matrix, and the blocks they form."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import displayed
from upriver.kernels import Layout
from upriver.mdp import Task

displayed(Layout)


def pack(task: Task, matrix: Any, own: float = 0.0) -> Layout:
    """The packed layout of a feature matrix (n, d), without the columns of own effects."""
    if not sparse.issparse(matrix):
        return pack_dense(task, matrix)
    n_groups, d = len(task.sizes), matrix.shape[1]
    width, column_start, columns, value_start, values = pack_sparse(task, matrix)
    block_of_feature = connect(width, column_start, columns, d)
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
    group_table = empty_table(task, max(len(values), d))
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


def pack_dense(task: Task, matrix: Array) -> Layout:
    """Every pair has every feature, in one block: few arrays over pairs, and none that is wide."""
    d, some = matrix.shape[1], task.sizes > 0
    group_table = empty_table(task, matrix.size)
    group_table[:-1, 1][some] = d
    group_table[:-1, 3] = group_table[:-1, 0] * d
    group_table[:-1, 4][~some] = -1
    groups = np.flatnonzero(some).astype(np.int32)
    place = np.arange(d, dtype=np.int32)
    return Layout(
        group_table, np.array([[0, 0, d], [d, len(groups), 0]]), place, place, place, groups,
        matrix.reshape(-1), d, task.max_successors,
    )  # fmt: skip


def empty_table(task: Task, largest: int) -> Array:
    """(S*A + 1, 6) the table of the pairs, with their first rows; as narrow as `largest` allows."""
    kind = np.int32 if max(largest, task.n_triples) < 2**31 else np.int64
    table = np.zeros((len(task.indptr), 6), kind)
    table[:, 0] = task.indptr
    return table


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


def connect(width: Array, column_start: Array, columns: Array, d: int) -> Array:
    """(d,) component of each feature when features that share a group are joined, from 0 on."""
    from scipy.sparse import csgraph  # slow to import, and dense features do without

    first = np.repeat(columns[column_start[width > 0]], width[width > 0])
    edges = sparse.coo_array((np.ones(len(first), np.int8), (first, columns)), shape=(d, d))
    return csgraph.connected_components(edges, directed=False)[1]
