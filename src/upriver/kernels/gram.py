"""Eq. (5), the Gram matrix, and the norms of the features in the inverse of such a matrix."""

import numpy as np

from upriver.kernels.cholesky import cholesky, keep_block, solve_lower
from upriver.kernels.compiled import compiled, inner
from upriver.kernels.likelihood import visited_groups


@inner
def add_outer(layout, g, weight, gram):
    """Add weight * sum over the successors of phi phi^T to the block matrix of group g."""
    table, slots, values = layout.group_table, layout.slots, layout.values
    w, place = table[g, 1], table[g, 2]
    for u in range(table[g + 1, 0] - table[g, 0]):
        row = table[g, 3] + u * w
        for i in range(w):
            x = weight * values[row + i]
            if x != 0.0:
                k = slots[place + i]
                for j in range(i + 1):
                    gram[k, slots[place + j]] += x * values[row + j]


@inner
def gram_block(layout, b, groups, counts, lam, gram):
    """Gram matrix, eq. (5), of block b: lam I + sum over visits and successors of phi phi^T."""
    table = layout.group_table
    for i in range(layout.block_table[b, 2]):
        for j in range(i):
            gram[i, j] = 0.0
        gram[i, i] = lam
    for g in groups:
        visits = 0.0
        for row in range(table[g, 0], table[g + 1, 0]):
            visits += counts[row]
        add_outer(layout, g, visits, gram)


@compiled
def gram(layout, counts, lam, matrix, matrix_start):
    """Gram matrix (5), all blocks (flat)."""
    block = np.empty((layout.max_size, layout.max_size))
    for b in range(layout.block_table.shape[0] - 1):
        size = layout.block_table[b, 2]
        gram_block(layout, b, visited_groups(layout, counts, b), counts, lam, block)
        keep_block(block, size, matrix, matrix_start[b])


@inner
def solve_rows(layout, g, factor, m, rows, squares):
    """rows[u] <- L^-1 phi_u for the successors of group g; squares[u] <- its squared norm."""
    table, slots, values = layout.group_table, layout.slots, layout.values
    w, place = table[g, 1], table[g, 2]
    for u in range(table[g + 1, 0] - table[g, 0]):
        rows[u, :m] = 0.0
        for j in range(w):
            rows[u, slots[place + j]] = values[table[g, 3] + u * w + j]
        squares[u] = solve_lower(factor, m, rows[u])


@inner
def measure_group(layout, g, factor, m, geometry, geometry_start, rows, squares):
    """max_u ||phi_u|| in the norm of the inverse of the factored matrix.

    Where geometry is not empty it gets all inner products of the rows, U x U, in that norm.
    """
    solve_rows(layout, g, factor, m, rows, squares)
    n = layout.group_table[g + 1, 0] - layout.group_table[g, 0]
    largest = 0.0
    for u in range(n):
        largest = max(largest, squares[u])
    if geometry.shape[0] > 0:
        start = geometry_start[g]
        for u in range(n):
            for t in range(u + 1):
                x = 0.0
                for i in range(m):
                    x += rows[u, i] * rows[t, i]
                geometry[start + u * n + t] = x
                geometry[start + t * n + u] = x
    return np.sqrt(largest)


@compiled
def norms(layout, matrix, matrix_start, norm):
    """||phi|| of every triple in the norm of the inverse of a block matrix (flat).

    Returns the number of the first block that is not positive definite, or -1.
    """
    rows = np.empty((layout.max_successors, layout.max_size))
    squares = np.empty(layout.max_successors)
    for b in range(layout.block_table.shape[0] - 1):
        size, start = layout.block_table[b, 2], matrix_start[b]
        factor = matrix[start : start + size * size].copy().reshape(size, size)
        if not cholesky(factor, size):
            return b
        for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
            g = layout.groups[i]
            first = layout.group_table[g, 0]
            solve_rows(layout, g, factor, size, rows, squares)
            for u in range(layout.group_table[g + 1, 0] - first):
                norm[first + u] = np.sqrt(squares[u])
    return -1
