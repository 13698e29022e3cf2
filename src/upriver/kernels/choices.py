"""Eq. (2) and its derivatives for choice data: situations of dense rows.

    gradient = x^T (N p - n), Hessian = sum over situations of N p_u (x_u - mean)(x_u - mean)^T

Situation g has the rows indptr[g] to indptr[g + 1]. BLAS does the products, in chunks that fit the
processor's cache, and these loops do what lies between. A chunk is the situations in [first, last),
and arrays of a chunk begin with the row indptr[first]. Ridge and log-likelihood are added by
`mnl.choices`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline


@njit_cached
def shift_chunk(indptr, first, last, logits):
    """Subtract from the logits of each situation of a chunk their largest one, in place."""
    offset = indptr[first]
    for g in range(first, last):
        low, high, top = indptr[g] - offset, indptr[g + 1] - offset, -np.inf
        for u in range(low, high):
            top = max(top, logits[u])
        for u in range(low, high):
            logits[u] -= top


@njit_inline
def sum_range(x, low, high):
    """Return the sum of x[low:high]."""
    total = 0.0
    for u in range(low, high):
        total += x[u]
    return total


@njit_cached
def centre_chunk(indptr, first, last, x, counts, visits, residual, totals, rows):
    """Compute residuals, totals and weighted centred rows of a chunk.

    counts (n,) and visits (G,) are those of all data, x (rows, d) is that of the chunk. residual
    comes as the exponentials of the shifted logits and becomes N p_u - n_u, so that the gradient
    of (2) is x^T residual. totals gets the sum of each situation's exponentials. rows, unless it is
    empty, gets sqrt(N p_u) (x_u - mean), so that the Hessian of (2) is rows^T rows.
    """
    offset, d = indptr[first], x.shape[1]
    mean = np.empty(d)
    for g in range(first, last):
        low, high = indptr[g] - offset, indptr[g + 1] - offset
        total = sum_range(residual, low, high)
        totals[g - first] = total
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
