"""Eq. (5), the Gram matrix, and norms of the features in the inverse of such a matrix.

A = lambda I + sum over visits of (s, a) and over the successors s' of varphi varphi^T. It has the
blocks of the `Layout`. Symmetric matrices are kept in their lower triangle. Factors and solves are
not those of np.linalg: a block is small, and a call to LAPACK would cost more than its work.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_inline_ir
from upriver.kernels.likelihood import count_visits, shrink_weights


@njit_inline
def cholesky(matrix, m, floor=0.0):
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
        pivot = max(pivot, floor)
        pivot = np.sqrt(pivot)
        matrix[j, j] = pivot
        for i in range(j + 1, m):
            x = matrix[i, j]
            for l in range(j):
                x -= matrix[i, l] * matrix[j, l]
            matrix[i, j] = x / pivot
    return True


@njit_inline
def add_logdet(factor, m, total):
    """Return total + log det of L L^T, L the leading m x m of factor."""
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
    for b in range(size.shape[0]):
        m = size[b]
        block = matrix[matrix_start[b] : matrix_start[b] + m * m].copy().reshape(m, m)
        if not cholesky(block, m, floor):
            return b
        x = np.empty(m)
        for j in range(m):
            x[:] = 0.0
            x[j] = 1.0
            solve_lower(block, m, x)
            solve_upper(block, m, x)
            for i in range(m):
                matrix[matrix_start[b] + i * m + j] = x[i]
    return -1


@njit_inline
def add_row(layout, pair, u, weight, gram):
    """Add weight * phi_u phi_u^T of successor u to the matrix of the pair's block."""
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    w, column = np.uint64(pairs[pair].n_columns), np.uint64(pairs[pair].first_column)
    row = np.uint64(pairs[pair].first_value) + np.uint64(u) * w
    for i in range(w):
        x = weight * values[row + i]
        if x != 0.0:
            k = np.uint32(slots[column + i])
            for j in range(i + np.uint64(1)):
                gram[k, np.uint32(slots[column + j])] += x * values[row + j]


@njit_inline_ir
def add_outer(layout, pair, weight, gram):
    """Add weight * sum_u phi_u phi_u^T over the successors to the matrix of the pair's block."""
    for u in range(layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row):
        add_row(layout, pair, u, weight, gram)


@njit_inline_ir
def gram_block(layout, work, b, visited, counts, lam, gram, scale):
    """Compute the Gram matrix, eq. (5), of block b: lam I + sum N(s, a) sum_u phi_u phi_u^T.

    Where there are triple effects it is what they leave, see `kernels.pooled`, with the weight
    a_u instead of N(s, a).
    """
    pairs = layout.pairs
    for i in range(layout.blocks[b].size):
        for j in range(i):
            gram[i, j] = 0.0
        gram[i, i] = lam
    for pair in visited:
        visits = count_visits(layout, pair, counts)
        if scale is not None:
            c = scale * scale / lam
            shrink_weights(layout, pair, visits, c, False, work.prob, work.shrinkage)
        for u in range(pairs[pair + 1].first_row - pairs[pair].first_row):
            weight = visits
            if scale is not None:
                weight = work.prob[u]
            add_row(layout, pair, u, weight, gram)


@njit_inline
def solve_rows(layout, pair, factor, m, rows, squares):
    """rows[u] <- L^-1 phi_u for the successors u of a pair; squares[u] <- its squared norm.

    The loop goes over entries and then over rows, since an entry depends on those before it in the
    same row: while the processor waits for one row it works on another.
    """
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    w, column = pairs[pair].n_columns, pairs[pair].first_column
    n = pairs[pair + 1].first_row - pairs[pair].first_row
    zeros = m  # the number of leading entries that are 0 in all rows, and stay 0
    for u in range(n):
        squares[u] = 0.0
        for i in range(m):
            rows[u, i] = 0.0
        for j in range(w):
            x = values[pairs[pair].first_value + u * w + j]
            if x != 0.0:
                rows[u, slots[column + j]] = x
                if slots[column + j] < zeros:
                    zeros = np.int64(slots[column + j])
    for i in range(zeros, m):
        for u in range(n):
            x = rows[u, i]
            for j in range(zeros, i):
                x -= factor[i, j] * rows[u, j]
            x /= factor[i, i]
            rows[u, i] = x
            squares[u] += x * x


@njit_inline
def store_inner_products(layout, pair, m, products, product_start, rows, squares):
    """Return max_u ||phi_u||, the root of the largest of `squares`; store the inner products.

    products gets all inner products of the rows of the pair, U x U; or, where product_start leaves
    less room, the rows themselves (U, m + 1), whose last entry is the root of what squares[u] has
    beside them. Nothing is stored where products is empty.
    """
    n = layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row
    largest = 0.0
    for u in range(n):
        largest = max(largest, squares[u])
    if products.shape[0] > 0:
        start = product_start[pair]
        if product_start[pair + 1] - start < n * n:
            for u in range(n):
                rest = squares[u]
                for i in range(m):
                    products[start + u * (m + 1) + i] = rows[u, i]
                    rest -= rows[u, i] * rows[u, i]
                products[start + u * (m + 1) + m] = np.sqrt(max(rest, 0.0))
            return np.sqrt(largest)
        for u in range(n):
            products[start + u * n + u] = squares[u]
            for t in range(u):
                x = 0.0
                for i in range(m):
                    x += rows[u, i] * rows[t, i]
                products[start + u * n + t] = x
                products[start + t * n + u] = x
    return np.sqrt(largest)
