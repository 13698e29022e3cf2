"""Eq. (1), the transition probability, eq. (2), the regularised loss, and the Gram matrix (5).

    (1)  p_u = exp(x_u^T theta) / sum of the same over the successors u of the pair
    (2)  -sum n_u log p_u + (lambda / 2) ||theta||^2, n_u the count of a triple
    (5)  A = lambda I + sum over visits of (s, a) and over the successors s' of varphi varphi^T

Blocks of features are independent, so everything goes block by block: the m parameters of a block
are the `point` (m,), gradient (m,), and Hessian or Gram matrix (m, m) in its lower triangle. The
arrays are explained in `kernels.Layout` and `layout.new_work`; counts (C, n) and theta (C, d), of
which row c is read. The first n_visited entries of `visited` are the pairs of the block that have a
count. No function here calls another one, see `kernels.layout`.

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
from upriver.kernels.layout import new_work


@njit_inline
def load_block(blocks, features, b, theta, c, point):
    """point (m,) <- the parameters of block b."""
    for i in range(blocks[b].size):
        point[i] = theta[c, features[blocks[b].first_feature + i]]


@njit_inline
def store_block(blocks, features, b, point, theta, c):
    """Write the parameters of block b into theta."""
    for i in range(blocks[b].size):
        theta[c, features[blocks[b].first_feature + i]] = point[i]


@njit_inline
def load_effects(pairs, members, first, last, theta, c, scale, effects):
    """Read the values of the triple effects of the pairs in members[first:last]."""
    for i in range(first, last):
        offset = pairs[members[i]].effect_offset
        for row in range(pairs[members[i]].first_row + 1, pairs[members[i] + 1].first_row):
            effects[row].value = scale * theta[c, offset + row]


@njit_inline
def store_effects(pairs, members, first, last, effects, theta, c, scale):
    """Write what `load_effects` reads."""
    for i in range(first, last):
        offset = pairs[members[i]].effect_offset
        for row in range(pairs[members[i]].first_row + 1, pairs[members[i] + 1].first_row):
            theta[c, offset + row] = effects[row].value / scale


@njit_inline
def find_visited_pairs(pairs, blocks, members, b, counts, c, visited):
    """Write the pairs of block b that have a count into `visited`.

    Returns how many there are, and the sum of their counts.
    """
    n, total = 0, 0.0
    for i in range(blocks[b].first_pair, blocks[b + 1].first_pair):
        visits = 0.0
        for row in range(pairs[members[i]].first_row, pairs[members[i] + 1].first_row):
            visits += counts[c, row]
        visited[n] = members[i]
        n += 1 if visits != 0.0 else 0
        total += visits
    return n, total


@njit_inline
def softmax(pairs, slots, values, pair, point, effects, outcomes):
    """Write eq. (1) of the successors of a pair into the outcomes, and their logits.

    Returns the log of the denominator.
    """
    record, n = pairs[pair], pairs[pair + 1].first_row - pairs[pair].first_row
    top, total = -np.inf, 0.0
    for u in range(n):
        x = effects[record.first_row + u].value if effects.shape[0] > 0 else 0.0
        for j in range(record.n_columns):
            at = record.first_value + u * record.n_columns + j
            x += values[at] * point[slots[record.first_column + j]]
        outcomes[u].logit = x
        top = max(top, x)
    for u in range(n):  # the largest logit is subtracted, so that none overflows
        outcomes[u].prob = np.exp(outcomes[u].logit - top)
        total += outcomes[u].prob
    for u in range(n):
        outcomes[u].prob /= total
    return top + np.log(total)


@njit_inline
def set_weights(pairs, pair, counts, c, variance, local, outcomes):
    """Write a_u into the weights of the outcomes, and a_u / A_u.

    With `local` A_u is that of the Hessian, N p_u; otherwise that of the Gram matrix, N. Returns
    the sum of a_u and N.
    """
    first, total, visits = pairs[pair].first_row, 0.0, 0.0
    for row in range(first, pairs[pair + 1].first_row):
        visits += counts[c, row]
    for u in range(pairs[pair + 1].first_row - first):
        weight = visits * outcomes[u].prob if local else visits
        outcomes[u].share = 1.0 / (1.0 + variance * weight) if u > 0 else 1.0
        outcomes[u].weight = weight * outcomes[u].share
        total += outcomes[u].weight
    return total, visits


@njit_inline
def evaluate_block(
    pairs, slots, values, m, visited, n_visited, counts, c, base, lam, variance, local, point,
    effects, outcomes, mean, gradient, hessian,
):  # fmt: skip
    """Compute eq. (2) of a block of m features: return the loss, fill gradient and hessian.

    gradient (m,) is lambda theta + sum (N p_u - n_u) x_u, hessian (m, m) is lambda I + sum a_u
    (x_u - mean)(x_u - mean)^T, of the Hessian with `local`; otherwise of the Gram matrix, where the
    mean is 0. The count n_u of the triple in some row is counts[c, row - base].
    """
    loss = 0.0
    for i in range(m):
        gradient[i] = lam * point[i]
        loss += 0.5 * gradient[i] * point[i]
        for j in range(i):
            hessian[i, j] = 0.0
        hessian[i, i] = lam
    for k in range(n_visited):
        record, first = pairs[visited[k]], pairs[visited[k]].first_row
        n, w, column = (
            pairs[visited[k] + 1].first_row - first,
            record.n_columns,
            record.first_column,
        )
        top, total, visits, weights = -np.inf, 0.0, 0.0, 0.0
        for u in range(n):
            x = effects[first + u].value if variance != 0.0 else 0.0
            for j in range(w):
                x += values[record.first_value + u * w + j] * point[slots[column + j]]
            outcomes[u].logit = x
            top = max(top, x)
        for u in range(n):  # the largest logit is subtracted, so that none overflows
            outcomes[u].prob = np.exp(outcomes[u].logit - top)
            total += outcomes[u].prob
            visits += counts[c, first - base + u]
        log_total = top + np.log(total)
        for u in range(n):
            loss += counts[c, first - base + u] * (log_total - outcomes[u].logit)
            outcomes[u].prob *= visits / total
            weight = outcomes[u].prob if local else visits
            outcomes[u].weight = weight / (1.0 + variance * weight) if u > 0 else weight
            weights += outcomes[u].weight
        for j in range(w):
            mean[j] = 0.0
            if local:
                for u in range(n):
                    x = values[record.first_value + u * w + j]
                    mean[j] += outcomes[u].weight / weights * x
        for u in range(n):
            row = record.first_value + u * w
            residual = outcomes[u].prob - counts[c, first - base + u]
            for i in range(w):
                slot = slots[column + i]  # slots ascend, so this is the lower triangle
                gradient[slot] += residual * values[row + i]
                x = outcomes[u].weight * (values[row + i] - mean[i])
                if x != 0.0:
                    for j in range(i + 1):
                        hessian[slot, slots[column + j]] += x * (values[row + j] - mean[j])
            if variance != 0.0:
                value = effects[first + u].value
                loss += 0.5 * value * value / variance
                effects[first + u].slope = residual + value / variance
                effects[first + u].weight = outcomes[u].weight
                effects[first + u].share = 1.0 / (1.0 + variance * outcomes[u].prob)
    return loss


@njit_inline
def eliminate_effects(pairs, slots, values, visited, n_visited, variance, effects, gradient):
    """gradient -= sum_u k_u slope_u (x_u - m) over pairs: what the elimination leaves of it."""
    for k in range(n_visited):
        record, total, weighted = pairs[visited[k]], 0.0, 0.0
        for row in range(record.first_row, pairs[visited[k] + 1].first_row):
            total += effects[row].weight
            if row > record.first_row:
                weighted += variance * effects[row].weight * effects[row].slope
        for row in range(record.first_row, pairs[visited[k] + 1].first_row):
            slope = variance * effects[row].slope if row > record.first_row else 0.0
            part = effects[row].weight * (slope - weighted / total)
            at = record.first_value + (row - record.first_row) * record.n_columns
            for j in range(record.n_columns):
                gradient[slots[record.first_column + j]] -= part * values[at + j]


@njit_inline
def solve_effects(pairs, slots, values, visited, n_visited, variance, step, effects):
    """Compute the step of the triple effects of pairs, given that of the shared features (m,).

    The slopes are the triple effects of a vector, and the steps get those of H^-1 times that
    vector. Returns slope^T H_ee^-1 slope, H_ee the part of H that belongs to these effects.
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
def effect_logdet(n, visits, lam, variance, local, outcomes):
    """Return log det of the part of the matrix that belongs to the triple effects of a pair.

    n is the number of its successors, whose prob is p. Without triple effects it is 0.
    """
    if variance == 0.0:
        return 0.0
    result, left = (n - 1) * np.log(lam), outcomes[0].prob
    for u in range(1, n):
        inflated = 1.0 + variance * (visits * outcomes[u].prob if local else visits)
        result += np.log(inflated)
        left += outcomes[u].prob / inflated
    return result + np.log(left) if local and visits > 0.0 else result


@njit_cached
def log_probabilities(layout, theta, scale, log_prob):
    """Compute log P_theta, eq. (1), of every triple; it is finite wherever the logits are.

    theta (C, d); log_prob (C, n) comes with that of theta = 0, which pairs without features keep.
    """
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    blocks, features, members = layout.blocks, layout.features, layout.block_pairs
    _, outcomes, effects, _, point, _, _ = new_work(layout, scale)
    for c in range(theta.shape[0]):
        load_effects(
            pairs, members, 0, members.shape[0] if scale != 0.0 else 0, theta, c, scale, effects
        )
        for b in range(blocks.shape[0] - 1):
            load_block(blocks, features, b, theta, c, point)
            for i in range(blocks[b].first_pair, blocks[b + 1].first_pair):
                first = pairs[members[i]].first_row
                log_total = softmax(pairs, slots, values, members[i], point, effects, outcomes)
                for u in range(pairs[members[i] + 1].first_row - first):
                    log_prob[c, first + u] = outcomes[u].logit - log_total
