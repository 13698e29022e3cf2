"""Triple effects of pooled features, eliminated pair by pair: nothing here is larger than U x m.

Write A_u for the weight of successor u of a pair (N p_u in the Hessian, N in the Gram matrix),
c = scale^2 / lambda for the prior variance of a triple effect eta_u in log-odds, x_u for the
row of the shared features. The Hessian of a pair in its logits is diag(A) - A A^T / sum A, which is
what is left of diag(A) when a constant common to all logits is eliminated. Eliminating the triple
effects before that constant leaves the same form with smaller weights,

    a_u = A_u / (1 + c A_u), and a_0 = A_0 for the first successor, which has no triple effect,

so the Schur complement on the shared features is lambda I + sum_u a_u (x_u - m)(x_u - m)^T with m
the mean under a. With k_u = c a_u, given shared effects s the triple effects have mean
-k_u (x_u - m)^T s and covariance diag(c / (1 + c A_u)) + k k^T / sum a: O(U). The Gram matrix has
no constant to eliminate: there m = 0 and the covariance is diagonal.

`weigh_pair` writes a_u into the prob of an outcome and a_u / A_u into its share. U is the number of
successors of a pair and m that of the shared features of its block; scale is not 0 here.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline
from upriver.kernels.likelihood import count_visits, effect_variance, shrink_weights, softmax


@njit_inline
def weigh_pair(layout, work, pair, counts, theta, c, lam, scale):
    """Compute a_u of the Hessian and a_u / A_u of a pair; return the sum of a_u."""
    pairs, outcomes, variance = layout.pairs, work.outcomes, effect_variance(scale, lam)
    softmax(pairs, layout.columns, layout.values, pair, theta, c, scale, outcomes)
    visits = count_visits(pairs, pair, counts, c)
    return shrink_weights(pairs, pair, visits, variance, True, outcomes)


@njit_inline
def project_rows(layout, work, pair):
    """The logit of an outcome <- x_u^T step, with work.step (m,) in the slots of the block."""
    values, slots, record = layout.values, layout.slots, layout.pairs[pair]
    outcomes, step = work.outcomes, work.step
    for u in range(layout.pairs[pair + 1].first_row - record.first_row):
        x, row = 0.0, record.first_value + u * record.n_columns
        for j in range(record.n_columns):
            x += values[row + j] * step[slots[record.first_column + j]]
        outcomes[u].logit = x


@njit_inline
def compute_effect_slopes(layout, work, n_visited, counts, theta, c, lam, scale):
    """The slope of an effect <- the derivative of (2) by the triple effect, in log-odds."""
    pairs, visited, outcomes, effects = layout.pairs, work.visited, work.outcomes, work.effects
    for k in range(n_visited):
        pair = visited[k]
        first, offset = pairs[pair].first_row, pairs[pair].effect_offset
        visits = count_visits(pairs, pair, counts, c)
        softmax(pairs, layout.columns, layout.values, pair, theta, c, scale, outcomes)
        for row in range(first + 1, pairs[pair + 1].first_row):
            residual = visits * outcomes[row - first].prob - counts[c, row]
            effects[row].slope = residual + lam * theta[c, offset + row] / scale


@njit_inline
def eliminate_effects(layout, work, n_visited, counts, theta, c, lam, scale):
    """work.gradient -= sum_u k_u slope_u (x_u - m), the right side of the Schur complement."""
    pairs, slots, values, variance = layout.pairs, layout.slots, layout.values, scale * scale / lam
    outcomes, effects, gradient = work.outcomes, work.effects, work.gradient
    for k in range(n_visited):
        pair = work.visited[k]
        record = pairs[pair]
        first, n = record.first_row, pairs[pair + 1].first_row - record.first_row
        total = weigh_pair(layout, work, pair, counts, theta, c, lam, scale)
        weighted = 0.0  # sum_u k_u slope_u
        for u in range(1, n):
            weighted += variance * outcomes[u].prob * effects[first + u].slope
        for u in range(n):
            share = -weighted / total
            if u > 0:
                share += variance * effects[first + u].slope
            row = record.first_value + u * record.n_columns
            for j in range(record.n_columns):
                slot = slots[record.first_column + j]
                gradient[slot] -= share * outcomes[u].prob * values[row + j]


@njit_inline
def solve_effects(layout, work, n_visited, counts, theta, c, lam, scale):
    """Compute the triple effects of H^-1 gradient, where work.step (m,) are its shared features.

    The slopes of work.effects are the triple effects of the gradient, in log-odds, and their steps
    get those of the solution. Returns slope^T H_gg^-1 slope summed over the pairs, H_gg the part of
    the Hessian that belongs to the triple effects of a pair: their part of the squared decrement.
    """
    pairs, outcomes, effects = layout.pairs, work.outcomes, work.effects
    variance, square = scale * scale / lam, 0.0
    for k in range(n_visited):
        pair = work.visited[k]
        first = pairs[pair].first_row
        n = pairs[pair + 1].first_row - first
        total = weigh_pair(layout, work, pair, counts, theta, c, lam, scale)
        project_rows(layout, work, pair)
        weighted, mean = 0.0, outcomes[0].prob * outcomes[0].logit
        for u in range(1, n):
            weighted += variance * outcomes[u].prob * effects[first + u].slope
            mean += outcomes[u].prob * outcomes[u].logit
        shift = (mean + weighted) / total
        square += weighted * weighted / total
        for u in range(1, n):
            alone = variance * outcomes[u].share * effects[first + u].slope
            square += alone * effects[first + u].slope
            moved = variance * outcomes[u].prob * (outcomes[u].logit - shift)
            effects[first + u].step = alone - moved
    return square


@njit_inline
def effect_logdet(n, visits, lam, scale, local, outcomes):
    """Return log det of the part of the matrix that belongs to the triple effects of a pair.

    n is the number of its successors; their prob comes as p and is not changed. Without triple
    effects the part is empty: 0.
    """
    if scale == 0.0:
        return 0.0
    result = (n - 1) * np.log(lam)
    if visits == 0.0:
        return result
    left = outcomes[0].prob
    for u in range(1, n):
        weight = visits * outcomes[u].prob if local else visits
        inflated = 1.0 + scale * scale / lam * weight
        result += np.log(inflated)
        left += outcomes[u].prob / inflated
    return result + np.log(left) if local else result


@njit_inline
def include_effects(pairs, pair, m, visits, variance, local, shared, own, rows, outcomes):
    """Turn rows L^-1 x_u into rows whose inner products are those of H^-1, triple effects included.

    rows[u] <- [L^-1 (x_u - k_u (x_u - m)), k_u / sqrt(sum a)]. Only the diagonal has
    c / (1 + c A_u) besides, which the square of an outcome gets: the squared norm of the whole
    features. prob comes with p. What triple effects add, the last column and the diagonal, is the
    covariance that is left where the shared effects are known; it is multiplied by own^2, the rest
    by shared^2.
    """
    n = pairs[pair + 1].first_row - pairs[pair].first_row
    total = shrink_weights(pairs, pair, visits, variance, local, outcomes)
    centred = local and total > 0.0
    for i in range(m):
        mean = 0.0
        if centred:
            for u in range(n):
                mean += outcomes[u].prob * rows[u, i]
            mean /= total
        for u in range(1, n):
            rows[u, i] = outcomes[u].share * rows[u, i] + variance * outcomes[u].prob * mean
    for u in range(n):
        rows[u, m], square = 0.0, 0.0
        if u > 0:
            square = own * own * variance * outcomes[u].share
            if centred:
                rows[u, m] = own * variance * outcomes[u].prob / np.sqrt(total)
        for i in range(m):
            rows[u, i] *= shared
        for i in range(m + 1):
            square += rows[u, i] * rows[u, i]
        outcomes[u].square = square
