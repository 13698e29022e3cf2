"""Features packed for the compiled loops: one small dense matrix per pair, and their blocks.

`Columns` says what the columns are to the pairs (s, a) that they describe: their scale, and which
belong to one pair only. A column matters to a pair only where it varies among its successors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import add_repr
from upriver.kernels import BLOCK_FIELDS, PAIR_FIELDS, Layout
from upriver.mdp import Task

add_repr(Layout)


def pack(task: Task, matrix: Any, has_effects: bool = False) -> Layout:
    """Pack features (n, d), dense or sparse, without the columns of triple effects."""
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
    if has_effects:  # a pair with nothing but triple effects is a block of size 0
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
    packed = pairs, blocks, *(x.astype(np.uint32) for x in small), values, int(size.max())
    return with_task(task, packed, size)


def pack_dense(task: Task, matrix: Array) -> Layout:
    """Pack a dense matrix: every pair has every feature, and there is one block."""
    d, exists = matrix.shape[1], task.sizes > 0
    pairs = new_pairs(task, matrix.size)
    pairs["n_columns"][:-1][exists] = d
    pairs["first_value"][:-1] = pairs["first_row"][:-1] * d
    pairs["block"][:-1][~exists] = -1
    block_pairs = np.flatnonzero(exists).astype(np.uint32)
    blocks = np.array(
        [(0, 0, d), (d, len(block_pairs), 0)], [(name, np.int64) for name in BLOCK_FIELDS]
    )
    every = np.arange(d, dtype=np.uint32)
    values = matrix.reshape(-1)
    packed = pairs, blocks, every, every, every, block_pairs, values, d
    return with_task(task, packed, np.array([d]))


def with_task(task: Task, packed: tuple[Any, ...], size: Array) -> Layout:
    """Return the layout of packed features and what kernels read of their task; size (B,)."""
    rows = task.indptr, task.successors, task.n_actions
    starts = start_of(size**2), task.square_start, task.square_start
    return Layout._make([*packed, task.max_successors, *rows, *starts])


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


SHARED, OWN, BOTH = 0, 1, 2


class Columns(NamedTuple):
    """What the columns of a matrix (n, d) are to the pairs of a task."""

    scale: Array
    """(d,) the largest range of a column among the successors of one pair; of an own column its
    largest absolute value, so that one-hot columns have 1; 1 for a column that never varies."""
    is_own: Array
    """(d,) whether the column varies within one pair only; others are shared."""
    kinds: Array
    """(S*A,) whether shared columns (SHARED, also if none), OWN columns or BOTH vary in a pair."""


def describe_columns(task: Task, matrix: Any) -> Columns:
    """Return the scale of each column, dense or sparse, and to how many pairs it matters."""
    d, n_pairs = matrix.shape[1], len(task.sizes)
    if sparse.issparse(matrix):
        pair, column, low, high = sparse_extremes(task, matrix)
    else:
        existing = np.flatnonzero(task.sizes)
        least, most = (f.reduceat(matrix, task.first_rows) for f in (np.minimum, np.maximum))
        at, column = np.nonzero(most > least)
        pair, low, high = existing[at], least[at, column], most[at, column]
    is_own = np.bincount(column, minlength=d) == 1
    of_own = is_own[column]
    size = np.where(of_own, np.maximum(np.abs(low), np.abs(high)), high - low)
    scale = np.zeros(d)
    np.maximum.at(scale, column, size)
    has_own, has_shared = (np.bincount(pair[x], minlength=n_pairs) > 0 for x in (of_own, ~of_own))
    kinds = np.where(has_own, np.where(has_shared, BOTH, OWN), SHARED)
    return Columns(np.where(scale > 0.0, scale, 1.0), is_own, kinds.astype(np.int8))


def sparse_extremes(task: Task, matrix: Any) -> tuple[Array, Array, Array, Array]:
    """Return (pair, column, least, largest) of each sparse column that varies within a pair."""
    d = matrix.shape[1]
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    key = np.repeat(np.arange(len(task.sizes)), task.sizes)[row] * d + matrix.indices
    order = np.argsort(key, kind="stable")
    cells, start, stored = np.unique(key[order], return_index=True, return_counts=True)
    if not len(cells):
        none = np.empty(0, np.int64)
        return none, none, np.empty(0), np.empty(0)
    low, high = (f.reduceat(matrix.data[order], start) for f in (np.minimum, np.maximum))
    pair, column = cells // d, cells % d
    has_zero = stored < task.sizes[pair]  # zeros are not stored
    low[has_zero] = np.minimum(low[has_zero], 0.0)
    high[has_zero] = np.maximum(high[has_zero], 0.0)
    varies = high > low
    return pair[varies], column[varies], low[varies], high[varies]
