"""Small symmetric matrices, kept in their lower triangle: factors, solves, inverses.

No np.linalg: a block is small, and a call to LAPACK would cost more than its work.
"""

import numpy as np

from upriver.kernels.compiled import compiled, inner


@inner
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


@inner
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


@inner
def solve_upper(factor, m, x):
    """x <- L^-T x in place."""
    for i in range(m - 1, -1, -1):
        y = x[i]
        for j in range(i + 1, m):
            y -= factor[j, i] * x[j]
        x[i] = y / factor[i, i]


@compiled
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
