"""The running model: estimate, ellipsoid and what planning reads of them, where counts changed."""

import numpy as np

from upriver.kernels import Layout
from upriver.kernels.cholesky import cholesky
from upriver.kernels.compiled import compiled, inner
from upriver.kernels.gram import gram_block, measure_group, measure_pooled
from upriver.kernels.likelihood import evaluate_block, softmax, visited_groups, visits_of
from upriver.kernels.newton import newton_block
from upriver.kernels.planning import count
from upriver.kernels.pooled import own_logdet


@inner
def redo(
    layout, b, c, local, counts, theta, lam, prob, width, geometry, geometry_start, logdet, work
):
    """Block b of core c: its estimate, its matrix and what planning reads; False where it fails."""
    hessian, factor, out, left, mean, scratch, own_scratch, rows, squares, found = work
    table, blocks = layout.group_table, layout.block_table
    core, visits, size = theta[c], counts[c], blocks[b, 2]
    groups = found[: visited_groups(layout, visits, b, found)]
    if not newton_block(
        layout, b, groups, visits, core, lam, local, hessian, factor, out, left, mean, scratch,
        own_scratch,
    ):  # fmt: skip
        return False
    if local:  # newton_block left the Hessian at the estimate behind
        for i in range(size):  # a slice assigned to a slice would compile for seconds
            for j in range(i + 1):
                factor[i, j] = hessian[i, j]
    else:
        gram_block(layout, b, groups, visits, lam, factor, out, left)
    if not cholesky(factor, size, lam):
        return False
    total = 0.0
    for i in range(size):
        total += 2.0 * np.log(factor[i, i])
    for i in range(blocks[b, 1], blocks[b + 1, 1]):
        g = layout.groups[i]
        first = table[g, 0]
        softmax(layout, g, core, out)
        for u in range(table[g + 1, 0] - first):
            prob[c, first + u] = out[u]
        if layout.own > 0.0:
            n_g = visits_of(layout, g, visits)
            total += own_logdet(layout, g, n_g, lam, local, out)
            width[c, g] = measure_pooled(
                layout, g, factor, size, n_g, lam, local, geometry[c], geometry_start, rows,
                squares, out, left,
            )  # fmt: skip
        else:
            width[c, g] = measure_group(
                layout, g, factor, size, geometry[c], geometry_start, rows, squares
            )
    logdet[c, b] = total
    return True


@compiled
def refresh(
    group_table, block_table, columns, slots, features, groups, values, max_size, max_successors,
    own, indptr, successors, n_actions, states, actions, everything, local, counts, theta, lam,
    prob, width, geometry, geometry_start, logdet,
):  # fmt: skip
    """Count an episode, and bring up to date the estimate (3), the Gram matrix (5) and what
    planning reads of them.

    First the fields of the layout, one by one: numba looks at a named tuple for longer than at all
    else together. With `local` the Hessian of (2) at the estimate takes the place of the Gram
    matrix. Blocks that the episode touched are redone; with `everything` all blocks of all cores.
    In place: counts and prob (C, n), theta (C, d), width (C, S*A) the largest norm of each group,
    geometry (C, sum U^2) or (C, 0), logdet (C, B) of the matrix's blocks. Returns (the first step
    of the episode outside the support, the first block whose fit failed), -1 for none.
    """
    touched = np.empty(actions.shape[0], np.int64)
    bad = count(indptr, successors, n_actions, states, actions, counts, touched)
    if bad >= 0:
        return bad, -1
    layout = Layout(
        group_table, block_table, columns, slots, features, groups, values, max_size,
        max_successors, own,
    )  # fmt: skip
    m, u = max_size, max_successors
    work = (
        np.empty((m, m)), np.empty((m, m)), np.empty(2 * u), np.empty(u), np.empty(m),
        np.empty((3, m)), np.empty((3, counts.shape[1] if own > 0.0 else 0)), np.empty((u, m + 1)),
        np.empty(u), np.empty(groups.shape[0], np.int64),
    )  # fmt: skip
    n_blocks = block_table.shape[0] - 1
    done = np.zeros(n_blocks, np.bool_)  # a block may be touched at many steps
    for job in range(counts.shape[0] * n_blocks if everything else touched.shape[0]):
        c = job // n_blocks if everything else min(job, counts.shape[0] - 1)
        b = job % n_blocks if everything else group_table[touched[job], 4]
        if b < 0 or (counts.shape[0] == 1 and done[b]):
            continue
        done[b] = True
        if not redo(
            layout, b, c, local, counts, theta, lam, prob, width, geometry, geometry_start, logdet,
            work,
        ):  # fmt: skip
            return -1, b
    return -1, -1


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
