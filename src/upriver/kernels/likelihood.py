"""Eq. (1), the transition probability, and eq. (2), the regularised loss, with its derivatives.

The first part works on a `Layout` and on counts n(s, a, s'), which are all that the likelihood
depends on. Blocks of features are independent of each other, so everything goes block by block;
matrices of a block are dense, m x m, and kept in their lower triangle.

The second part works on choice data: situations of dense rows. There BLAS does the products, in
chunks that fit the processor's cache, and these loops do what lies between.

Loop counters are unsigned where speed counts. Numba tests signed indices for wrap-around each time.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline, njit_nogil, njit_without_refcounts


@njit_inline
def softmax(layout, pair, theta, prob, scale=None):
    """Compute eq. (1), P_theta(s' | s, a) = exp(varphi^T theta) / sum of the same over s'.

    prob[:n] gets the probabilities of the n successors and prob[n:2n] their logits. Returns the
    log of the denominator. `scale`, here and in all kernels, is the value of every triple effect.
    It is None where there are none, and then their code is not compiled: numba removes a branch
    that tests whether an argument is None.
    """
    pairs, values, columns = layout.pairs, layout.values, layout.columns
    first, w = np.uint64(pairs[pair].first_row), np.uint64(pairs[pair].n_columns)
    n = np.uint64(pairs[pair + 1].first_row) - first
    column, value = np.uint64(pairs[pair].first_column), np.uint64(pairs[pair].first_value)
    effect = np.uint64(pairs[pair].effect_offset + pairs[pair].first_row)
    top = -np.inf
    for u in range(n):
        x = scale * theta[effect + u] if scale is not None and u > 0 else 0.0
        for j in range(w):
            x += values[value + u * w + j] * theta[np.uint32(columns[column + j])]
        prob[n + u] = x
        if x > top:
            top = x
    total = 0.0
    for u in range(n):  # the largest logit is subtracted, so that none overflows
        e = np.exp(prob[n + u] - top)
        prob[u] = e
        total += e
    for u in range(n):
        prob[u] /= total
    return top + np.log(total)


@njit_inline
def find_visited_pairs(layout, counts, b, visited):
    """Write the pairs of block b that have a count into `visited`; return how many there are."""
    pairs, members = layout.pairs, layout.block_pairs
    n = 0
    for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
        pair = members[i]
        for row in range(pairs[pair].first_row, pairs[pair + 1].first_row):
            if counts[row] != 0.0:
                visited[n] = pair
                n += 1
                break
    return n


@njit_inline
def count_visits(layout, pair, counts):
    """Return N(s, a), the sum of the counts of a pair."""
    total = 0.0
    for row in range(layout.pairs[pair].first_row, layout.pairs[pair + 1].first_row):
        total += counts[row]
    return total


@njit_inline
def shrink_weights(layout, pair, visits, c, local, prob, shrinkage):
    """Compute the weights that triple effects leave, see `kernels.pooled`; return their sum.

    prob[u], which comes as p_u, becomes a_u, and shrinkage[u] becomes a_u / A_u. With `local` A_u
    is that of the Hessian, N p_u; otherwise that of the Gram matrix, N.
    """
    total = 0.0
    for u in range(layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row):
        weight = visits * prob[u] if local else visits
        shrinkage[u] = 1.0 / (1.0 + c * weight) if u > 0 else 1.0
        prob[u] = weight * shrinkage[u]
        total += prob[u]
    return total


@njit_inline
def evaluate_block(layout, work, b, visited, counts, theta, lam, hessian, scale=None):
    """Compute eq. (2), -sum n log P_theta + (lam / 2) ||theta||^2, for one block of features.

    Fills work.gradient (m,), which is lam theta + sum (N p_u - n_u) x_u, and hessian (m, m), which
    is lam I + sum N p_u (x_u - mean)(x_u - mean)^T; returns the loss. Where there are triple
    effects the loss has their penalty, and the Hessian is what is left for the features of the
    block when they are eliminated: the same sum with a_u instead of N p_u. `visited` are the pairs
    of the block that have a count.
    """
    pairs, slots = layout.pairs, layout.slots
    values, features = layout.values, layout.features
    gradient, prob, mean = work.gradient, work.prob, work.mean
    origin, m = layout.blocks[b].first_feature, layout.blocks[b].size
    loss = 0.0
    for i in range(m):
        x = theta[features[origin + i]]
        loss += 0.5 * lam * x * x
        gradient[i] = lam * x
        for j in range(i):
            hessian[i, j] = 0.0
        hessian[i, i] = lam
    for pair in visited:
        first, w = np.uint64(pairs[pair].first_row), np.uint64(pairs[pair].n_columns)
        column, value = np.uint64(pairs[pair].first_column), np.uint64(pairs[pair].first_value)
        n = np.uint64(pairs[pair + 1].first_row) - first
        log_total = softmax(layout, pair, theta, prob, scale)
        visits = count_visits(layout, pair, counts)
        for j in range(w):
            mean[j] = 0.0
        for u in range(n):
            count = counts[first + u]
            if count != 0.0:
                loss += count * (log_total - prob[n + u])
            residual = visits * prob[u] - count
            for j in range(w):
                gradient[np.uint32(slots[column + j])] += residual * values[value + u * w + j]
        if scale is not None:
            for u in range(np.uint64(1), n):
                x = theta[np.uint64(pairs[pair].effect_offset) + first + u]
                loss += 0.5 * lam * x * x
            # From here on prob is a / sum a and visits is sum a.
            c = scale * scale / lam
            visits = shrink_weights(layout, pair, visits, c, True, prob, prob[n:])
            for u in range(n):
                prob[u] /= visits
        for u in range(n):
            for j in range(w):
                mean[j] += prob[u] * values[value + u * w + j]
        for u in range(n):
            weight = visits * prob[u]
            row = value + u * w
            for i in range(w):
                x = weight * (values[row + i] - mean[i])
                k = np.uint32(slots[column + i])
                for j in range(i + np.uint64(1)):
                    hessian[k, np.uint32(slots[column + j])] += x * (values[row + j] - mean[j])
    return loss


@njit_without_refcounts
def log_probabilities(problem, theta, scale, log_prob):
    """Compute log P_theta, eq. (1), of every triple; it is finite wherever the logits are."""
    layout, prob = problem.layout, problem.work.prob
    pairs = layout.pairs
    for pair in range(pairs.shape[0] - 1):
        first = pairs[pair].first_row
        n = pairs[pair + 1].first_row - first
        # int32, as in the other kernels: another type would be compiled again
        log_total = softmax(layout, np.int32(pair), theta, prob, scale)
        for u in range(n):
            log_prob[first + u] = prob[n + u] - log_total


# Choice data. Situation g has the rows indptr[g] to indptr[g + 1]; a chunk is the situations in
# [first, last), and arrays of a chunk begin with the row indptr[first].


@njit_nogil
def shift_chunk(indptr, first, last, logits):
    """Subtract from the logits of each situation of a chunk their largest one, in place."""
    offset = indptr[first]
    for g in range(first, last):
        low = indptr[g] - offset
        high = indptr[g + 1] - offset
        top = logits[low]
        for u in range(low + 1, high):
            top = max(top, logits[u])
        for u in range(low, high):
            logits[u] -= top


@njit_inline
def sum_range(x, low, high):
    """Return the sum of x[low:high]; as a slice it would count references."""
    total = 0.0
    for u in range(low, high):
        total += x[u]
    return total


@njit_nogil
def centre_chunk(indptr, first, last, x, counts, visits, residual, totals, rows):
    """Compute residuals, totals and weighted centred rows of a chunk.

    counts (n,) and visits (G,) are those of all data, x (rows, d) is that of the chunk. residual
    comes as the exponentials of the shifted logits and becomes N p_u - n_u, so that the gradient
    of (2) is x^T residual. totals gets the sum of each situation's exponentials. rows, unless it is
    empty, gets sqrt(N p_u) (x_u - mean), so that the Hessian of (2) is rows^T rows.
    """
    offset = indptr[first]
    d = x.shape[1]
    mean = np.empty(d)
    for g in range(first, last):
        low = indptr[g]
        high = indptr[g + 1]
        total = sum_range(residual, low - offset, high - offset)
        totals[g - first] = total
        weight = visits[g] / total
        if rows.shape[0] > 0:
            mean[:] = 0.0
            for u in range(low, high):
                p = residual[u - offset] / total
                for j in range(d):
                    mean[j] += p * x[u - offset, j]
            for u in range(low, high):
                root = np.sqrt(weight * residual[u - offset])
                for j in range(d):
                    rows[u - offset, j] = root * (x[u - offset, j] - mean[j])
        for u in range(low, high):
            residual[u - offset] = weight * residual[u - offset] - counts[u]


@njit_nogil
def multiply(indptr, first, last, factors, rows):
    """Write the rows of a chunk of `mnl.choices.Products`, which has `factors`, into rows."""
    start, left, left_of, right = factors
    offset = indptr[first]
    d = right.shape[1]
    factor = np.empty(d)
    for g in range(first, last):
        for j in range(d):
            factor[j] = left[g, left_of[j]]
        for u in range(indptr[g], indptr[g + 1]):
            t = start[g] + u - indptr[g]
            for j in range(d):
                rows[u - offset, j] = factor[j] * right[t, j]


@njit_nogil
def product_logits(indptr, first, last, factors, theta, logits):
    """Compute the logits x^T theta of a chunk of `Products` without making its rows."""
    start, left, left_of, right = factors
    offset = indptr[first]
    d = len(theta)
    whole = d - d % 4
    factor = np.empty(d)
    for g in range(first, last):
        for j in range(d):
            factor[j] = left[g, left_of[j]] * theta[j]
        for u in range(indptr[g], indptr[g + 1]):
            row = right[start[g] + u - indptr[g]]
            a = b = c = e = 0.0  # four sums at once, which a processor adds in one instruction
            for j in range(0, whole, 4):
                a += factor[j] * row[j]
                b += factor[j + 1] * row[j + 1]
                c += factor[j + 2] * row[j + 2]
                e += factor[j + 3] * row[j + 3]
            for j in range(whole, d):
                a += factor[j] * row[j]
            logits[u - offset] = (a + b) + (c + e)


@njit_nogil
def product_gradient(indptr, first, last, factors, counts, visits, residual, totals, gradient):
    """Add the gradient of (2) of a chunk of `Products` to gradient (d,).

    residual comes as the exponentials of the shifted logits; totals gets the sum of each
    situation's exponentials.
    """
    start, left, left_of, right = factors
    offset = indptr[first]
    d = len(gradient)
    total_row = np.empty(d)
    for g in range(first, last):
        low = indptr[g]
        high = indptr[g + 1]
        total = sum_range(residual, low - offset, high - offset)
        totals[g - first] = total
        weight = visits[g] / total
        total_row[:] = 0.0
        for u in range(low, high):
            rest = weight * residual[u - offset] - counts[u]
            row = right[start[g] + u - low]
            for j in range(d):
                total_row[j] += rest * row[j]
        for j in range(d):
            gradient[j] += left[g, left_of[j]] * total_row[j]
