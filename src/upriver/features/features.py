"""The feature map varphi(s, a, s'): one row per reachable triple, dense or scipy.sparse.

Features enter the model only through their differences within a pair (s, a), so one successor of
each pair may always have the zero vector (Remark 1 of the paper); `recentre` makes it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from upriver import checks, kernels
from upriver.checks import Array, format_value
from upriver.display import Card, add_repr, name_column, to_frame
from upriver.display.card import MAX_ROWS
from upriver.features.layout import Columns, Layout, pack
from upriver.mdp import Task
from upriver.mdp.names import abbreviate, check_same_names


def triple_columns(task: Task, spread: float | str) -> Any:
    """(n, n - S*A) one column per triple but the first of each pair; an open spread counts as 1."""
    size = 1.0 if isinstance(spread, str) else spread
    rows = np.delete(np.arange(task.n_triples), task.first_rows)
    entries = np.full(len(rows), size), (rows, np.arange(len(rows)))
    return sparse.csr_array(entries, shape=(task.n_triples, len(rows)))


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """The feature map varphi on the reachable triples of a task.

    Parameters
    ----------
    task : Task
        The task whose triples the rows describe.
    matrix : (n, d) array or scipy.sparse array
        One row per reachable triple. It is copied and cannot be changed afterwards. A dense matrix
        of float32 stays float32, and a dense matrix that cannot be written to (a file opened with
        `np.load(path, mmap_mode="r")`) is not copied; sums are in float64 all the same.
    names : sequence of str, optional
        One name per feature that is not a triple effect, for summaries.
    formal_dimension : int, optional
        The d of the radius formulas, where it counts more coordinates than can be reached.
    spread : float or "estimate"
        Where it is not 0, the last columns are triple effects, see `pooled`.
    sharing : str, optional
        What the triples share, for displays: `automatic` says it.

    Raises
    ------
    ValueError
        If shapes do not match the task, a number is not finite, or `spread` is given for a matrix
        that does not end in the triple effects of the task.
    """

    task: Task
    matrix: Any
    names: Sequence[str] | None = None
    formal_dimension: int = 0
    spread: Any = 0.0
    sharing: str | None = None

    def __post_init__(self) -> None:
        matrix: Any
        if is_sparse := sparse.issparse(self.matrix):
            matrix = checks.check_sparse("features", self.matrix)
            matrix.sum_duplicates()
        else:
            kind = np.float32 if getattr(self.matrix, "dtype", None) == np.float32 else np.float64
            matrix = checks.as_float("features", self.matrix, kind)
            matrix = matrix.copy() if matrix.flags.writeable else matrix
        n = checks.check_instance("task", self.task, Task).n_triples
        if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] < 1:
            raise ValueError(
                f"features have shape {matrix.shape}; with {n} reachable triples they must be "
                f"({n}, d), one row per triple, d at least 1"
            )
        data = matrix.data if is_sparse else matrix
        if data.size and not np.isfinite([data.min(), data.max()]).all():  # makes no mask of size n
            kept = sparse.coo_array(matrix)
            at = np.flatnonzero(~np.isfinite(kept.data))[0]
            s, a, s2 = (x[kept.row[at]] for x in self.task.triples)
            states, action = self.task.state_names, self.task.action_names[a]
            raise ValueError(
                f"features of row {kept.row[at]} (s={states[s]!r}, a={action!r}, "
                f"s'={states[s2]!r}) hold {kept.data[at]}; they must be finite"
            )
        if not isinstance(self.spread, str):
            checks.nonnegative_number("spread", self.spread)
        if self.spread and (
            not is_sparse
            or matrix.shape[1] <= (effects := triple_columns(self.task, self.spread)).shape[1]
            or (matrix[:, matrix.shape[1] - effects.shape[1] :] != effects).nnz
        ):
            raise ValueError(
                f"features with spread {self.spread!r} must be sparse and end in the triple "
                "effects of their task; make them with features.pooled"
            )
        object.__setattr__(self, "matrix", matrix)
        self.freeze()
        is_list = checks.KINDS["Sequence[str]"][1](self.names)
        if self.names is not None and not (is_list and len(self.names) == self.n_shared):
            raise ValueError(
                f"names is {format_value(self.names)}; it must be a list of {self.n_shared} texts, "
                "one per feature"
            )
        given = self.formal_dimension
        if not (isinstance(given, int) and given == 0):
            given = checks.positive_integer("formal_dimension", given, most=10**18)
        object.__setattr__(self, "formal_dimension", given or matrix.shape[1])

    def freeze(self) -> None:
        """Make the matrix read-only: the packed layout is computed from it once."""
        x = self.matrix
        for part in (x.data, x.indices, x.indptr) if sparse.issparse(x) else (x,):
            part.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        # A compiled structure belongs to this process.
        return {k: v for k, v in vars(self).items() if k not in ("compiled", "standardized")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.freeze()

    def card(self) -> Card:
        kind = "sparse" if sparse.issparse(self.matrix) else "dense"
        facts: dict[str, Any] = {"columns": self.dimension, "kind": kind}
        if self.spread:
            facts |= {"kind": "pooled", "shared": self.n_shared, "spread": self.spread}
        if self.sharing:
            facts["sharing"] = self.sharing
        if self.names is not None:
            facts["names"] = abbreviate(self.names)
        return Card(
            facts | {"task": self.task.card().brief},
            rows=lambda: self.to_pandas(MAX_ROWS).to_dict("records"),
            more="to_pandas() has every triple",
            brief=f"{self.dimension} {facts['kind']} columns",
        )

    def to_pandas(self, most: int | None = None) -> Any:
        """Return a data frame: state, action, next_state and the shared features of each triple.

        most: the first rows alone.
        """
        task, part = self.task, slice(most)
        shared = self.matrix[part][:, : self.n_shared]
        dense = shared.toarray() if sparse.issparse(shared) else shared
        s, a, s2 = (numbers[part] for numbers in task.triples)
        names = self.names or [f"varphi[{i}]" for i in range(dense.shape[1])]
        return to_frame({
            "state": name_column(task.states, s),
            "action": name_column(task.actions, a),
            "next_state": name_column(task.states, s2),
            **dict(zip(names, dense.T, strict=True)),
        })  # fmt: skip

    @property
    def dimension(self) -> int:
        """d, the number of columns."""
        return self.matrix.shape[1]

    @cached_property
    def norm_bound(self) -> float:
        """L_varphi, the largest Euclidean norm of a row."""
        x = self.matrix
        if sparse.issparse(x):
            return float(np.sqrt(x.multiply(x).sum(axis=1).max()))
        return float(np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64).max()))  # no large copy

    @property
    def n_shared(self) -> int:
        """The number of columns that are not triple effects."""
        if not self.spread:
            return self.dimension
        return self.dimension - (self.task.n_triples - len(self.task.first_rows))

    @property
    def triple_scale(self) -> float:
        """The value of every triple effect, 1 where it is to be estimated; 0 without them."""
        return 1.0 if isinstance(self.spread, str) else float(self.spread)

    @cached_property
    def packed(self) -> tuple[Layout, Columns]:
        """`layout`, and what the columns that are not triple effects are to the pairs (s, a)."""
        own_first = "own_first" in vars(self)
        return pack(self.task, self.matrix[:, : self.n_shared], bool(self.spread), own_first)

    @property
    def layout(self) -> Layout:
        """The features packed for the compiled loops."""
        return self.packed[0]

    @cached_property
    def compiled(self) -> Any:
        """The layout as a structure that a compiled function takes as one argument."""
        return kernels.layout.compile_layout(*self.layout)

    @property
    def scale(self) -> Array:
        """(d,) the scale of each column, 1 for triple effects."""
        return np.append(self.packed[1].scale, np.ones(self.dimension - self.n_shared))

    @cached_property
    def standardized(self) -> Features:
        """The same features with `scale` 1, so that a ridge does not depend on units."""
        is_own = self.packed[1].is_own
        if (self.scale == 1.0).all() and is_own.all() == is_own.any():
            return self
        return self.rescaled(self.scale)

    def rescaled(self, scale: Array) -> Features:
        """Return the features divided by scale (d,); own columns come first in their layout."""
        x, divisor = self.matrix, scale.astype(self.matrix.dtype)
        matrix = x @ sparse.diags_array(1.0 / divisor) if sparse.issparse(x) else x / divisor
        made = Features(self.task, matrix, self.names, self.formal_dimension, self.spread)
        object.__setattr__(made, "own_first", True)
        return made

    def check_task(self, task: Task) -> None:
        """Raise a ValueError if the rows of `task` are other triples, or have other names."""
        if not self.task.same_support(task):
            raise ValueError(
                f"features were made for a task with {self.task.describe()}, this task has "
                f"{task.describe()}; build the features from the task that the agent gets"
            )
        check_same_names(self.task, task)
