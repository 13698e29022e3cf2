"""The feature map varphi(s, a, s'): one row per reachable triple, dense or scipy.sparse.

Features enter the model only through their differences within a group (s, a), so one successor may
always have the zero vector (Remark 1 of the paper); `recentre` makes it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array, as_float, instance
from upriver.display import Card, displayed, to_frame
from upriver.display.card import MOST_ROWS
from upriver.display.frames import named
from upriver.features.layout import Layout, pack
from upriver.mdp import Task
from upriver.mdp.names import few

FEW = 2**22  # numbers of a part of a matrix, so that what is made of it stays small


def own_columns(task: Task, spread: float | str) -> Any:
    """(n, n - S*A) one column per triple but the first of each (s, a); an open spread counts 1."""
    size = 1.0 if isinstance(spread, str) else spread
    rows = np.delete(np.arange(task.n_triples), task.first_rows)
    entries = np.full(len(rows), size), (rows, np.arange(len(rows)))
    return sparse.csr_array(entries, shape=(task.n_triples, len(rows)))


def dense(values: Any) -> Array:
    """A copy in float64, or in float32 where it comes so; what cannot be written to is borrowed."""
    kind = np.float32 if getattr(values, "dtype", None) == np.float32 else np.float64
    matrix = as_float("features", values, kind)
    return matrix.copy() if matrix.flags.writeable else matrix


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """varphi on the triples of a task: `matrix` (n, d), dense or scipy.sparse.

    Where memory is short: a dense matrix of float32 stays one, and one that cannot be written to (a
    file opened with `np.load(path, mmap_mode="r")`) is not copied. Sums are in float64 all the
    same.
    """

    task: Task
    matrix: Any
    names: Sequence[str] | None = None
    """One name per feature that is not an own effect, for summaries."""
    formal_dimension: int | None = None
    """The d of the radius formulas, where it counts more coordinates than can ever be reached."""
    spread: Any = 0.0
    """Where not 0 (a number, or "estimate"): the last columns are own effects, see `pooled`."""

    def __post_init__(self) -> None:
        matrix: Any
        if sparse.issparse(self.matrix):
            matrix = sparse.csr_array(self.matrix, dtype=np.float64, copy=True)
            matrix.check_format(full_check=True)
        else:
            matrix = dense(self.matrix)
        n = instance("task", self.task, Task).n_triples
        if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] < 1:
            raise ValueError(
                f"features have shape {matrix.shape}; with {n} reachable triples they must be "
                f"({n}, d), one row per triple, d at least 1"
            )
        if sparse.issparse(matrix):
            matrix.sum_duplicates()
        data = matrix.data if sparse.issparse(matrix) else matrix
        if (
            data.size and not np.isfinite([data.min(), data.max()]).all()
        ):  # without an array of them
            kept = sparse.coo_array(matrix)
            at = np.flatnonzero(~np.isfinite(kept.data))[0]
            s, a, s2 = (int(x[kept.row[at]]) for x in self.task.triples)
            raise ValueError(
                f"features of row {kept.row[at]} (s={s}, a={a}, s'={s2}) hold {kept.data[at]}; "
                "they must be finite"
            )
        if self.spread and (
            not sparse.issparse(matrix)
            or matrix.shape[1] <= (own := own_columns(self.task, self.spread)).shape[1]
            or (matrix[:, matrix.shape[1] - own.shape[1] :] != own).nnz
        ):
            raise ValueError(
                f"features with spread {self.spread!r} must be sparse and end in the own effects "
                "of their triples; make them with features.pooled"
            )
        object.__setattr__(self, "matrix", matrix)
        if self.names is not None and len(self.names) != self.n_shared:
            raise ValueError(
                f"names has {len(self.names)} entries; there must be {self.n_shared}, "
                "one per feature"
            )
        if self.formal_dimension is None:
            object.__setattr__(self, "formal_dimension", matrix.shape[1])

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "columns": self.dimension,
            "kind": "sparse" if sparse.issparse(self.matrix) else "dense",
        }
        if self.spread:
            facts |= {"kind": "pooled", "shared": self.n_shared, "spread": self.spread}
        if self.names is not None:
            facts["names"] = few(self.names)
        return Card(
            facts | {"task": self.task.card().brief},
            rows=lambda: self.to_pandas(MOST_ROWS).to_dict("records"),
            n_rows=self.task.n_triples,
            more="to_pandas() has every triple",
            brief=f"{self.dimension} {facts['kind']} columns",
        )

    def to_pandas(self, most: int | None = None) -> Any:
        """A data frame with a row per triple: state, action, next_state, and the shared features.

        most: the first rows alone.
        """
        task, part = self.task, slice(most)
        shared = self.matrix[part][:, : self.n_shared]
        dense = shared.toarray() if sparse.issparse(shared) else shared
        s, a, s2 = (numbers[part] for numbers in task.triples)
        names = self.names or [f"varphi[{i}]" for i in range(dense.shape[1])]
        return to_frame({
            "state": named(task.states, s),
            "action": named(task.actions, a),
            "next_state": named(task.states, s2),
            **dict(zip(names, dense.T, strict=True)),
        })  # fmt: skip

    @property
    def dimension(self) -> int:
        """d, the number of columns."""
        return self.matrix.shape[1]

    @cached_property
    def norm_bound(self) -> float:
        """L_varphi, the largest Euclidean norm of a row."""
        if sparse.issparse(self.matrix):
            return float(np.sqrt(self.matrix.multiply(self.matrix).sum(axis=1).max()))
        parts = np.array_split(self.matrix, 1 + self.matrix.size // FEW)
        return float(np.sqrt(max(np.square(x, dtype=np.float64).sum(axis=1).max() for x in parts)))

    @cached_property
    def layout(self) -> Layout:
        if isinstance(self.spread, str):
            raise ValueError(
                "the spread of these features is to be estimated, which fit_mnl and fit_transitions "
                "do; everything else needs a number: features.pooled(shared, spread=1.0)"
            )
        return pack(self.task, self.matrix[:, : self.n_shared], self.spread)

    @cached_property
    def scratch(self) -> tuple[Array, Array, Array, Array | None]:
        """Room for the kernels of the running model, see there; they run one at a time."""
        layout, n = self.layout, self.task.n_triples
        m, u = layout.max_size, layout.max_successors
        return (
            np.empty((2, m, m)),
            np.empty((7 + u, max(m + 1, 2 * u))),
            np.zeros(len(layout.block_table) + len(layout.groups), np.int32),
            np.empty((3, n)) if layout.own else None,
        )

    @property
    def n_shared(self) -> int:
        """The number of columns that are not own effects."""
        if not self.spread:
            return self.dimension
        return self.dimension - (self.task.n_triples - len(self.task.first_rows))

    @cached_property
    def matrix_start(self) -> Array:
        """(B + 1,) where the flat m x m matrix of each block begins."""
        size = self.layout.size.astype(np.int64)
        return np.concatenate([[0], np.cumsum(size * size)]).astype(np.int64)

    @cached_property
    def geometry_start(self) -> Array:
        """(S*A + 1,) where each pair's geometry begins, kept in the smaller of two forms.

        U x U inner products of its features in the inverse of a matrix; or, where that is at most
        half of it, U rows of L^-1 varphi and of the root of what is a successor's own.
        """
        layout, sizes = self.layout, self.task.sizes
        block = layout.group_table[:-1, 4]
        columns = np.where(block >= 0, layout.block_table[block, 2] + 1, 1) + (layout.own > 0.0)
        numbers = sizes * np.where(2 * columns <= sizes, columns, sizes)
        return np.concatenate([[0], np.cumsum(numbers)])

    def check_task(self, task: Task) -> None:
        """Refuse a task whose rows are other triples."""
        if not self.task.same_support(task):
            raise ValueError(
                f"features were made for a task with {self.task.describe()}, this task has "
                f"{task.describe()}; build the features from the task that the agent gets"
            )
