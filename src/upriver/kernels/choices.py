"""The likelihood of plain choice data in chunks that fit the cache; BLAS does the products."""

import numpy as np

from upriver.kernels.compiled import compiled


@compiled
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


@compiled
def centre_chunk(indptr, first, last, x, counts, visits, residual, totals, rows, with_rows):
    """Residuals, totals and weighted centred rows of the situations in [first, last).

    x (n, d), counts (n,), visits (G,). residual belongs to the chunk, from indptr[first] on; it
    comes as the exponentials of the shifted logits and leaves as N p_u - n_u, so that the gradient
    is x^T residual. totals gets the sum of each situation's exponentials; rows get
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
                    mean[j] += p * x[u, j]
            for u in range(low, high):
                root = np.sqrt(weight * residual[u - offset])
                for j in range(d):
                    rows[u - offset, j] = root * (x[u, j] - mean[j])
        for u in range(low, high):
            residual[u - offset] = weight * residual[u - offset] - counts[u]
