"""The inverse of the Hessian of (2), with triple effects: products, variances and draws.

H is block diagonal in the triple effects and bordered by the shared features of a block, so
everything goes by the Schur complement on the shared features (`kernels.pooled`), and no matrix
over all triple effects is made. Each function takes a `compiled.Constants` that holds a
`Problem`, and uses its work arrays.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline, njit_without_refcounts
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.likelihood import (
    count_visits,
    evaluate_block,
    find_visited_pairs,
    shrink_weights,
    softmax,
)
from upriver.kernels.pooled import eliminate_effects, project_rows, solve_effects


@njit_inline
def factor_hessian(layout, work, b, counts, theta, lam, scale):
    """Factor the Schur complement of block b on its shared features into work.factor.

    Returns (whether it is positive definite, the number of pairs in work.visited).
    """
    n = find_visited_pairs(layout, counts, b, work.visited)
    visited = work.visited[:n]
    evaluate_block(layout, work, b, visited, counts, theta, lam, work.factor, scale)
    return cholesky(work.factor, layout.blocks[b].size, lam), n


@njit_without_refcounts
def solve(problem, counts, theta, lam, scale, vector):
    """vector (d,) <- H^-1 vector, H the Hessian of (2) at theta, in place."""
    layout, work = problem.layout, problem.work
    pairs, features, x = layout.pairs, layout.features, work.gradient
    for pair in range(pairs.shape[0] - 1):
        for row in range(pairs[pair].first_row + 1, pairs[pair + 1].first_row):
            effect = pairs[pair].effect_offset + row
            work.slope[row] = vector[effect] / scale
            vector[effect] /= lam  # right where there is no visit; the others are set below
    for b in range(layout.blocks.shape[0] - 1):
        place, size = layout.blocks[b].first_feature, layout.blocks[b].size
        _, n_visited = factor_hessian(layout, work, b, counts, theta, lam, scale)
        visited = work.visited[:n_visited]
        for i in range(size):
            x[i] = vector[features[place + i]]
        eliminate_effects(layout, work, visited, counts, theta, lam, scale)
        solve_lower(work.factor, size, x)
        solve_upper(work.factor, size, x)
        for i in range(size):
            vector[features[place + i]] = x[i]
        solve_effects(layout, work, visited, counts, theta, lam, scale, x)
        for pair in visited:
            for row in range(pairs[pair].first_row + 1, pairs[pair + 1].first_row):
                vector[pairs[pair].effect_offset + row] = work.effect_step[row] / scale


@njit_without_refcounts
def shared_variances(problem, counts, theta, lam, scale, variance):
    """variance (m,) <- the part of the diagonal of H^-1 that belongs to the shared features."""
    layout, work = problem.layout, problem.work
    unit = work.step
    for b in range(layout.blocks.shape[0] - 1):
        place, size = layout.blocks[b].first_feature, layout.blocks[b].size
        factor_hessian(layout, work, b, counts, theta, lam, scale)
        for i in range(size):  # e_i^T (L L^T)^-1 e_i = ||L^-1 e_i||^2
            unit[:size] = 0.0
            unit[i] = 1.0
            variance[layout.features[place + i]] = solve_lower(work.factor, size, unit)


@njit_without_refcounts
def draw(problem, counts, theta, lam, scale, normals):
    """normals (d,) <- a draw from N(theta, H^-1): theta + L^-T normals, block by block, H = L L^T.

    counts (n,) and theta (d,) belong to one parameter. Returns the number of the first block that
    is not positive definite, or -1.
    """
    layout, work = problem.layout, problem.work
    features, x = layout.features, work.step
    for b in range(layout.blocks.shape[0] - 1):
        place, size = layout.blocks[b].first_feature, layout.blocks[b].size
        is_definite, _ = factor_hessian(layout, work, b, counts, theta, lam, scale)
        if not is_definite:
            return b
        for i in range(size):
            x[i] = normals[features[place + i]]
        solve_upper(work.factor, size, x)
        for i in range(size):
            j = features[place + i]
            normals[j] = theta[j] + x[i]
        if scale is not None:
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                draw_effects(layout, work, pair, counts, theta, lam, scale, normals)
    return -1


@njit_inline
def draw_effects(layout, work, pair, counts, theta, lam, scale, normals):
    """Draw the triple effects of a pair, given a draw whose shared features moved by work.step.

    Their covariance D + k k^T / sum a has the root D^1/2 (I + f v v^T), with v = D^-1/2 k /
    sqrt(sum a): it takes as many normals as there are triple effects, and O(U) operations.
    """
    prob, shrinkage, root = work.prob, work.shrinkage, work.squares
    first, c = layout.pairs[pair].first_row, scale * scale / lam
    n = layout.pairs[pair + 1].first_row - first
    effect = layout.pairs[pair].effect_offset + first
    softmax(layout, pair, theta, prob, scale)
    visits = count_visits(layout, pair, counts)
    total = shrink_weights(layout, pair, visits, c, True, prob, shrinkage)
    if total == 0.0:
        total = 1.0  # without a visit every a_u is 0, and so is k
    project_rows(layout, pair, work.step, prob)
    mean, length, along = prob[0] * prob[n], 0.0, 0.0
    for u in range(1, n):
        mean += prob[u] * prob[n + u]
        root[u] = np.sqrt(c * shrinkage[u])
        v = c * prob[u] / root[u] / np.sqrt(total)
        length += v * v
        along += v * normals[effect + u]
    factor = along / (1.0 + np.sqrt(1.0 + length))
    for u in range(1, n):
        noise = root[u] * normals[effect + u] + factor * c * prob[u] / np.sqrt(total)
        moved = noise - c * prob[u] * (prob[n + u] - mean / total)
        normals[effect + u] = theta[effect + u] + moved / scale
