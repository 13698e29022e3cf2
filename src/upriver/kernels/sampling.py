"""Draws from the Laplace posterior N(theta_hat, B^-1), B the Hessian of (2) at theta_hat."""

import numpy as np

from upriver.kernels.cholesky import cholesky, solve_upper
from upriver.kernels.compiled import compiled, inner
from upriver.kernels.likelihood import (
    evaluate_block,
    softmax,
    visited_groups,
    visits_of,
    weigh,
)
from upriver.kernels.pooled import project


@compiled
def draw(layout, counts, theta, lam, normals):
    """normals (d,) <- theta + L^-T normals, block by block with B = L L^T; in place.

    counts (n,) and theta (d,) are those of one core. Returns the number of the first block that is
    not positive definite, or -1.
    """
    m = layout.max_size
    factor = np.empty((m, m))
    gradient, mean, x = np.empty(m), np.empty(m), np.empty(m)
    out = np.empty(2 * layout.max_successors)
    left, root = np.empty(layout.max_successors), np.empty(layout.max_successors)
    found = np.empty(layout.groups.shape[0], np.int64)
    for b in range(layout.block_table.shape[0] - 1):
        place, size = layout.block_table[b, 0], layout.block_table[b, 2]
        groups = found[: visited_groups(layout, counts, b, found)]
        evaluate_block(layout, groups, counts, theta, b, lam, gradient, factor, out, mean)
        if not cholesky(factor, size, lam):
            return b
        for i in range(size):
            x[i] = normals[layout.features[place + i]]
        solve_upper(factor, size, x)
        for i in range(size):
            j = layout.features[place + i]
            normals[j] = theta[j] + x[i]
        if layout.own > 0.0:
            for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
                draw_own(layout, layout.groups[i], counts, theta, lam, x, normals, out, left, root)
    return -1


@inner
def draw_own(layout, g, counts, theta, lam, step, normals, out, left, root):
    """The own effects of group g given a draw whose shared part moved by `step`.

    Their covariance D + k k^T / sum a has the root D^1/2 (I + scale v v^T), v = D^-1/2 k / sqrt(sum
    a): as many normals as own effects, O(U).
    """
    first, own = layout.group_table[g, 0], layout.own
    n, c = layout.group_table[g + 1, 0] - first, own * own / lam
    place = layout.group_table[g, 5] + first
    softmax(layout, g, theta, out)
    total = weigh(layout, g, visits_of(layout, g, counts), lam, True, out, left)
    if total == 0.0:
        total = 1.0  # no visit: nothing lefts
    project(layout, g, step, out)
    mean, length, along = out[0] * out[n], 0.0, 0.0
    for u in range(1, n):
        mean += out[u] * out[n + u]
        root[u] = np.sqrt(c * left[u])
        v = c * out[u] / root[u] / np.sqrt(total)
        length += v * v
        along += v * normals[place + u]
    scale = along / (1.0 + np.sqrt(1.0 + length))
    for u in range(1, n):
        noise = root[u] * normals[place + u] + scale * c * out[u] / np.sqrt(total)
        moved = noise - c * out[u] * (out[n + u] - mean / total)
        normals[place + u] = theta[place + u] + moved / own
