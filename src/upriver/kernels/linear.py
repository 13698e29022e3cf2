"""Ridge regression for the linear baselines, and the rules whose expectation is a regression.

LSVI (Jin et al. 2020) regresses r + V_{h+1}(s') on features phi(s, a) at each step. UCRL-VTR (Ayoub
et al. 2020) regresses V_{h+1}(s') on X_V(s, a) = sum_s' V(s') x(s, a, s'), with one parameter for
all steps. Matrices are kept in their lower triangle; `layout` is the `kernels.Layout` of features.
The arguments that all rules share are explained in `kernels.planning`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import read_next_values


@njit_inline
def invert_lower(factor, m, root, start):
    """Write the inverse of a lower factor into the flat m x m matrix at root[start:].

    Zero above the diagonal. Many norms against one factor are quicker with the inverse, because
    products have no divisions to wait for.
    """
    for j in range(m):
        for i in range(m):
            x = 1.0 if i == j else 0.0
            for l in range(j, i):
                x -= factor[i, l] * root[start + l * m + j]
            root[start + i * m + j] = x / factor[i, i] if i >= j else 0.0


@njit_inline
def squared_norm(root, start, m, x):
    """Return |R x|^2, R the inverse factor that `invert_lower` wrote at root[start:]."""
    total = 0.0
    for i in range(m):
        row = start + i * m
        product = 0.0
        for j in range(i + 1):  # above the diagonal are zeros
            product += root[row + j] * x[j]
        total += product * product
    return total


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
def mix_next_values(h, layout, pair, m, successors, next_state_reward, v, x):
    """x[:m] = X_V = sum_s' V(s') x(s, a, s') in the coordinates of the block of the pair.

    V(s') is V_{h+1} and the next-state reward of the triple, see `kernels.planning`.
    """
    values, slots, record = layout.values, layout.slots, layout.pairs[pair]
    w, column, at = record.n_columns, record.first_column, record.first_value
    has_extra, e = next_state_reward.shape[1] > 0, min(h, next_state_reward.shape[0] - 1)
    for j in range(m):
        x[j] = 0.0
    for i in range(record.first_row, layout.pairs[pair + 1].first_row):
        value = v[h + 1, successors[i]]
        if has_extra:
            value += next_state_reward[e, i]
        for j in range(w):
            x[slots[column + j]] += value * values[at + j]
        at += w


@njit_cached
def update_value_regression(
    layout, lam, successors, next_state_reward, pairs, states, v, matrix_start, gram, target, root,
    theta,
):  # fmt: skip
    """Add (X_h, V_{h+1}(s_{h+1})) of each step of an episode, and solve the blocks that changed.

    pairs (T,) visited, states (T + 1,), v (H + 1, S) the values that were planned with. The flat
    m x m matrix of block b begins at matrix_start[b]: in gram that of the sum of X X^T, in root the
    inverse of the Cholesky factor of M = lam I + gram. target (d,) is the sum of
    X V_{h+1}(s_{h+1}), theta (d,) is M^-1 target. The last four are updated in place.
    """
    records, blocks, features = layout.pairs, layout.blocks, layout.features
    n_blocks, size = blocks.shape[0] - 1, layout.max_block_size
    x, factor, changed = np.empty(size), np.empty((size, size)), np.zeros(n_blocks, np.bool_)
    for h in range(pairs.shape[0]):
        pair, e = pairs[h], min(h, next_state_reward.shape[0] - 1)
        b = records[pair].block
        if b < 0:  # all features of the pair are zero
            continue
        place, m, start = blocks[b].first_feature, blocks[b].size, matrix_start[b]
        mix_next_values(h, layout, pair, m, successors, next_state_reward, v, x)
        y = v[h + 1, states[h + 1]]
        for i in range(records[pair].first_row, records[pair + 1].first_row):
            if next_state_reward.shape[1] > 0 and successors[i] == states[h + 1]:
                y += next_state_reward[e, i]
        changed[b] = True
        for i in range(m):
            if x[i] != 0.0:
                target[features[place + i]] += y * x[i]
                for j in range(i + 1):
                    gram[start + i * m + j] += x[i] * x[j]
    for b in range(n_blocks):
        if changed[b]:
            place, m, start = blocks[b].first_feature, blocks[b].size, matrix_start[b]
            for i in range(m):
                x[i] = target[features[place + i]]
                for j in range(i + 1):
                    factor[i, j] = gram[start + i * m + j]
                factor[i, i] += lam
            cholesky(factor, m, lam)
            invert_lower(factor, m, root, start)
            solve_lower(factor, m, x)
            solve_upper(factor, m, x)
            for i in range(m):
                theta[features[place + i]] = x[i]


@njit_inline
def value_target_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """UCRL-VTR: Q_h = r + X^T theta + beta ||X||_{M^-1}, X = X_{V_{h+1}}(s, a).

    reward (1|H, S*A); matrix_start, root and theta are those of `update_value_regression`.
    """
    reward, layout, matrix_start, root, theta, beta = data
    pairs, blocks, features = layout.pairs, layout.blocks, layout.features
    r, x = min(h, reward.shape[0] - 1), np.empty(layout.max_block_size)
    for pair in range(first, end):
        b = pairs[pair].block
        q[pair] = reward[r, pair]
        if b >= 0:
            place, m = blocks[b].first_feature, blocks[b].size
            mix_next_values(h, layout, pair, m, successors, next_state_reward, v, x)
            for i in range(m):
                q[pair] += x[i] * theta[features[place + i]]
            q[pair] += beta * np.sqrt(squared_norm(root, matrix_start[b], m, x))
