"""Draws from the Laplace posterior N(theta_hat, B^-1), B the Hessian of (2) at theta_hat."""

import numpy as np

from upriver.kernels.cholesky import cholesky, solve_upper
from upriver.kernels.compiled import compiled
from upriver.kernels.likelihood import evaluate_block, visited_groups


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
    for b in range(layout.block_table.shape[0] - 1):
        place, size = layout.block_table[b, 0], layout.block_table[b, 2]
        groups = visited_groups(layout, counts, b)
        evaluate_block(layout, groups, counts, theta, b, lam, gradient, factor, out, mean)
        if not cholesky(factor, size, lam):
            return b
        for i in range(size):
            x[i] = normals[layout.features[place + i]]
        solve_upper(factor, size, x)
        for i in range(size):
            j = layout.features[place + i]
            normals[j] = theta[j] + x[i]
    return -1
