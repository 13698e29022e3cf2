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
    "compiled", "covariance", "ellipsoid", "episodes", "gram", "likelihood", "linear",
    "model", "newton", "online", "optimism", "planning", "pooled", "soft", "stationary",
    "tabular", "value",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


PAIR_FIELDS = ("first_row", "n_columns", "first_column", "first_value", "block", "effect_offset")
BLOCK_FIELDS = ("first_feature", "first_pair", "size")


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
    of its features in `columns` and `slots`, `first_value` in `values`, `block` (-1 where the pair
    has no feature), `effect_offset` (see above). The last record closes `first_row`."""
    blocks: Array
    """(B + 1,) records: `first_feature` in `features`, `first_pair` in `block_pairs`, `size`, the
    number of features of the block. The last record closes the first two."""
    columns: Array
    """The feature of each column of each pair."""
    slots: Array
    """The position within its block of each column of each pair."""
    features: Array
    """(d,) the features, block by block, ascending within each."""
    block_pairs: Array
    """The pairs that have features, block by block, ascending within each."""
    values: Array
    """The matrices of the pairs, flat."""
    max_block_size: int
    max_successors: int

    @property
    def size(self) -> Array:
        """(B,) number of features of each block."""
        return self.blocks["size"][:-1]

    @property
    def feature_start(self) -> Array:
        """(B + 1,) where the features of each block begin in `features`."""
        return self.blocks["first_feature"]


class Work(NamedTuple):
    """Arrays that the kernels of the running model write to, so that no call allocates memory.

    m stands for `max_block_size`, U for `max_successors`. The kernels of one `Features` object run
    one at a time, so one set of these arrays serves all of them.
    """

    hessian: Array
    """(m, m) of one block, lower triangle."""
    factor: Array
    """(m, m) lower Cholesky factor of one block."""
    gradient: Array
    """(m,) of one block."""
    mean: Array
    """(m,) the mean feature of a pair."""
    step: Array
    """(m,) the Newton step of a block."""
    origin: Array
    """(m,) the parameters of a block before the step."""
    prob: Array
    """(2 U,) the probabilities of the successors of a pair, then their logits."""
    shrinkage: Array
    """(U,) a_u / A_u, what triple effects leave of the weight of a successor."""
    rows: Array
    """(U, m + 1) the features of a pair after multiplication by the inverse factor."""
    squares: Array
    """(U,) their squared norms."""
    visited: Array
    """The pairs of one block that have a count."""
    stamps: Array
    """(B + 1,) the number of the call that changed each block last; the last entry counts calls."""
    slope: Array
    """(n,) the derivative of the loss by each triple effect, in log-odds. This and the next two
    have one entry per row; (0,) where there are no triple effects."""
    effect_step: Array
    """(n,) the Newton step of each triple effect, in log-odds."""
    effect_origin: Array
    """(n,) the triple effects before the step."""


class ErrorWeights(NamedTuple):
    """How many standard errors the stored inner products of a pair's features stand for.

    With G the inner products in the inverse matrix and G_own those that are left where the shared
    columns are known, the model stores shared^2 (G - G_own) + own^2 G_own.
    """

    shared: float
    own: float
    kinds: Array
    """(S*A,) whether a pair has shared columns alone (0), own columns alone (1) or both (2)."""
    is_own: Array | None
    """(d,) whether a packed column varies within one pair only; None where no pair has both kinds
    or both count the same, and code that is for such pairs is then not compiled."""


class Problem(NamedTuple):
    """All that stays the same while a model of one `Features` object learns."""

    layout: Layout
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
    """(S*A + 1,) the same where the smaller of two forms is kept, see `Features.product_start`."""
    work: Work
