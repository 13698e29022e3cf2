"""Eq. (3), the maximum-likelihood estimate: Newton's method on (2), block by block."""

import numpy as np

from upriver.kernels.compiled import njit_inline_ir, njit_without_refcounts
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.likelihood import count_visits, evaluate_block, find_visited_pairs
from upriver.kernels.pooled import compute_effect_slopes, eliminate_effects, solve_effects

DECREMENT = 1e-10  # squared decrement at which the step is the last; of data that weigh 1 or more
ITERATIONS = 100
SMALLEST_STEP = 1e-12  # share of a Newton step below which halving it is given up


@njit_inline_ir
def newton_block(layout, work, b, visited, counts, theta, lam, scale, keep_hessian):
    """Minimise (2) over the coordinates of block b, in place in theta, from the theta given.

    Newton's method with step halving. The step whose squared decrement is at most DECREMENT is the
    last; the error that it leaves is of that order squared. `visited` are the pairs of the block
    that have a count. With `keep_hessian` the Hessian at the result is left in work.hessian.
    Returns False where there is no ridge and the Hessian is singular or no step decreases the loss.
    """
    features, place, m = layout.features, layout.blocks[b].first_feature, layout.blocks[b].size
    pairs, hessian, factor, gradient = layout.pairs, work.hessian, work.factor, work.gradient
    step, origin = work.step, work.origin
    total = 0.0
    for pair in visited:
        total += count_visits(layout, pair, counts)
    enough = DECREMENT * min(total, 1.0)  # the decrement scales with the weights of the data
    loss = np.inf
    decrement = np.inf
    size = 0.0
    for _ in range(ITERATIONS):
        trial = evaluate_block(layout, work, b, visited, counts, theta, lam, hessian, scale)
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
            # step <- H^-1 gradient. Triple effects are eliminated from the gradient, the block is
            # solved for the shared features, and the effects follow from that solution.
            if scale is not None:
                compute_effect_slopes(layout, work, visited, counts, theta, lam, scale)
                eliminate_effects(layout, work, visited, counts, theta, lam, scale)
            for i in range(m):
                step[i] = gradient[i]
                origin[i] = theta[features[place + i]]
                for j in range(i + 1):
                    factor[i, j] = hessian[i, j]
            if not cholesky(factor, m, lam):
                return False
            decrement = solve_lower(factor, m, step)
            solve_upper(factor, m, step)
            if scale is not None:
                decrement += solve_effects(layout, work, visited, counts, theta, lam, scale, step)
                for pair in visited:
                    for row in range(pairs[pair].first_row + 1, pairs[pair + 1].first_row):
                        work.effect_origin[row] = theta[pairs[pair].effect_offset + row]
            if decrement <= 1e-14 * enough:
                return True
            size = 1.0
        for i in range(m):
            theta[features[place + i]] = origin[i] - size * step[i]
        if scale is not None:
            for pair in visited:
                for row in range(pairs[pair].first_row + 1, pairs[pair + 1].first_row):
                    moved = work.effect_origin[row] - size * work.effect_step[row] / scale
                    theta[pairs[pair].effect_offset + row] = moved
        if decrement <= enough and not keep_hessian:
            return True
    return False


@njit_without_refcounts
def fit_blocks(problem, counts, theta, lam, scale):
    """Minimise (2) over every block from the theta given; return the first that failed, or -1."""
    layout, work = problem.layout, problem.work
    for b in range(layout.blocks.shape[0] - 1):
        visited = work.visited[: find_visited_pairs(layout, counts, b, work.visited)]
        if not newton_block(layout, work, b, visited, counts, theta, lam, scale, False):
            return b
    return -1
