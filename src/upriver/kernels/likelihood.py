"""Eq. (1), the transition probability, and eq. (2), the penalised likelihood, with its Hessian.

`layout` is a `Layout`: each group (s, a) holds a small dense matrix, one row per successor
and one column per feature that is not zero somewhere in the group; groups that share features form
a block, and blocks are independent of each other in the likelihood and in the Gram matrix.
Matrices of a block are dense, m x m, and kept in their lower triangle.

Of plain choice data, at the end, BLAS does the products, in chunks that fit the cache.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil


@njit_inline
def softmax(layout, g, theta, out, own_lines=True):
    """P_theta of group g, eq. (1), into out[:n]; returns the log of the normaliser.

    After the call out[n + u] is the logit of successor u. own_lines None, here and where it is
    handed on, says that there are no own effects: what is theirs is then not even compiled.
    """
    # Unsigned counters, as in `planning.sweep`: signed ones are tested for wrap-around every time.
    table, values, columns = layout.group_table, layout.values, layout.columns
    n, w = np.uint64(table[g + 1, 0] - table[g, 0]), np.uint64(table[g, 1])
    first_column, start = np.uint64(table[g, 2]), np.uint64(table[g, 3])
    own, place = layout.own, np.uint64(table[g, 5] + table[g, 0])
    top = -np.inf
    for u in range(n):
        x = own * theta[place + u] if own_lines is not None and own > 0.0 and u > 0 else 0.0
        for j in range(w):
            x += values[start + u * w + j] * theta[np.uint32(columns[first_column + j])]
        out[n + u] = x
        if x > top:
            top = x
    total = 0.0
    for u in range(n):
        e = np.exp(out[n + u] - top)
        out[u] = e
        total += e
    for u in range(n):
        out[u] /= total
    return top + np.log(total)


@njit_inline
def visited_groups(layout, counts, b, found):
    """Fills found with the groups of block b that have a count; returns how many."""
    table, members = layout.group_table, layout.groups
    low, high = layout.block_table[b, 1], layout.block_table[b + 1, 1]
    n = 0
    for i in range(low, high):
        g = members[i]
        for row in range(table[g, 0], table[g + 1, 0]):
            if counts[row] != 0.0:
                found[n] = g
                n += 1
                break
    return n


@njit_inline
def visits_of(layout, g, counts):
    """N, the sum of the counts of group g."""
    total = 0.0
    for row in range(layout.group_table[g, 0], layout.group_table[g + 1, 0]):
        total += counts[row]
    return total


@njit_inline
def weigh(layout, g, visits, lam, local, out, left):
    """The weights that own effects leave, see `kernels.pooled`; returns their sum.

    out[u] <- a_u and left[u] <- a_u / A_u of group g, where out comes with p. local: those of the
    Hessian, A_u = N p_u; else those of the Gram matrix, A_u = N.
    """
    c = layout.own * layout.own / lam
    total = 0.0
    for u in range(layout.group_table[g + 1, 0] - layout.group_table[g, 0]):
        weight = visits * out[u] if local else visits
        left[u] = 1.0 / (1.0 + c * weight) if u > 0 else 1.0
        out[u] = weight * left[u]
        total += out[u]
    return total


@njit_inline
def evaluate_block(
    layout, groups, counts, theta, b, lam, gradient, hessian, out, mean, own_lines=True
):  # fmt: skip
    """Loss (2) over `groups` of block b with its ridge penalty; fills gradient (m,), Hessian.

    Where there are own effects the loss has their penalty, and the Hessian is what is left for the
    features of the block when they are eliminated.
    """
    # Arrays are taken out of the tuple once: each access inside a loop would cost a reference.
    table, slots = layout.group_table, layout.slots
    values, features = layout.values, layout.features
    origin, m = layout.block_table[b, 0], layout.block_table[b, 2]
    loss = 0.0
    for i in range(m):
        x = theta[features[origin + i]]
        loss += 0.5 * lam * x * x
        gradient[i] = lam * x
        for j in range(i):
            hessian[i, j] = 0.0
        hessian[i, i] = lam
    for g in groups:
        first, w = np.uint64(table[g, 0]), np.uint64(table[g, 1])
        place, start = np.uint64(table[g, 2]), np.uint64(table[g, 3])
        n = np.uint64(table[g + 1, 0]) - first
        normaliser = softmax(layout, g, theta, out, own_lines)
        visits = visits_of(layout, g, counts)
        for j in range(w):
            mean[j] = 0.0
        for u in range(n):
            c = counts[first + u]
            if c != 0.0:
                loss += c * (normaliser - out[n + u])
            residual = visits * out[u] - c
            for j in range(w):
                gradient[np.uint32(slots[place + j])] += residual * values[start + u * w + j]
        if own_lines is not None and layout.own > 0.0:
            for u in range(np.uint64(1), n):
                x = theta[np.uint64(table[g, 5]) + first + u]
                loss += 0.5 * lam * x * x
            visits = weigh(layout, g, visits, lam, True, out, out[n:])
            for u in range(n):
                out[u] /= visits
        for u in range(n):
            for j in range(w):
                mean[j] += out[u] * values[start + u * w + j]
        for u in range(n):
            weight = visits * out[u]
            row = start + u * w
            for i in range(w):
                x = weight * (values[row + i] - mean[i])
                k = np.uint32(slots[place + i])
                for j in range(i + np.uint64(1)):
                    hessian[k, np.uint32(slots[place + j])] += x * (values[row + j] - mean[j])
    return loss


@njit_cached
def log_probabilities(layout, theta, log_prob):
    """log P_theta, eq. (1), for every triple; finite wherever the logits are."""
    table = layout.group_table
    out = np.empty(2 * layout.max_successors)
    for g in range(table.shape[0] - 1):
        first = table[g, 0]
        n = table[g + 1, 0] - first
        normaliser = softmax(layout, g, theta, out)
        for u in range(n):
            log_prob[first + u] = out[n + u] - normaliser


@njit_cached
def log_loss(layout, counts, theta):
    """-sum of counts * log P_theta, from the groups that have counts."""
    out = np.empty(2 * layout.max_successors)
    loss = 0.0
    for g in range(layout.group_table.shape[0] - 1):
        if visits_of(layout, g, counts) != 0.0:
            first = layout.group_table[g, 0]
            n = layout.group_table[g + 1, 0] - first
            normaliser = softmax(layout, g, theta, out)
            for u in range(n):
                if counts[first + u] != 0.0:
                    loss += counts[first + u] * (normaliser - out[n + u])
    return loss


@njit_nogil
def shift_chunk(indptr, first, last, logits):
    """Subtract from the logits of each situation in [first, last) their largest one, in place."""
    offset = indptr[first]
    for g in range(first, last):
        low = indptr[g] - offset
        high = indptr[g + 1] - offset
        top = logits[low]
        for u in range(low + 1, high):
            top = max(top, logits[u])
        for u in range(low, high):
            logits[u] -= top


@njit_nogil
def centre_chunk(indptr, first, last, x, counts, visits, residual, totals, rows, with_rows):
    """Residuals, totals and weighted centred rows of the situations in [first, last).

    counts (n,), visits (G,). x and residual are of the chunk, from indptr[first] on; residual comes
    as the exponentials of the shifted logits and leaves as N p_u - n_u, so that the gradient is
    x^T residual. totals gets the sum of each situation's exponentials; rows get
    sqrt(N p_u) (x_u - mean), so that the Hessian is rows^T rows.
    """
    offset = indptr[first]
    d = x.shape[1]
    mean = np.empty(d)
    for g in range(first, last):
        low = indptr[g]
        high = indptr[g + 1]
        total = 0.0
        for u in range(low, high):
            total += residual[u - offset]
        totals[g - first] = total
        weight = visits[g] / total
        if with_rows:
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
def multiply(indptr, first, last, start, left, left_of, right, rows):
    """rows of the situations in [first, last): left[g, left_of[j]] * right[t, j].

    left (G, k) belongs to the situation g, right (T, d) to the triple t, of which the first of a
    situation is start[g].
    """
    offset = indptr[first]
    d = right.shape[1]
    own = np.empty(d)
    for g in range(first, last):
        for j in range(d):
            own[j] = left[g, left_of[j]]
        for u in range(indptr[g], indptr[g + 1]):
            t = start[g] + u - indptr[g]
            for j in range(d):
                rows[u - offset, j] = own[j] * right[t, j]


@njit_nogil
def product_logits(indptr, first, last, start, left, left_of, right, theta, logits):
    """Logits of the situations in [first, last) of rows that are products (see `multiply`)."""
    offset = indptr[first]
    d = len(theta)
    whole = d - d % 4
    own = np.empty(d)
    for g in range(first, last):
        for j in range(d):
            own[j] = left[g, left_of[j]] * theta[j]
        for u in range(indptr[g], indptr[g + 1]):
            row = right[start[g] + u - indptr[g]]
            a = b = c = e = 0.0  # four sums at once, which a processor adds in one go
            for j in range(0, whole, 4):
                a += own[j] * row[j]
                b += own[j + 1] * row[j + 1]
                c += own[j + 2] * row[j + 2]
                e += own[j + 3] * row[j + 3]
            for j in range(whole, d):
                a += own[j] * row[j]
            logits[u - offset] = (a + b) + (c + e)


@njit_nogil
def product_gradient(indptr, first, last, start, left, left_of, right, counts, visits, residual,
                     totals, gradient):  # fmt: skip
    """Add the gradient of the situations in [first, last) to `gradient`, and note their totals.

    residual comes as the exponentials of the shifted logits and leaves as N p_u - n_u.
    """
    offset = indptr[first]
    d = len(gradient)
    own = np.empty(d)
    for g in range(first, last):
        low = indptr[g]
        high = indptr[g + 1]
        total = 0.0
        for u in range(low, high):
            total += residual[u - offset]
        totals[g - first] = total
        weight = visits[g] / total
        own[:] = 0.0
        for u in range(low, high):
            rest = weight * residual[u - offset] - counts[u]
            residual[u - offset] = rest
            row = right[start[g] + u - low]
            for j in range(d):
                own[j] += rest * row[j]
        for j in range(d):
            gradient[j] += left[g, left_of[j]] * own[j]
