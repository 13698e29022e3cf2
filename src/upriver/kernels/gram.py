"""Eq. (5), the Gram matrix, and norms of the features in the inverse of such a matrix.

    (5)  A = lambda I + sum over visits of (s, a) and over the successors s' of varphi varphi^T

A has the blocks of the `Layout`. Symmetric matrices are kept in their lower triangle, (m, m) of a
block. Factors and solves are not those of np.linalg: a block is small, and a call to LAPACK would
cost more than its work.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.likelihood import (
    add_moments,
    count_visits,
    effect_variance,
    reset_matrix,
    shrink_weights,
)


@njit_inline
def cholesky(matrix, m, floor):
    """Factor the leading m x m in place, lower triangle; return False if not positive definite.

    The matrix is known to be at least floor I, so a pivot below `floor` is rounding error and is
    replaced by it.
    """
    for j in range(m):
        pivot = matrix[j, j]
        for i in range(j):
            pivot -= matrix[j, i] * matrix[j, i]
        if not pivot > 0.0 and not floor > 0.0:
            return False
        pivot = np.sqrt(max(pivot, floor))
        matrix[j, j] = pivot
        for i in range(j + 1, m):
            x = matrix[i, j]
            for l in range(j):
                x -= matrix[i, l] * matrix[j, l]
            matrix[i, j] = x / pivot
    return True


@njit_inline
def copy_lower(source, m, target):
    """Copy the lower triangle of the leading m x m."""
    for i in range(m):
        for j in range(i + 1):
            target[i, j] = source[i, j]


@njit_inline
def log_determinant(factor, m):
    """Return log det of L L^T, L the leading m x m of factor."""
    total = 0.0
    for i in range(m):
        total += 2.0 * np.log(factor[i, i])
    return total


@njit_inline
def solve_lower(factor, m, x):
    """x <- L^-1 x in place; return the squared norm of the result, which is x^T (L L^T)^-1 x."""
    total = 0.0
    for i in range(m):
        y = x[i]
        for j in range(i):
            y -= factor[i, j] * x[j]
        y /= factor[i, i]
        x[i] = y
        total += y * y
    return total


@njit_inline
def solve_upper(factor, m, x):
    """x <- L^-T x in place."""
    for i in range(m - 1, -1, -1):
        y = x[i]
        for j in range(i + 1, m):
            y -= factor[j, i] * x[j]
        x[i] = y / factor[i, i]


@njit_cached
def inverse(matrix, matrix_start, size, floor):
    """Invert each block of a block matrix (flat) in place; return the first singular block, or -1.

    The matrix is known to be at least floor I.
    """
    largest = 0
    for b in range(size.shape[0]):
        largest = max(largest, size[b])
    block, x = np.empty((largest, largest)), np.empty(largest)
    for b in range(size.shape[0]):
        m, start = size[b], matrix_start[b]
        for i in range(m):
            for j in range(i + 1):
                block[i, j] = matrix[start + i * m + j]
        if not cholesky(block, m, floor):
            return b
        for j in range(m):
            for i in range(m):
                x[i] = 1.0 if i == j else 0.0
            solve_lower(block, m, x)
            solve_upper(block, m, x)
            for i in range(m):
                matrix[start + i * m + j] = x[i]
    return -1


@njit_inline
def gram_block(layout, work, b, n_visited, counts, c, lam, scale, gram):
    """Compute the Gram matrix, eq. (5), of block b: lam I + sum N(s, a) sum_u phi_u phi_u^T.

    Where there are triple effects it is what they leave, see `kernels.pooled`, with the weight
    a_u instead of N(s, a).
    """
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    outcomes, mean, visited = work.outcomes, work.mean, work.visited
    reset_matrix(gram, layout.blocks[b].size, lam)
    for i in range(layout.blocks[b].size):
        mean[i] = 0.0
    variance = effect_variance(scale, lam)
    for k in range(n_visited):
        visits = count_visits(pairs, visited[k], counts, c)
        shrink_weights(pairs, visited[k], visits, variance, False, outcomes)
        add_moments(pairs, slots, values, visited[k], outcomes, mean, gram)


@njit_inline
def solve_rows(pairs, slots, values, pair, factor, m, rows, outcomes):
    """rows[u] <- L^-1 phi_u for the successors u of a pair; their square gets its squared norm.

    The loop goes over entries and then over rows, since an entry depends on those before it in the
    same row: while the processor waits for one row it works on another.
    """
    record, n = pairs[pair], pairs[pair + 1].first_row - pairs[pair].first_row
    w, column = record.n_columns, record.first_column
    zeros = m  # the number of leading entries that are 0 in all rows, and stay 0
    for u in range(n):
        outcomes[u].square = 0.0
        for i in range(m):
            rows[u, i] = 0.0
        for j in range(w):
            x = values[record.first_value + u * w + j]
            if x != 0.0:
                rows[u, slots[column + j]] = x
                zeros = min(zeros, slots[column + j])
    for i in range(zeros, m):
        for u in range(n):
            x = rows[u, i]
            for j in range(zeros, i):
                x -= factor[i, j] * rows[u, j]
            x /= factor[i, i]
            rows[u, i] = x
            outcomes[u].square += x * x


@njit_inline
def store_inner_products(n, m, products, c, start, end, rows, outcomes):
    """Return max_u ||phi_u||, the root of the largest square; store the inner products.

    products (C, .) gets, from start on, all inner products of the n rows, n x n; or, where the end
    leaves less room, the rows themselves (n, m + 1), whose last entry is the root of what the
    square of an outcome has beside them. Nothing is stored where products is empty.
    """
    largest = 0.0
    for u in range(n):
        largest = max(largest, outcomes[u].square)
    if products.shape[1] == 0:
        return np.sqrt(largest)
    if end - start < n * n:
        for u in range(n):
            rest = outcomes[u].square
            for i in range(m):
                products[c, start + u * (m + 1) + i] = rows[u, i]
                rest -= rows[u, i] * rows[u, i]
            products[c, start + u * (m + 1) + m] = np.sqrt(max(rest, 0.0))
        return np.sqrt(largest)
    for u in range(n):
        products[c, start + u * n + u] = outcomes[u].square
        for t in range(u):
            x = 0.0
            for i in range(m):
                x += rows[u, i] * rows[t, i]
            products[c, start + u * n + t] = x
            products[c, start + t * n + u] = x
    return np.sqrt(largest)
