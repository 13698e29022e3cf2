"""Ridge regression for the linear baselines, and the sweeps whose backup is a regression.

Matrices are kept in their lower triangle. `layout` is a `Layout`, see `kernels.likelihood`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil, njit_without_refcounts
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import settle


@njit_inline
def invert_lower(factor, m, root, start):
    """The inverse of a lower factor, into the flat m x m at root[start:]; zero above the diagonal.

    Many norms against one factor are quicker with it: products have no divisions to wait for.
    """
    for j in range(m):
        for i in range(m):
            x = 1.0 if i == j else 0.0
            for l in range(j, i):
                x -= factor[i, l] * root[start + l * m + j]
            root[start + i * m + j] = x / factor[i, i] if i >= j else 0.0


@njit_inline
def squared_norm(root, start, m, x):
    """|R x|^2, R what `invert_lower` left at root[start:].

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
def shrink(indptr, counts, lam, prob, weight):
    """One-hot ridge: prob = N(s,a,s') / (N(s,a) + lam) and weight = 1 / (N(s,a) + lam).

    counts and prob (C, n), weight (C, S*A).
    """
    one = np.uint64(1)  # unsigned counters, as in `planning.sweep`
    for c in range(counts.shape[0]):
        seen, p, w = counts[c], prob[c], weight[c]
        first = np.uint64(0)
        for g in range(np.uint64(indptr.shape[0]) - one):
            stop = np.uint64(indptr[g + one])
            visits = 0.0
            for i in range(first, stop):
                visits += seen[i]
            visits = 1.0 / (visits + lam)
            w[g] = visits
            for i in range(first, stop):
                p[i] = seen[i] * visits
            first = stop


@njit_cached
def factor_steps(indptr, counts, phi, lam, factor):
    """Factors (H, d, d) of Lambda_h = lam I + sum over visits at step h of phi phi^T.

    counts (H, n), phi (S*A, d).
    """
    d = phi.shape[1]
    for h in range(counts.shape[0]):
        matrix = factor[h]
        for i in range(d):
            for j in range(i):
                matrix[i, j] = 0.0
            matrix[i, i] = lam
        for g in range(phi.shape[0]):
            visits = 0.0
            for i in range(indptr[g], indptr[g + 1]):
                visits += counts[h, i]
            if visits > 0.0:
                for i in range(d):
                    x = visits * phi[g, i]
                    if x != 0.0:
                        for j in range(i + 1):
                            matrix[i, j] += x * phi[g, j]
        cholesky(matrix, d, lam)


@njit_cached
def norms(phi, factor, norm):
    """||phi(s, a)|| in the inverse of each factored matrix: norm (H, S*A), factor (H, d, d)."""
    d = phi.shape[1]
    x = np.empty(d)
    for h in range(factor.shape[0]):
        for g in range(phi.shape[0]):
            for i in range(d):
                x[i] = phi[g, i]
            norm[h, g] = np.sqrt(solve_lower(factor[h], d, x))


@njit_cached
def largest_projection(phi, factor, normals, largest):
    """max over m of phi(s, a)^T L_h^-T z_{h,m}, into largest (H, S*A).

    With z standard normal, L^-T z has covariance (L L^T)^-1. normals (H, M, d) is overwritten.
    """
    d = phi.shape[1]
    largest[:] = -np.inf
    for h in range(factor.shape[0]):
        for m in range(normals.shape[1]):
            z = normals[h, m]
            solve_upper(factor[h], d, z)
            for g in range(phi.shape[0]):
                x = 0.0
                for i in range(d):
                    x += phi[g, i] * z[i]
                largest[h, g] = max(largest[h, g], x)


@njit_nogil
def sweep_regression(
    indptr, successors, pay, counts, paid, factor, noise, phi, low, q_cap, v_cap, seed, v, policy,
    q, span,
):  # fmt: skip
    """LSVI: w_h = Lambda_h^-1 sum phi (r + V_{h+1}(s')), Q_h = clip(phi^T w_h + noise_h).

    The sum runs over the visits at step h, through counts (H, n) and the rewards paid (1|H, S*A).
    phi (S*A, d), factor (H, d, d) of Lambda_h, noise (H, S*A); the rest as in `planning.sweep`.
    """
    n_actions = q.shape[0] // policy.shape[1]
    d = phi.shape[1]
    w = np.empty(d)
    for h in range(span[1] - 1, span[0] - 1, -1):
        w[:] = 0.0
        for g in range(q.shape[0]):
            target = paid[min(h, paid.shape[0] - 1), g]
            for i in range(indptr[g], indptr[g + 1]):
                value = v[h + 1, successors[i]]
                if pay.shape[1] > 0:
                    value += pay[min(h, pay.shape[0] - 1), i]
                target += counts[h, i] * value
            if target != 0.0:
                for i in range(d):
                    w[i] += target * phi[g, i]
        solve_lower(factor[h], d, w)
        solve_upper(factor[h], d, w)
        for s in range(span[2], span[3]):
            for g in range(s * n_actions, (s + 1) * n_actions):
                x = noise[h, g]
                for i in range(d):
                    x += phi[g, i] * w[i]
                q[g] = x
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)


@njit_inline
def mix(pairs, slots, values, one_hot, g, m, successors, pay, following, x):
    """X_V(g) = sum_s' V(s') x(g, s'), into x[:m], the coordinates of the block of g.

    pay (n|0), where there is any, is added to V.
    """
    # Unsigned counters, as in `planning.sweep`: signed ones are tested for wrap-around every time.
    first, w = np.uint64(pairs[g].first_row), np.uint64(pairs[g].n_columns)
    place = pairs[g].first_column
    row, paid = np.uint64(pairs[g].first_value), pay.shape[0] > 0
    if not one_hot:
        for j in range(m):
            x[j] = 0.0
    for i in range(first, np.uint64(pairs[g + 1].first_row)):
        value = following[np.uint32(successors[i])]
        if paid:
            value += pay[i]
        if one_hot:  # the block is the group, and X is V on its successors
            x[i - first] = value
        elif value != 0.0:
            for j in range(w):
                x[np.uint32(slots[np.uint64(place) + j])] += value * values[row + j]
        row += w


@njit_without_refcounts
def absorb_targets(
    pairs, blocks, slots, features, values, one_hot, matrix_start, successors, pay, lam,
    groups, states, v, gram, target, root, theta, factor, x, stamps,
):  # fmt: skip
    """Value-targeted regression: add (X_{h}, V_{h+1}(s_{h+1})) of each step, solve what changed.

    First fields of the `Layout`. groups (T,) are the pairs visited, states (T + 1,), v (H + 1, S)
    the values planned with. In place: gram and root (flat blocks), target and theta (d,); root is
    the inverse of the factor of M = lam I + gram. factor, x and stamps are those of
    `Features.work`.
    """
    n_blocks = blocks.shape[0] - 1
    stamps[n_blocks] += 1  # blocks that change get the number of this call, as in `model.refresh`
    for h in range(groups.shape[0]):
        g = groups[h]
        b = pairs[g].block
        if b < 0:
            continue
        place, m, start = blocks[b].first_feature, blocks[b].size, matrix_start[b]
        next_state_reward, after = pay[min(h, pay.shape[0] - 1)], v[h + 1]
        mix(pairs, slots, values, one_hot, g, m, successors, next_state_reward, after, x)
        y = after[states[h + 1]]
        for i in range(pairs[g].first_row, pairs[g + 1].first_row):
            if next_state_reward.shape[0] > 0 and successors[i] == states[h + 1]:
                y += next_state_reward[i]
        stamps[b] = stamps[n_blocks]
        for i in range(m):
            if x[i] != 0.0:
                target[features[place + i]] += y * x[i]
                for j in range(i + 1):
                    gram[start + i * m + j] += x[i] * x[j]
    for b in range(n_blocks):
        if stamps[b] == stamps[n_blocks]:
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


@njit_nogil
def sweep_targets(
    indptr, successors, pay, reward, pairs, blocks, slots, features, values, one_hot,
    matrix_start, root, theta, beta, low, q_cap, v_cap, seed, v, policy, q, span,
):  # fmt: skip
    """Q_h = clip(r + X^T theta + beta ||X||_{M^-1}), X = X_{V_{h+1}}(s, a).

    pairs to values are fields of the `Layout`; root is the inverse of the factor of M, see
    `invert_lower`. The rest as in `planning.sweep`.
    """
    n_actions = q.shape[0] // policy.shape[1]
    x = np.empty(theta.shape[0])
    for h in range(span[1] - 1, span[0] - 1, -1):
        r, after = reward[min(h, reward.shape[0] - 1)], v[h + 1]
        next_state_reward = pay[min(h, pay.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for g in range(s * n_actions, (s + 1) * n_actions):
                b = pairs[g].block
                total = r[g]
                if b >= 0:
                    place, m, start = blocks[b].first_feature, blocks[b].size, matrix_start[b]
                    mix(
                        pairs,
                        slots,
                        values,
                        one_hot,
                        g,
                        m,
                        successors,
                        next_state_reward,
                        after,
                        x,
                    )
                    for i in range(m):
                        total += x[i] * theta[features[place + i]]
                    norm2 = squared_norm(root, np.uint64(start), np.uint64(m), x)
                    total += beta * np.sqrt(norm2)
                q[g] = total
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)
