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
from upriver.kernels.gram import cholesky, copy_lower, log_determinant, solve_lower, solve_upper
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import (
    effect_logdet,
    evaluate_block,
    find_visited_pairs,
    load_block,
    set_weights,
    softmax,
    solve_effects,
    store_block,
)

DECREMENT = 1e-10  # squared decrement at which the step is the last; of data that weigh 1 or more
ITERATIONS = 100
SMALLEST_STEP = 1e-12  # share of a Newton step below which halving it is given up


@njit_inline
def move_block(pairs, m, visited, n_visited, size, origin, step, point, theta, c, scale, effects):
    """point <- origin - size * step, of a block and, unless n_visited is 0, its triple effects."""
    for i in range(m):
        point[i] = origin[i] - size * step[i]
    for k in range(n_visited):
        offset = pairs[visited[k]].effect_offset
        for row in range(pairs[visited[k]].first_row + 1, pairs[visited[k] + 1].first_row):
            theta[c, offset + row] = effects[row].origin - size * effects[row].step / scale


@njit_inline
def load_rows(pairs, slots, values, pair, m, rows):
    """rows[u, :m] <- x_u for the successors u of a pair.

    Returns the number of leading entries that are 0 in all rows, and stay 0 when L^-1 is applied.
    """
    record, zeros = pairs[pair], m
    for u in range(pairs[pair + 1].first_row - record.first_row):
        at = record.first_value + u * record.n_columns
        for i in range(m):
            rows[u, i] = 0.0
        for j in range(record.n_columns):
            slot = slots[record.first_column + j]
            rows[u, slot] = values[at + j]
            if values[at + j] != 0.0:
                zeros = min(zeros, slot)
    return zeros


@njit_inline
def include_effects(n, m, total, variance, own, outcomes, rows):
    """rows[u] <- [x_u - k_u (x_u - m), own k_u / sqrt(sum a)] for the n successors of a pair.

    total is the sum of a, or 0 for the Gram matrix, where m = 0 and the last entries are 0.
    """
    for i in range(m):
        mean = 0.0
        for u in range(n if total > 0.0 else 0):
            mean += outcomes[u].weight / total * rows[u, i]
        for u in range(1, n):
            rows[u, i] *= outcomes[u].share
            rows[u, i] += variance * outcomes[u].weight * mean
    for u in range(n):
        k = variance * outcomes[u].weight if u > 0 and total > 0.0 else 0.0
        rows[u, m] = own * k / np.sqrt(total) if k > 0.0 else 0.0


@njit_inline
def solve_rows(factor, m, n_own, n, zeros, shared, own, rows, outcomes):
    """rows[u] <- L^-1 rows[u], the n_own first of m entries times own, the others times shared.

    The first `zeros` entries are 0. The squares of the n outcomes get the squared norms. The loop
    goes over entries and then over rows, since an entry depends on those before it in the same row:
    while the processor waits for one row it works on another.
    """
    for u in range(n):
        outcomes[u].square = outcomes[u].alone = 0.0
    for i in range(zeros, m):
        for u in range(n):
            x = rows[u, i]
            for j in range(zeros, i):
                x -= factor[i, j] * rows[u, j]
            rows[u, i] = x / factor[i, i]
    for i in range(zeros, m):
        weight = own if i < n_own else shared
        for u in range(n):
            rows[u, i] *= weight
            outcomes[u].square += rows[u, i] * rows[u, i]


@njit_inline
def store_products(n, m, rows, outcomes, products, c, start):
    """products (C, .) gets, from start on, the inner products of n rows of m entries, n x n."""
    for u in range(n):
        products[c, start + u * n + u] = outcomes[u].square
        for t in range(u):
            x = 0.0
            for i in range(m):
                x += rows[u, i] * rows[t, i]
            products[c, start + u * n + t] = x
            products[c, start + t * n + u] = x


@njit_inline
def store_differences(n, m, rows, outcomes, products, c, start, width):
    """products (C, .) gets the inner products of the rows minus the first one, k x k, k = n - 1.

    If the width is not k these rows themselves, (k, m + 1), whose last entry is the root of what
    triple effects add.
    """
    for u in range(1, n):
        at = start + (u - 1) * width
        for i in range(m):
            rows[u, i] -= rows[0, i]
        for i in range(m if width != n - 1 else 0):
            products[c, at + i] = rows[u, i]
        for t in range(1, u + 1 if width == n - 1 else 1):
            x = outcomes[u].alone if t == u else 0.0
            for i in range(m):
                x += rows[u, i] * rows[t, i]
            products[c, at + t - 1] = x
            products[c, start + (t - 1) * width + u - 1] = x
        if width != n - 1:
            products[c, at + m] = np.sqrt(outcomes[u].alone)


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
    for i in range(first, last):
        pair = members[i]
        row = pairs[pair].first_row
        n, width = pairs[pair + 1].first_row - row, m
        softmax(pairs, slots, values, pair, point, theta, c, scale, outcomes)
        for u in range(n):
            prob[c, row + u] = outcomes[u].prob
        zeros = load_rows(pairs, slots, values, pair, m, rows)
        if variance != 0.0:
            width = m + 1
            total = set_weights(pairs, pair, counts, c, variance, local, outcomes)
            include_effects(n, m, total if local else 0.0, variance, own, outcomes, rows)
        solve_rows(factor, m, n_own, n, zeros, shared, own, rows, outcomes)
        if variance != 0.0:
            for u in range(1, n):
                outcomes[u].alone = own * own * variance * outcomes[u].share
                outcomes[u].square += rows[u, m] * rows[u, m] + outcomes[u].alone
        largest = 0.0
        for u in range(n):
            largest = max(largest, outcomes[u].square)
        max_norm[c, pair] = np.sqrt(largest)
        start, size = starts[pair], starts[pair + 1] - starts[pair]
        if products.shape[1] > 0 and size == n * n:
            store_products(n, width, rows, outcomes, products, c, start)
        elif products.shape[1] > 0 and n > 1:
            k = size // (n - 1)
            store_differences(n, width, rows, outcomes, products, c, start, k)


@njit_inline
def mark_blocks(pairs, n_actions, states, actions, logdet):
    """Set the log-determinants of the blocks that an episode touched to NaN."""
    for h in range(actions.shape[0]):
        b = pairs[states[h] * n_actions + actions[h]].block
        if b >= 0:
            logdet[min(h, logdet.shape[0] - 1), b] = np.nan


@njit_cached
def refresh(
    layout, counts, theta, prob, max_norm, products, logdet, lam, scale, states, actions,
    everything, local, shared, own,
):  # fmt: skip
    """Count an episode, and compute again what it changed: eq. (3), eq. (5) and the rest.

    states (T + 1,) and actions (T,) are the episode. Blocks that it touched are computed again, or
    all blocks of all parameters with `everything`. With `local` the Hessian of (2) at the estimate
    takes the place of the Gram matrix. All arrays of the model are changed in place; where prob is
    empty, only theta is computed.

    The step whose squared decrement is at most DECREMENT is the last; the error that it leaves is
    of that order squared. Returns the first step of the episode that is not in the support, and the
    first block without a minimum; each is -1 if there is none. Without a ridge a block may have
    none: its Hessian is singular, or no step is downhill.
    """
    pairs, slots, values, n_actions = layout.pairs, layout.slots, layout.values, layout.n_actions
    blocks, features, members = layout.blocks, layout.features, layout.block_pairs
    bad = count_transitions(layout.indptr, layout.successors, n_actions, states, actions, counts)
    if bad >= 0:
        return bad, -1
    visited, outcomes, effects, mean, point, gradient, hessian = new_work(layout, scale)
    factor, step, origin = np.empty_like(hessian), np.empty_like(point), np.empty_like(point)
    rows = np.empty((layout.max_successors, layout.max_block_size + 1))
    variance = scale * scale / lam if scale != 0.0 else 0.0
    is_square = products.shape[1] == layout.square_start[pairs.shape[0] - 1]
    starts = layout.square_start if is_square else layout.product_start
    # A block that is to be computed has no log-determinant until that is done, so a block that an
    # episode touches at many steps is computed once.
    n_parameters, n_blocks = counts.shape[0], blocks.shape[0] - 1
    mark_blocks(pairs, n_actions, states, actions, logdet)
    if everything:
        logdet[:] = np.nan
    for job in range(n_parameters * n_blocks if everything else actions.shape[0]):
        c, b = job // n_blocks, job % n_blocks
        if not everything:
            c = min(job, n_parameters - 1)
            b = np.int64(pairs[states[job] * n_actions + actions[job]].block)
        if b < 0 or not np.isnan(logdet[c, b]):
            continue
        m, n_own = blocks[b].size, blocks[b].n_own
        first, last = blocks[b].first_pair, blocks[b + 1].first_pair
        n_visited, weight = find_visited_pairs(pairs, blocks, members, b, counts, c, visited)
        n_moved = n_visited if scale != 0.0 else 0
        load_block(blocks, features, b, theta, c, point)
        # Eq. (3). The decrement scales with the weights of the data.
        enough, loss, decrement, size = DECREMENT * min(weight, 1.0), np.inf, np.inf, 0.0
        is_fitted = False
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
                    is_fitted = lam > 0.0
                    break
            else:
                is_fitted = decrement <= enough  # that step was the last, taken for the Hessian
                if is_fitted:
                    break
                loss, size = trial, 1.0
                for i in range(m):
                    origin[i], step[i] = point[i], gradient[i]
                copy_lower(hessian, m, factor)
                if not cholesky(factor, m, lam):
                    break
                decrement = solve_lower(factor, m, step)
                solve_upper(factor, m, step)
                if n_moved > 0:
                    decrement += solve_effects(
                        pairs, slots, values, visited, n_moved, variance, step, theta, c, effects
                    )
                is_fitted = decrement <= 1e-14 * enough
                if is_fitted:
                    break
            move_block(
                pairs, m, visited, n_moved, size, origin, step, point, theta, c, scale, effects
            )
            is_fitted = decrement <= enough and not (local and prob.shape[0] > 0)
            if is_fitted:
                break
        store_block(blocks, features, b, point, theta, c)
        if not is_fitted:
            return -1, b
        if prob.shape[0] == 0:
            continue
        # Eq. (5), or the Hessian at the estimate, which was evaluated last.
        if not local:
            evaluate_block(
                pairs, slots, values, m, visited, n_visited, counts, c, lam, scale, False, point,
                theta, effects, outcomes, mean, gradient, hessian,
            )  # fmt: skip
        if not cholesky(hessian, m, lam):
            return -1, b
        logdet[c, b] = log_determinant(hessian, m)
        if scale != 0.0:
            logdet[c, b] += effect_logdet(
                pairs, members, first, last, visited, n_visited, lam, local, effects
            )
        measure_pairs(
            pairs, slots, values, members, first, last, m, n_own, counts, c, scale, variance, local,
            shared, own, point, theta, outcomes, hessian, rows, prob, max_norm, products, starts,
        )  # fmt: skip
    return -1, -1


@njit_cached
def measure(layout, counts, theta, lam, scale, normals):
    """Return the loss (2) and log det of its Hessian H, sums over all parameters, for any counts.

    normals (C, d), unless it is empty, (0, 0), becomes theta + L^-T normals with L L^T the H that
    is left for the shared features, block by block: draws from N(theta_c, H^-1), but for triple
    effects. Both numbers are NaN where a block is not positive definite.
    """
    pairs, blocks, features = layout.pairs, layout.blocks, layout.features
    visited, outcomes, effects, mean, point, step, hessian = new_work(layout, scale)
    loss = logdet = 0.0
    for c in range(theta.shape[0]):
        for b in range(blocks.shape[0] - 1):
            m, first = blocks[b].size, blocks[b].first_feature
            n_visited, _ = find_visited_pairs(
                pairs, blocks, layout.block_pairs, b, counts, c, visited
            )
            load_block(blocks, features, b, theta, c, point)
            loss += evaluate_block(
                pairs, layout.slots, layout.values, m, visited, n_visited, counts, c, lam, scale,
                True, point, theta, effects, outcomes, mean, step, hessian,
            )  # fmt: skip
            if not cholesky(hessian, m, lam):
                return np.nan, np.nan
            logdet += log_determinant(hessian, m)
            if scale != 0.0:
                logdet += effect_logdet(
                    pairs, layout.block_pairs, blocks[b].first_pair, blocks[b + 1].first_pair,
                    visited, n_visited, lam, True, effects,
                )  # fmt: skip
            if normals.shape[0] > 0:
                for i in range(m):
                    step[i] = normals[c, features[first + i]]
                solve_upper(hessian, m, step)
                for i in range(m):
                    normals[c, features[first + i]] = point[i] + step[i]
    return loss, logdet
