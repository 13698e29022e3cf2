"""Ridge regression for the linear baselines, and the backward passes whose backup is a regression.

LSVI (Jin et al. 2020) regresses r + V_{h+1}(s') on features phi(s, a) at each step. UCRL-VTR (Ayoub
et al. 2020) regresses V_{h+1}(s') on X_V(s, a) = sum_s' V(s') x(s, a, s'), with one parameter for
all steps. Matrices are kept in their lower triangle; `layout` is the `kernels.Layout` of features.
Arguments that all backward passes share are explained in `kernels.planning`.
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil, njit_without_refcounts
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
    """Return |R x|^2, R the inverse factor that `invert_lower` wrote at root[start:].

    Four rows at a time: a sum waits for its last term, and while one waits the others go on.
    """
    one, four = np.uint64(1), np.uint64(4)
    total = 0.0
    i, row = np.uint64(0), start
    while i + four <= m:
        row_b, row_c, row_d = row + m, row + m + m, row + m + m + m
        a = b = c = d = 0.0
        for j in range(i + four):  # above the diagonal are zeros
            a += root[row + j] * x[j]
            b += root[row_b + j] * x[j]
            c += root[row_c + j] * x[j]
            d += root[row_d + j] * x[j]
        total += a * a
        total += b * b
        total += c * c
        total += d * d
        row = row_d + m
        i += four
    while i < m:
        a = 0.0
        for j in range(i + one):
            a += root[row + j] * x[j]
        total += a * a
        row += m
        i += one
    return total


@njit_without_refcounts
def ridge_frequencies(indptr, counts, lam, prob, weight):
    """One-hot ridge regression: prob = N(s,a,s') / (N(s,a) + lam), weight = 1 / (N(s,a) + lam).

    counts and prob (C, n), weight (C, S*A).
    """
    one = np.uint64(1)  # unsigned counters, as in `planning.backward_pass`
    for c in range(counts.shape[0]):
        seen, p, w = counts[c], prob[c], weight[c]
        first = np.uint64(0)
        for pair in range(np.uint64(indptr.shape[0]) - one):
            stop = np.uint64(indptr[pair + one])
            visits = 0.0
            for i in range(first, stop):
                visits += seen[i]
            visits = 1.0 / (visits + lam)
            w[pair] = visits
            for i in range(first, stop):
                p[i] = seen[i] * visits
            first = stop


@njit_cached
def factor_gram_matrices(indptr, counts, phi, lam, factor):
    """Write the factors (H, d, d) of Lambda_h = lam I + the sum of phi phi^T over visits at h.

    counts (H, n), phi (S*A, d).
    """
    d = phi.shape[1]
    for h in range(counts.shape[0]):
        matrix = factor[h]
        for i in range(d):
            for j in range(i):
                matrix[i, j] = 0.0
            matrix[i, i] = lam
        for pair in range(phi.shape[0]):
            visits = 0.0
            for i in range(indptr[pair], indptr[pair + 1]):
                visits += counts[h, i]
            if visits > 0.0:
                for i in range(d):
                    x = visits * phi[pair, i]
                    if x != 0.0:
                        for j in range(i + 1):
                            matrix[i, j] += x * phi[pair, j]
        cholesky(matrix, d, lam)


@njit_cached
def compute_norms(phi, factor, norm):
    """norm (H, S*A) = ||phi(s, a)||_{Lambda_h^-1}, factor (H, d, d) of Lambda_h."""
    d = phi.shape[1]
    x = np.empty(d)
    for h in range(factor.shape[0]):
        for pair in range(phi.shape[0]):
            for i in range(d):
                x[i] = phi[pair, i]
            norm[h, pair] = np.sqrt(solve_lower(factor[h], d, x))


@njit_cached
def maximize_projections(phi, factor, normals, largest):
    """largest (H, S*A) = max over m of phi(s, a)^T L_h^-T z_{h,m}.

    With z standard normal, L^-T z has covariance (L L^T)^-1. normals (H, M, d) is overwritten.
    """
    d = phi.shape[1]
    largest[:] = -np.inf
    for h in range(factor.shape[0]):
        for m in range(normals.shape[1]):
            z = normals[h, m]
            solve_upper(factor[h], d, z)
            for pair in range(phi.shape[0]):
                x = 0.0
                for i in range(d):
                    x += phi[pair, i] * z[i]
                largest[h, pair] = max(largest[h, pair], x)


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
    rows = problem.values
    indptr = rows.indptr
    n_actions = q.shape[0] // policy.shape[1]
    d = phi.shape[1]
    w, values = np.empty(d), np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        rewards = visits.rewards[min(h, visits.rewards.shape[0] - 1)]
        w[:] = 0.0
        for pair in range(q.shape[0]):
            first, n = indptr[pair], indptr[pair + 1] - indptr[pair]
            read_next_values(rows, h, v[h + 1], first, n, values)
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
            choose_action(rows, h, s, tie_seed, v, policy, q)


class ValueRegression(NamedTuple):
    """The regression of UCRL-VTR, block by block of the layout of its features."""

    one_hot: Any
    """Whether the block of each pair is the pair itself, so that X_V is V on its successors."""
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
def mix_next_values(layout, one_hot, pair, m, successors, extra, following, x):
    """x[:m] = X_V = sum_s' V(s') x(s, a, s') in the coordinates of the block of the pair.

    extra (n|0): the next-state reward of each triple, which is added to V.
    """
    # Unsigned counters, as in `planning.backward_pass`.
    slots, values, record = layout.slots, layout.values, layout.pairs[pair]
    first, w = np.uint64(record.first_row), np.uint64(record.n_columns)
    column, row, has_extra = record.first_column, np.uint64(record.first_value), extra.shape[0] > 0
    if not one_hot:
        for j in range(m):
            x[j] = 0.0
    for i in range(first, np.uint64(layout.pairs[pair + 1].first_row)):
        value = following[np.uint32(successors[i])]
        if has_extra:
            value += extra[i]
        if one_hot:
            x[i - first] = value
        elif value != 0.0:
            for j in range(w):
                x[np.uint32(slots[np.uint64(column) + j])] += value * values[row + j]
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
        mix_next_values(layout, regression.one_hot, pair, m, successors, extra, following, x)
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
    rows = problem.values
    pair_records, blocks, extra = layout.pairs, layout.blocks, rows.next_state_reward
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
                    mix_next_values(
                        layout, regression.one_hot, pair, m, rows.successors, extra_h, following, x
                    )
                    for i in range(m):
                        total += x[i] * regression.theta[layout.features[place + i]]
                    norm2 = squared_norm(regression.root, np.uint64(start), np.uint64(m), x)
                    total += beta * np.sqrt(norm2)
                q[pair] = total
            choose_action(rows, h, s, tie_seed, v, policy, q)
