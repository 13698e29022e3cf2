"""The compiled loops, one file per family of loops.

Importing this package does not import numba: a module is loaded when its name is first used
(`kernels.model.refresh`), so that `import upriver` stays quick.

Two conventions hold in every module. An array whose leading axis counts steps has length H there,
or 1 when the quantity does not change with the step, and is read at `min(h, len(x) - 1)`. A
state-action pair (s, a) has the number s * n_actions + a.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

LARGE = 200_000
"""Number of triples from which on a problem is divided among threads, see `kernels.compiled`."""

MODULES = (
    "compiled", "ellipsoid", "episodes", "gram", "layout", "likelihood", "linear", "model",
    "online", "optimism", "planning", "stationary", "tabular",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


PAIR_FIELDS = ("first_row", "n_columns", "first_column", "first_value", "block", "effect_offset")
BLOCK_FIELDS = ("first_feature", "first_pair", "size", "n_own")


class Layout(NamedTuple):
    """The features of a task, packed for the compiled loops.

    Pair (s, a) has a small dense matrix (U, n_columns) in `values`, row by row: one row per
    successor, one column per feature that is not zero for all of them. Features that occur in the
    same pair belong to one block. Neither the Hessian of (2) nor the Gram matrix (5) couples two
    blocks, so both are kept as one dense matrix per block.

    Triple effects (pooled features) are not packed. Row i of a pair, unless it is the pair's first
    row, has the value `scale` in feature number `effect_offset + i`; these features follow
    the packed ones. They occur in no other pair, so the kernels eliminate them pair by pair, and
    the blocks are those of the packed features. A pair with triple effects alone is a block of
    size 0.
    """

    pairs: Array
    """(S*A + 1,) records: `first_row` of the triples of the pair, `n_columns` and `first_column`
    of its features in `slots`, `first_value` in `values`, `block` (-1 where the pair
    has no feature), `effect_offset` (see above). The last record closes `first_row`."""
    blocks: Array
    """(B + 1,) records: `first_feature` in `features`, `first_pair` in `block_pairs`; `size`, the
    number of features of the block, and `n_own`, how many of its first features are known to
    vary in one pair only. The last record closes the first two."""
    slots: Array
    """The position within its block of each column of each pair, ascending. These numbers, and
    those of the next two, are unsigned: numba does not test such an index for wrap-around, which
    would take longer than the sums that the index is for."""
    features: Array
    """(d,) the features, block by block, ascending but that own ones may come first."""
    block_pairs: Array
    """The pairs that have features, block by block, ascending within each."""
    values: Array
    """The matrices of the pairs, flat."""
    max_block_size: int
    max_successors: int
    indptr: Array
    """(S*A + 1,) where the triples of each pair begin."""
    successors: Array
    """(n,) the next state of each triple."""
    n_actions: int
    matrix_start: Array
    """(B + 1,) where the flat m x m matrix of each block begins."""
    square_start: Array
    """(S*A + 1,) where the U x U inner products of each pair begin."""
    product_start: Array
    """(S*A + 1,) the same for products of differences from the first successor, which are kept in
    the smaller of two forms, see `features.layout`."""

    @property
    def size(self) -> Array:
        """(B,) number of features of each block."""
        return self.blocks["size"][:-1]
