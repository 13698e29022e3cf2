"""Ridge regression for the linear baselines, and the rules whose expectation is a regression.

LSVI (Jin et al. 2020) regresses r + V_{h+1}(s') on features phi(s, a) at each step. UCRL-VTR (Ayoub
et al. 2020) regresses V_{h+1}(s') on X_V(s, a) = sum_s' V(s') x(s, a, s'), with one parameter for
all steps. Matrices are kept in their lower triangle; `layout` is the `kernels.Layout` of features.
The arguments that all rules share are explained in `kernels.planning`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.episodes import find_row
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import read_next_values


@njit_inline
def invert_lower(factor, m, root, start):
    """Write the inverse of a lower factor into root (flat m x m, from start on), 0 above."""
    for j in range(m):
        for i in range(m):
            x = 1.0 if i == j else 0.0
            for l in range(j, i):
                x -= factor[i, l] * root[start + l * m + j]
            root[start + i * m + j] = x / factor[i, i] if i >= j else 0.0


@njit_cached
def factor_matrices(matrices, floor):
    """Return the Cholesky factors of matrices (H, d, d) that are at least floor I, in place."""
    for h in range(matrices.shape[0]):
        cholesky(matrices[h], matrices.shape[1], floor)
        for i in range(matrices.shape[1]):
            matrices[h, i, i + 1 :] = 0.0
    return matrices


@njit_inline
def regression_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """LSVI: w_h = Lambda_h^-1 sum phi (r + V_{h+1}(s')), Q_h = phi^T w_h + noise_h.

    The sum runs over the visits at step h: counts (H, n) are those of each triple, rewards
    (1|H, S*A) the sums of the rewards received. factor (H, d, d) of Lambda_h, noise (H, S*A),
    phi (S*A, d); max_size is the largest number of successors of a pair.
    """
    counts, rewards, factor, noise, phi, max_size = data
    r, d = min(h, rewards.shape[0] - 1), phi.shape[1]
    w, values = np.zeros(d), np.empty(max_size)
    for pair in range(q.shape[0]):
        start, stop = np.int64(indptr[pair]), np.int64(indptr[pair + 1])
        read_next_values(h, start, stop, successors, next_state_reward, v, values)
        target = rewards[r, pair]
        for u in range(stop - start):
            target += counts[h, start + u] * values[u]
        if target != 0.0:
            for i in range(d):
                w[i] += target * phi[pair, i]
    solve_lower(factor[h], d, w)
    solve_upper(factor[h], d, w)
    for pair in range(first, end):
        q[pair] = noise[h, pair]
        for i in range(d):
            q[pair] += phi[pair, i] * w[i]


@njit_inline
def find_regressor(pairs, slots, values, pair, m, h, successors, next_state_reward, v, x):
    """x (m,) <- X_{V_{h+1}}(s, a), the features of the block of a pair, of size m."""
    e, at = min(h, next_state_reward.shape[0] - 1), pairs[pair].first_value
    for j in range(m):
        x[j] = 0.0
    for i in range(pairs[pair].first_row, pairs[pair + 1].first_row):
        extra = next_state_reward[e, i] if next_state_reward.shape[1] > 0 else 0.0
        value = v[h + 1, successors[i]] + extra
        for j in range(pairs[pair].n_columns):
            x[slots[pairs[pair].first_column + j]] += value * values[at + j]
        at += pairs[pair].n_columns


@njit_cached
def update_value_regression(
    layout, lam, next_state_reward, pairs, states, v, gram, target, root, theta
):
    """Add (X_h, V_{h+1}(s_{h+1})) of each step of an episode, and solve the blocks that changed.

    pairs (T,) visited, states (T + 1,), v (H + 1, S) the values that were planned with. The flat
    m x m matrix of block b begins at layout.matrix_start[b]: in gram that of the sum of X X^T, in
    root the inverse of the Cholesky factor of M = lam I + gram. target (d,) is the sum of
    X V_{h+1}(s_{h+1}), theta (d,) is M^-1 target. The last four are updated in place.
    """
    records, blocks, features = layout.pairs, layout.blocks, layout.features
    successors, slots, values = layout.successors, layout.slots, layout.values
    n_blocks, size = blocks.shape[0] - 1, layout.max_block_size
    x, matrix, changed = np.empty(size), np.empty((size, size)), np.zeros(n_blocks, np.bool_)
    for h in range(pairs.shape[0]):
        pair, y = pairs[h], v[h + 1, states[h + 1]]
        b = records[pair].block
        if b < 0:  # all features of the pair are zero
            continue
        changed[b] = True
        place, m, start = blocks[b].first_feature, blocks[b].size, layout.matrix_start[b]
        if next_state_reward.shape[1] > 0:
            row = find_row(layout.indptr, successors, pair, states[h + 1])
            y += next_state_reward[min(h, next_state_reward.shape[0] - 1), row]
        find_regressor(records, slots, values, pair, m, h, successors, next_state_reward, v, x)
        for i in range(m):
            if x[i] != 0.0:
                target[features[place + i]] += y * x[i]
                for j in range(i + 1):
                    gram[start + i * m + j] += x[i] * x[j]
    for b in range(n_blocks):
        if changed[b]:
            place, m, start = blocks[b].first_feature, blocks[b].size, layout.matrix_start[b]
            for i in range(m):
                x[i] = target[features[place + i]]
                for j in range(i + 1):
                    matrix[i, j] = gram[start + i * m + j]
                matrix[i, i] += lam
            cholesky(matrix, m, lam)
            solve_lower(matrix, m, x)
            solve_upper(matrix, m, x)
            for i in range(m):
                theta[features[place + i]] = x[i]
            invert_lower(matrix, m, root, start)


@njit_inline
def value_target_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """UCRL-VTR: Q_h = r + X^T theta + beta ||X||_{M^-1}, X = X_{V_{h+1}}(s, a).

    data: reward (1|H, S*A), the layout of the features, root and theta of
    `update_value_regression`, and beta. With R the root, ||X||_{M^-1} = ||R X||.
    """
    reward, layout, root, theta, beta = data
    pairs, blocks, features, slots = layout.pairs, layout.blocks, layout.features, layout.slots
    starts, values, x = layout.matrix_start, layout.values, np.empty(layout.max_block_size)
    r = min(h, reward.shape[0] - 1)
    for pair in range(first, end):
        q[pair] = reward[r, pair]
        b, norm2 = pairs[pair].block, 0.0
        if b < 0:  # all features of the pair are zero
            continue
        place, m, start = blocks[b].first_feature, blocks[b].size, starts[b]
        find_regressor(pairs, slots, values, pair, m, h, successors, next_state_reward, v, x)
        for i in range(m):
            q[pair] += x[i] * theta[features[place + i]]
            product = 0.0
            for j in range(i + 1):  # above the diagonal are zeros
                product += root[start + i * m + j] * x[j]
            norm2 += product * product
        q[pair] += beta * np.sqrt(norm2)
