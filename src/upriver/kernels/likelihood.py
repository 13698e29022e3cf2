"""Eq. (1), the transition probability, eq. (2), the regularised loss, and the Gram matrix (5).

    (1)  p_u = exp(x_u^T theta) / sum of the same over the successors u of the pair
    (2)  -sum n_u log p_u + (lambda / 2) ||theta||^2, n_u the count of a triple
    (5)  A = lambda I + sum over visits of (s, a) and over the successors s' of varphi varphi^T

Blocks of features are independent, so all but choice data go block by block: the m parameters of a
block are the `point` (m,), gradient (m,), and Hessian or Gram matrix (m, m) in its lower triangle.
The arrays are explained in `kernels.Layout` and `layout.new_work`; of counts (C, n) and theta
(C, d) the row c is read. The first n_visited entries of `visited` are the pairs of the block that
have a count. No function for blocks calls another one, see `kernels.layout`.

Triple effects (pooled features) are eliminated pair by pair, so nothing is larger than U x m. Write
A_u for the weight of successor u of a pair (N p_u in the Hessian, N in the Gram matrix), and c for
the prior `variance` of a triple effect in log-odds, scale^2 / lambda; 0 where there are none. The
Hessian of a pair in its logits is diag(A) - A A^T / sum A, which is what is left of diag(A) when a
constant common to all logits is eliminated. Eliminating the triple effects before that constant
leaves the same form with smaller weights,

    a_u = A_u / (1 + c A_u), and a_0 = A_0 for the first successor, which has no triple effect,

so the Schur complement on the shared features is lambda I + sum_u a_u (x_u - m)(x_u - m)^T with m
the mean under a. With k_u = c a_u, given a step s of the shared features the triple effects have
the mean -k_u (x_u - m)^T s and the covariance diag(c / (1 + c A_u)) + k k^T / sum a. The Gram
matrix has no constant to eliminate: there m = 0 and the covariance is diagonal.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.optimism import exponential


@njit_inline
def load_block(blocks, features, b, theta, c, point):
    """point (m,) <- the parameters of block b."""
    for i in range(blocks[b].size):
        point[i] = theta[c, features[blocks[b].first_feature + i]]


@njit_inline
def evaluate_block(
    pairs, slots, values, m, visited, n_visited, counts, c, lam, scale, local, point, theta,
    effects, outcomes, mean, gradient, hessian,
):  # fmt: skip
    """Compute eq. (2) of a block of m features: return the loss, fill gradient and hessian.

    gradient (m,) is lambda theta + sum (N p_u - n_u) x_u, hessian (m, m) is lambda I + sum a_u
    (x_u - mean)(x_u - mean)^T, of the Hessian with `local`; otherwise of the Gram matrix, where the
    mean is 0. Triple effects are read from theta. Their derivatives and weights go to `effects`,
    and the gradient loses sum_u k_u slope_u (x_u - mean), which is what their elimination leaves.
    """
    loss, variance = 0.0, scale * scale / lam if scale != 0.0 else 0.0
    for i in range(m):
        gradient[i] = lam * point[i]
        loss += 0.5 * gradient[i] * point[i]
        for j in range(i):
            hessian[i, j] = 0.0
        hessian[i, i] = lam
    for k in range(n_visited):
        record, first = pairs[visited[k]], pairs[visited[k]].first_row
        n, w = pairs[visited[k] + 1].first_row - first, record.n_columns
        column, effect = record.first_column, record.effect_offset + first
        top, total, visits, weights, weighted = -np.inf, 0.0, 0.0, 0.0, 0.0
        for u in range(n):
            x = scale * theta[c, effect + u] if u > 0 and scale != 0.0 else 0.0
            for j in range(w):
                x += values[record.first_value + u * w + j] * point[slots[column + j]]
            outcomes[u].logit = x
            top = max(top, x)
        for u in range(n):  # the largest logit is subtracted, so that none overflows
            outcomes[u].prob = np.exp(outcomes[u].logit - top)
            total += outcomes[u].prob
            visits += counts[c, first + u]
        log_total = top + np.log(total)
        for u in range(n):
            loss += counts[c, first + u] * (log_total - outcomes[u].logit)
            outcomes[u].prob *= visits / total
            weight = outcomes[u].prob if local else visits
            outcomes[u].share = 1.0 / (1.0 + variance * weight) if u > 0 else 1.0
            outcomes[u].weight = weight * outcomes[u].share
            weights += outcomes[u].weight
        for u in range(n if scale != 0.0 else 0):
            slope = 0.0
            if u > 0:
                penalty = lam * theta[c, effect + u]
                loss += 0.5 * penalty * theta[c, effect + u]
                slope = outcomes[u].prob - counts[c, first + u] + penalty / scale
            weighted += variance * outcomes[u].weight * slope
            effects[first + u].slope = slope
            effects[first + u].weight = outcomes[u].weight
            effects[first + u].share = outcomes[u].share
        for j in range(w):
            mean[j] = 0.0
            if local:
                for u in range(n):
                    x = values[record.first_value + u * w + j]
                    mean[j] += outcomes[u].weight / weights * x
        for u in range(n):
            row = record.first_value + u * w
            residual = outcomes[u].prob - counts[c, first + u]
            if scale != 0.0:
                part = variance * effects[first + u].slope - weighted / weights
                residual -= outcomes[u].weight * part
            for i in range(w):
                slot = slots[column + i]  # slots ascend, so this is the lower triangle
                gradient[slot] += residual * values[row + i]
                x = outcomes[u].weight * (values[row + i] - mean[i])
                if x != 0.0:
                    for j in range(i + 1):
                        hessian[slot, slots[column + j]] += x * (values[row + j] - mean[j])
    return loss


@njit_inline
def solve_effects(pairs, slots, values, visited, n_visited, variance, step, effects):
    """Compute the step of the triple effects of pairs, given that of the shared features (m,).

    Returns slope^T H_ee^-1 slope, H_ee the part of the Hessian that belongs to these effects.
    """
    square = 0.0
    for k in range(n_visited):
        record, total, shift, weighted = pairs[visited[k]], 0.0, 0.0, 0.0
        for row in range(record.first_row, pairs[visited[k] + 1].first_row):
            x, at = 0.0, record.first_value + (row - record.first_row) * record.n_columns
            for j in range(record.n_columns):
                x += values[at + j] * step[slots[record.first_column + j]]
            effects[row].step = x  # for now, what the shared step adds to the logit
            total += effects[row].weight
            shift += effects[row].weight * x
            if row > record.first_row:
                weighted += variance * effects[row].weight * effects[row].slope
        square += weighted * weighted / total
        for row in range(record.first_row + 1, pairs[visited[k] + 1].first_row):
            alone = variance * effects[row].share * effects[row].slope
            square += alone * effects[row].slope
            moved = effects[row].step - (shift + weighted) / total
            effects[row].step = alone - variance * effects[row].weight * moved
    return square


@njit_inline
def effect_logdet(pairs, members, first, last, visited, n_visited, lam, local, effects):
    """Return log det of the part of the matrix that belongs to the triple effects of a block.

    members[first:last] are its pairs. Their effects are those of the last evaluation.
    """
    result = 0.0
    for i in range(first, last):
        result += (pairs[members[i] + 1].first_row - pairs[members[i]].first_row - 1) * np.log(lam)
    for k in range(n_visited):
        left = total = 0.0
        for row in range(pairs[visited[k]].first_row, pairs[visited[k] + 1].first_row):
            left += effects[row].weight
            total += effects[row].weight / effects[row].share
            result -= np.log(effects[row].share)
        if local:  # what is left of the constant common to all logits
            result += np.log(left / total)
    return result


@njit_cached
def evaluate_chunk(indptr, first, last, x, counts, visits, residual, rows):
    """Return the loss (2) of a chunk of choice data, its residuals and weighted centred rows.

    Choice data are situations of dense rows: situation g has the rows indptr[g] to indptr[g + 1],
    and a chunk, the situations in [first, last), fits the processor's cache. BLAS does the
    products, and this loop what lies between. Arrays of a chunk begin with the row indptr[first].

    counts (n,) and visits (G,) are those of all data, x (rows, d) is that of the chunk. residual
    comes as the logits and becomes N p_u - n_u, so that the gradient of (2) is x^T residual. rows,
    unless it is empty, gets sqrt(N p_u) (x_u - mean), so that the Hessian of (2) is rows^T rows.
    """
    offset, d, loss = indptr[first], x.shape[1], 0.0
    mean = np.empty(d)
    for g in range(first, last):
        low, high, top = indptr[g] - offset, indptr[g + 1] - offset, -np.inf
        for u in range(low, high):
            top = max(top, residual[u])
        for u in range(low, high):
            residual[u] -= top
            loss -= counts[offset + u] * residual[u]
    for u in range(residual.shape[0]):  # all at once, in vector instructions
        residual[u] = exponential(residual[u])
    for g in range(first, last):
        low, high, total = indptr[g] - offset, indptr[g + 1] - offset, 0.0
        for u in range(low, high):
            total += residual[u]
        loss += visits[g] * np.log(total)
        weight = visits[g] / total
        if rows.shape[0] > 0:
            for j in range(d):
                mean[j] = 0.0
            for u in range(low, high):
                p = residual[u] / total
                for j in range(d):
                    mean[j] += p * x[u, j]
            for u in range(low, high):
                root = np.sqrt(weight * residual[u])
                for j in range(d):
                    rows[u, j] = root * (x[u, j] - mean[j])
        for u in range(low, high):
            residual[u] = weight * residual[u] - counts[offset + u]
    return loss
