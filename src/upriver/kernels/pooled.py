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

`likelihood.shrink_weights` writes a_u into work.prob and a_u / A_u into work.shrinkage.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline
from upriver.kernels.likelihood import count_visits, shrink_weights, softmax


@njit_inline
def project_rows(layout, pair, step, prob):
    """Write x_u^T step into prob[n + u], with step (m,) in the slots of the pair's block."""
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    n, w = pairs[pair + 1].first_row - pairs[pair].first_row, pairs[pair].n_columns
    for u in range(n):
        x = 0.0
        for j in range(w):
            value = values[pairs[pair].first_value + u * w + j]
            x += value * step[slots[pairs[pair].first_column + j]]
        prob[n + u] = x


@njit_inline
def compute_effect_slopes(layout, work, visited, counts, theta, lam, scale):
    """work.slope <- the derivative of (2) by the triple effect of each row, in log-odds."""
    pairs, prob, slope = layout.pairs, work.prob, work.slope
    for pair in visited:
        first = pairs[pair].first_row
        effect = pairs[pair].effect_offset + first
        visits = count_visits(layout, pair, counts)
        softmax(layout, pair, theta, prob, scale)
        for u in range(1, pairs[pair + 1].first_row - first):
            residual = visits * prob[u] - counts[first + u]
            slope[first + u] = residual + lam * theta[effect + u] / scale


@njit_inline
def eliminate_effects(layout, work, visited, counts, theta, lam, scale):
    """work.gradient -= sum_u k_u slope_u (x_u - m), the right side of the Schur complement."""
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    prob, slope, gradient = work.prob, work.slope, work.gradient
    c = scale * scale / lam
    for pair in visited:
        first, w, column = pairs[pair].first_row, pairs[pair].n_columns, pairs[pair].first_column
        n = pairs[pair + 1].first_row - first
        softmax(layout, pair, theta, prob, scale)
        visits = count_visits(layout, pair, counts)
        total = shrink_weights(layout, pair, visits, c, True, prob, work.shrinkage)
        weighted = 0.0  # sum_u k_u slope_u
        for u in range(1, n):
            weighted += c * prob[u] * slope[first + u]
        for u in range(n):
            share = (c * slope[first + u] if u > 0 else 0.0) - weighted / total
            share *= prob[u]
            row = pairs[pair].first_value + u * w
            for j in range(w):
                gradient[slots[column + j]] -= share * values[row + j]


@njit_inline
def solve_effects(layout, work, visited, counts, theta, lam, scale, step):
    """Compute the triple effects of H^-1 gradient, where step (m,) are its shared features.

    work.slope are the triple effects of the gradient, in log-odds, and work.effect_step gets those
    of the solution. Returns slope^T H_gg^-1 slope summed over the pairs, H_gg the part of the
    Hessian that belongs to the triple effects of a pair: their part of the squared decrement.
    """
    pairs, prob, shrinkage = layout.pairs, work.prob, work.shrinkage
    slope, direction = work.slope, work.effect_step
    c = scale * scale / lam
    square = 0.0
    for pair in visited:
        first = pairs[pair].first_row
        n = pairs[pair + 1].first_row - first
        softmax(layout, pair, theta, prob, scale)
        visits = count_visits(layout, pair, counts)
        total = shrink_weights(layout, pair, visits, c, True, prob, shrinkage)
        project_rows(layout, pair, step, prob)
        weighted, mean = 0.0, prob[0] * prob[n]
        for u in range(1, n):
            weighted += c * prob[u] * slope[first + u]
            mean += prob[u] * prob[n + u]
        shift = (mean + weighted) / total
        square += weighted * weighted / total
        for u in range(1, n):
            alone = c * shrinkage[u] * slope[first + u]
            square += alone * slope[first + u]
            direction[first + u] = alone - c * prob[u] * (prob[n + u] - shift)
    return square


@njit_inline
def effect_logdet(layout, pair, visits, lam, scale, local, prob):
    """Return log det of the part of the matrix that belongs to the triple effects of a pair.

    prob comes with p and is not changed.
    """
    n = layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row
    c = scale * scale / lam
    result = (n - 1) * np.log(lam)
    if visits == 0.0:
        return result
    left = prob[0]
    for u in range(1, n):
        inflated = 1.0 + c * visits * (prob[u] if local else 1.0)
        result += np.log(inflated)
        left += prob[u] / inflated
    return result + np.log(left) if local else result


@njit_inline
def include_effects(layout, work, pair, m, visits, c, local, shared=1.0, own=1.0):
    """Turn rows L^-1 x_u into rows whose inner products are those of H^-1, triple effects included.

    rows[u] <- [L^-1 (x_u - k_u (x_u - m)), k_u / sqrt(sum a)]. Only the diagonal has
    c / (1 + c A_u) besides, which squares[u] gets: the squared norms of the whole features. All
    are arrays of `work`; prob comes with p. What triple effects add, the last column and the
    diagonal, is the covariance that is left where the shared effects are known; it is multiplied
    by own^2, the rest by shared^2.
    """
    n = layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row
    rows, squares, prob, shrinkage = work.rows, work.squares, work.prob, work.shrinkage
    total = shrink_weights(layout, pair, visits, c, local, prob, shrinkage)
    centred = local and total > 0.0
    for i in range(m):
        mean = 0.0
        if centred:
            for u in range(n):
                mean += prob[u] * rows[u, i]
            mean /= total
        for u in range(1, n):
            rows[u, i] = shrinkage[u] * rows[u, i] + c * prob[u] * mean
    for u in range(n):
        rows[u, m] = own * c * prob[u] / np.sqrt(total) if centred and u > 0 else 0.0
        squares[u] = own * own * c * shrinkage[u] if u > 0 else 0.0
        for i in range(m):
            rows[u, i] *= shared
        for i in range(m + 1):
            squares[u] += rows[u, i] * rows[u, i]
