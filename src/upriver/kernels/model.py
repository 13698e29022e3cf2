"""The running model: eq. (3), the estimate, with eq. (1) and norms in the inverse of eq. (5).

Counts n(s, a, s') are sufficient for the estimate and for the Gram matrix, so the cost of an
episode does not grow with the number of episodes. Only the blocks of features that an episode
touched are computed again. `model` has the fields of a `mnl.model.Model` in their order, as a plain
tuple because numba takes three times as long over a named one: arrays with a leading axis of C
parameters, one for all steps or one for each step. `problem` is a `compiled.Constants` that holds
a `Problem`, and `scale` is None where there are no triple effects, see `likelihood.softmax`.
"""

import numpy as np

from upriver.kernels.compiled import (
    njit_inline,
    njit_inline_ir,
    njit_nogil,
    njit_without_refcounts,
)
from upriver.kernels.covariance import factor_hessian
from upriver.kernels.episodes import find_row
from upriver.kernels.gram import (
    add_logdet,
    cholesky,
    gram_block,
    solve_lower,
    solve_rows,
    store_inner_products,
)
from upriver.kernels.likelihood import (
    count_visits,
    evaluate_block,
    find_visited_pairs,
    shrink_weights,
    softmax,
)
from upriver.kernels.newton import newton_block
from upriver.kernels.pooled import effect_logdet, include_effects


@njit_inline
def weigh_own_products(layout, work, pair, visits, lam, scale, weights, is_own, products, start):
    """products (U, U), flat from `start` on, <- shared^2 (G - G_own) + own^2 G_own; they come as G.

    G_own = Phi_own H_own^-1 Phi_own^T with the Hessian of the own columns and triple effects of
    this pair alone. It is made as G is, from a Cholesky factor and rows, here of the own columns
    that vary within the pair. They are centred first, which adds to G_own constants by row and by
    column; no tilted distribution depends on these. work.prob comes with p. Nothing is compiled
    where is_own is None, as no pair has both kinds of columns.
    """
    if is_own is None:
        return
    prob, shrinkage, factor = work.prob, work.shrinkage, work.hessian
    rows, squares, pairs, values = work.rows, work.squares, layout.pairs, layout.values
    first, w, column = pairs[pair].first_row, pairs[pair].n_columns, pairs[pair].first_column
    n, size, c = pairs[pair + 1].first_row - first, 0, 0.0
    if scale is not None:
        c = scale * scale / lam
    for u in range(n):
        prob[n + u] = prob[u]  # the second half survives `shrink_weights`
    total = shrink_weights(layout, pair, visits, c, True, prob, shrinkage)
    for j in range(w):
        if not is_own[layout.columns[column + j]]:
            continue
        mean, low, high = 0.0, np.inf, -np.inf
        for u in range(n):
            x = values[pairs[pair].first_value + u * w + j]
            rows[u, size] = x
            mean += prob[u] * x
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
                factor[i, j] += prob[u] * rows[u, i] * rows[u, j]
    cholesky(factor, size, lam)
    for u in range(n):
        prob[u] = prob[n + u]
        squares[u] = solve_lower(factor, size, rows[u])
    if scale is not None:
        include_effects(layout, work, pair, size, visits, c, True)
        size += 1
    for u in range(n):
        for t in range(n):
            own = squares[u]
            if t != u:
                own = 0.0
                for i in range(size):
                    own += rows[u, i] * rows[t, i]
            at = start + u * n + t
            products[at] = weights.shared**2 * (products[at] - own) + weights.own**2 * own


@njit_inline_ir
def measure_pairs(problem, work, b, members, model, c, scale, local, weights, logdet):
    """Compute what planning reads of the pairs `members` of block b, for parameter c.

    Of the model, prob gets eq. (1), max_norm gets max_u ||phi_u|| in the inverse of the factored
    matrix of the block, problem.work.factor, and inverse_products gets the inner products, both
    with the `ErrorWeights`. Returns logdet + the log-determinant of the triple effects of these
    pairs.
    """
    counts, theta, model_prob, max_norm, inverse_products, _, lam, _ = model
    layout, factor = problem.layout, problem.work.factor
    pairs, size, prob = layout.pairs, layout.blocks[b].size, work.prob
    columns, products = size, inverse_products[c]
    product_start = problem.product_start  # see `Features.product_start`
    if products.shape[0] == problem.square_start[-1]:
        product_start = problem.square_start
    for pair in members:
        first = pairs[pair].first_row
        n = pairs[pair + 1].first_row - first
        softmax(layout, pair, theta[c], prob, scale)
        for u in range(n):
            model_prob[c, first + u] = prob[u]
        solve_rows(layout, pair, factor, size, work.rows, work.squares)
        shared, own, is_mixed = 1.0, 1.0, False
        if weights is not None:
            is_mixed = weights.kinds[pair] == 2 and weights.shared != weights.own
            if not is_mixed:
                own = weights.own
                shared = own if weights.kinds[pair] == 1 else weights.shared
        visits = count_visits(layout, pair, counts[c])
        if scale is not None:
            logdet += effect_logdet(layout, pair, visits, lam, scale, local, prob)
            variance = scale * scale / lam
            include_effects(layout, work, pair, size, visits, variance, local, shared, own)
            columns = size + 1  # the covariance that the triple effects of a pair share
        elif weights is not None:
            for u in range(n):
                work.squares[u] *= shared * shared
                for i in range(size):
                    work.rows[u, i] *= shared
        max_norm[c, pair] = store_inner_products(
            layout, pair, columns, products, product_start, work.rows, work.squares
        )
        if weights is not None and is_mixed:
            for u in range(n):
                prob[u] = model_prob[c, first + u]
            weigh_own_products(
                layout, work, pair, visits, lam, scale, weights, weights.is_own, products,
                product_start[pair],
            )  # fmt: skip
    return logdet


@njit_without_refcounts
def refresh(problem, model, scale, states, actions, everything, local, postpone, weights):
    """Count an episode, and compute again what it changed: eq. (3), eq. (5) and the rest.

    states (T + 1,) and actions (T,) are the episode. Blocks that it touched are computed again, or
    all blocks of all parameters with `everything`. With `local` the Hessian of (2) at the estimate
    takes the place of the Gram matrix. With `postpone`, for one large block, what planning reads is
    left to `measure_part`. weights: a `Constants` of `ErrorWeights`, which needs `local`, or None.
    The arrays of `model` are changed in place.

    Returns (the first step of the episode that is not in the support, the first block whose fit
    failed); each is -1 if there is none.
    """
    layout, work = problem.layout, problem.work
    counts, theta, _, _, _, logdets, lam, _ = model
    n_actions, n_parameters, horizon = problem.n_actions, counts.shape[0], actions.shape[0]
    for h in range(horizon):
        pair = states[h] * n_actions + actions[h]
        row = find_row(problem.indptr, problem.successors, pair, states[h + 1])
        if row < 0:
            return h, -1
        counts[min(h, n_parameters - 1), row] += 1.0
    stamps, factor, n_blocks = work.stamps, work.factor, layout.blocks.shape[0] - 1
    stamps[n_blocks] += 1  # an episode may touch a block at many steps; it is computed once
    for job in range(n_parameters * n_blocks if everything else horizon):
        if everything:
            c, b = job // n_blocks, job % n_blocks
        else:
            c = min(job, n_parameters - 1)
            b = np.int64(layout.pairs[states[job] * n_actions + actions[job]].block)
        if b < 0 or (n_parameters == 1 and stamps[b] == stamps[n_blocks]):
            continue
        stamps[b] = stamps[n_blocks]
        size = layout.blocks[b].size
        visited = work.visited[: find_visited_pairs(layout, counts[c], b, work.visited)]
        # Eq. (3).
        if not newton_block(layout, work, b, visited, counts[c], theta[c], lam, scale, local):
            return -1, b
        # Eq. (5), or the Hessian that newton_block left.
        if local:
            for i in range(size):  # to assign a slice to a slice would take seconds to compile
                for j in range(i + 1):
                    factor[i, j] = work.hessian[i, j]
        else:
            gram_block(layout, work, b, visited, counts[c], lam, factor, scale)
        if not cholesky(factor, size, lam):
            return -1, b
        logdet = add_logdet(factor, size, 0.0)
        if not postpone:
            low, high = layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair
            members = layout.block_pairs[low:high]
            logdet = measure_pairs(
                problem, work, b, members, model, c, scale, local, weights, logdet
            )
        logdets[c, b] = logdet
    return -1, -1


@njit_nogil
def measure_part(problem, work, model, scale, local, weights, first, last):
    """Do what `refresh` postponed for the pairs [first, last) of the one block of one parameter.

    Several parts may run at once, so each has a `Work` of its own. Returns the log-determinant
    of the triple effects of these pairs.
    """
    members = problem.layout.block_pairs[first:last]
    return measure_pairs(problem, work, 0, members, model, 0, scale, local, weights, 0.0)


@njit_without_refcounts
def fit_evidence(problem, counts, theta, lam, scale):
    """Minimise (2) from theta (d,), in place; return the log evidence there, -inf if it fails.

    The log of the marginal likelihood, the ridge being a normal prior, by Laplace's approximation:
    -loss - log det(H / lambda) / 2. Pairs without a visit add nothing to it.
    """
    layout, work, result = problem.layout, problem.work, 0.0
    for b in range(layout.blocks.shape[0] - 1):
        size = layout.blocks[b].size
        visited = work.visited[: find_visited_pairs(layout, counts, b, work.visited)]
        if visited.shape[0] == 0:
            continue
        if not newton_block(layout, work, b, visited, counts, theta, lam, scale, False):
            return -np.inf
        result -= evaluate_block(layout, work, b, visited, counts, theta, lam, work.factor, scale)
        cholesky(work.factor, size, lam)
        result -= 0.5 * (add_logdet(work.factor, size, 0.0) - size * np.log(lam))
        for pair in visited:
            visits = count_visits(layout, pair, counts)
            softmax(layout, pair, theta, work.prob, scale)
            n = layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row
            logdet = effect_logdet(layout, pair, visits, lam, scale, True, work.prob)
            result -= 0.5 * (logdet - (n - 1) * np.log(lam))
    return result


@njit_without_refcounts
def information(problem, counts, theta, lam, scale):
    """Return log det of the Hessian of (2) at theta (d,), for any counts (n,)."""
    layout, work, total = problem.layout, problem.work, 0.0
    for b in range(layout.blocks.shape[0] - 1):
        factor_hessian(layout, work, b, counts, theta, lam, scale)
        total = add_logdet(work.factor, layout.blocks[b].size, total)
        if scale is not None:
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                softmax(layout, pair, theta, work.prob, scale)
                visits = count_visits(layout, pair, counts)
                total += effect_logdet(layout, pair, visits, lam, scale, True, work.prob)
    return total
