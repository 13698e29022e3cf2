"""The features as kernels read them, and the arrays that the kernels of a model write to.

`compile_layout` turns the fields of a `kernels.Layout` into a structref, one argument that costs a
call about as much as ten arrays. Kernels read its fields by name and never write to it, so threads
may share it; scratch arrays are allocated inside a kernel, once per call.

Functions that kernels call are given these arrays one by one. Numba counts references, which takes
8 nanoseconds for each array of each call, in a function that is given a structure or a tuple and
calls others, that makes or slices an array; it does not where all arguments are arrays and numbers.
"""

import numpy as np
from numba import types
from numba.experimental import structref

from upriver.kernels import Layout
from upriver.kernels.compiled import njit_cached, njit_inline


@structref.register
class LayoutType(types.StructRef):
    """The type of a `CompiledLayout`."""


class CompiledLayout(structref.StructRefProxy):
    """A `kernels.Layout` for kernels, with the same fields."""


structref.define_proxy(CompiledLayout, LayoutType, Layout._fields)


@njit_cached
def compile_layout(*fields):
    """Return the `CompiledLayout` of the fields of a `kernels.Layout`."""
    return CompiledLayout(*fields)


OUTCOME = np.dtype(
    [(name, np.float64) for name in ("prob", "logit", "weight", "share", "square", "alone")]
)
"""What a kernel computes of a successor of a pair: its probability; its logit, or another product
x_u^T theta; a_u, its weight in the Hessian or the Gram matrix, and a_u / A_u, see
`kernels.likelihood`; the squared norm of its features, and what a triple effect adds to that."""

EFFECT = np.dtype([(name, np.float64) for name in ("slope", "step", "weight", "share")])
"""What belongs to a triple effect, in log-odds: the derivative of the loss, a Newton step, and a_u
and a_u / A_u. The first triple of a pair has no effect, and the slope 0."""


@njit_inline
def new_work(layout, scale):
    """Return new scratch arrays, with m for `max_block_size` and U for `max_successors`.

    They are `visited`, the pairs of a block that have a count; `outcomes` (U,); `effects`, an entry
    per triple, none without triple effects; the mean feature (m,) of a pair; and of a block its
    parameters, the point (m,), the gradient (m,) and the Hessian (m, m), lower triangle.
    """
    m, n_effects = layout.max_block_size, layout.successors.shape[0] if scale != 0.0 else 0
    return (
        np.empty(layout.block_pairs.shape[0], np.uint32), np.empty(layout.max_successors, OUTCOME),
        np.zeros(n_effects, EFFECT), np.empty(m), np.empty(m), np.empty(m), np.empty((m, m)),
    )  # fmt: skip
