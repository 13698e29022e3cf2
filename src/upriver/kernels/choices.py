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

    counts (n,), visits (G,). x and residual are of the chunk, from indptr[first] on; residual comes
    as the exponentials of the shifted logits and leaves as N p_u - n_u, so that the gradient is
    x^T residual. totals gets the sum of each situation's exponentials; rows get
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
                    mean[j] += p * x[u - offset, j]
            for u in range(low, high):
                root = np.sqrt(weight * residual[u - offset])
                for j in range(d):
                    rows[u - offset, j] = root * (x[u - offset, j] - mean[j])
        for u in range(low, high):
            residual[u - offset] = weight * residual[u - offset] - counts[u]


@compiled
def multiply(indptr, first, last, start, left, left_of, right, rows):
    """rows of the situations in [first, last): left[g, left_of[j]] * right[t, j].

    left (G, k) belongs to the situation g, right (T, d) to the triple t, of which the first of a
    situation is start[g].
    """
    offset = indptr[first]
    d = right.shape[1]
    own = np.empty(d)
    for g in range(first, last):
        for j in range(d):
            own[j] = left[g, left_of[j]]
        for u in range(indptr[g], indptr[g + 1]):
            t = start[g] + u - indptr[g]
            for j in range(d):
                rows[u - offset, j] = own[j] * right[t, j]


@compiled
def product_logits(indptr, first, last, start, left, left_of, right, theta, logits):
    """Logits of the situations in [first, last) of rows that are products (see `multiply`)."""
    offset = indptr[first]
    d = len(theta)
    whole = d - d % 4
    own = np.empty(d)
    for g in range(first, last):
        for j in range(d):
            own[j] = left[g, left_of[j]] * theta[j]
        for u in range(indptr[g], indptr[g + 1]):
            row = right[start[g] + u - indptr[g]]
            a = b = c = e = 0.0  # four sums at once, which a processor adds in one go
            for j in range(0, whole, 4):
                a += own[j] * row[j]
                b += own[j + 1] * row[j + 1]
                c += own[j + 2] * row[j + 2]
                e += own[j + 3] * row[j + 3]
            for j in range(whole, d):
                a += own[j] * row[j]
            logits[u - offset] = (a + b) + (c + e)


@compiled
def product_gradient(indptr, first, last, start, left, left_of, right, counts, visits, residual,
                     totals, gradient):  # fmt: skip
    """Add the gradient of the situations in [first, last) to `gradient`, and note their totals.

    residual comes as the exponentials of the shifted logits and leaves as N p_u - n_u.
    """
    offset = indptr[first]
    d = len(gradient)
    own = np.empty(d)
    for g in range(first, last):
        low = indptr[g]
        high = indptr[g + 1]
        total = 0.0
        for u in range(low, high):
            total += residual[u - offset]
        totals[g - first] = total
        weight = visits[g] / total
        own[:] = 0.0
        for u in range(low, high):
            rest = weight * residual[u - offset] - counts[u]
            residual[u - offset] = rest
            row = right[start[g] + u - low]
            for j in range(d):
                own[j] += rest * row[j]
        for j in range(d):
            gradient[j] += left[g, left_of[j]] * own[j]
