"""UCRL-VTR (Ayoub et al. 2020): value-targeted ridge regression, with one-hot features.

The value V_{h+1}(s') of the next state is regressed on X_V(s, a) = (V(s'))_s', one entry for each
successor, with one parameter theta for all steps. So every pair has a regression of its own, with
the U x U matrix M = lambda I + sum of X X^T; the flat matrix of a pair begins at starts[pair], see
`Task.square_start`. The arguments that all rules share are explained in `kernels.planning`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import read_next_values


@njit_cached
def update_value_regression(
    indptr, successors, starts, lam, next_state_reward, pairs, states, v, gram, target, root, theta
):
    """Add (X_h, V_{h+1}(s_{h+1})) of each step of an episode, and solve the visited pairs.

    pairs (T,) visited, states (T + 1,), v (H + 1, S) the values that were planned with. gram has
    the sums of X X^T, root the inverses of the Cholesky factors of M, with zeros above the
    diagonal, target (n,) the sums of X V_{h+1}(s_{h+1}), and theta (n,) is M^-1 target. The last
    four are updated in place.
    """
    size = np.diff(indptr).max()
    x, factor = np.empty(size), np.empty((size, size))
    for h in range(pairs.shape[0]):
        first, end, at = indptr[pairs[h]], indptr[pairs[h] + 1], starts[pairs[h]]
        n = end - first
        read_next_values(h, first, end, successors, next_state_reward, v, x)
        y = 0.0
        for i in range(n):
            y = x[i] if successors[first + i] == states[h + 1] else y
        for i in range(n):
            target[first + i] += y * x[i]
            for j in range(i + 1):
                gram[at + i * n + j] += x[i] * x[j]
    for pair in np.unique(pairs):
        first, n, at = indptr[pair], indptr[pair + 1] - indptr[pair], starts[pair]
        for i in range(n):
            x[i] = target[first + i]
            for j in range(i + 1):
                factor[i, j] = gram[at + i * n + j]
            factor[i, i] += lam
        cholesky(factor, n, lam)
        solve_lower(factor, n, x)
        solve_upper(factor, n, x)
        for j in range(n):
            theta[first + j] = x[j]
            for i in range(j, n):  # norms are quicker with the inverse: products, no divisions
                y = 1.0 if i == j else 0.0
                for l in range(j, i):
                    y -= factor[i, l] * root[at + l * n + j]
                root[at + i * n + j] = y / factor[i, i]


@njit_inline
def value_target_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """UCRL-VTR: Q_h = r + X^T theta + beta ||X||_{M^-1}, X = X_{V_{h+1}}(s, a).

    data: reward (1|H, S*A); starts, root and theta of `update_value_regression`; beta; max_size,
    the largest number of successors of a pair.
    """
    reward, starts, root, theta, beta, max_size = data
    r, x = min(h, reward.shape[0] - 1), np.empty(max_size)
    for pair in range(first, end):
        start, stop = np.int64(indptr[pair]), np.int64(indptr[pair + 1])
        n, at = stop - start, starts[pair]
        read_next_values(h, start, stop, successors, next_state_reward, v, x)
        expected = norm2 = 0.0
        for i in range(n):
            expected += x[i] * theta[start + i]
            product = 0.0
            for j in range(i + 1):
                product += root[at + i * n + j] * x[j]
            norm2 += product * product
        q[pair] = reward[r, pair] + expected + beta * np.sqrt(norm2)
