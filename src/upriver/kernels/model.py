"""The running model: eq. (3), the estimate, with eq. (1) and norms in the inverse of eq. (5).

The estimate is found by Newton's method on (2), block by block, with its Hessian H (m, m):

    step = H^-1 gradient, theta <- theta - size * step, size halved until the loss falls

Triple effects are eliminated from the gradient, the block is solved for the shared features, and
the effects follow from that solution, see `kernels.likelihood`.

Counts n(s, a, s') are sufficient for the estimate and for the Gram matrix, so the cost of an
episode does not grow with the number of episodes. Only the blocks of features that an episode
touched are computed again. The arrays of a `mnl.model.Model` have a leading axis of C parameters,
one for all steps or one for each step: counts (C, n), theta (C, d), prob (C, n), max_norm (C, S*A),
products (C, .) and logdet (C, B).

The inner products of a pair are G = R R^T + D with the rows R = (L^-1 x_u)_u, L L^T the matrix of
the block. A block has the columns that vary in one pair only first (`n_own` of them). So the
leading columns of R make G_own, the covariance that is left where the shared columns are known, and
errors may count more than once, by multiplying columns of R:

    products = own^2 G_own + shared^2 (G - G_own)
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.episodes import count_transitions
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import (
    effect_logdet,
    evaluate_block,
    load_block,
    solve_effects,
)

DECREMENT = 1e-10  # squared decrement at which the step is the last; of data that weigh 1 or more
ITERATIONS = 100
SMALLEST_STEP = 1e-12  # share of a Newton step below which halving it is given up


@njit_inline
def measure_pairs(
    pairs, slots, values, members, first, last, m, n_own, counts, c, scale, variance, local, shared,
    own, point, theta, outcomes, factor, rows, prob, max_norm, products, starts,
):  # fmt: skip
    """Compute what planning reads of members[first:last], given the Cholesky factor of their block.

    prob gets eq. (1), max_norm gets max_u ||phi_u|| in the inverse of the factored matrix, and
    products the inner products, from starts[pair] on, both with their errors multiplied: n x n of
    them where there is room, otherwise of differences; it may be empty, (C, 0).
    """
    for k in range(first, last):
        pair = members[k]
        record, row = pairs[pair], pairs[pair].first_row
        n, w, width, zeros = pairs[pair + 1].first_row - row, record.n_columns, m, m
        # Eq. (1), and the rows x_u, which begin with `zeros` entries that are 0 in all of them.
        top, total, visits, weights = -np.inf, 0.0, 0.0, 0.0
        for u in range(n):
            x = scale * theta[c, record.effect_offset + row + u] if u > 0 and scale != 0.0 else 0.0
            for i in range(m):
                rows[u, i] = 0.0
            for j in range(w):
                value, slot = values[record.first_value + u * w + j], slots[record.first_column + j]
                x += value * point[slot]
                rows[u, slot] = value
                if value != 0.0:
                    zeros = min(zeros, slot)
            outcomes[u].logit = x
            top = max(top, x)
        for u in range(n):  # the largest logit is subtracted, so that none overflows
            outcomes[u].prob = np.exp(outcomes[u].logit - top)
            total += outcomes[u].prob
        for u in range(n):
            prob[c, row + u] = outcomes[u].prob / total
            outcomes[u].square = outcomes[u].alone = 0.0
        if variance != 0.0:  # rows[u] <- [x_u - k_u (x_u - mean), own k_u / sqrt(sum a)]
            width = m + 1
            for u in range(n):
                visits += counts[c, row + u]
            for u in range(n):
                weight = visits * prob[c, row + u] if local else visits
                outcomes[u].share = 1.0 / (1.0 + variance * weight) if u > 0 else 1.0
                outcomes[u].weight = weight * outcomes[u].share
                weights += outcomes[u].weight
            is_centred = local and weights > 0.0  # of the Gram matrix the mean is 0
            for i in range(m):
                mean = 0.0
                for u in range(n if is_centred else 0):
                    mean += outcomes[u].weight / weights * rows[u, i]
                for u in range(1, n):
                    rows[u, i] *= outcomes[u].share
                    rows[u, i] += variance * outcomes[u].weight * mean
            for u in range(n):
                root = variance * outcomes[u].weight / np.sqrt(weights) if is_centred else 0.0
                rows[u, m] = own * root if u > 0 else 0.0
                outcomes[u].alone = own * own * variance * outcomes[u].share if u > 0 else 0.0
                outcomes[u].square = rows[u, m] * rows[u, m] + outcomes[u].alone
        # rows[u] <- L^-1 rows[u], weighted. The loop goes over entries and then over rows, since an
        # entry depends on those before it in the same row: while the processor waits for one row
        # it works on another.
        for i in range(zeros, m):
            for u in range(n):
                x = rows[u, i]
                for j in range(zeros, i):
                    x -= factor[i, j] * rows[u, j]
                rows[u, i] = x / factor[i, i]
        largest = 0.0
        for i in range(zeros, m):
            weight = own if i < n_own else shared
            for u in range(n):
                rows[u, i] *= weight
                outcomes[u].square += rows[u, i] * rows[u, i]
        for u in range(n):
            largest = max(largest, outcomes[u].square)
        max_norm[c, pair] = np.sqrt(largest)
        if products.shape[1] == 0:
            continue
        # Of all rows (U, U), of the rows minus the first one (U - 1, U - 1), or where it is smaller
        # these rows themselves, whose last entry is the root of what triple effects add.
        at, size = starts[pair], starts[pair + 1] - starts[pair]
        skipped = 0 if size == n * n else 1
        stride = size // max(n - skipped, 1)
        for u in range(skipped, n):
            start = at + (u - skipped) * stride - skipped
            for i in range(width if skipped else 0):
                rows[u, i] -= rows[0, i]
            for t in range(skipped, u + 1 if stride == n - skipped else 0):
                x = outcomes[u].alone if t == u else 0.0
                for i in range(width):
                    x += rows[u, i] * rows[t, i]
                products[c, start + t] = x
                products[c, at + (t - skipped) * stride + u - skipped] = x
            if stride != n - skipped:
                for i in range(width):
                    products[c, start + 1 + i] = rows[u, i]
                products[c, start + 1 + width] = np.sqrt(outcomes[u].alone)


@njit_cached
def refresh(
    layout, counts, theta, prob, max_norm, products, logdet, lam, scale, states, actions, is_fitted,
    local, shared, own, normals,
):  # fmt: skip
    """Count an episode, and compute again what it changed: eq. (3), eq. (5) and the rest.

    states (T + 1,) and actions (T,) are the episode. Blocks that it touched are computed again, and
    those without a log-determinant (NaN). If theta `is_fitted` it stays. With `local` the Hessian
    of (2) at theta takes the place of the Gram matrix. All arrays of the model are changed in
    place; prob may be empty, (0, 0), and is then left out with what follows from it, and without
    `local` only theta is computed. normals (C, d), unless it is empty, becomes theta + L^-T normals
    with L L^T the matrix of the block: draws from N(theta, H^-1), but for triple effects.

    The step whose squared decrement is at most DECREMENT is the last; the error that it leaves is
    of that order squared. Returns the first step of the episode that is not in the support, the
    first block without a minimum, each -1 if there is none, and with `local` the loss (2). Without
    a ridge a block may have no minimum: its Hessian is singular, or no step is downhill.
    """
    pairs, slots, values, n_actions = layout.pairs, layout.slots, layout.values, layout.n_actions
    blocks, features, members = layout.blocks, layout.features, layout.block_pairs
    bad = count_transitions(layout.indptr, layout.successors, n_actions, states, actions, counts)
    if bad >= 0:
        return bad, -1, np.nan
    visited, outcomes, effects, mean, point, gradient, hessian = new_work(layout, scale)
    step, rows = np.empty_like(point), np.empty((layout.max_successors, len(point) + 1))
    variance = scale * scale / lam if scale != 0.0 else 0.0
    is_square = products.shape[1] == layout.square_start[pairs.shape[0] - 1]
    starts = layout.square_start if is_square else layout.product_start
    n_parameters, n_blocks, total = counts.shape[0], blocks.shape[0] - 1, 0.0
    for h in range(actions.shape[0]):
        b = pairs[states[h] * n_actions + actions[h]].block
        if b >= 0:
            logdet[min(h, n_parameters - 1), b] = np.nan
    for job in range(n_parameters * n_blocks):
        c, b = job // n_blocks, job % n_blocks
        if not np.isnan(logdet[c, b]):
            continue
        m, n_own = blocks[b].size, blocks[b].n_own
        first, last = blocks[b].first_pair, blocks[b + 1].first_pair
        n_visited, weight = 0, 0.0  # of the pairs of the block that have a count
        for k in range(first, last):
            visits = 0.0
            for row in range(pairs[members[k]].first_row, pairs[members[k] + 1].first_row):
                visits += counts[c, row]
            visited[n_visited] = members[k]
            n_visited += 1 if visits != 0.0 else 0
            weight += visits
        n_moved = n_visited if scale != 0.0 else 0
        load_block(blocks, features, b, theta, c, point)
        # Eq. (3). The decrement scales with the weights of the data.
        enough, loss, done = DECREMENT * min(weight, 1.0), np.inf, False
        size, taken, decrement = 0.0, 0.0, 0.0 if is_fitted else np.inf
        for _ in range(ITERATIONS):
            trial = evaluate_block(
                pairs, slots, values, m, visited, n_visited, counts, c, lam, scale, True, point,
                theta, effects, outcomes, mean, gradient, hessian,
            )  # fmt: skip
            # Near the minimum rounding hides the decrease, but the full step is right there.
            near = decrement <= max(enough, 1e-12 * loss)
            if size > 0.0 and not (trial <= loss - 1e-4 * size * decrement or near):
                size *= 0.5
                if size < SMALLEST_STEP:  # with a ridge rounding hides the rest of the way
                    done = lam > 0.0
                    break
            else:
                done = decrement <= enough  # that step was the last, taken for the Hessian
                if done:
                    break
                loss, size, taken = trial, 1.0, 0.0
                for i in range(m):
                    step[i] = gradient[i]
                if not cholesky(hessian, m, lam):
                    break
                decrement = solve_lower(hessian, m, step)
                solve_upper(hessian, m, step)
                if n_moved > 0:
                    decrement += solve_effects(
                        pairs, slots, values, visited, n_moved, variance, step, effects
                    )
            for i in range(m):
                point[i] -= (size - taken) * step[i]
            for k in range(n_moved):
                offset = pairs[visited[k]].effect_offset
                for row in range(pairs[visited[k]].first_row + 1, pairs[visited[k] + 1].first_row):
                    theta[c, offset + row] -= (size - taken) * effects[row].step / scale
            taken = size  # where a step is halved, this much of it has been taken already
            done = decrement <= enough and not local
            if done:
                break
        for i in range(m):
            theta[c, features[blocks[b].first_feature + i]] = point[i]
        if not done:
            return -1, b, np.nan
        total += trial
        if prob.shape[0] == 0 and not local:
            continue
        # Eq. (5), or the Hessian at the estimate, which was evaluated last.
        if not local:
            evaluate_block(
                pairs, slots, values, m, visited, n_visited, counts, c, lam, scale, False, point,
                theta, effects, outcomes, mean, gradient, hessian,
            )  # fmt: skip
        if not cholesky(hessian, m, lam):
            return -1, b, np.nan
        logdet[c, b] = 0.0
        for i in range(m):
            logdet[c, b] += 2.0 * np.log(hessian[i, i])
        if scale != 0.0:
            logdet[c, b] += effect_logdet(
                pairs, members, first, last, visited, n_visited, lam, local, effects
            )
        if normals.shape[0] > 0:
            for i in range(m):
                step[i] = normals[c, features[blocks[b].first_feature + i]]
            solve_upper(hessian, m, step)
            for i in range(m):
                normals[c, features[blocks[b].first_feature + i]] = point[i] + step[i]
        if prob.shape[0] > 0:
            measure_pairs(
                pairs, slots, values, members, first, last, m, n_own, counts, c, scale, variance,
                local, shared, own, point, theta, outcomes, hessian, rows, prob, max_norm, products,
                starts,
            )  # fmt: skip
    return -1, -1, total
