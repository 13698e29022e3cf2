"""Eq. (5), the Gram matrix, and the norms of the features in the inverse of such a matrix.

Symmetric matrices are kept in their lower triangle. Factors and solves are not np.linalg's: a block
is small, and a call to LAPACK would cost more than its work.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_inline_ir
from upriver.kernels.likelihood import visited_groups, visits_of, weigh
from upriver.kernels.pooled import pool_rows


@njit_inline
def cholesky(matrix, m, floor=0.0):
    """Lower factor in place of the leading m x m; returns False if it is not positive definite.

    floor: the ridge of a matrix that is at least floor I. No pivot is smaller then, but rounding
    may say so.
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
def solve_lower(factor, m, x):
    """x <- L^-1 x in place; returns the squared norm of the result, x^T (L L^T)^-1 x."""
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
    """Invert each block of a block matrix (flat) in place; the first singular block, or -1.

    The matrix is at least floor I.
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
def add_row(layout, g, u, weight, gram):
    """Add weight * phi phi^T of successor u of group g to the block matrix of the group."""
    table, slots, values = layout.group_table, layout.slots, layout.values
    w, place = np.uint64(table[g, 1]), np.uint64(table[g, 2])
    row = np.uint64(table[g, 3]) + np.uint64(u) * w
    for i in range(w):
        x = weight * values[row + i]
        if x != 0.0:
            k = np.uint32(slots[place + i])
            for j in range(i + np.uint64(1)):
                gram[k, np.uint32(slots[place + j])] += x * values[row + j]


@njit_inline_ir
def add_outer(layout, g, weight, gram):
    """Add weight * sum over the successors of phi phi^T to the block matrix of group g."""
    for u in range(layout.group_table[g + 1, 0] - layout.group_table[g, 0]):
        add_row(layout, g, u, weight, gram)


@njit_inline_ir
def gram_block(layout, b, groups, counts, lam, gram, weight, left, own_lines=True):
    """Gram matrix, eq. (5), of block b: lam I + sum over visits and successors of phi phi^T.

    Where there are own effects it is what they leave, see `kernels.pooled`; weight and left are
    theirs to use.
    """
    table = layout.group_table
    for i in range(layout.block_table[b, 2]):
        for j in range(i):
            gram[i, j] = 0.0
        gram[i, i] = lam
    for g in groups:
        visits = visits_of(layout, g, counts)
        if own_lines is not None and layout.own > 0.0:
            weigh(layout, g, visits, lam, False, weight, left)
            for u in range(table[g + 1, 0] - table[g, 0]):
                add_row(layout, g, u, weight[u], gram)
        else:
            for u in range(table[g + 1, 0] - table[g, 0]):
                add_row(layout, g, u, visits, gram)


@njit_inline
def solve_rows(layout, g, factor, m, rows, squares):
    """rows[u] <- L^-1 phi_u for the successors of group g; squares[u] <- its squared norm.

    All rows entry by entry, not row by row: an entry waits for those before it, and while one row
    waits another goes on.
    """
    table, slots, values = layout.group_table, layout.slots, layout.values
    w, place, n = table[g, 1], table[g, 2], table[g + 1, 0] - table[g, 0]
    zeros = m  # how many entries at the beginning are 0 in all rows, and stay so
    for u in range(n):
        squares[u] = 0.0
        for i in range(m):
            rows[u, i] = 0.0
        for j in range(w):
            x = values[table[g, 3] + u * w + j]
            if x != 0.0:
                rows[u, slots[place + j]] = x
                if slots[place + j] < zeros:
                    zeros = np.int64(slots[place + j])
    for i in range(zeros, m):
        for u in range(n):
            x = rows[u, i]
            for j in range(zeros, i):
                x -= factor[i, j] * rows[u, j]
            x /= factor[i, i]
            rows[u, i] = x
            squares[u] += x * x


@njit_inline_ir
def measure_group(layout, g, factor, m, geometry, geometry_start, rows, squares):
    """max_u ||phi_u|| in the norm of the inverse of the factored matrix; see `inner_products`."""
    solve_rows(layout, g, factor, m, rows, squares)
    return inner_products(layout, g, m, geometry, geometry_start, rows, squares)


@njit_inline
def inner_products(layout, g, m, geometry, geometry_start, rows, squares):
    """The root of the largest of squares; fills the geometry of group g, where it is not empty.

    It gets all inner products of the rows, U x U; or, where geometry_start leaves less room, the
    rows (U, m + 1), and the root of what squares have besides.
    """
    n = layout.group_table[g + 1, 0] - layout.group_table[g, 0]
    largest = 0.0
    for u in range(n):
        largest = max(largest, squares[u])
    if geometry.shape[0] > 0:
        start = geometry_start[g]
        if geometry_start[g + 1] - start < n * n:
            for u in range(n):
                rest = squares[u]
                for i in range(m):
                    geometry[start + u * (m + 1) + i] = rows[u, i]
                    rest -= rows[u, i] * rows[u, i]
                geometry[start + u * (m + 1) + m] = np.sqrt(max(rest, 0.0))
            return np.sqrt(largest)
        for u in range(n):
            geometry[start + u * n + u] = squares[u]
            for t in range(u):
                x = 0.0
                for i in range(m):
                    x += rows[u, i] * rows[t, i]
                geometry[start + u * n + t] = x
                geometry[start + t * n + u] = x
    return np.sqrt(largest)


@njit_cached
def norms(layout, counts, lam, norm):
    """||phi|| of every triple in the inverse of the Gram matrix (5)."""
    n, m = layout.max_successors, layout.max_size
    rows, factor = np.empty((n, m + 1)), np.empty((m, m))
    squares, out, left = np.empty(n), np.empty(n), np.empty(n)
    found = np.empty(layout.groups.shape[0], np.int64)
    for b in range(layout.block_table.shape[0] - 1):
        size = layout.block_table[b, 2]
        groups = found[: visited_groups(layout, counts, b, found)]
        gram_block(layout, b, groups, counts, lam, factor, out, left)
        cholesky(factor, size, lam)
        for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
            g = layout.groups[i]
            first = layout.group_table[g, 0]
            solve_rows(layout, g, factor, size, rows, squares)
            if layout.own > 0.0:
                visits = visits_of(layout, g, counts)
                pool_rows(layout, g, size, visits, lam, False, rows, squares, out, left)
            for u in range(layout.group_table[g + 1, 0] - first):
                norm[first + u] = np.sqrt(squares[u])
