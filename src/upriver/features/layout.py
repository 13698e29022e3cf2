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


class Columns(NamedTuple):
    """What the columns of a matrix (n, d) are to the pairs of a task."""

    scale: Array
    """(d,) the largest range of a column among the successors of one pair; of an own column its
    largest absolute value, so that one-hot columns have 1; 1 for a column that never varies."""
    is_own: Array
    """(d,) whether the column varies within one pair only; others are shared."""


def pack(
    task: Task, matrix: Any, has_effects: bool = False, own_first: bool = False
) -> tuple[Layout, Columns]:
    """Pack features (n, d), dense or sparse, without the columns of triple effects.

    own_first: in each block and pair the own columns come first, see `kernels.model`; otherwise
    columns are in their order, and `n_own` counts own ones only where all columns are own.
    """
    if not sparse.issparse(matrix):
        return pack_dense(task, matrix, own_first)
    n_pairs, d = len(task.sizes), matrix.shape[1]

    row = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
    pair = np.repeat(np.arange(n_pairs, dtype=np.int32), task.sizes)[row]
    cell, cell_pair, cell_column, columns = find_cells(task, matrix, pair)

    # The columns of a pair are its cells, own ones first.
    own = columns.is_own & (own_first or bool(columns.is_own.all()))
    order = np.lexsort((cell_column, ~own[cell_column], cell_pair))
    place = np.argsort(order)[cell]
    of_pair, n_columns = cell_column[order], np.bincount(cell_pair, minlength=n_pairs)
    first_column, first_value = start_of(n_columns), start_of(n_columns * task.sizes)
    values = np.zeros(first_value[-1])
    at = (row - task.indptr[pair]) * n_columns[pair] + place - first_column[pair]
    values[first_value[pair] + at] = matrix.data

    # Blocks are the components of the graph that joins features of the same pair.
    block_of_feature = connect(n_columns, first_column, of_pair, d)
    size = np.bincount(block_of_feature)
    n_own = np.bincount(block_of_feature, own).astype(np.int64)
    features = np.lexsort((~own, block_of_feature))
    slot = np.empty(d, np.int64)
    slot[features] = np.arange(d) - np.repeat(start_of(size)[:-1], size)
    block = np.full(n_pairs, -1)
    has_columns = n_columns > 0
    block[has_columns] = block_of_feature[of_pair[first_column[:-1][has_columns]]]
    if has_effects:  # a pair with nothing but triple effects is a block of size 0
        alone = (block < 0) & (task.sizes > 1)
        block[alone] = len(size) + np.arange(alone.sum())
        size, n_own = (np.pad(x, (0, int(alone.sum()))) for x in (size, n_own))

    pairs = new_pairs(task, max(len(values), d))
    pairs["n_columns"][:-1], pairs["block"][:-1] = n_columns, block
    pairs["first_column"], pairs["first_value"] = first_column, first_value
    values.flags.writeable = False  # as dense ones are: one kind of array, compiled once
    pairs["effect_offset"][:-1] = d - np.cumsum(task.sizes > 0)  # first triples have no effect
    block_pairs = np.argsort(block, kind="stable")[int((block < 0).sum()) :]
    first_pair = start_of(np.bincount(block[block_pairs], minlength=len(size)))
    numbers = slot[of_pair], features, block_pairs
    return new_layout(task, pairs, first_pair, size, n_own, numbers, values), columns


def find_cells(task: Task, matrix: Any, pair: Array) -> tuple[Array, Array, Array, Columns]:
    """Return the cell of each stored number, the pair and column of each cell, and the columns.

    A cell is a feature that is not zero in all rows of a pair; zeros are not stored. pair: that of
    each stored number.
    """
    d = matrix.shape[1]
    cells, cell = np.unique(pair.astype(np.int64) * d + matrix.indices, return_inverse=True)
    cell_pair, cell_column = (f(cells, d).astype(np.int32) for f in (np.floor_divide, np.mod))
    low = np.where(np.bincount(cell, minlength=len(cells)) < task.sizes[cell_pair], 0.0, np.inf)
    high = np.where(low == 0.0, 0.0, -np.inf)
    np.minimum.at(low, cell, matrix.data)
    np.maximum.at(high, cell, matrix.data)
    columns = describe_columns(d, cell_column, low, high)
    return cell.astype(np.int32), cell_pair, cell_column, columns


def pack_dense(task: Task, matrix: Array, own_first: bool) -> tuple[Layout, Columns]:
    """Pack a dense matrix: every pair has every feature, and there is one block."""
    d, exists = matrix.shape[1], task.sizes > 0
    found = [np.empty((3, 0))]
    for j in range(d):  # one by one, so that no second matrix is held
        column = matrix[:, j]
        low, high = (f.reduceat(column, task.first_rows) for f in (np.minimum, np.maximum))
        varies = high > low
        found.append(np.stack([np.full(varies.sum(), j), low[varies], high[varies]]))
    column, low, high = np.concatenate(found, axis=1)
    columns = describe_columns(d, column.astype(np.int64), low, high)
    own = columns.is_own & (own_first or bool(columns.is_own.all()))
    order = np.argsort(~own, kind="stable")
    if (order[:-1] > order[1:]).any():
        matrix = matrix[:, order]
        matrix.flags.writeable = False
    pairs = new_pairs(task, matrix.size)
    pairs["n_columns"][:-1][exists] = d
    pairs["first_value"][:-1] = pairs["first_row"][:-1] * d
    pairs["block"][:-1][~exists] = -1
    block_pairs, n_own = np.flatnonzero(exists), np.array([own.sum()])
    first_pair = np.array([0, len(block_pairs)])
    numbers = np.arange(d), order, block_pairs
    values = matrix.reshape(-1)
    return new_layout(task, pairs, first_pair, np.array([d]), n_own, numbers, values), columns


def describe_columns(d: int, column: Array, low: Array, high: Array) -> Columns:
    """Return the scale of each of d columns, and whether it varies within one pair only.

    column, low, high: a column in a pair, its least and its largest number there.
    """
    varies = high > low
    column, low, high = column[varies], low[varies], high[varies]
    is_own = np.bincount(column, minlength=d) == 1
    size = np.where(is_own[column], np.maximum(np.abs(low), np.abs(high)), high - low)
    scale = np.zeros(d)
    np.maximum.at(scale, column, size)
    return Columns(np.where(scale > 0.0, scale, 1.0), is_own)


def new_layout(
    task: Task, pairs: Array, first_pair: Array, size: Array, n_own: Array,
    numbers: tuple[Array, ...], values: Array,
) -> Layout:  # fmt: skip
    """Return the layout of packed features and what kernels read of their task.

    size, n_own (B,) of the blocks; numbers: slots, features and block_pairs. The inner
    products of the differences of a pair's features from those of its first successor are kept in
    the smaller of two forms: k x k, k = U - 1, and, where that takes at most half as many numbers,
    a factor of them: k rows of L^-1 varphi with one more column for the part of the squared norm
    that only one successor has, and one for triple effects.
    """
    blocks = np.zeros(len(size) + 1, [(name, np.int64) for name in BLOCK_FIELDS])
    blocks["first_feature"], blocks["first_pair"] = start_of(size), first_pair
    blocks["size"][:-1], blocks["n_own"][:-1] = size, n_own
    has_effects, block = bool(pairs["effect_offset"].any()), pairs["block"][:-1]
    width = np.where(block >= 0, blocks["size"][block] + 1, 1) + has_effects
    others = np.maximum(task.sizes - 1, 0)
    width = np.where(2 * width <= others, width, others)
    slots, features, block_pairs = (x.astype(np.uint32) for x in numbers)
    return Layout(
        pairs, blocks, slots, features, block_pairs, values, int(size.max()),
        task.max_successors, task.indptr, task.successors, task.n_actions, start_of(size**2),
        task.square_start, start_of(others * width),
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
