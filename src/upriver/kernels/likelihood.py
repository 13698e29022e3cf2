"""Eq. (1), the transition probability, and eq. (2), the regularised loss, with its derivatives.

    (1)  p_u = exp(x_u^T theta) / sum of the same over the successors of the pair
    (2)  -sum n_u log p_u + (lambda / 2) ||theta||^2, n_u the count of a triple

Shapes: counts (C, n) and theta (C, d), of which a call reads row c; matrices of a block are dense,
(m, m), in their lower triangle. Blocks of features are independent, so everything goes block by
block. `layout` is a compiled `Layout` and `work` a `Work`, see `kernels.layout`. `scale` is the
value of every triple effect, 0 where there are none, see `kernels.pooled`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.layout import OUTCOME


@njit_inline
def softmax(pairs, columns, values, pair, theta, c, scale, outcomes):
    """Write eq. (1) of the successors of a pair into the outcomes, and their logits.

    Returns the log of the denominator. Arrays of the layout are arguments here and in other
    functions of one pair: to take them out of the layout for each pair would take longer.
    """
    record, n = pairs[pair], pairs[pair + 1].first_row - pairs[pair].first_row
    w, column, effect = record.n_columns, record.first_column, record.effect_offset
    top = -np.inf
    for u in range(n):
        x, row = 0.0, record.first_value + u * w
        if scale != 0.0 and u > 0:
            x = scale * theta[c, effect + record.first_row + u]
        for j in range(w):
            x += values[row + j] * theta[c, columns[column + j]]
        outcomes[u].logit = x
        top = max(top, x)
    total = 0.0
    for u in range(n):  # the largest logit is subtracted, so that none overflows
        outcomes[u].prob = np.exp(outcomes[u].logit - top)
        total += outcomes[u].prob
    for u in range(n):
        outcomes[u].prob /= total
    return top + np.log(total)


@njit_inline
def find_visited_pairs(layout, counts, c, b, visited):
    """Write the pairs of block b that have a count into `visited`; return how many there are."""
    pairs, members, n = layout.pairs, layout.block_pairs, 0
    for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
        pair = members[i]
        for row in range(pairs[pair].first_row, pairs[pair + 1].first_row):
            if counts[c, row] != 0.0:
                visited[n] = pair
                n += 1
                break
    return n


@njit_inline
def count_visits(pairs, pair, counts, c):
    """Return N(s, a), the sum of the counts of a pair."""
    total = 0.0
    for row in range(pairs[pair].first_row, pairs[pair + 1].first_row):
        total += counts[c, row]
    return total


@njit_inline
def effect_variance(scale, lam):
    """Return c = scale^2 / lambda, the prior variance of a triple effect; 0 without any."""
    return scale * scale / lam if scale != 0.0 else 0.0


@njit_inline
def shrink_weights(pairs, pair, visits, variance, local, outcomes):
    """Compute the weights that triple effects leave, see `kernels.pooled`; return their sum.

    The prob of an outcome, which comes as p_u, becomes a_u, and its share becomes a_u / A_u. With
    `local` A_u is that of the Hessian, N p_u; otherwise that of the Gram matrix, N.
    """
    total = 0.0
    for u in range(pairs[pair + 1].first_row - pairs[pair].first_row):
        weight, share = visits, 1.0
        if local:
            weight *= outcomes[u].prob
        if variance != 0.0 and u > 0:
            share = 1.0 / (1.0 + variance * weight)
        outcomes[u].share = share
        outcomes[u].prob = weight * share
        total += weight * share
    return total


@njit_inline
def reset_matrix(matrix, m, lam):
    """matrix <- lambda I, its leading m x m."""
    for i in range(m):
        for j in range(i):
            matrix[i, j] = 0.0
        matrix[i, i] = lam


@njit_inline
def add_moments(pairs, slots, values, pair, outcomes, mean, matrix):
    """matrix += sum_u weight_u (x_u - mean)(x_u - mean)^T, at the slots of the pair's columns.

    The weights are in the prob of the outcomes. With the mean of the successors this is a pair's
    part of the Hessian, with 0 that of the Gram matrix.
    """
    record = pairs[pair]
    w, column = record.n_columns, record.first_column
    for u in range(pairs[pair + 1].first_row - record.first_row):
        row, weight = record.first_value + u * w, outcomes[u].prob
        for i in range(w):
            x = weight * (values[row + i] - mean[i])
            if x != 0.0:
                slot = slots[column + i]
                for j in range(i + 1):
                    matrix[slot, slots[column + j]] += x * (values[row + j] - mean[j])


@njit_inline
def evaluate_pair(
    pairs, columns, slots, values, pair, theta, c, lam, scale, outcomes, mean, gradient, hessian
):
    """Add a pair with the counts of its outcomes to gradient and hessian; return its loss.

    gradient += sum_u (N p_u - n_u) x_u, hessian += sum_u N p_u (x_u - mean)(x_u - mean)^T. Triple
    effects add their penalty to the loss, and a_u takes the place of N p_u in the Hessian.
    """
    record, n = pairs[pair], pairs[pair + 1].first_row - pairs[pair].first_row
    w, column = record.n_columns, record.first_column
    log_total = softmax(pairs, columns, values, pair, theta, c, scale, outcomes)
    visits, loss = 0.0, 0.0
    for u in range(n):
        visits += outcomes[u].count
        loss += outcomes[u].count * (log_total - outcomes[u].logit)
        if scale != 0.0 and u > 0:
            x = theta[c, record.effect_offset + record.first_row + u]
            loss += 0.5 * lam * x * x
    for u in range(n):
        residual = visits * outcomes[u].prob - outcomes[u].count
        row = record.first_value + u * w
        for j in range(w):
            gradient[slots[column + j]] += residual * values[row + j]
    variance = effect_variance(scale, lam)
    total = shrink_weights(pairs, pair, visits, variance, True, outcomes)
    for j in range(w):
        mean[j] = 0.0
    for u in range(n):
        row, weight = record.first_value + u * w, outcomes[u].prob / total
        for j in range(w):
            mean[j] += weight * values[row + j]
    add_moments(pairs, slots, values, pair, outcomes, mean, hessian)
    return loss


@njit_inline
def evaluate_block(layout, work, b, n_visited, counts, theta, c, lam, scale, hessian):
    """Compute eq. (2) of one block of features: return the loss, fill work.gradient and hessian.

    gradient (m,) is lambda theta + sum (N p_u - n_u) x_u, hessian (m, m) is lambda I + sum N p_u
    (x_u - mean)(x_u - mean)^T; with triple effects what is left when they are eliminated. The first
    n_visited entries of work.visited are the pairs of the block that have a count.
    """
    loss, first, size = 0.0, layout.blocks[b].first_feature, layout.blocks[b].size
    pairs, columns, slots, values = layout.pairs, layout.columns, layout.slots, layout.values
    outcomes, mean, gradient, visited = work.outcomes, work.mean, work.gradient, work.visited
    features = layout.features
    reset_matrix(hessian, size, lam)
    for i in range(size):
        x = theta[c, features[first + i]]
        loss += 0.5 * lam * x * x
        gradient[i] = lam * x
    for k in range(n_visited):
        pair = visited[k]
        row = pairs[pair].first_row
        for u in range(pairs[pair + 1].first_row - row):
            outcomes[u].count = counts[c, row + u]
        loss += evaluate_pair(
            pairs, columns, slots, values, pair, theta, c, lam, scale, outcomes, mean, gradient,
            hessian,
        )  # fmt: skip
    return loss


@njit_cached
def log_probabilities(layout, theta, scale, log_prob):
    """Compute log P_theta, eq. (1), of every triple; it is finite wherever the logits are.

    theta (C, d), log_prob (C, n).
    """
    pairs, columns, values = layout.pairs, layout.columns, layout.values
    outcomes = np.empty(layout.max_successors, OUTCOME)
    for c in range(theta.shape[0]):
        for pair in range(pairs.shape[0] - 1):
            first = pairs[pair].first_row
            log_total = softmax(pairs, columns, values, pair, theta, c, scale, outcomes)
            for u in range(pairs[pair + 1].first_row - first):
                log_prob[c, first + u] = outcomes[u].logit - log_total
