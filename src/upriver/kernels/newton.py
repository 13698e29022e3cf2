"""Eq. (3), the maximum-likelihood estimate: Newton's method on (2), block by block.

    step = H^-1 gradient, theta <- theta - size * step, size halved until the loss falls

counts (C, n), theta (C, d); H (m, m) is the Hessian of one block. Triple effects are eliminated
from the gradient, the block is solved for the shared features, and the effects follow from that
solution (`kernels.pooled`).
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, copy_lower, solve_lower, solve_upper
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import count_visits, evaluate_block, find_visited_pairs
from upriver.kernels.pooled import compute_effect_slopes, eliminate_effects, solve_effects

DECREMENT = 1e-10  # squared decrement at which the step is the last; of data that weigh 1 or more
ITERATIONS = 100
SMALLEST_STEP = 1e-12  # share of a Newton step below which halving it is given up


@njit_inline
def move_block(layout, work, b, n_visited, theta, c, scale, size):
    """theta <- the parameters of block b before the step, minus size * step."""
    block, features, step, origin = layout.blocks[b], layout.features, work.step, work.origin
    for i in range(block.size):
        theta[c, features[block.first_feature + i]] = origin[i] - size * step[i]
    if scale == 0.0:
        return
    pairs, visited, effects = layout.pairs, work.visited, work.effects
    for k in range(n_visited):
        offset = pairs[visited[k]].effect_offset
        for row in range(pairs[visited[k]].first_row + 1, pairs[visited[k] + 1].first_row):
            theta[c, offset + row] = effects[row].origin - size * effects[row].step / scale


@njit_inline
def compute_step(layout, work, b, n_visited, counts, theta, c, lam, scale):
    """Write the Newton step and the present parameters of block b into `work`.

    Returns the squared decrement, gradient^T H^-1 gradient; -1 where H is singular.
    """
    first, m, features = layout.blocks[b].first_feature, layout.blocks[b].size, layout.features
    hessian, factor, gradient = work.hessian, work.factor, work.gradient
    step, origin = work.step, work.origin
    if scale != 0.0:
        compute_effect_slopes(layout, work, n_visited, counts, theta, c, lam, scale)
        eliminate_effects(layout, work, n_visited, counts, theta, c, lam, scale)
    for i in range(m):
        step[i] = gradient[i]
        origin[i] = theta[c, features[first + i]]
    copy_lower(hessian, m, factor)
    if not cholesky(factor, m, lam):
        return -1.0
    decrement = solve_lower(factor, m, step)
    solve_upper(factor, m, step)
    if scale != 0.0:
        decrement += solve_effects(layout, work, n_visited, counts, theta, c, lam, scale)
        pairs, visited, effects = layout.pairs, work.visited, work.effects
        for k in range(n_visited):
            offset = pairs[visited[k]].effect_offset
            for row in range(pairs[visited[k]].first_row + 1, pairs[visited[k] + 1].first_row):
                effects[row].origin = theta[c, offset + row]
    return decrement


@njit_inline
def newton_block(layout, work, b, n_visited, counts, theta, c, lam, scale, keep_hessian):
    """Minimise (2) over the coordinates of block b, in place in theta, from the theta given.

    The step whose squared decrement is at most DECREMENT is the last; the error that it leaves is
    of that order squared. The first n_visited entries of work.visited are the pairs of the block
    that have a count. With `keep_hessian` the Hessian at the result is left in work.hessian.
    Returns False where there is no ridge and the Hessian is singular or no step decreases the loss.
    """
    total, pairs, visited = 0.0, layout.pairs, work.visited
    for k in range(n_visited):
        total += count_visits(pairs, visited[k], counts, c)
    enough = DECREMENT * min(total, 1.0)  # the decrement scales with the weights of the data
    loss, decrement, size = np.inf, np.inf, 0.0
    for _ in range(ITERATIONS):
        trial = evaluate_block(
            layout, work, b, n_visited, counts, theta, c, lam, scale, work.hessian
        )
        # Near the minimum rounding hides the decrease, but the full step is right there.
        near = decrement <= max(enough, 1e-12 * loss)
        if size > 0.0 and not (trial <= loss - 1e-4 * size * decrement or near):
            size *= 0.5
            if size < SMALLEST_STEP:  # with a ridge there is a minimum, and rounding hides the rest
                return lam > 0.0
        else:
            if decrement <= enough:  # that step was the last, taken for the Hessian after it
                return True
            loss = trial
            decrement = compute_step(layout, work, b, n_visited, counts, theta, c, lam, scale)
            if decrement < 0.0:
                return False
            if decrement <= 1e-14 * enough:
                return True
            size = 1.0
        move_block(layout, work, b, n_visited, theta, c, scale, size)
        if decrement <= enough and not keep_hessian:
            return True
    return False


@njit_cached
def fit_blocks(layout, counts, theta, lam, scale):
    """Minimise (2) over every block from the theta given; return the first that failed, or -1."""
    work = new_work(layout, scale)
    for c in range(counts.shape[0]):
        for b in range(layout.blocks.shape[0] - 1):
            n_visited = find_visited_pairs(layout, counts, c, b, work.visited)
            if not newton_block(layout, work, b, n_visited, counts, theta, c, lam, scale, False):
                return b
    return -1
