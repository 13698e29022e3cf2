"""The features as kernels read them, and the arrays that the kernels of a model write to.

`compile_layout` turns the fields of a `kernels.Layout` into a structref, one argument that costs a
call about as much as ten arrays; kernels read its fields by name and never write to it, so threads
may share it. Scratch arrays belong to a call: `new_work` allocates them inside a kernel, which
takes less than a microsecond, and nothing that a kernel writes to is seen by another thread.
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


@structref.register
class WorkType(types.StructRef):
    """The type of a `Work`."""


class Work(structref.StructRefProxy):
    """Scratch arrays, see `new_work`."""


structref.define_proxy(
    Work,
    WorkType,
    (
        "hessian", "factor", "gradient", "mean", "step", "origin", "outcomes", "rows", "visited",
        "effects",
    ),
)  # fmt: skip

OUTCOME = np.dtype([(name, np.float64) for name in ("prob", "logit", "count", "share", "square")])
"""What a kernel computes of a successor of a pair: its probability, or the weight a_u made of it;
its logit, or another product x_u^T theta; its count; a_u / A_u, what triple effects leave of its
weight; and the squared norm of its features."""

EFFECT = np.dtype([(name, np.float64) for name in ("slope", "step", "origin")])
"""The derivative of the loss by a triple effect, its Newton step, both in log-odds, and the effect
before the step."""


@njit_inline
def new_work(layout, scale):
    """Return new scratch arrays, with m for `max_block_size` and U for `max_successors`.

    Of one block: the hessian (m, m), lower triangle, and its Cholesky factor (m, m); gradient, step
    and origin (m,), the parameters before the step; visited, the pairs that have a count. Of a
    pair: the mean feature (m,), its outcomes (U,), and rows (U, m + 1), the features after
    multiplication by the inverse factor. effects has an entry per triple, none without effects.
    """
    m, u = layout.max_block_size, layout.max_successors
    n_effects = layout.successors.shape[0] if scale != 0.0 else 0
    return Work(
        np.empty((m, m)), np.empty((m, m)), np.empty(m), np.empty(m), np.empty(m), np.empty(m),
        np.empty(u, OUTCOME), np.empty((u, m + 1)),
        np.empty(layout.block_pairs.shape[0], np.uint32), np.empty(n_effects, EFFECT),
    )  # fmt: skip
