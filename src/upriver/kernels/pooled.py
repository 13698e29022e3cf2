"""Own effects of pooled features, eliminated group by group: nothing here is larger than U x m.

Write A_u for the weight of successor u in a group (N p_u in the Hessian, N in the Gram matrix),
c = own^2 / lambda for the prior variance of an own effect eta_u in log-odds, x_u for the shared
row. The Hessian of a group in its logits is diag(A) - A A^T / sum A, which is what is left of
diag(A) when a constant common to all logits is eliminated. Eliminating the own effects before that
constant leaves the same form with smaller weights,

    a_u = A_u / (1 + c A_u), and a_0 = A_0 for the first successor, which has no own effect,

so the Schur complement on the shared features is lambda I + sum_u a_u (x_u - m)(x_u - m)^T with m
the mean under a. With k_u = c a_u, given shared effects s the own ones have mean -k_u (x_u - m)^T s
and covariance diag(c / (1 + c A_u)) + k k^T / sum a: O(U). The Gram matrix has no constant to
eliminate: there m = 0 and the covariance is diagonal.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline
from upriver.kernels.likelihood import softmax, visits_of, weigh


@njit_inline
def project(layout, g, step, out):
    """out[n + u] <- x_u^T step, with step in the slots of the group's block."""
    table, slots, values = layout.group_table, layout.slots, layout.values
    n, w, place = table[g + 1, 0] - table[g, 0], table[g, 1], table[g, 2]
    for u in range(n):
        x = 0.0
        for j in range(w):
            x += values[table[g, 3] + u * w + j] * step[slots[place + j]]
        out[n + u] = x


@njit_inline
def own_slopes(layout, groups, counts, theta, lam, slope, out):
    """slope[row] <- the derivative of (2) by the own effect of each row, in log-odds."""
    own = layout.own
    for g in groups:
        first = layout.group_table[g, 0]
        place = layout.group_table[g, 5] + first
        visits = visits_of(layout, g, counts)
        softmax(layout, g, theta, out)
        for u in range(1, layout.group_table[g + 1, 0] - first):
            residual = visits * out[u] - counts[first + u]
            slope[first + u] = residual + lam * theta[place + u] / own


@njit_inline
def reduce_slopes(layout, groups, counts, theta, lam, slope, gradient, out, left):
    """gradient -= sum_u k_u slope_u (x_u - m): what the own effects take from the shared ones."""
    table, slots, values = layout.group_table, layout.slots, layout.values
    c = layout.own * layout.own / lam
    for g in groups:
        first, w, place = table[g, 0], table[g, 1], table[g, 2]
        n = table[g + 1, 0] - first
        softmax(layout, g, theta, out)
        total = weigh(layout, g, visits_of(layout, g, counts), lam, True, out, left)
        taken = 0.0
        for u in range(1, n):
            taken += c * out[u] * slope[first + u]
        for u in range(n):
            share = (c * slope[first + u] if u > 0 else 0.0) - taken / total
            share *= out[u]
            row = table[g, 3] + u * w
            for j in range(w):
                gradient[slots[place + j]] -= share * values[row + j]


@njit_inline
def own_direction(layout, groups, counts, theta, lam, step, slope, direction, out, left):
    """direction[row] <- the own part of H^-1 (gradient), its shared part being `step` (m,).

    `slope` is the own part of the gradient, in log-odds, and so is direction. Returns
    slope^T H_gg^-1 slope summed over the groups, the own part of the squared decrement.
    """
    table = layout.group_table
    c = layout.own * layout.own / lam
    square = 0.0
    for g in groups:
        first = table[g, 0]
        n = table[g + 1, 0] - first
        softmax(layout, g, theta, out)
        total = weigh(layout, g, visits_of(layout, g, counts), lam, True, out, left)
        project(layout, g, step, out)
        taken, mean = 0.0, out[0] * out[n]
        for u in range(1, n):
            taken += c * out[u] * slope[first + u]
            mean += out[u] * out[n + u]
        shift = (mean + taken) / total
        square += taken * taken / total
        for u in range(1, n):
            alone = c * left[u] * slope[first + u]
            square += alone * slope[first + u]
            direction[first + u] = alone - c * out[u] * (out[n + u] - shift)
    return square


@njit_inline
def own_logdet(layout, g, visits, lam, local, out):
    """log det of the own block of group g, where out comes with p."""
    n = layout.group_table[g + 1, 0] - layout.group_table[g, 0]
    c = layout.own * layout.own / lam
    result = (n - 1) * np.log(lam)
    if visits == 0.0:
        return result
    left = out[0]
    for u in range(1, n):
        inflated = 1.0 + c * visits * (out[u] if local else 1.0)
        result += np.log(inflated)
        left += out[u] / inflated
    return result + np.log(left) if local else result


@njit_inline
def pool_rows(layout, g, m, visits, lam, local, rows, squares, out, left):
    """rows[u] <- [L^-1 (x_u - k_u (x_u - m)), k_u / sqrt(sum a)]: their products are those of H^-1.

    Only the diagonal has c / (1 + c A_u) besides, which squares gets: the squared norms of the
    whole features. rows come as L^-1 x_u, with one column to spare, and out with p.
    """
    n = layout.group_table[g + 1, 0] - layout.group_table[g, 0]
    c = layout.own * layout.own / lam
    total = weigh(layout, g, visits, lam, local, out, left)
    centred = local and total > 0.0
    for i in range(m):
        mean = 0.0
        if centred:
            for u in range(n):
                mean += out[u] * rows[u, i]
            mean /= total
        for u in range(1, n):
            rows[u, i] = left[u] * rows[u, i] + c * out[u] * mean
    for u in range(n):
        rows[u, m] = c * out[u] / np.sqrt(total) if centred and u > 0 else 0.0
        squares[u] = c * left[u] if u > 0 else 0.0
        for i in range(m + 1):
            squares[u] += rows[u, i] * rows[u, i]
