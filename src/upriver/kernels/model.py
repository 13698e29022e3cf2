"""The running model: estimate, ellipsoid and what planning reads of them, where counts changed."""

import numpy as np

from upriver.kernels.cholesky import cholesky
from upriver.kernels.compiled import compiled, inner
from upriver.kernels.gram import gram_block, measure_group, measure_pooled
from upriver.kernels.likelihood import softmax, visited_groups, visits_of
from upriver.kernels.newton import newton_block
from upriver.kernels.pooled import own_logdet


@inner
def seen_before(job, steps, touched, table):
    """Whether an earlier job has the same core and block."""
    for earlier in range(job):
        if steps[earlier] == steps[job] and table[touched[earlier], 4] == table[touched[job], 4]:
            return True
    return False


@compiled
def refresh(
    layout, steps, touched, everything, local, counts, theta, lam,
    prob, width, geometry, geometry_start, logdet,
):  # fmt: skip
    """Bring the estimate (3), the Gram matrix (5) and what planning reads of them up to date.

    With `local` the Hessian of (2) at the estimate takes the place of the Gram matrix. `touched`
    are the groups whose counts changed and `steps` the core of each; with `everything` all blocks
    of all cores are redone instead. In place: theta (C, d), prob (C, n), width (C, S*A) the
    largest norm of each group, geometry (C, sum U^2) or (C, 0), logdet (C, B) of the matrix's
    blocks. Returns the number of the first block whose fit failed, or -1.
    """
    table, blocks, members = layout.group_table, layout.block_table, layout.groups
    n_blocks = blocks.shape[0] - 1
    m = layout.max_size
    hessian = np.empty((m, m))
    factor = np.empty((m, m))
    out = np.empty(2 * layout.max_successors)
    mean = np.empty(m)
    scratch = np.empty((3, m))
    own_scratch = np.empty((3, counts.shape[1] if layout.own > 0.0 else 0))
    left = np.empty(layout.max_successors)
    rows = np.empty((layout.max_successors, m + 1))
    squares = np.empty(layout.max_successors)
    n_jobs = counts.shape[0] * n_blocks if everything else touched.shape[0]
    for job in range(n_jobs):
        c = job // n_blocks if everything else steps[job]
        b = job % n_blocks if everything else table[touched[job], 4]
        if b < 0 or (not everything and seen_before(job, steps, touched, table)):
            continue
        core, visits = theta[c], counts[c]
        groups = visited_groups(layout, visits, b)
        if not newton_block(
            layout, b, groups, visits, core, lam, local, hessian, factor, out, mean, scratch,
            own_scratch,
        ):  # fmt: skip
            return b
        size = blocks[b, 2]
        if local:  # newton_block left the Hessian at the estimate behind
            for i in range(size):  # a slice assigned to a slice would compile for seconds
                for j in range(i + 1):
                    factor[i, j] = hessian[i, j]
        else:
            gram_block(layout, b, groups, visits, lam, factor)
        if not cholesky(factor, size, lam):
            return b
        total = 0.0
        for i in range(size):
            total += 2.0 * np.log(factor[i, i])
        for i in range(blocks[b, 1], blocks[b + 1, 1]):
            g = members[i]
            first = table[g, 0]
            n = table[g + 1, 0] - first
            softmax(layout, g, core, out)
            for u in range(n):
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
    return -1
