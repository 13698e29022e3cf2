"""The hot loops, compiled with numba, one file per family of loops.

Importing this package imports no numba: a room is loaded when its name is first used
(`kernels.planning.backward_pass`), so that `import upriver` stays quick.

Two conventions hold in every room. An array whose leading axis counts steps has length H there,
or 1 when the quantity does not change with the step, and is read at `min(h, len(x) - 1)`. And a
state-action pair (s, a) is the number g = s * n_actions + a, called its group.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

LARGE = 200_000
"""Triples from which on a problem is worth handing out to threads, see `kernels.compiled`."""

ROOMS = (
    "compiled", "covariance", "ellipsoid", "episodes", "extended", "gram", "likelihood", "linear",
    "model", "newton", "online", "optimism", "planning", "pooled", "ratio",
    "stationary", "structures", "tabular", "value",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
