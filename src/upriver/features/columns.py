"""Columns and the pairs (s, a) that they describe: their scale, and which belong to one pair only.

A column matters to a pair only where it varies among the successors of that pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.mdp import Task

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
