"""The multinomial-logistic model on packed features: likelihood, Newton, Gram matrix, widths.

`layout` is `features.Layout`: each group (s, a) holds a small dense matrix, one row per successor
and one column per feature that is not zero somewhere in the group; groups that share features form
a block, and blocks are independent of each other in the likelihood and in the Gram matrix.
Matrices of a block are dense, m x m, and kept in their lower triangle.
"""

import numpy as np

from upriver.kernels.compiled import compiled, inner

DECREMENT = 1e-10  # squared Newton decrement at which the step taken is the last one
ITERATIONS = 100
SMALLEST = 1e-12  # share of a Newton step below which halving it is given up


@inner
def cholesky(matrix, m):
    """Lower factor in place of the leading m x m; returns False if it is not positive definite."""
    for j in range(m):
        pivot = matrix[j, j]
        for i in range(j):
            pivot -= matrix[j, i] * matrix[j, i]
        if not pivot > 0.0:
            return False
        pivot = np.sqrt(pivot)
        matrix[j, j] = pivot
        for i in range(j + 1, m):
            x = matrix[i, j]
            for l in range(j):
                x -= matrix[i, l] * matrix[j, l]
            matrix[i, j] = x / pivot
    return True


@inner
def solve_lower(factor, m, x):
    """x <- L^-1 x in place; returns the squared norm of the result, x^T (L L^T)^-1 x."""
    total = 0.0
    for i in range(m):
        y = x[i]
        for j in range(i):
            y -= factor[i, j] * x[j]
        y /= factor[i, i]
        x[i] = y
        total += y * y
    return total


@inner
def solve_upper(factor, m, x):
    """x <- L^-T x in place."""
    for i in range(m - 1, -1, -1):
        y = x[i]
        for j in range(i + 1, m):
            y -= factor[j, i] * x[j]
        x[i] = y / factor[i, i]


@inner
def softmax(n, w, values, start, columns, first_column, theta, out):
    """P_theta of one group, eq. (1), into out[:n]; returns the log of the normaliser.

    The group's features are values[start : start + n * w], row by row; column j is the feature
    columns[first_column + j]. After the call out[n + u] is the logit of successor u.
    """
    top = -np.inf
    for u in range(n):
        x = 0.0
        for j in range(w):
            x += values[start + u * w + j] * theta[columns[first_column + j]]
        out[n + u] = x
        if x > top:
            top = x
    total = 0.0
    for u in range(n):
        e = np.exp(out[n + u] - top)
        out[u] = e
        total += e
    for u in range(n):
        out[u] /= total
    return top + np.log(total)


@inner
def evaluate_block(layout, groups, counts, theta, b, lam, gradient, hessian, out, mean):
    """Loss (2) over `groups` of block b with its ridge penalty; fills gradient (m,), Hessian."""
    # Arrays are taken out of the tuple once: each access inside a loop would cost a reference.
    table, columns, slots = layout.group_table, layout.columns, layout.slots
    values, features = layout.values, layout.features
    origin, m = layout.block_table[b, 0], layout.block_table[b, 2]
    loss = 0.0
    for i in range(m):
        x = theta[features[origin + i]]
        loss += 0.5 * lam * x * x
        gradient[i] = lam * x
        for j in range(i):
            hessian[i, j] = 0.0
        hessian[i, i] = lam
    for g in groups:
        first, w, place, start = table[g, 0], table[g, 1], table[g, 2], table[g, 3]
        n = table[g + 1, 0] - first
        normaliser = softmax(n, w, values, start, columns, place, theta, out)
        visits = 0.0
        for u in range(n):
            visits += counts[first + u]
        for j in range(w):
            mean[j] = 0.0
        for u in range(n):
            c = counts[first + u]
            if c != 0.0:
                loss += c * (normaliser - out[n + u])
            residual = visits * out[u] - c
            for j in range(w):
                x = values[start + u * w + j]
                gradient[slots[place + j]] += residual * x
                mean[j] += out[u] * x
        for u in range(n):
            weight = visits * out[u]
            row = start + u * w
            for i in range(w):
                x = weight * (values[row + i] - mean[i])
                k = slots[place + i]
                for j in range(i + 1):
                    hessian[k, slots[place + j]] += x * (values[row + j] - mean[j])
    return loss


@inner
def visited_groups(layout, counts, b):
    """The groups of block b that have a count."""
    table, members = layout.group_table, layout.groups
    low, high = layout.block_table[b, 1], layout.block_table[b + 1, 1]
    found = np.empty(high - low, np.int64)
    n = 0
    for i in range(low, high):
        g = members[i]
        for row in range(table[g, 0], table[g + 1, 0]):
            if counts[row] != 0.0:
                found[n] = g
                n += 1
                break
    return found[:n]


@inner
def newton_block(
    layout, b, groups, counts, theta, lam, keep, hessian, factor, out, mean, scratch
):  # fmt: skip
    """Minimise (2) over the coordinates of block b, in place in theta, from the theta given.

    `groups` are those of the block that have a count. Newton with step halving; the step whose
    squared decrement is at most DECREMENT is the last, and what it leaves is of that order squared.
    With `keep` the Hessian at the result is left in `hessian`. Returns False when the Hessian is
    singular or no step decreases the loss.
    """
    features, place = layout.features, layout.block_table[b, 0]
    m = layout.block_table[b, 2]
    gradient, step, origin = scratch[0], scratch[1], scratch[2]
    loss = np.inf
    decrement = np.inf
    size = 0.0
    for _ in range(ITERATIONS):
        trial = evaluate_block(layout, groups, counts, theta, b, lam, gradient, hessian, out, mean)
        # Near the minimum the decrease drowns in rounding, but the full step is right there.
        near = decrement <= max(DECREMENT, 1e-12 * loss)
        if size > 0.0 and not (trial <= loss - 1e-4 * size * decrement or near):
            size *= 0.5
            if size < SMALLEST:
                return False
        else:
            if decrement <= DECREMENT:  # that step was the last, taken for the Hessian behind it
                return True
            loss = trial
            for i in range(m):
                step[i] = gradient[i]
                origin[i] = theta[features[place + i]]
                for j in range(i + 1):
                    factor[i, j] = hessian[i, j]
            if not cholesky(factor, m):
                return False
            decrement = solve_lower(factor, m, step)
            if decrement <= 1e-24:
                return True
            solve_upper(factor, m, step)
            size = 1.0
        for i in range(m):
            theta[features[place + i]] = origin[i] - size * step[i]
        if decrement <= DECREMENT and not keep:
            return True
    return False


@inner
def add_outer(layout, g, weight, gram):
    """Add weight * sum over the successors of phi phi^T to the block matrix of group g."""
    table, slots, values = layout.group_table, layout.slots, layout.values
    w, place = table[g, 1], table[g, 2]
    for u in range(table[g + 1, 0] - table[g, 0]):
        row = table[g, 3] + u * w
        for i in range(w):
            x = weight * values[row + i]
            if x != 0.0:
                k = slots[place + i]
                for j in range(i + 1):
                    gram[k, slots[place + j]] += x * values[row + j]


@inner
def gram_block(layout, b, groups, counts, lam, gram):
    """Gram matrix, eq. (5), of block b: lam I + sum over visits and successors of phi phi^T."""
    table = layout.group_table
    for i in range(layout.block_table[b, 2]):
        for j in range(i):
            gram[i, j] = 0.0
        gram[i, i] = lam
    for g in groups:
        visits = 0.0
        for row in range(table[g, 0], table[g + 1, 0]):
            visits += counts[row]
        add_outer(layout, g, visits, gram)


@inner
def measure_group(layout, g, factor, m, geometry, geometry_start, rows):
    """max_u ||phi_u|| in the norm of the inverse of the factored matrix.

    Where geometry is not empty it gets all inner products of the rows, U x U, in that norm.
    """
    table, slots, values = layout.group_table, layout.slots, layout.values
    n = table[g + 1, 0] - table[g, 0]
    w, place, start = table[g, 1], table[g, 2], table[g, 3]
    full = geometry.shape[0] > 0
    largest = 0.0
    for u in range(n):
        x = rows[u if full else 0]
        x[:m] = 0.0
        for j in range(w):
            x[slots[place + j]] = values[start + u * w + j]
        largest = max(largest, solve_lower(factor, m, x))
    if full:
        start = geometry_start[g]
        for u in range(n):
            for t in range(u + 1):
                x = 0.0
                for i in range(m):
                    x += rows[u, i] * rows[t, i]
                geometry[start + u * n + t] = x
                geometry[start + t * n + u] = x
    return np.sqrt(largest)


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
    columns, values = layout.columns, layout.values
    n_blocks = blocks.shape[0] - 1
    m = layout.max_size
    hessian = np.empty((m, m))
    factor = np.empty((m, m))
    out = np.empty(2 * layout.max_successors)
    mean = np.empty(m)
    scratch = np.empty((3, m))
    rows = np.empty((layout.max_successors if geometry.shape[1] > 0 else 1, m))
    n_jobs = counts.shape[0] * n_blocks if everything else touched.shape[0]
    for job in range(n_jobs):
        c = job // n_blocks if everything else steps[job]
        b = job % n_blocks if everything else table[touched[job], 4]
        if b < 0 or (not everything and seen_before(job, steps, touched, table)):
            continue
        core, visits = theta[c], counts[c]
        groups = visited_groups(layout, visits, b)
        if not newton_block(
            layout, b, groups, visits, core, lam, local, hessian, factor, out, mean, scratch
        ):  # fmt: skip
            return b
        size = blocks[b, 2]
        if local:  # newton_block left the Hessian at the estimate behind
            for i in range(size):  # a slice assigned to a slice would compile for seconds
                for j in range(i + 1):
                    factor[i, j] = hessian[i, j]
        else:
            gram_block(layout, b, groups, visits, lam, factor)
        if not cholesky(factor, size):
            return b
        total = 0.0
        for i in range(size):
            total += 2.0 * np.log(factor[i, i])
        logdet[c, b] = total
        for i in range(blocks[b, 1], blocks[b + 1, 1]):
            g = members[i]
            first = table[g, 0]
            n = table[g + 1, 0] - first
            softmax(n, table[g, 1], values, table[g, 3], columns, table[g, 2], core, out)
            for u in range(n):
                prob[c, first + u] = out[u]
            width[c, g] = measure_group(layout, g, factor, size, geometry[c], geometry_start, rows)
    return -1


@compiled
def log_probabilities(layout, theta, log_prob):
    """log P_theta, eq. (1), for every triple; finite wherever the logits are."""
    table, columns, values = layout.group_table, layout.columns, layout.values
    out = np.empty(2 * layout.max_successors)
    for g in range(table.shape[0] - 1):
        first = table[g, 0]
        n = table[g + 1, 0] - first
        normaliser = softmax(n, table[g, 1], values, table[g, 3], columns, table[g, 2], theta, out)
        for u in range(n):
            log_prob[first + u] = out[n + u] - normaliser


@compiled
def likelihood(layout, counts, theta, lam, gradient, hessian, matrix_start):
    """Loss (2) over all blocks; gradient (d,) and, unless empty, the Hessian's blocks (flat)."""
    m = layout.max_size
    block_gradient = np.empty(m)
    block_hessian = np.empty((m, m))
    out = np.empty(2 * layout.max_successors)
    mean = np.empty(m)
    loss = 0.0
    for b in range(layout.block_table.shape[0] - 1):
        size = layout.block_table[b, 2]
        groups = visited_groups(layout, counts, b)
        loss += evaluate_block(
            layout, groups, counts, theta, b, lam, block_gradient, block_hessian, out, mean
        )
        for i in range(size):
            gradient[layout.features[layout.block_table[b, 0] + i]] = block_gradient[i]
            if hessian.shape[0] > 0:
                for j in range(i + 1):
                    hessian[matrix_start[b] + i * size + j] = block_hessian[i, j]
                    hessian[matrix_start[b] + j * size + i] = block_hessian[i, j]
    for g in range(layout.group_table.shape[0] - 1):
        if layout.group_table[g, 4] < 0:  # no features: uniform over the successors, whatever theta
            n = layout.group_table[g + 1, 0] - layout.group_table[g, 0]
            for row in range(layout.group_table[g, 0], layout.group_table[g + 1, 0]):
                loss += counts[row] * np.log(n)
    return loss


@compiled
def gram(layout, counts, lam, matrix, matrix_start):
    """Gram matrix (5), all blocks (flat)."""
    block = np.empty((layout.max_size, layout.max_size))
    for b in range(layout.block_table.shape[0] - 1):
        size = layout.block_table[b, 2]
        gram_block(layout, b, visited_groups(layout, counts, b), counts, lam, block)
        for i in range(size):
            for j in range(i + 1):
                matrix[matrix_start[b] + i * size + j] = block[i, j]
                matrix[matrix_start[b] + j * size + i] = block[i, j]


@compiled
def norms(layout, matrix, matrix_start, norm):
    """||phi|| of every triple in the norm of the inverse of a block matrix (flat).

    Returns the number of the first block that is not positive definite, or -1.
    """
    m = layout.max_size
    factor = np.empty((m, m))
    x = np.empty(m)
    for b in range(layout.block_table.shape[0] - 1):
        size = layout.block_table[b, 2]
        for i in range(size):
            for j in range(i + 1):
                factor[i, j] = matrix[matrix_start[b] + i * size + j]
        if not cholesky(factor, size):
            return b
        for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
            g = layout.groups[i]
            w = layout.group_table[g, 1]
            for u in range(layout.group_table[g + 1, 0] - layout.group_table[g, 0]):
                x[:size] = 0.0
                for j in range(w):
                    x[layout.slots[layout.group_table[g, 2] + j]] = layout.values[
                        layout.group_table[g, 3] + u * w + j
                    ]
                norm[layout.group_table[g, 0] + u] = np.sqrt(solve_lower(factor, size, x))
    return -1


@compiled
def inverse(matrix, matrix_start, size):
    """Invert each block of a block matrix (flat) in place; the first singular block, or -1."""
    for b in range(size.shape[0]):
        m = size[b]
        block = matrix[matrix_start[b] : matrix_start[b] + m * m].copy().reshape(m, m)
        if not cholesky(block, m):
            return b
        x = np.empty(m)
        for j in range(m):
            x[:] = 0.0
            x[j] = 1.0
            solve_lower(block, m, x)
            solve_upper(block, m, x)
            for i in range(m):
                matrix[matrix_start[b] + i * m + j] = x[i]
    return -1


@compiled
def fit_blocks(layout, counts, theta, lam):
    """Minimise (2) over every block from the theta given; the first block that failed, or -1."""
    m = layout.max_size
    hessian = np.empty((m, m))
    factor = np.empty((m, m))
    out = np.empty(2 * layout.max_successors)
    mean = np.empty(m)
    scratch = np.empty((3, m))
    for b in range(layout.block_table.shape[0] - 1):
        groups = visited_groups(layout, counts, b)
        if not newton_block(
            layout, b, groups, counts, theta, lam, False, hessian, factor, out, mean, scratch
        ):
            return b
    return -1
