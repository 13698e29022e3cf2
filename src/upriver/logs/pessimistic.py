"""The plan whose values hold for every core in the ellipsoid, at every state and step."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array
from upriver.features import Features
from upriver.logs.model import TransitionModel
from upriver.mnl.choices import in_chunks
from upriver.mnl.fitted import FittedMNL
from upriver.mnl.model import at_estimate
from upriver.planning import Plan
from upriver.planning.optimism import plan_in_ellipsoid


def pessimistic(model: TransitionModel, beta: float) -> Plan:
    """Q = r + min over the confidence set of P_theta V, for each pair by itself, as (4)."""
    task = model.task
    norms = np.empty((1, 0))  # which this plan does not read
    ellipsoid = kernels.optimism.Ellipsoid(model.prob, norms, products(model), task.square_start)
    plan = plan_in_ellipsoid(task, ellipsoid, task.reward_rows, -beta, np.uint64(0))
    return plan.to_user_units(task)


def products(model: TransitionModel) -> Array:
    """(1 | H, sum U^2) inner products of the features of each (s, a), in the covariance."""
    geometry = np.empty((len(model.prob), int(model.task.square_start[-1])))
    for features, out in zip(model.steps, geometry, strict=True):
        fill(features, model.fitted, out)
    return geometry


def fill(features: Features, fitted: FittedMNL, out: Array) -> None:
    task, matrix = features.task, features.matrix
    if features.spread:  # whose covariance is no matrix
        out[:] = at_estimate(*fitted.fit).inverse_products[0]
    elif sparse.issparse(matrix):
        image = matrix @ fitted.covariance
        for u in np.unique(task.sizes[task.sizes > 0]):  # pairs with as many successors at once
            for part in in_parts(np.flatnonzero(task.sizes == u), u * u):
                at = task.indptr[part][:, None] + np.arange(u)
                square = task.square_start[part][:, None] + np.arange(u * u)
                left, right = np.repeat(at, u, axis=1), np.tile(at, (1, u))
                found = image[left.ravel()].multiply(matrix[right.ravel()]).sum(axis=1)
                out[square] = np.asarray(found).reshape(square.shape)
    else:
        values, vectors = np.linalg.eigh(fitted.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        for first, last in in_chunks(task.indptr, 10_000):  # which stay in the cache
            ends = task.indptr[first : last + 1]
            kernels.ellipsoid.compute_products(
                ends, task.square_start[first:], matrix[ends[0] : ends[-1]] @ root, out
            )


def in_parts(groups: Array, numbers: int) -> list[Array]:
    """The groups in parts that need arrays of about a million numbers, with `numbers` for each."""
    return np.array_split(groups, -(-len(groups) * numbers // 1_000_000))
