"""Eq. (1), the MNL transition probability, and eq. (2), the regularised negative log-likelihood.

Everything is computed from counts n(s, a, s'), which are sufficient: the cost does not grow with
the number of episodes. Log-sum-exp within each pair keeps logits of any size stable.

In all functions `theta` is (d,), `counts` is (n,) with one number per triple, and `regularization`
is lambda.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array, as_float
from upriver.features import Features
from upriver.mnl.choices import log_softmax


def probabilities(features: Features, theta: Array) -> Array:
    """Return (n,) P_theta(s' | s, a) of every triple, eq. (1)."""
    return np.exp(log_probabilities(features, theta))


def log_probabilities(features: Features, theta: Array) -> Array:
    """Return (n,) log P_theta(s' | s, a) of every triple."""
    logits = np.asarray(features.matrix @ theta)
    return log_softmax(features.task.indptr, logits)


def loss(features: Features, theta: Array, counts: Array, regularization: float) -> float:
    """Return eq. (2): -sum n log P_theta + (lambda / 2) ||theta||^2."""
    fit = -float(counts @ log_probabilities(features, theta))
    return fit + (0.5 * regularization * float(theta @ theta) if regularization else 0.0)


def gradient(features: Features, theta: Array, counts: Array, regularization: float) -> Array:
    """Return (d,) the gradient of (2): sum (N P_theta - n) varphi + lambda theta."""
    expected = visits(features, counts) * probabilities(features, theta)
    return features.matrix.T @ (expected - counts) + regularization * theta


def hessian(features: Features, theta: Array, counts: Array, regularization: float) -> Any:
    """Return (d, d) the Hessian of (2): sum N P (varphi - mean)(varphi - mean)^T + lambda I.

    `regularization` may be (d,), a lambda for each column. The result is dense for dense features,
    otherwise scipy.sparse: block diagonal, and bordered where there are triple effects.
    """
    task, rows = features.task, features.matrix
    p = probabilities(features, theta)
    pair = np.repeat(np.arange(len(task.sizes)), task.sizes)
    average = sparse.csr_array((p, np.arange(len(p)), task.indptr), shape=(len(task.sizes), len(p)))
    centred = rows - (average @ rows)[pair]
    return second_moment(centred, visits(features, counts) * p, regularization)


def second_moment(rows: Any, weights: Array, regularization: float) -> Any:
    """Return (d, d) lambda I + sum of weight * row row^T over the triples; dense where rows are."""
    d = rows.shape[1]
    if sparse.issparse(rows):
        root = sparse.dia_array((np.sqrt(weights)[None], [0]), shape=(len(weights),) * 2) @ rows
        return sparse.csr_array(root.T @ root + sparse.diags_array(np.full(d, regularization)))
    root = np.sqrt(weights)[:, None] * rows
    return root.T @ root + np.diag(np.full(d, regularization))


def visits(features: Features, counts: Array) -> Array:
    """Return (n,) N(s, a) of the pair of every triple."""
    return np.repeat(features.task.by_pair(counts), features.task.sizes)


def from_blocks(features: Features, flat: Array) -> Any:
    """Return the (d, d) matrix of flat blocks: dense for dense features, else scipy.sparse."""
    if not sparse.issparse(features.matrix):
        return flat.reshape(features.dimension, features.dimension).copy()
    return sparse.csr_array((flat, block_entries(features)), shape=(features.dimension,) * 2)


def block_entries(features: Features) -> tuple[Array, Array]:
    """Return (rows, columns) of every entry of the flat blocks."""
    layout = features.layout
    area = layout.size**2
    place = np.arange(area.sum()) - np.repeat(layout.matrix_start[:-1], area)
    first = layout.blocks["first_feature"][:-1]
    start, size = np.repeat(first, area), np.repeat(layout.size, area)
    return layout.features[start + place // size], layout.features[start + place % size]


def check_counts(features: Features, counts: Any) -> Array:
    """Return counts (n,) as an array; raise a ValueError unless they are finite and >= 0."""
    weights = as_float("counts", counts, shapes=[(features.task.n_triples,)])
    for i in np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))[:1]:
        raise ValueError(f"counts[{i}] is {weights[i]}; counts must be finite and >= 0")
    return weights
