"""Eq. (3), the maximum-likelihood estimate: Newton's method on (2), block by block."""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline_ir
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.likelihood import evaluate_block, visited_groups, visits_of
from upriver.kernels.pooled import own_direction, own_slopes, reduce_slopes

DECREMENT = 1e-10  # squared decrement at which the step is the last; of data that weigh 1 or more
ITERATIONS = 100
SMALLEST = 1e-12  # share of a Newton step below which halving it is given up


@njit_inline_ir
def newton_block(
    layout, b, groups, counts, theta, lam, keep, hessian, factor, out, left, mean, scratch,
    own_lines,
):  # fmt: skip
    """Minimise (2) over the coordinates of block b, in place in theta, from the theta given.

    `groups` are those of the block that have a count. Newton with step halving; the step whose
    squared decrement is at most DECREMENT is the last, and what it leaves is of that order squared.
    With `keep` the Hessian at the result is left in `hessian`. own_lines (3, n) is room for own
    effects; None where there are none, so that what is theirs is not even compiled. Returns False
    where there is no ridge and the Hessian is singular or no step decreases the loss.
    """
    features, place = layout.features, layout.block_table[b, 0]
    m = layout.block_table[b, 2]
    gradient, step, origin = scratch[0], scratch[1], scratch[2]
    table, own = layout.group_table, layout.own
    total = 0.0
    for g in groups:
        total += visits_of(layout, g, counts)
    enough = DECREMENT * min(total, 1.0)  # the decrement scales with the weights of the data
    loss = np.inf
    decrement = np.inf
    size = 0.0
    for _ in range(ITERATIONS):
        trial = evaluate_block(
            layout, groups, counts, theta, b, lam, gradient, hessian, out, mean, own_lines
        )
        # Near the minimum the decrease drowns in rounding, but the full step is right there.
        near = decrement <= max(enough, 1e-12 * loss)
        if size > 0.0 and not (trial <= loss - 1e-4 * size * decrement or near):
            size *= 0.5
            if size < SMALLEST:  # with a ridge there is a minimum, and rounding hides the rest
                return lam > 0.0
        else:
            if decrement <= enough:  # that step was the last, taken for the Hessian behind it
                return True
            loss = trial
            if own_lines is not None:
                own_slopes(layout, groups, counts, theta, lam, own_lines[0], out)
                reduce_slopes(layout, groups, counts, theta, lam, own_lines[0], gradient, out, left)
            for i in range(m):
                step[i] = gradient[i]
                origin[i] = theta[features[place + i]]
                for j in range(i + 1):
                    factor[i, j] = hessian[i, j]
            if not cholesky(factor, m, lam):
                return False
            decrement = solve_lower(factor, m, step)
            solve_upper(factor, m, step)
            if own_lines is not None:
                decrement += own_direction(
                    layout, groups, counts, theta, lam, step, own_lines[0], own_lines[1], out, left
                )
                for g in groups:
                    for row in range(table[g, 0] + 1, table[g + 1, 0]):
                        own_lines[2, row] = theta[table[g, 5] + row]
            if decrement <= 1e-14 * enough:
                return True
            size = 1.0
        for i in range(m):
            theta[features[place + i]] = origin[i] - size * step[i]
        if own_lines is not None:
            for g in groups:
                for row in range(table[g, 0] + 1, table[g + 1, 0]):
                    theta[table[g, 5] + row] = own_lines[2, row] - size * own_lines[1, row] / own
        if decrement <= enough and not keep:
            return True
    return False


@njit_cached
def fit_blocks(layout, counts, theta, lam, own_lines):
    """Minimise (2) over every block from the theta given; the first block that failed, or -1."""
    m = layout.max_size
    hessian = np.empty((m, m))
    factor = np.empty((m, m))
    out, left = np.empty(2 * layout.max_successors), np.empty(layout.max_successors)
    found = np.empty(layout.groups.shape[0], np.int64)
    mean = np.empty(m)
    scratch = np.empty((3, m))
    for b in range(layout.block_table.shape[0] - 1):
        groups = found[: visited_groups(layout, counts, b, found)]
        if not newton_block(
            layout, b, groups, counts, theta, lam, False, hessian, factor, out, left, mean, scratch,
            own_lines,
        ):  # fmt: skip
            return b
    return -1
