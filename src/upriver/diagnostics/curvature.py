"""Compute kappa of Assumption 3, at theta* and over a ball of parameters.

For z = varphi theta within a pair (s, a), P_i P_j = exp(z_i + z_j - 2 log sum exp z). Its log is
concave in theta, so over the ball ||theta|| <= L_theta the infimum lies on the sphere, and moving
to the minimiser of the linearisation never makes it larger. Over all of R^d, which is what the
assumption is printed with, the infimum is 0 as soon as two successors differ in their features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from upriver.checks import Array, nonnegative_number
from upriver.diagnostics.realizability import stacks
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import Task

STEPS = 200
PAIRS_UP_TO = 8  # successors up to which every pair is a starting point
CERTIFY_UP_TO = 128  # successors up to which the bound looks at pairs
CHUNK = 2_000_000  # numbers in one batch of starting points, so that memory stays small


@add_repr
class Kappa(NamedTuple):
    """The smallest product P(s')P(s''), or the smallest curvature, and its place."""

    value: float
    where: tuple[int, int, int, int]
    """(s, a, s', s'') of the smallest product."""


@add_repr
class BallKappa(NamedTuple):
    """kappa over ||theta|| <= radius: certified <= the infimum <= found."""

    radius: float
    found: float
    """The smallest product seen, at `theta`."""
    theta: Array
    """(d,)"""
    where: tuple[int, int]
    """(s, a)"""
    certified: float
    """No theta of the ball has a smaller product."""
    crude: float
    """The textbook bound (1 / (U exp(2 L_varphi L_theta)))^2, never above `certified`."""


def kappa_at(task: Task, prob: Array) -> Kappa | None:
    """Return the smallest P(s')P(s'') of two successors of one (s, a); prob is (1 | H, n).

    It is None where every (s, a) has one successor: then nothing is to be learned.
    """
    pair_of_row = np.repeat(np.arange(len(task.sizes)), task.sizes)
    best: Kappa | None = None
    several = np.flatnonzero(task.sizes > 1)
    for p in prob if len(several) else ():
        order = np.lexsort((p, pair_of_row))
        low, next_low = order[task.indptr[several]], order[task.indptr[several] + 1]
        product = p[low] * p[next_low]
        i = int(np.argmin(product))
        if best is None or product[i] < best.value:
            s, a = divmod(int(several[i]), task.n_actions)
            pair = sorted((int(task.successors[low[i]]), int(task.successors[next_low[i]])))
            best = Kappa(float(product[i]), (s, a, pair[0], pair[1]))
    return best


def kappa_over_ball(features: Features, theta_bound: float) -> BallKappa | None:
    """Search kappa over the ball of radius L_theta, and certify a lower bound.

    Certificate: log P_i P_j = -2 log sum_u exp((varphi_u - (varphi_i + varphi_j)/2)^T theta), and
    each exponent is at most L_theta ||varphi_u - (varphi_i + varphi_j)/2||.
    """
    radius = nonnegative_number("theta_bound", theta_bound)
    found, certified = np.inf, np.inf
    worst: tuple[int, Array] | None = None
    for pairs, gram in distinct_grams(features):
        certified = min(certified, certify(gram, radius))
        numbers = gram.shape[0] * gram.shape[1] * len(starting_points(gram.shape[1]))
        for part in np.array_split(np.arange(len(gram)), max(1, numbers // CHUNK)):
            if len(part):
                product, at, push = search(gram[part], radius)
                if product < found:
                    found, worst = product, (int(pairs[part[at]]), push)
    if worst is None:
        return None
    task = features.task
    s, a = divmod(worst[0], task.n_actions)
    coefficients = worst[1].copy()
    coefficients[0] -= coefficients.sum()  # the rows were taken minus the first
    theta = np.asarray(features.matrix[task.rows(s, a)].T @ coefficients)
    u, reach = task.max_successors, 2.0 * features.norm_bound * radius
    crude = float(np.exp(-2.0 * (np.log(u) + reach)))
    return BallKappa(radius, float(found), theta, (s, a), float(certified), crude)


def curvature_at(features: Features, prob: Array) -> Kappa | None:
    """Return the largest c with Hessian >= c (Gram increment) at every (s, a), on its range.

    With varphi = A S B^T its singular value decomposition, that is the smallest eigenvalue of
    A^T (diag P - P P^T) A. It takes the place of kappa at a given theta, is never below it where a
    successor has the zero vector, and is 0 where none has. The last two entries of `where` are 0.
    """
    task = features.task
    best: Kappa | None = None
    for pairs, rows in stacks(features):
        gram = rows @ rows.transpose(0, 2, 1)
        size, basis = np.linalg.eigh(gram)
        kept = size > 1e-10 * np.maximum(size[:, -1:], 1e-300)
        if not kept.any():
            continue
        basis = basis * kept[:, None, :]
        for step in prob:
            p = step[task.indptr[pairs, None] + np.arange(rows.shape[1])]
            covariance = p[:, :, None] * np.eye(rows.shape[1]) - p[:, :, None] * p[:, None, :]
            inner = basis.transpose(0, 2, 1) @ covariance @ basis
            inner += ~kept[:, :, None] * np.eye(rows.shape[1])  # outside the range: out of the way
            smallest = np.linalg.eigvalsh(inner)[:, 0]
            smallest[~kept.any(axis=1)] = np.inf
            i = int(np.argmin(smallest))
            if best is None or smallest[i] < best.value:
                s, a = divmod(int(pairs[i]), task.n_actions)
                best = Kappa(max(float(smallest[i]), 0.0), (s, a, 0, 0))
    return best


def distinct_grams(features: Features) -> Iterator[tuple[Array, Array]]:
    """Yield (pairs (m,), inner products (m, U, U) of rows minus the first), equal ones once."""
    for pairs, rows in stacks(features):
        if rows.shape[1] < 2:
            continue
        centred = rows - rows[:, :1]
        gram = centred @ centred.transpose(0, 2, 1)
        _, first = np.unique(np.round(gram.reshape(len(gram), -1), 12), axis=0, return_index=True)
        yield pairs[first], gram[first]


def starting_points(u: int) -> Array:
    """Return coefficients (p, U) of the first directions: single successors, and pairs if few."""
    one = np.eye(u) - 1.0 / u
    points = [one, -one]
    if u <= PAIRS_UP_TO:
        i, j = np.nonzero(~np.eye(u, dtype=bool))
        points += [one[i] - one[j], -(one[i] + one[j])[i < j]]
    return np.concatenate(points)


def search(gram: Array, radius: float) -> tuple[float, int, Array]:
    """Minimise by linearising and jumping; return the product, its pair, coefficients of theta."""
    slope = np.repeat(starting_points(gram.shape[1])[None], len(gram), axis=0)
    lowest = np.full(slope.shape[:2], np.inf)
    push = np.zeros_like(slope)
    for _ in range(STEPS):
        image = slope @ gram
        length = np.sqrt(np.maximum(np.einsum("gpu,gpu->gp", image, slope), 0.0))
        scale = np.where(length > 1e-150, radius / np.maximum(length, 1e-150), 0.0)[:, :, None]
        z = scale * image
        p = np.exp(z - z.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        pair = np.argpartition(p, 1, axis=2)[:, :, :2]
        product = np.take_along_axis(p, pair, axis=2).prod(axis=2)
        better = product < lowest * (1.0 - 1e-12)
        if not better.any():
            break
        push[better] = (scale * slope)[better]
        lowest = np.where(better, product, lowest)
        gradient = -2.0 * p
        np.put_along_axis(gradient, pair, np.take_along_axis(gradient, pair, axis=2) + 1.0, axis=2)
        slope = -gradient
    g, start = np.unravel_index(int(np.argmin(lowest)), lowest.shape)
    return float(lowest[g, start]), int(g), push[g, start]


def certify(gram: Array, radius: float) -> float:
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
