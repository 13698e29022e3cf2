"""Compute kappa of Assumption 3 at theta*, and a lower bound of it over a ball of parameters.

For z = varphi theta within a pair (s, a), P_i P_j = exp(z_i + z_j - 2 log sum exp z). Over all of
R^d, which is what the assumption is printed with, its infimum is 0 as soon as two successors differ
in their features; the proofs need it over the ball ||theta|| <= L_theta.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from upriver.checks import Array, nonnegative_number
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import Task

CERTIFY_UP_TO = 128
"""Successors up to which the bound looks at pairs, in time U^3 for each (s, a)."""


@add_repr
class Kappa(NamedTuple):
    """The smallest product P(s')P(s'') and its place."""

    value: float
    where: tuple[int, int, int, int]
    """(s, a, s', s'') of the smallest product."""


def kappa_at(task: Task, prob: Array) -> Kappa | None:
    """Return the smallest P(s')P(s'') of two successors of one (s, a); prob is (1 | H, n).

    It is None where every (s, a) has one successor: then nothing is to be learned.
    """
    several = np.flatnonzero(task.sizes > 1)
    if not len(several):
        return None
    pair_of_row = np.repeat(np.arange(len(task.sizes)), task.sizes)
    order = np.array([np.lexsort((p, pair_of_row)) for p in prob])
    least = order[:, task.indptr[several, None] + np.arange(2)]  # the two least likely
    products = np.prod([p[rows] for p, rows in zip(prob, least, strict=True)], axis=2)
    step, i = np.unravel_index(int(np.argmin(products)), products.shape)
    s, a = divmod(int(several[i]), task.n_actions)
    s2, s3 = sorted(task.successors[least[step, i]].tolist())
    return Kappa(float(products[step, i]), (s, a, s2, s3))


def certify_kappa(features: Features, theta_bound: float) -> float | None:
    """Return a number that no P(s')P(s'') over the ball ||theta|| <= L_theta is below.

    log P_i P_j = -2 log sum_u exp((varphi_u - (varphi_i + varphi_j)/2)^T theta), and each exponent
    is at most L_theta ||varphi_u - (varphi_i + varphi_j)/2||. It is None where every (s, a) has one
    successor.
    """
    radius, found = nonnegative_number("theta_bound", theta_bound), []
    layout, sizes = features.layout, features.task.sizes
    shapes = np.stack([sizes, layout.pairs["n_columns"][:-1]], axis=1)
    for u, w in np.unique(shapes[sizes > 1], axis=0):
        pairs = np.flatnonzero((shapes == (u, w)).all(axis=1))
        cells = layout.pairs["first_value"][pairs, None] + np.arange(u * w)
        rows = layout.values[cells].reshape(len(pairs), u, w)
        centred = rows - rows[:, :1]
        gram = centred @ centred.transpose(0, 2, 1)
        gram = gram + features.triple_scale**2 * np.diag(np.arange(u) > 0)  # which are not packed
        scale = max(float(np.abs(gram).max()), 1e-300)
        flat = np.round(gram.reshape(len(gram), -1) / scale, 12)
        _, first = np.unique(flat, axis=0, return_index=True)  # many pairs have equal features
        found.append(bound_products(gram[first], radius))
    return min(found, default=None)


def bound_products(gram: Array, radius: float) -> float:
    """Return a lower bound of every product over the ball, from inner products (m, U, U)."""
    u = gram.shape[1]
    square = np.einsum("gii->gi", gram)
    if u > CERTIFY_UP_TO:  # one successor at a time: P_i >= 1 / sum_u exp(radius ||u - i||)
        distance = square[:, :, None] + square[:, None, :] - 2.0 * gram
        total = np.logaddexp.reduce(radius * np.sqrt(np.maximum(distance, 0.0)), axis=2)
        return float(np.exp(-np.sort(total, axis=1)[:, -2:].sum(axis=1)).min())
    smallest = np.inf
    for i in range(u - 1):
        j = np.arange(i + 1, u)
        middle = 0.25 * (square[:, i, None] + square[:, j] + 2.0 * gram[:, i, j])
        distance = square[:, None, :] - gram[:, i, None, :] - gram[:, j, :] + middle[:, :, None]
        total = np.logaddexp.reduce(radius * np.sqrt(np.maximum(distance, 0.0)), axis=2)
        smallest = min(smallest, float(np.exp(-2.0 * total).min()))
    return smallest
