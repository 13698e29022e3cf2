"""Eq. (2) and its derivatives for choice data: situations of dense rows.

    gradient = x^T (N p - n), Hessian = sum over situations of N p_u (x_u - mean)(x_u - mean)^T

Situation g has the rows indptr[g] to indptr[g + 1]. BLAS does the products, in chunks that fit the
processor's cache, and this loop does what lies between. A chunk is the situations in [first, last),
and arrays of a chunk begin with the row indptr[first]. `mnl.choices` adds the ridge.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached
from upriver.kernels.optimism import exponential


@njit_cached
def evaluate_chunk(indptr, first, last, x, counts, visits, residual, rows):
    """Return the loss (2) of a chunk, and compute its residuals and weighted centred rows.

    counts (n,) and visits (G,) are those of all data, x (rows, d) is that of the chunk. residual
    comes as the logits and becomes N p_u - n_u, so that the gradient of (2) is x^T residual. rows,
    unless it is empty, gets sqrt(N p_u) (x_u - mean), so that the Hessian of (2) is rows^T rows.
    """
    offset, d, loss = indptr[first], x.shape[1], 0.0
    mean = np.empty(d)
    for g in range(first, last):
        low, high, top = indptr[g] - offset, indptr[g + 1] - offset, -np.inf
        for u in range(low, high):
            top = max(top, residual[u])
        for u in range(low, high):
            residual[u] -= top
            loss -= counts[offset + u] * residual[u]
    for u in range(residual.shape[0]):  # all at once, in vector instructions
        residual[u] = exponential(residual[u])
    for g in range(first, last):
        low, high, total = indptr[g] - offset, indptr[g + 1] - offset, 0.0
        for u in range(low, high):
            total += residual[u]
        loss += visits[g] * np.log(total)
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
    return loss
