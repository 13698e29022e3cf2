"""The inverse of the Hessian of (2), with triple effects: products, variances and draws.

H is block diagonal in the triple effects and bordered by the shared features of a block, so
everything goes by the Schur complement on the shared features (`kernels.pooled`), L L^T, and no
matrix over all triple effects is made. counts (C, n) and theta (C, d), of which row c is read.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, log_determinant, solve_lower, solve_upper
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import count_visits, evaluate_block, find_visited_pairs, softmax
from upriver.kernels.newton import newton_block
from upriver.kernels.pooled import (
    effect_logdet,
    eliminate_effects,
    project_rows,
    solve_effects,
    weigh_pair,
)


@njit_inline
def factor_hessian(layout, work, b, counts, theta, c, lam, scale):
    """Factor the Schur complement of block b on its shared features into work.factor.

    Returns (whether it is positive definite, the loss, the number of pairs in work.visited).
    """
    n_visited = find_visited_pairs(layout, counts, c, b, work.visited)
    loss = evaluate_block(layout, work, b, n_visited, counts, theta, c, lam, scale, work.factor)
    return cholesky(work.factor, layout.blocks[b].size, lam), loss, n_visited


@njit_cached
def solve(layout, counts, theta, lam, scale, vector):
    """vector (d,) <- H^-1 vector, H the Hessian of (2) at theta[0], in place; scale is not 0."""
    work = new_work(layout, scale)
    pairs, features = layout.pairs, layout.features
    for pair in range(pairs.shape[0] - 1):
        for row in range(pairs[pair].first_row + 1, pairs[pair + 1].first_row):
            effect = pairs[pair].effect_offset + row
            work.effects[row].slope = vector[effect] / scale
            vector[effect] /= lam  # right where there is no visit; the others are set below
    for b in range(layout.blocks.shape[0] - 1):
        first, size = layout.blocks[b].first_feature, layout.blocks[b].size
        n_visited = factor_hessian(layout, work, b, counts, theta, 0, lam, scale)[2]
        for i in range(size):
            work.gradient[i] = vector[features[first + i]]
        eliminate_effects(layout, work, n_visited, counts, theta, 0, lam, scale)
        for i in range(size):
            work.step[i] = work.gradient[i]
        solve_lower(work.factor, size, work.step)
        solve_upper(work.factor, size, work.step)
        for i in range(size):
            vector[features[first + i]] = work.step[i]
        solve_effects(layout, work, n_visited, counts, theta, 0, lam, scale)
        for k in range(n_visited):
            record = pairs[work.visited[k]]
            for row in range(record.first_row + 1, pairs[work.visited[k] + 1].first_row):
                vector[record.effect_offset + row] = work.effects[row].step / scale


@njit_cached
def shared_variances(layout, counts, theta, lam, scale, variance):
    """variance (m,) <- the part of the diagonal of H^-1 that belongs to the shared features."""
    work = new_work(layout, scale)
    for b in range(layout.blocks.shape[0] - 1):
        first, size = layout.blocks[b].first_feature, layout.blocks[b].size
        factor_hessian(layout, work, b, counts, theta, 0, lam, scale)
        for i in range(size):  # e_i^T (L L^T)^-1 e_i = ||L^-1 e_i||^2
            for j in range(size):
                work.step[j] = 1.0 if i == j else 0.0
            variance[layout.features[first + i]] = solve_lower(work.factor, size, work.step)


@njit_cached
def draw(layout, counts, theta, lam, scale, normals):
    """normals (C, d) <- draws from N(theta_c, H^-1): theta + L^-T normals, block by block.

    Returns the number of the first block that is not positive definite, or -1.
    """
    work = new_work(layout, scale)
    for c in range(theta.shape[0]):
        for b in range(layout.blocks.shape[0] - 1):
            first, size = layout.blocks[b].first_feature, layout.blocks[b].size
            if not factor_hessian(layout, work, b, counts, theta, c, lam, scale)[0]:
                return b
            for i in range(size):
                work.step[i] = normals[c, layout.features[first + i]]
            solve_upper(work.factor, size, work.step)
            for i in range(size):
                j = layout.features[first + i]
                normals[c, j] = theta[c, j] + work.step[i]
            if scale != 0.0:
                for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                    pair = layout.block_pairs[i]
                    draw_effects(layout, work, pair, counts, theta, c, lam, scale, normals)
    return -1


@njit_inline
def draw_effects(layout, work, pair, counts, theta, c, lam, scale, normals):
    """Draw the triple effects of a pair, given a draw whose shared features moved by work.step.

    Their covariance D + k k^T / sum a has the root D^1/2 (I + f v v^T), with v = D^-1/2 k /
    sqrt(sum a): it takes as many normals as there are triple effects, and O(U) operations.
    """
    outcomes, variance, first = work.outcomes, scale * scale / lam, layout.pairs[pair].first_row
    n, effect = layout.pairs[pair + 1].first_row - first, layout.pairs[pair].effect_offset + first
    total = weigh_pair(layout, work, pair, counts, theta, c, lam, scale)
    if total == 0.0:
        total = 1.0  # without a visit every a_u is 0, and so is k
    project_rows(layout, work, pair)
    mean, length, along = outcomes[0].prob * outcomes[0].logit, 0.0, 0.0
    for u in range(1, n):
        mean += outcomes[u].prob * outcomes[u].logit
        root = np.sqrt(variance * outcomes[u].share)
        v = variance * outcomes[u].prob / root / np.sqrt(total)
        length += v * v
        along += v * normals[c, effect + u]
    factor = along / (1.0 + np.sqrt(1.0 + length))
    for u in range(1, n):
        k = variance * outcomes[u].prob
        root = np.sqrt(variance * outcomes[u].share)
        noise = root * normals[c, effect + u] + factor * k / np.sqrt(total)
        moved = noise - k * (outcomes[u].logit - mean / total)
        normals[c, effect + u] = theta[c, effect + u] + moved / scale


@njit_inline
def measure_effects(layout, work, pair, counts, theta, c, lam, scale):
    """Return log det of the part of the Hessian that belongs to the triple effects of a pair."""
    pairs, outcomes = layout.pairs, work.outcomes
    softmax(pairs, layout.columns, layout.values, pair, theta, c, scale, outcomes)
    n, visits = (
        pairs[pair + 1].first_row - pairs[pair].first_row,
        count_visits(pairs, pair, counts, c),
    )
    return effect_logdet(n, visits, lam, scale, True, outcomes)


@njit_cached
def log_evidence(layout, counts, theta, lam, scale):
    """Minimise (2) from theta (C, d), in place; return the log evidence there, -inf if it fails.

    The log of the marginal likelihood, the ridge being a normal prior, by Laplace's approximation:
    -loss - log det(H / lambda) / 2. Pairs without a visit add nothing to it.
    """
    work, result = new_work(layout, scale), 0.0
    for c in range(theta.shape[0]):
        for b in range(layout.blocks.shape[0] - 1):
            n_visited = find_visited_pairs(layout, counts, c, b, work.visited)
            if n_visited == 0:
                continue
            if not newton_block(layout, work, b, n_visited, counts, theta, c, lam, scale, False):
                return -np.inf
            result -= factor_hessian(layout, work, b, counts, theta, c, lam, scale)[1]
            size = layout.blocks[b].size
            result -= 0.5 * (log_determinant(work.factor, size) - size * np.log(lam))
            for k in range(n_visited):
                pair = work.visited[k]
                n = layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row
                logdet = measure_effects(layout, work, pair, counts, theta, c, lam, scale)
                result -= 0.5 * (logdet - (n - 1) * np.log(lam))
    return result


@njit_cached
def information(layout, counts, theta, lam, scale):
    """Return log det of the Hessian of (2) at theta[0], for any counts (1, n)."""
    work, total = new_work(layout, scale), 0.0
    for b in range(layout.blocks.shape[0] - 1):
        factor_hessian(layout, work, b, counts, theta, 0, lam, scale)
        total += log_determinant(work.factor, layout.blocks[b].size)
        if scale != 0.0:
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                total += measure_effects(layout, work, pair, counts, theta, 0, lam, scale)
    return total
