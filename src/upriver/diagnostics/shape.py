"""What features are like, whatever the truth: U, d, rank, norms, and a zero successor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.diagnostics.realizability import least_squares
from upriver.display import displayed
from upriver.features import Features


@displayed
class Shape(NamedTuple):
    max_successors: int
    """U, the largest reachable set."""
    dimension: int
    """Columns that are stored, those a triple can reach."""
    formal_dimension: int
    """d as the formulas count it."""
    rank: int | None
    """Rank of the differences within groups: directions that can be learned; None if unknown."""
    norm_bound: float
    """L_varphi as given."""
    best_norm_bound: float
    """L_varphi after subtracting the best successor's row in each group (Remark 1)."""
    best_reference: Array
    """(S*A,) position of that successor within each group, as `features.recentre` takes it."""
    zero_successor: bool
    """Whether every group has a successor with the zero vector, as Lemma 1 needs."""


def stacks(features: Features) -> Iterator[tuple[Array, Array]]:
    """(groups (m,), rows (m, U, w)) for each shape of group: their features, w columns used."""
    layout, sizes = features.layout, features.task.sizes
    width = layout.pairs["n_columns"][:-1]
    shapes = np.stack([sizes, width], axis=1)
    for u, w in np.unique(shapes[sizes > 0], axis=0):
        groups = np.flatnonzero((sizes == u) & (width == w))
        cells = layout.pairs["first_value"][groups, None] + np.arange(u * w)
        rows = layout.values[cells].reshape(len(groups), u, w)
        if layout.triple_scale:  # own effects are not packed
            own = np.broadcast_to(layout.triple_scale * np.eye(u)[:, 1:], (len(groups), u, u - 1))
            rows = np.concatenate([rows, own], axis=2)
        yield groups, rows


def shape_of(features: Features) -> Shape:
    """U, d, rank and L_varphi before and after the best recentring."""
    task = features.task
    best = 0.0
    reference = np.zeros(len(task.sizes), np.int64)
    zero = True
    for groups, rows in stacks(features):
        gram = rows @ rows.transpose(0, 2, 1)
        square = np.einsum("gii->gi", gram)
        distance = square[:, :, None] + square[:, None, :] - 2.0 * gram
        reach = distance.max(axis=2)
        reference[groups] = reach.argmin(axis=1)
        best = max(best, float(reach.min(axis=1).max()))
        zero = zero and bool((square.min(axis=1) <= 0.0).all())
    assert features.formal_dimension is not None
    return Shape(
        task.max_successors, features.dimension, features.formal_dimension,
        least_squares(features, np.zeros((1, task.n_triples)))[1], features.norm_bound,
        float(np.sqrt(max(best, 0.0))), reference, zero,
    )  # fmt: skip
