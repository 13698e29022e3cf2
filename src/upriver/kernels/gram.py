"""Cholesky factors L L^T = A of small dense matrices, and solutions with them.

Symmetric matrices and factors are kept in their lower triangle, (m, m) of a block. These are not
the functions of np.linalg: a block is small, and a call to LAPACK would cost more than its work.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline


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
