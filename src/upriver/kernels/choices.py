"""The likelihood of plain choice data in chunks that fit the cache; BLAS does the products."""

import numpy as np

from upriver.kernels.compiled import compiled


@compiled
def centre_chunk(indptr, first, last, x, counts, logits, residual, rows, with_rows):
    """One chunk of situations [first, last): loss, residuals and weighted centred rows.

    x (n, d), counts (n,); logits and residual belong to the chunk, from indptr[first] on.
    residual_u = N p_u - n_u, so that the gradient is x^T residual; rows get
    sqrt(N p_u) (x_u - mean), so that the Hessian is rows^T rows. Returns the loss.
    """
    offset = indptr[first]
    d = x.shape[1]
    loss = 0.0
    mean = np.empty(d)
    for g in range(first, last):
        low = indptr[g]
        high = indptr[g + 1]
        visits = 0.0
        top = -np.inf
        for u in range(low, high):
            visits += counts[u]
            top = max(top, logits[u - offset])
        if visits == 0.0:
            for u in range(low, high):
                residual[u - offset] = 0.0
                if with_rows:
                    rows[u - offset, :] = 0.0
            continue
        total = 0.0
        for u in range(low, high):
            e = np.exp(logits[u - offset] - top)
            residual[u - offset] = e
            total += e
        normaliser = top + np.log(total)
        if with_rows:
            mean[:] = 0.0
        for u in range(low, high):
            p = residual[u - offset] / total
            if counts[u] != 0.0:
                loss += counts[u] * (normaliser - logits[u - offset])
            residual[u - offset] = p
            if with_rows:
                for j in range(d):
                    mean[j] += p * x[u, j]
        for u in range(low, high):
            p = residual[u - offset]
            residual[u - offset] = visits * p - counts[u]
            if with_rows:
                weight = np.sqrt(visits * p)
                for j in range(d):
                    rows[u - offset, j] = weight * (x[u, j] - mean[j])
    return loss
