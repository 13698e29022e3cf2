"""The running model: eq. (3), the estimate, with eq. (1) and norms in the inverse of eq. (5).

Counts n(s, a, s') are sufficient for the estimate and for the Gram matrix, so the cost of an
episode does not grow with the number of episodes. Only the blocks of features that an episode
touched are computed again. `model` is a `mnl.model.Model`: arrays with a leading axis of C
parameters, one for all steps or one for each step. `problem` is a `compiled.Constants` that holds
a `Problem`.
"""

import numpy as np

from upriver.kernels import Layout
from upriver.kernels.compiled import njit_cached, njit_inline, njit_inline_ir, njit_nogil
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
def with_spread(layout, spread):
    """Return the layout with another value of the triple effects: a model may learn its spread.

    Only for functions that count no references: the arrays are the caller's.
    """
    return Layout(
        layout.pairs, layout.blocks, layout.columns, layout.slots, layout.features,
        layout.block_pairs, layout.values, layout.max_block_size, layout.max_successors, spread,
    )  # fmt: skip


@njit_inline
def weigh_own_products(
    layout, pair, visits, lam, weights, is_own, products, start, prob, shrinkage, rows, squares,
    factor,
):  # fmt: skip
    """products (U, U), flat from `start` on, <- shared^2 (G - G_own) + own^2 G_own; they come as G.

    G_own = Phi_own H_own^-1 Phi_own^T with the Hessian of the own columns and triple effects of
    this pair alone. It is made as G is, from a Cholesky factor and rows, here of the own columns
    that vary within the pair. They are centred first, which adds to G_own constants by row and by
    column; no tilted distribution depends on these. prob (2 U,) comes with p and keeps it.
    """
    pairs, values = layout.pairs, layout.values
    first, w, column = pairs[pair].first_row, pairs[pair].n_columns, pairs[pair].first_column
    n, size = pairs[pair + 1].first_row - first, 0
    for u in range(n):
        prob[n + u] = prob[u]  # the second half survives `shrink_weights`
    total = shrink_weights(layout, pair, visits, lam, True, prob, shrinkage)
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
    if layout.triple_scale > 0.0:
        include_effects(layout, pair, size, visits, lam, True, rows, squares, prob, shrinkage)
        size += 1
    for u in range(n):
        prob[u] = prob[n + u]
        for t in range(n):
            own = squares[u]
            if t != u:
                own = 0.0
                for i in range(size):
                    own += rows[u, i] * rows[t, i]
            at = start + u * n + t
            products[at] = weights.shared**2 * (products[at] - own) + weights.own**2 * own


@njit_inline_ir
def measure_pairs(
    layout, members, size, model, c, local, weights, product_start, factor, prob, shrinkage, rows,
    squares, spare, effects, is_own, total,
):  # fmt: skip
    """Compute what planning reads of pairs of one block: probabilities, norms, inner products.

    For parameter c: model.prob gets eq. (1), model.max_norm gets max_u ||phi_u|| in the inverse of
    the factored matrix of the block, which has `size` features, and model.inverse_products gets
    the inner products, both with the `ErrorWeights`. Returns total + the log-determinant of the
    triple effects of these pairs. prob to effects are work arrays; spare is (m, m).
    """
    pairs, lam, columns = layout.pairs, model.regularization, size
    weighted = weights.kinds.shape[0] > 0
    for pair in members:
        shared, own, mixed = weights.shared, weights.own, False
        if weighted and weights.kinds[pair] == 1:
            shared = own
        elif weighted and weights.kinds[pair] == 2 and shared != own:
            shared, own, mixed = 1.0, 1.0, True
        first = pairs[pair].first_row
        softmax(layout, pair, model.theta[c], prob, effects)
        for u in range(pairs[pair + 1].first_row - first):
            model.prob[c, first + u] = prob[u]
        solve_rows(layout, pair, factor, size, rows, squares)
        if effects is not None:
            visits = count_visits(layout, pair, model.counts[c])
            total += effect_logdet(layout, pair, visits, lam, local, prob)
            include_effects(
                layout, pair, size, visits, lam, local, rows, squares, prob, shrinkage, shared, own
            )
            columns = size + 1  # the covariance that the triple effects of a pair share
        elif weighted:
            for u in range(pairs[pair + 1].first_row - first):
                squares[u] *= shared * shared
                for i in range(size):
                    rows[u, i] *= shared
        model.max_norm[c, pair] = store_inner_products(
            layout, pair, columns, model.inverse_products[c], product_start, rows, squares
        )
        # is_own is an argument, so that this is not compiled where no pair is mixed
        if is_own is not None and mixed:
            for u in range(pairs[pair + 1].first_row - first):
                prob[u] = model.prob[c, first + u]
            visits = count_visits(layout, pair, model.counts[c])
            weigh_own_products(
                layout, pair, visits, lam, weights, is_own, model.inverse_products[c],
                product_start[pair], prob, shrinkage, rows, squares, spare,
            )  # fmt: skip
    return total


@njit_cached
def refresh(problem, model, states, actions, everything, local, postpone, weights):
    """Count an episode, and compute again what it changed: eq. (3), eq. (5) and the rest.

    states (T + 1,) and actions (T,) are the episode. Blocks that it touched are computed again, or
    all blocks of all parameters with `everything`. With `local` the Hessian of (2) at the estimate
    takes the place of the Gram matrix. With `postpone`, for one large block, what planning reads is
    left to `measure_part`. weights: an `ErrorWeights`, which needs `local` unless it is UNWEIGHTED.
    The arrays of `model` are changed in place.

    Returns (the first step of the episode that is not in the support, the first block whose fit
    failed); each is -1 if there is none.
    """
    values = problem.values
    return refresh_blocks(
        values, values.layout, values.work, values.triple_work, model, states, actions, everything,
        local, postpone, weights, weights.is_own,
    )  # fmt: skip


@njit_inline
def refresh_blocks(
    problem, layout, work, effects, model, states, actions, everything, local, postpone, weights,
    is_own,
):  # fmt: skip
    """Do the work of `refresh`: references are not counted here, which saves 1 to 3 us a call."""
    layout = with_spread(layout, model.spread)
    counts, theta, lam = model.counts, model.theta, model.regularization
    n_actions, n_parameters, horizon = problem.n_actions, counts.shape[0], actions.shape[0]
    for h in range(horizon):
        pair = states[h] * n_actions + actions[h]
        row = find_row(problem.indptr, problem.successors, pair, states[h + 1])
        if row < 0:
            return h, -1
        counts[min(h, n_parameters - 1), row] += 1.0
    product_start = problem.product_start  # see `Features.product_start`
    if model.inverse_products.shape[1] == problem.square_start[-1]:
        product_start = problem.square_start
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
        if not newton_block(layout, b, visited, counts[c], theta[c], lam, local, work, effects):
            return -1, b
        # Eq. (5), or the Hessian that newton_block left.
        if local:
            for i in range(size):  # to assign a slice to a slice would take seconds to compile
                for j in range(i + 1):
                    factor[i, j] = work.hessian[i, j]
        else:
            gram_block(
                layout, b, visited, counts[c], lam, factor, work.prob, work.shrinkage, effects
            )
        if not cholesky(factor, size, lam):
            return -1, b
        logdet = add_logdet(factor, size, 0.0)
        if not postpone:
            low, high = layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair
            logdet = measure_pairs(
                layout, layout.block_pairs[low:high], size, model, c, local, weights,
                product_start, factor, work.prob, work.shrinkage, work.rows, work.squares,
                work.hessian, effects, is_own, logdet,
            )  # fmt: skip
        model.logdet[c, b] = logdet
    return -1, -1


@njit_nogil
def measure_part(problem, model, local, weights, first, last):
    """Do what `refresh` postponed for the pairs [first, last) of the one block of one parameter.

    Several parts may run at once, so each has work arrays of its own. Returns the log-determinant
    of the triple effects of these pairs.
    """
    values = problem.values
    layout, n = values.layout, values.layout.max_successors
    rows = np.empty((n, layout.max_block_size + 1))
    spare = np.empty((layout.max_block_size, layout.max_block_size))
    prob, shrinkage, squares = np.empty(2 * n), np.empty(n), np.empty(n)
    product_start = values.product_start
    if model.inverse_products.shape[1] == values.square_start[-1]:
        product_start = values.square_start
    return measure_one_part(
        layout, layout.block_pairs[first:last], model, local, weights, product_start,
        values.work.factor, prob, shrinkage, rows, squares, spare, values.triple_work,
        weights.is_own,
    )  # fmt: skip


@njit_inline
def measure_one_part(
    layout, members, model, local, weights, product_start, factor, prob, shrinkage, rows, squares,
    spare, effects, is_own,
):  # fmt: skip
    layout = with_spread(layout, model.spread)
    return measure_pairs(
        layout, members, layout.blocks[0].size, model, 0, local, weights, product_start, factor,
        prob, shrinkage, rows, squares, spare, effects, is_own, 0.0,
    )  # fmt: skip


@njit_cached
def fit_evidence(problem, counts, theta, lam, spread):
    """Minimise (2) with this spread from theta (d,), in place; return the log evidence there.

    The log of the marginal likelihood, the ridge being a normal prior, by Laplace's approximation:
    -loss - log det(H / lambda) / 2. Pairs without a visit add nothing to it. -inf if the fit fails.
    """
    values = problem.values
    return fit_evidence_of_blocks(
        values.layout, values.work, values.triple_work, counts, theta, lam, spread
    )


@njit_inline
def fit_evidence_of_blocks(layout, work, effects, counts, theta, lam, spread):
    layout = with_spread(layout, spread)
    result = 0.0
    for b in range(layout.blocks.shape[0] - 1):
        size = layout.blocks[b].size
        visited = work.visited[: find_visited_pairs(layout, counts, b, work.visited)]
        if visited.shape[0] == 0:
            continue
        if not newton_block(layout, b, visited, counts, theta, lam, False, work, effects):
            return -np.inf
        result -= evaluate_block(
            layout, visited, counts, theta, b, lam, work.gradient, work.factor, work.prob, work.mean
        )
        cholesky(work.factor, size, lam)
        result -= 0.5 * (add_logdet(work.factor, size, 0.0) - size * np.log(lam))
        for pair in visited:
            visits = count_visits(layout, pair, counts)
            softmax(layout, pair, theta, work.prob)
            n = layout.pairs[pair + 1].first_row - layout.pairs[pair].first_row
            logdet = effect_logdet(layout, pair, visits, lam, True, work.prob)
            result -= 0.5 * (logdet - (n - 1) * np.log(lam))
    return result


@njit_cached
def information(problem, counts, theta, lam, spread):
    """Return log det of the Hessian of (2) at theta (d,), for any counts (n,)."""
    values = problem.values
    return information_of_blocks(values.layout, values.work, counts, theta, lam, spread)


@njit_inline
def information_of_blocks(layout, work, counts, theta, lam, spread):
    layout = with_spread(layout, spread)
    total = 0.0
    for b in range(layout.blocks.shape[0] - 1):
        factor_hessian(layout, b, counts, theta, lam, work)
        total = add_logdet(work.factor, layout.blocks[b].size, total)
        if layout.triple_scale > 0.0:
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                softmax(layout, pair, theta, work.prob)
                visits = count_visits(layout, pair, counts)
                total += effect_logdet(layout, pair, visits, lam, True, work.prob)
    return total
