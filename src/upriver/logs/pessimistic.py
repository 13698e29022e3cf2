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
from upriver.planning import Plan, empty_plan

CLOSE = 0.1  # of what is allowed for: a bound so close to the least expectation is good enough


def pessimistic(model: TransitionModel, beta: float) -> Plan:
    """Q = r + min over the confidence set of P_theta V, for each pair by itself: (4) with a minus.

    A bound that is never above it, and below it by at most `CLOSE` of what it allows for: far
    sooner than the minimum itself, see `kernels.pessimism`.
    """
    task, geometry = model.task, products(model)
    policy, v, _ = empty_plan(task)
    across = int((task.sizes * (task.sizes - 1) // 2).sum())
    packed, kappa = (np.empty((len(geometry), n)) for n in (across, len(task.sizes)))
    for step in zip(geometry, model.prob, packed, kappa, strict=True):
        squares, prob, *out = step
        kernels.pessimism.from_last(task.indptr, task.square_start, squares, prob, beta, *out)
    given = task.next_state_reward_rows, model.prob, task.reward_rows, geometry, packed, kappa

    def sweep(h: slice, policy: Array, v: Array) -> Array:
        pay, prob, reward, *sets = (x[h] if len(x) > 1 else x for x in given)
        q = np.empty(len(task.sizes))
        kernels.pessimism.sweep(
            task.indptr, task.successors, pay, prob, reward, sets[0], task.square_start, *sets[1:],
            beta, CLOSE, v, policy, q,
        )  # fmt: skip
        return q

    def backup(h: int) -> Array:
        q = sweep(slice(h, h + 1), np.empty_like(policy[:1]), v[h : h + 2].copy())
        return q.reshape(task.n_states, task.n_actions)

    sweep(slice(None), policy, v)
    return Plan(policy, v, backup, task).to_user_units(task)


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
            kernels.pessimism.inner_products(
                ends, task.square_start[first:], matrix[ends[0] : ends[-1]] @ root, out
            )


def in_parts(groups: Array, numbers: int) -> list[Array]:
    """The groups in parts that need arrays of about a million numbers, with `numbers` for each."""
    return np.array_split(groups, -(-len(groups) * numbers // 1_000_000))
