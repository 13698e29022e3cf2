"""The inverse Hessian of (2), bordered by own effects: products, variances, and draws with it."""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, solve_lower, solve_rows, solve_upper
from upriver.kernels.likelihood import (
    evaluate_block,
    softmax,
    visited_groups,
    visits_of,
    weigh,
)
from upriver.kernels.pooled import own_direction, own_logdet, project, reduce_slopes


@njit_cached
def solve(layout, counts, theta, lam, vector):
    """vector (d,) <- H^-1 vector, H the Hessian of (2) at theta; in place."""
    m, n = layout.max_size, counts.shape[0]
    factor = np.empty((m, m))
    gradient, mean = np.empty(m), np.empty(m)
    out, left = np.empty(2 * layout.max_successors), np.empty(layout.max_successors)
    slope, direction = np.zeros(n), np.zeros(n)
    found = np.empty(layout.groups.shape[0], np.int64)
    own = layout.own
    for g in range(layout.group_table.shape[0] - 1):
        for row in range(layout.group_table[g, 0] + 1, layout.group_table[g + 1, 0]):
            place = layout.group_table[g, 5] + row
            slope[row] = vector[place] / own
            vector[place] /= lam  # unvisited own effects; the others are set below
    for b in range(layout.block_table.shape[0] - 1):
        place, size = layout.block_table[b, 0], layout.block_table[b, 2]
        groups = found[: visited_groups(layout, counts, b, found)]
        evaluate_block(layout, groups, counts, theta, b, lam, gradient, factor, out, mean)
        for i in range(size):
            gradient[i] = vector[layout.features[place + i]]
        reduce_slopes(layout, groups, counts, theta, lam, slope, gradient, out, left)
        cholesky(factor, size, lam)
        solve_lower(factor, size, gradient)
        solve_upper(factor, size, gradient)
        for i in range(size):
            vector[layout.features[place + i]] = gradient[i]
        own_direction(
            layout, groups, counts, theta, lam, gradient, slope, direction, out, left
        )  # fmt: skip
        for g in groups:
            for row in range(layout.group_table[g, 0] + 1, layout.group_table[g + 1, 0]):
                vector[layout.group_table[g, 5] + row] = direction[row] / own


@njit_cached
def variances(layout, counts, theta, lam, variance):
    """variance (d,) <- the diagonal of H^-1; returns log det H."""
    m, own = layout.max_size, layout.own
    c = own * own / lam
    factor, rows = np.empty((m, m)), np.empty((layout.max_successors, m))
    gradient, mean = np.empty(m), np.empty(m)
    out, left = np.empty(2 * layout.max_successors), np.empty(layout.max_successors)
    squares = np.empty(layout.max_successors)
    found = np.empty(layout.groups.shape[0], np.int64)
    logdet = 0.0
    for b in range(layout.block_table.shape[0] - 1):
        place, size = layout.block_table[b, 0], layout.block_table[b, 2]
        groups = found[: visited_groups(layout, counts, b, found)]
        evaluate_block(layout, groups, counts, theta, b, lam, gradient, factor, out, mean)
        cholesky(factor, size, lam)
        for i in range(size):
            gradient[:size] = 0.0
            gradient[i] = 1.0
            variance[layout.features[place + i]] = solve_lower(factor, size, gradient)
            logdet += 2.0 * np.log(factor[i, i])
        for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
            g = layout.groups[i]
            first = layout.group_table[g, 0]
            n = layout.group_table[g + 1, 0] - first
            visits = visits_of(layout, g, counts)
            softmax(layout, g, theta, out)
            logdet += own_logdet(layout, g, visits, lam, True, out)
            total = max(weigh(layout, g, visits, lam, True, out, left), 1e-300)
            solve_rows(layout, g, factor, size, rows, squares)
            for j in range(size):
                mean[j] = 0.0
                for u in range(n):
                    mean[j] += out[u] * rows[u, j] / total
            for u in range(1, n):
                spread = 1.0 / total
                for j in range(size):
                    spread += (rows[u, j] - mean[j]) ** 2
                pull = c * out[u]
                place = layout.group_table[g, 5] + first + u
                variance[place] = (c * left[u] + pull * pull * spread) / (own * own)
    return logdet


@njit_cached
def draw(layout, counts, theta, lam, normals):
    """normals (d,) <- theta + L^-T normals, block by block, B = L L^T: a draw from N(theta, B^-1).

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


@njit_inline
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
