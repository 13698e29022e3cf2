"""Ridge regression for the linear baselines, and the backward passes whose backup is a regression.

LSVI (Jin et al. 2020) regresses r + V_{h+1}(s') on features phi(s, a) at each step. UCRL-VTR (Ayoub
et al. 2020) regresses V_{h+1}(s') on X_V(s, a) = sum_s' V(s') x(s, a, s'), with one parameter for
all steps. Matrices are kept in their lower triangle; `layout` is the `kernels.Layout` of features.
Arguments that all backward passes share are explained in `kernels.planning`.
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import choose_action, max_successors, read_next_values


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


class RegressionData(NamedTuple):
    """The transitions that LSVI regresses on, as sums over visits."""

    counts: Any
    """(H, n) the visits of each triple at each step."""
    rewards: Any
    """(1|H, S*A) the sum of the rewards received."""


@njit_nogil
def backward_pass_regression(problem, visits, factor, noise, phi, tie_seed, v, policy, q, span):
    """LSVI: w_h = Lambda_h^-1 sum phi (r + V_{h+1}(s')), Q_h = clip(phi^T w_h + noise_h).

    The sum runs over the visits at step h; visits: `RegressionData`. factor (H, d, d) of Lambda_h,
    noise (H, S*A), phi (S*A, d).
    """
    indptr = problem.indptr
    n_actions = q.shape[0] // policy.shape[1]
    d = phi.shape[1]
    w, values = np.empty(d), np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        rewards = visits.rewards[min(h, visits.rewards.shape[0] - 1)]
        w[:] = 0.0
        for pair in range(q.shape[0]):
            first, n = indptr[pair], indptr[pair + 1] - indptr[pair]
            read_next_values(problem, h, v[h + 1], first, n, values)
            target = rewards[pair]
            for u in range(n):
                target += visits.counts[h, first + u] * values[u]
            if target != 0.0:
                for i in range(d):
                    w[i] += target * phi[pair, i]
        solve_lower(factor[h], d, w)
        solve_upper(factor[h], d, w)
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                x = noise[h, pair]
                for i in range(d):
                    x += phi[pair, i] * w[i]
                q[pair] = x
            choose_action(problem, h, s, tie_seed, v, policy, q)


class ValueRegression(NamedTuple):
    """The regression of UCRL-VTR, block by block of the layout of its features."""

    matrix_start: Any
    """(B,) where the flat m x m matrix of each block begins."""
    gram: Any
    """Flat blocks of the sum of X X^T, without lambda I."""
    target: Any
    """(d,) sum of X V_{h+1}(s_{h+1})."""
    root: Any
    """Flat inverses of the Cholesky factors of the blocks of M = lambda I + gram."""
    theta: Any
    """(d,) M^-1 target."""


@njit_inline
def mix_next_values(layout, pair, m, successors, extra, following, x):
    """x[:m] = X_V = sum_s' V(s') x(s, a, s') in the coordinates of the block of the pair.

    extra (n|0): the next-state reward of each triple, which is added to V.
    """
    values, record = layout.values, layout.pairs[pair]
    w, row = record.n_columns, record.first_value
    slots = layout.slots[record.first_column : record.first_column + w]
    for j in range(m):
        x[j] = 0.0
    for i in range(record.first_row, layout.pairs[pair + 1].first_row):
        value = following[successors[i]]
        if extra.shape[0] > 0:
            value += extra[i]
        for j in range(w):
            x[slots[j]] += value * values[row + j]
        row += w


@njit_cached
def update_value_regression(
    layout, regression, lam, successors, next_state_reward, pairs, states, v
):
    """Add (X_h, V_{h+1}(s_{h+1})) of each step of an episode, and solve the blocks that changed.

    pairs (T,) visited, states (T + 1,), v (H + 1, S) the values that were planned with. The arrays
    of `regression`, a `ValueRegression`, are updated in place.
    """
    pair_records, blocks, features = layout.pairs, layout.blocks, layout.features
    gram, target, root = regression.gram, regression.target, regression.root
    n_blocks, size = blocks.shape[0] - 1, layout.max_block_size
    x, factor, changed = np.empty(size), np.empty((size, size)), np.zeros(n_blocks, np.bool_)
    for h in range(pairs.shape[0]):
        pair = pairs[h]
        b = pair_records[pair].block
        if b < 0:  # all features of the pair are zero
            continue
        place, m = blocks[b].first_feature, blocks[b].size
        start = regression.matrix_start[b]
        extra, following = next_state_reward[min(h, next_state_reward.shape[0] - 1)], v[h + 1]
        mix_next_values(layout, pair, m, successors, extra, following, x)
        y = following[states[h + 1]]
        for i in range(pair_records[pair].first_row, pair_records[pair + 1].first_row):
            if extra.shape[0] > 0 and successors[i] == states[h + 1]:
                y += extra[i]
        changed[b] = True
        for i in range(m):
            if x[i] != 0.0:
                target[features[place + i]] += y * x[i]
                for j in range(i + 1):
                    gram[start + i * m + j] += x[i] * x[j]
    for b in range(n_blocks):
        if changed[b]:
            place, m = blocks[b].first_feature, blocks[b].size
            start = regression.matrix_start[b]
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
                regression.theta[features[place + i]] = x[i]


@njit_nogil
def backward_pass_value_targets(
    problem, reward, layout, regression, beta, tie_seed, v, policy, q, span
):
    """UCRL-VTR: Q_h = clip(r + X^T theta + beta ||X||_{M^-1}), X = X_{V_{h+1}}(s, a).

    reward (1|H, S*A); regression: a `ValueRegression`.
    """
    pair_records, blocks, extra = layout.pairs, layout.blocks, problem.next_state_reward
    n_actions = q.shape[0] // policy.shape[1]
    x = np.empty(layout.max_block_size)
    for h in range(span[1] - 1, span[0] - 1, -1):
        r, following = reward[min(h, reward.shape[0] - 1)], v[h + 1]
        extra_h = extra[min(h, extra.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                b = pair_records[pair].block
                total = r[pair]
                if b >= 0:
                    place, m = blocks[b].first_feature, blocks[b].size
                    start = regression.matrix_start[b]
                    mix_next_values(layout, pair, m, problem.successors, extra_h, following, x)
                    for i in range(m):
                        total += x[i] * regression.theta[layout.features[place + i]]
                    total += beta * np.sqrt(squared_norm(regression.root, start, m, x))
                q[pair] = total
            choose_action(problem, h, s, tie_seed, v, policy, q)
