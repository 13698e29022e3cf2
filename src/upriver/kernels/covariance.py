"""The inverse of the Hessian H of (2): products and draws; and its determinant.

H is block diagonal in the triple effects and bordered by the shared features of a block, so
everything goes by the Schur complement on the shared features, see `kernels.likelihood`, and no
matrix over all triple effects is made. counts (C, n) and theta (C, d).
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, log_determinant, solve_lower, solve_upper
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import (
    effect_logdet,
    eliminate_effects,
    evaluate_block,
    find_visited_pairs,
    load_block,
    load_effects,
    set_weights,
    softmax,
    solve_effects,
)


@njit_cached
def solve(layout, counts, theta, lam, scale, vector):
    """vector (d,) <- H^-1 vector, H the Hessian of (2) at theta[0], in place; scale is not 0."""
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    blocks, features, members = layout.blocks, layout.features, layout.block_pairs
    visited, outcomes, effects, mean, point, gradient, hessian = new_work(layout, scale)
    variance, given = scale * scale / lam, vector.copy()
    load_effects(pairs, members, 0, members.shape[0], theta, 0, scale, effects)
    vector[features.shape[0] :] /= lam  # right where there is no visit; the others are set below
    for b in range(blocks.shape[0] - 1):
        m, first = blocks[b].size, blocks[b].first_feature
        n_visited, _ = find_visited_pairs(pairs, blocks, members, b, counts, 0, visited)
        load_block(blocks, features, b, theta, 0, point)
        evaluate_block(
            pairs, slots, values, m, visited, n_visited, counts, 0, 0, lam, variance, True, point,
            effects, outcomes, mean, gradient, hessian,
        )  # fmt: skip
        cholesky(hessian, m, lam)
        for k in range(n_visited):
            offset = pairs[visited[k]].effect_offset
            for row in range(pairs[visited[k]].first_row + 1, pairs[visited[k] + 1].first_row):
                effects[row].slope = given[offset + row] / scale
        for i in range(m):
            gradient[i] = given[features[first + i]]
        eliminate_effects(pairs, slots, values, visited, n_visited, variance, effects, gradient)
        solve_lower(hessian, m, gradient)
        solve_upper(hessian, m, gradient)
        solve_effects(pairs, slots, values, visited, n_visited, variance, gradient, effects)
        for i in range(m):
            vector[features[first + i]] = gradient[i]
        for k in range(n_visited):
            offset = pairs[visited[k]].effect_offset
            for row in range(pairs[visited[k]].first_row + 1, pairs[visited[k] + 1].first_row):
                vector[offset + row] = effects[row].step / scale


@njit_cached
def measure(layout, counts, theta, lam, scale, normals):
    """Return the loss (2) and log det H, sums over all parameters, for any counts.

    normals (C, d), unless it is empty, (0, 0), becomes draws from N(theta_c, H^-1): theta + L^-T
    normals, block by block. Both numbers are NaN where a block is not positive definite.
    """
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    blocks, features, members = layout.blocks, layout.features, layout.block_pairs
    visited, outcomes, effects, mean, point, step, hessian = new_work(layout, scale)
    variance, loss, logdet = scale * scale / lam if scale != 0.0 else 0.0, 0.0, 0.0
    for c in range(theta.shape[0]):
        load_effects(
            pairs, members, 0, members.shape[0] if scale != 0.0 else 0, theta, c, scale, effects
        )
        for b in range(blocks.shape[0] - 1):
            m, first = blocks[b].size, blocks[b].first_feature
            n_visited, _ = find_visited_pairs(pairs, blocks, members, b, counts, c, visited)
            load_block(blocks, features, b, theta, c, point)
            loss += evaluate_block(
                pairs, slots, values, m, visited, n_visited, counts, c, 0, lam, variance, True,
                point, effects, outcomes, mean, step, hessian,
            )  # fmt: skip
            if not cholesky(hessian, m, lam):
                return np.nan, np.nan
            logdet += log_determinant(hessian, m)
            for i in range(m if normals.shape[0] > 0 else 0):
                step[i] = normals[c, features[first + i]]
            if normals.shape[0] > 0:
                solve_upper(hessian, m, step)
            for i in range(m if normals.shape[0] > 0 else 0):
                normals[c, features[first + i]] = point[i] + step[i]
            for i in range(blocks[b].first_pair, blocks[b + 1].first_pair if scale != 0.0 else 0):
                pair = members[i]
                n = pairs[pair + 1].first_row - pairs[pair].first_row
                softmax(pairs, slots, values, pair, point, effects, outcomes)
                total, visits = set_weights(pairs, pair, counts, c, variance, True, outcomes)
                logdet += effect_logdet(n, visits, lam, variance, True, outcomes)
                if normals.shape[0] > 0:
                    draw_effects(
                        pairs, slots, values, pair, variance, scale, total, step, effects, outcomes,
                        normals, c,
                    )  # fmt: skip
    return loss, logdet


@njit_inline
def draw_effects(
    pairs, slots, values, pair, variance, scale, total, step, effects, outcomes, normals, c
):
    """Draw the triple effects of a pair, given a draw whose shared features moved by `step`.

    Their covariance D + k k^T / sum a has the root D^1/2 (I + f v v^T), with v = D^-1/2 k /
    sqrt(sum a): it takes as many normals as there are triple effects, and O(U) operations.
    """
    record, mean, length, along = pairs[pair], 0.0, 0.0, 0.0
    n, offset = (
        pairs[pair + 1].first_row - record.first_row,
        record.effect_offset + record.first_row,
    )
    total = total if total > 0.0 else 1.0  # without a visit every a_u is 0, and so is k
    for u in range(n):
        x, at = 0.0, record.first_value + u * record.n_columns
        for j in range(record.n_columns):
            x += values[at + j] * step[slots[record.first_column + j]]
        outcomes[u].logit = x
        mean += outcomes[u].weight * x / total
        if u > 0:
            v = outcomes[u].weight * np.sqrt(variance / outcomes[u].share / total)
            length += v * v
            along += v * normals[c, offset + u]
    factor = along / (1.0 + np.sqrt(1.0 + length))
    for u in range(1, n):
        k, root = variance * outcomes[u].weight, np.sqrt(variance * outcomes[u].share)
        noise = root * normals[c, offset + u] + factor * k / np.sqrt(total)
        value = effects[record.first_row + u].value + noise - k * (outcomes[u].logit - mean)
        normals[c, offset + u] = value / scale
