"""The running model: estimate, ellipsoid and what planning reads of them, where counts changed."""

from functools import partial

import numpy as np

from upriver.kernels import Layout
from upriver.kernels.compiled import compiled, divisible, lean, merged
from upriver.kernels.gram import cholesky, gram_block, inner_products, solve_rows
from upriver.kernels.likelihood import evaluate_block, softmax, visited_groups, visits_of
from upriver.kernels.newton import newton_block
from upriver.kernels.episodes import find_row
from upriver.kernels.pooled import own_logdet, pool_rows


@merged
def measure(
    layout, groups, local, visits, core, lam, prob, width, geometry, geometry_start, factor, size,
    lines, own_lines, total,
):  # fmt: skip
    """What planning reads of groups of one block; returns total + log det of their own effects.

    width: max_u ||phi_u|| in the norm of the inverse of the factored matrix, see `inner_products`.
    """
    table, out, squares, rows, columns = layout.group_table, lines[0], lines[6], lines[7:], size
    for g in groups:
        first = table[g, 0]
        softmax(layout, g, core, out, own_lines)
        for u in range(table[g + 1, 0] - first):
            prob[first + u] = out[u]
        solve_rows(layout, g, factor, size, rows, squares)
        if own_lines is not None:
            n_g = visits_of(layout, g, visits)
            total += own_logdet(layout, g, n_g, lam, local, out)
            pool_rows(layout, g, size, n_g, lam, local, rows, squares, out, lines[1])
            columns = size + 1  # the own covariance that two successors share
        width[g] = inner_products(layout, g, columns, geometry, geometry_start, rows, squares)
    return total


@lean
def refresh(
    group_table, block_table, columns, slots, features, groups, values, max_size, max_successors,
    own, indptr, successors, n_actions, states, actions, everything, local, counts, theta, prob,
    width, geometry, logdet, lam, geometry_start, square, lines, places, own_lines, halfway,
):  # fmt: skip
    """Count an episode, and bring up to date the estimate (3), the Gram matrix (5) and what
    planning reads of them.

    First the fields of the layout, one by one, later those of a `mnl.model.Model`: numba looks at
    a named tuple for longer than at all else together. With `local` the Hessian of (2) at the
    estimate takes the place of the Gram matrix. Blocks that the episode touched are redone; with
    `everything` all blocks of all cores. In place: counts and prob (C, n), theta (C, d), width
    (C, S*A) the largest norm of each group, geometry (C, sum U^2) or (C, 0), logdet (C, B) of the
    matrix's blocks; square to own_lines are room to work in, own_lines None where there are no own
    effects. With `halfway`, for one large block, what planning reads is left to `measure_part`.
    Returns (the first step of the episode outside the support, the first block whose fit failed),
    -1 for none.
    """
    for h in range(actions.shape[0]):
        row = find_row(indptr, successors, states[h] * n_actions + actions[h], states[h + 1])
        if row < 0:
            return h, -1
        counts[min(h, counts.shape[0] - 1), row] += 1.0
    layout = Layout(
        group_table, block_table, columns, slots, features, groups, values, max_size,
        max_successors, own,
    )  # fmt: skip
    n_blocks = block_table.shape[0] - 1
    hessian, factor, out, left = square[0], square[1], lines[0], lines[1]
    places[n_blocks] += 1  # a block may be touched at many steps; this call leaves its number there
    for job in range(counts.shape[0] * n_blocks if everything else actions.shape[0]):
        c = job // n_blocks if everything else min(job, counts.shape[0] - 1)
        g = 0 if everything else states[job] * n_actions + actions[job]
        b = job % n_blocks if everything else group_table[g, 4]
        if b < 0 or (counts.shape[0] == 1 and places[b] == places[n_blocks]):
            continue
        places[b] = places[n_blocks]
        visits, core, size = counts[c], theta[c], block_table[b, 2]
        found = places[n_blocks + 1 :]
        found = found[: visited_groups(layout, visits, b, found)]
        if not newton_block(
            layout, b, found, visits, core, lam, local, hessian, factor, out, left, lines[2],
            lines[3:6], own_lines,
        ):  # fmt: skip
            return -1, b
        if local:  # newton_block left the Hessian at the estimate behind
            for i in range(size):  # a slice assigned to a slice would compile for seconds
                for j in range(i + 1):
                    factor[i, j] = hessian[i, j]
        else:
            gram_block(layout, b, found, visits, lam, factor, out, left, own_lines)
        if not cholesky(factor, size, lam):
            return -1, b
        total = 0.0
        for i in range(size):
            total += 2.0 * np.log(factor[i, i])
        logdet[c, b] = total
        if not halfway:
            logdet[c, b] = measure(
                layout, groups[block_table[b, 1] : block_table[b + 1, 1]], local, visits, core, lam,
                prob[c], width[c], geometry[c], geometry_start, factor, size, lines, own_lines,
                total,
            )  # fmt: skip
    return -1, -1


@partial(divisible, compile=lean)
def measure_part(
    group_table, block_table, columns, slots, features, groups, values, max_size, max_successors,
    own, local, counts, theta, prob, width, geometry, logdet, lam, geometry_start, square, lines,
    own_lines, first, last,
):  # fmt: skip
    """`measure`, of the groups first to last of the one block of one core, after `refresh`."""
    layout = Layout(
        group_table, block_table, columns, slots, features, groups, values, max_size,
        max_successors, own,
    )  # fmt: skip
    return measure(
        layout, groups[first:last], local, counts[0], theta[0], lam, prob[0], width[0], geometry[0],
        geometry_start, square[1], block_table[0, 2], lines, own_lines, 0.0,
    )  # fmt: skip


@compiled
def information(layout, counts, theta, lam):
    """log det of lambda I and the Hessian of (2) at theta (d,), whatever the counts (n,)."""
    m = layout.max_size
    factor = np.empty((m, m))
    gradient, mean = np.empty(m), np.empty(m)
    out = np.empty(2 * layout.max_successors)
    found = np.empty(layout.groups.shape[0], np.int64)
    total = 0.0
    for b in range(layout.block_table.shape[0] - 1):
        size = layout.block_table[b, 2]
        groups = found[: visited_groups(layout, counts, b, found)]
        evaluate_block(layout, groups, counts, theta, b, lam, gradient, factor, out, mean)
        cholesky(factor, size, lam)
        for i in range(size):
            total += 2.0 * np.log(factor[i, i])
        if layout.own > 0.0:
            for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
                g = layout.groups[i]
                softmax(layout, g, theta, out)
                total += own_logdet(layout, g, visits_of(layout, g, counts), lam, True, out)
    return total
