"""The running model: eq. (3), the estimate, with eq. (1) and norms in the inverse of eq. (5).

Counts n(s, a, s') are sufficient for the estimate and for the Gram matrix, so the cost of an
episode does not grow with the number of episodes. Only the blocks of features that an episode
touched are computed again. The arrays of a `mnl.model.Model` have a leading axis of C parameters,
one for all steps or one for each step: counts (C, n), theta (C, d), prob (C, n), max_norm (C, S*A),
products (C, .) and logdet (C, B).

The errors of a pair may count more than once: with G the inner products in the inverse matrix and
G_own those that are left where the shared columns are known, products get

    shared^2 (G - G_own) + own^2 G_own.

kinds (S*A,) says whether a pair has shared columns alone (0), own columns alone (1) or both (2),
and is empty where errors count once; is_own (d,) whether a packed column varies in one pair only.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.episodes import count_transitions
from upriver.kernels.gram import (
    cholesky,
    copy_lower,
    gram_block,
    log_determinant,
    solve_rows,
    store_inner_products,
)
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import (
    count_visits,
    effect_variance,
    find_visited_pairs,
    shrink_weights,
    softmax,
)
from upriver.kernels.newton import newton_block
from upriver.kernels.pooled import effect_logdet, include_effects

BOTH = 2
"""The kind of a pair that has shared and own columns."""


@njit_inline
def weigh_own_products(
    layout, work, pair, visits, prob, c, lam, scale, shared, own, is_own, products, start
):
    """products[c, start:], U x U, <- shared^2 (G - G_own) + own^2 G_own; they come as G.

    G_own = Phi_own H_own^-1 Phi_own^T with the Hessian of the own columns and triple effects of
    this pair alone. It is made as G is, from a Cholesky factor and rows, here of the own columns
    that vary within the pair. They are centred first, which adds to G_own constants by row and by
    column; no tilted distribution depends on these.
    """
    outcomes, factor, rows = work.outcomes, work.hessian, work.rows
    pairs, values, record = layout.pairs, layout.values, layout.pairs[pair]
    first, w, variance = record.first_row, record.n_columns, effect_variance(scale, lam)
    n, size = pairs[pair + 1].first_row - first, 0
    for u in range(n):
        outcomes[u].prob = prob[c, first + u]
    total = shrink_weights(pairs, pair, visits, variance, True, outcomes)
    for j in range(w):
        if not is_own[layout.columns[record.first_column + j]]:
            continue
        mean, low, high = 0.0, np.inf, -np.inf
        for u in range(n):
            x = values[record.first_value + u * w + j]
            rows[u, size] = x
            mean += outcomes[u].prob * x
            low, high = min(low, x), max(high, x)
        if low == high:
            continue
        for u in range(n):
            rows[u, size] -= mean / total if total > 0.0 else 0.0
        size += 1
    for i in range(size):
        for j in range(i + 1):
            factor[i, j] = lam if i == j else 0.0
            for u in range(n):
                factor[i, j] += outcomes[u].prob * rows[u, i] * rows[u, j]
    cholesky(factor, size, lam)
    for u in range(n):
        square = 0.0
        for i in range(size):
            x = rows[u, i]
            for j in range(i):
                x -= factor[i, j] * rows[u, j]
            rows[u, i] = x / factor[i, i]
            square += rows[u, i] * rows[u, i]
        outcomes[u].square = square
        outcomes[u].prob = prob[c, first + u]
    if scale != 0.0:
        include_effects(pairs, pair, size, visits, variance, True, 1.0, 1.0, rows, outcomes)
        size += 1
    for u in range(n):
        for t in range(n):
            own_product = outcomes[u].square
            if t != u:
                own_product = 0.0
                for i in range(size):
                    own_product += rows[u, i] * rows[t, i]
            at = start + u * n + t
            rest = products[c, at] - own_product
            products[c, at] = shared * shared * rest + own * own * own_product


@njit_inline
def measure_pair(
    layout, work, pair, m, factor, counts, theta, prob, max_norm, products, c, lam, scale, local,
    shared, own, kinds, is_own,
):  # fmt: skip
    """Compute what planning reads of a pair whose block has m features and this Cholesky factor.

    prob gets eq. (1), max_norm gets max_u ||phi_u|| in the inverse of the factored matrix, and
    products the inner products. Returns the log-determinant of the triple effects of the pair.
    """
    pairs, values, outcomes, rows = layout.pairs, layout.values, work.outcomes, work.rows
    first = pairs[pair].first_row
    n = pairs[pair + 1].first_row - first
    softmax(pairs, layout.columns, values, pair, theta, c, scale, outcomes)
    for u in range(n):
        prob[c, first + u] = outcomes[u].prob
    is_mixed, shared_weight, own_weight = False, 1.0, 1.0
    if kinds.shape[0] > 0:
        is_mixed = kinds[pair] == BOTH and shared != own
        if not is_mixed:
            shared_weight, own_weight = own if kinds[pair] == 1 else shared, own
    solve_rows(pairs, layout.slots, values, pair, factor, m, rows, outcomes)
    visits, columns = count_visits(pairs, pair, counts, c), m
    logdet = effect_logdet(n, visits, lam, scale, local, outcomes)
    if scale != 0.0:
        columns = m + 1  # the covariance that the triple effects of a pair share
        variance = effect_variance(scale, lam)
        include_effects(
            pairs, pair, m, visits, variance, local, shared_weight, own_weight, rows, outcomes
        )
    elif shared_weight != 1.0:
        for u in range(n):
            outcomes[u].square *= shared_weight * shared_weight
            for i in range(m):
                rows[u, i] *= shared_weight
    start, end = layout.product_start[pair], layout.product_start[pair + 1]
    if products.shape[1] == layout.square_start[pairs.shape[0] - 1]:
        start, end = layout.square_start[pair], layout.square_start[pair + 1]
    max_norm[c, pair] = store_inner_products(n, columns, products, c, start, end, rows, outcomes)
    if is_mixed:
        weigh_own_products(
            layout, work, pair, visits, prob, c, lam, scale, shared, own, is_own, products, start
        )
    return logdet


@njit_cached
def refresh(
    layout, counts, theta, prob, max_norm, products, logdet, lam, scale, states, actions,
    everything, local, shared, own, kinds, is_own, postponed,
):  # fmt: skip
    """Count an episode, and compute again what it changed: eq. (3), eq. (5) and the rest.

    states (T + 1,) and actions (T,) are the episode. Blocks that it touched are computed again, or
    all blocks of all parameters with `everything`. With `local` the Hessian of (2) at the estimate
    takes the place of the Gram matrix. All arrays of the model are changed in place. Where
    `postponed` (m, m) is not empty, for one large block, it gets the Cholesky factor of the block,
    and what planning reads is left to `measure_part`.

    Returns (the first step of the episode that is not in the support, the first block whose fit
    failed, how many blocks were computed); the first two are -1 if there is none.
    """
    n_parameters, n_blocks, horizon = counts.shape[0], layout.blocks.shape[0] - 1, actions.shape[0]
    bad = count_transitions(
        layout.indptr, layout.successors, layout.n_actions, states, actions, counts
    )
    if bad >= 0:
        return bad, -1, 0
    work, n_computed = new_work(layout, scale), 0
    # A block that is to be computed has no log-determinant until that is done, so a block that an
    # episode touches at many steps is computed once.
    for h in range(horizon):
        b = layout.pairs[states[h] * layout.n_actions + actions[h]].block
        if b >= 0:
            logdet[min(h, n_parameters - 1), b] = np.nan
    if everything:
        logdet[:] = np.nan
    for job in range(n_parameters * n_blocks if everything else horizon):
        c, b = min(job, n_parameters - 1), job % n_blocks
        if everything:
            c = job // n_blocks
        else:
            b = np.int64(layout.pairs[states[job] * layout.n_actions + actions[job]].block)
        if b < 0 or not np.isnan(logdet[c, b]):
            continue
        size, factor, total = layout.blocks[b].size, work.factor, 0.0
        n_visited = find_visited_pairs(layout, counts, c, b, work.visited)
        # Eq. (3).
        if not newton_block(layout, work, b, n_visited, counts, theta, c, lam, scale, local):
            return -1, b, n_computed
        # Eq. (5), or the Hessian that newton_block left.
        if local:
            copy_lower(work.hessian, size, factor)
        else:
            gram_block(layout, work, b, n_visited, counts, c, lam, scale, factor)
        if not cholesky(factor, size, lam):
            return -1, b, n_computed
        if postponed.shape[0] > 0:
            copy_lower(factor, size, postponed)
        else:
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                total += measure_pair(
                    layout, work, layout.block_pairs[i], size, factor, counts, theta, prob,
                    max_norm, products, c, lam, scale, local, shared, own, kinds, is_own,
                )  # fmt: skip
        logdet[c, b] = total + log_determinant(factor, size)
        n_computed += 1
    return -1, -1, n_computed


@njit_cached
def measure_part(
    layout, counts, theta, prob, max_norm, products, lam, scale, local, shared, own, kinds, is_own,
    factor, first, last,
):  # fmt: skip
    """Do what `refresh` postponed for the pairs [first, last) of the one block of one parameter.

    Several parts may run at once. Returns the log-determinant of the triple effects of these pairs.
    """
    work, total = new_work(layout, scale), 0.0
    for i in range(first, last):
        total += measure_pair(
            layout, work, layout.block_pairs[i], layout.blocks[0].size, factor, counts, theta,
            prob, max_norm, products, 0, lam, scale, local, shared, own, kinds, is_own,
        )  # fmt: skip
    return total
