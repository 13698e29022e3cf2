"""Features packed for the compiled loops: one small dense matrix per pair, and their blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import add_repr
from upriver.kernels import BLOCK_FIELDS, PAIR_FIELDS, Layout
from upriver.mdp import Task

add_repr(Layout)


def pack(task: Task, matrix: Any, triple_scale: float = 0.0) -> Layout:
    """Pack features (n, d), dense or sparse, without the columns of triple effects.

    triple_scale is the value of each triple effect; 0 where there are none.
    """
    if not sparse.issparse(matrix):
        return pack_dense(task, matrix)
    n_pairs, d = len(task.sizes), matrix.shape[1]

    # The columns of a pair are the features that are not zero in all its rows.
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    pair = np.repeat(np.arange(n_pairs), task.sizes)[row]
    used, cell_column = np.unique(pair.astype(np.int64) * d + matrix.indices, return_inverse=True)
    columns, n_columns = used % d, np.bincount(used // d, minlength=n_pairs)
    first_column, first_value = start_of(n_columns), start_of(n_columns * task.sizes)
    values = np.zeros(first_value[-1])
    cell = (row - task.indptr[pair]) * n_columns[pair] + cell_column - first_column[pair]
    values[first_value[pair] + cell] = matrix.data

    # Blocks are the components of the graph that joins features of the same pair.
    block_of_feature = connect(n_columns, first_column, columns, d)
    size = np.bincount(block_of_feature)
    features = np.argsort(block_of_feature, kind="stable")
    slot = np.empty(d, np.int64)
    slot[features] = np.arange(d) - np.repeat(start_of(size)[:-1], size)
    block = np.full(n_pairs, -1)
    has_columns = n_columns > 0
    block[has_columns] = block_of_feature[columns[first_column[:-1][has_columns]]]
    if triple_scale:  # a pair with nothing but triple effects is a block of size 0
        alone = (block < 0) & (task.sizes > 1)
        block[alone] = len(size) + np.arange(alone.sum())
        size = np.pad(size, (0, int(alone.sum())))

    pairs = new_pairs(task, max(len(values), d))
    pairs["n_columns"][:-1], pairs["block"][:-1] = n_columns, block
    pairs["first_column"], pairs["first_value"] = first_column, first_value
    values.flags.writeable = False  # as dense ones are: one kind of array, compiled once
    pairs["effect_offset"][:-1] = d - np.cumsum(task.sizes > 0)  # first triples have no effect
    block_pairs = np.argsort(block, kind="stable")[int((block < 0).sum()) :]
    blocks = np.zeros(len(size) + 1, [(name, np.int64) for name in BLOCK_FIELDS])
    blocks["first_feature"], blocks["size"][:-1] = start_of(size), size
    blocks["first_pair"] = start_of(np.bincount(block[block_pairs], minlength=len(size)))
    small = columns, slot[columns], features, block_pairs
    widest = int(size.max()), task.max_successors
    return Layout._make(
        [pairs, blocks, *(x.astype(np.int32) for x in small), values, *widest, triple_scale]
    )


def pack_dense(task: Task, matrix: Array) -> Layout:
    """Pack a dense matrix: every pair has every feature, and there is one block."""
    d, exists = matrix.shape[1], task.sizes > 0
    pairs = new_pairs(task, matrix.size)
    pairs["n_columns"][:-1][exists] = d
    pairs["first_value"][:-1] = pairs["first_row"][:-1] * d
    pairs["block"][:-1][~exists] = -1
    block_pairs = np.flatnonzero(exists).astype(np.int32)
    blocks = np.array(
        [(0, 0, d), (d, len(block_pairs), 0)], [(name, np.int64) for name in BLOCK_FIELDS]
    )
    every = np.arange(d, dtype=np.int32)
    values = matrix.reshape(-1)
    return Layout(
        pairs, blocks, every, every, every, block_pairs, values, d, task.max_successors
    )  # fmt: skip


def start_of(lengths: Array) -> Array:
    """(k + 1,) where each of k consecutive stretches begins; the last entry is their end."""
    return np.concatenate([[0], np.cumsum(lengths)])


def new_pairs(task: Task, largest: int) -> Array:
    """The records of `Layout.pairs` with their first rows, as narrow as `largest` allows."""
    kind = np.int32 if max(largest, task.n_triples) < 2**31 else np.int64
    pairs = np.zeros(len(task.indptr), [(name, kind) for name in PAIR_FIELDS])
    pairs["first_row"] = task.indptr
    return pairs


def connect(n_columns: Array, first_column: Array, columns: Array, d: int) -> Array:
    """(d,) the component of each feature when features of the same pair are joined, from 0 on."""
    from scipy.sparse import csgraph  # takes long to import, and dense features do without

    some = n_columns > 0
    first = np.repeat(columns[first_column[:-1][some]], n_columns[some])
    edges = sparse.coo_array((np.ones(len(first), np.int8), (first, columns)), shape=(d, d))
    return csgraph.connected_components(edges, directed=False)[1]
