"""Online estimates of the MNL model, one transition at a time, and the bonuses read off them.

`layout` is a `Layout`. `matrix` (C, sum m^2) holds the symmetric m x m matrix of each block,
flat, from matrix_start[b] on; C is the number of cores, 1 or H, and step h learns and reads core
min(h, C - 1). Cost is O(1) in the number of episodes.
"""

import numpy as np

from upriver.kernels.compiled import compiled
from upriver.kernels.gram import add_outer, cholesky, measure_group, solve_lower, solve_upper
from upriver.kernels.likelihood import evaluate_block, softmax
from upriver.kernels.episodes import find_row
from upriver.kernels.planning import max_successors

ROOT_STEPS = 100
ROOT_TOLERANCE = 1e-13


@compiled
def view(layout, matrix, matrix_start, b):
    """The m x m matrix of block b, not a copy; matrix is that of one core."""
    m = layout.block_table[b, 2]
    return matrix[matrix_start[b] : matrix_start[b] + m * m].reshape(m, m)


@compiled
def factored(block, m, shift, factor):
    """Lower Cholesky factor of block + shift I into factor; False if not positive definite."""
    for i in range(m):
        for j in range(i):
            factor[i, j] = block[i, j]
        factor[i, i] = block[i, i] + shift
    return cholesky(factor, m)


@compiled
def project(layout, matrix, matrix_start, bound, theta, factor):
    """theta <- the nearest point of the ball ||x|| <= bound in the norm of `matrix`, in place.

    It is x(mu) = (M + mu I)^-1 M theta where ||x(mu)|| = bound. 1 / ||x(mu)|| rises and is concave
    in mu, so Newton's method on it climbs from mu = 0 to the root in a few steps and never passes
    it. All blocks move together, since the ball couples them. Returns whether theta moved.
    """
    norm2 = 0.0
    for x in theta:
        norm2 += x * x
    if norm2 <= bound * bound:
        return False
    image = np.zeros(theta.shape[0])  # M theta, by blocks
    for b in range(layout.block_table.shape[0] - 1):
        start = layout.block_table[b, 0]
        block = view(layout, matrix, matrix_start, b)
        for i in range(layout.block_table[b, 2]):
            for j in range(i + 1):
                image[start + i] += block[i, j] * theta[layout.features[start + j]]
                if j < i:
                    image[start + j] += block[i, j] * theta[layout.features[start + i]]
    x = np.empty(layout.max_size)
    mu = 0.0
    for _ in range(ROOT_STEPS):
        norm2 = 0.0
        slope = 0.0
        for b in range(layout.block_table.shape[0] - 1):
            start = layout.block_table[b, 0]
            m = layout.block_table[b, 2]
            factored(view(layout, matrix, matrix_start, b), m, mu, factor)
            for i in range(m):
                x[i] = image[start + i]
            solve_lower(factor, m, x)
            solve_upper(factor, m, x)
            for i in range(m):
                theta[layout.features[start + i]] = x[i]
                norm2 += x[i] * x[i]
            slope += solve_lower(factor, m, x)
        excess = np.sqrt(norm2) / bound - 1.0
        if excess <= ROOT_TOLERANCE:
            break
        mu += excess * norm2 / slope
    return True


@compiled
def descend(layout, block, b, step_size, gradient, theta, factor):
    """theta <- theta - step_size * block^-1 gradient on the coordinates of block b."""
    m = layout.block_table[b, 2]
    if not factored(block, m, 0.0, factor):
        return False
    solve_lower(factor, m, gradient)
    solve_upper(factor, m, gradient)
    for i in range(m):
        theta[layout.features[layout.block_table[b, 0] + i]] -= step_size * gradient[i]
    return True


@compiled
def newton(
    layout, matrix_start, indptr, successors, groups, states, sample, weight, bound, theta, matrix,
    moved,
):  # fmt: skip
    """The online Newton step, for each transition in turn; in place.

    A <- A + weight * sum_u phi_u phi_u^T, theta <- Proj_A(theta - A^-1 grad l(theta)). The episode
    is groups (T,) and states (T + 1,); sample (n,), 0 everywhere, is for the count of one
    transition at a time. moved (C,) becomes True where a projection touched all blocks. Returns the
    step that failed, or -1.
    """
    m = layout.max_size
    factor = np.empty((m, m))
    gradient = np.empty(m)
    out = np.empty(2 * layout.max_successors)
    mean = np.empty(m)
    here = np.empty(1, np.int64)
    for t in range(groups.shape[0]):
        g = groups[t]
        b = layout.group_table[g, 4]
        if b < 0:
            continue
        c = min(t, theta.shape[0] - 1)
        block = view(layout, matrix[c], matrix_start, b)
        add_outer(layout, g, weight, block)
        here[0] = g
        row = find_row(indptr, successors, g, states[t + 1])
        sample[row] = 1.0
        evaluate_block(layout, here, sample, theta[c], b, 0.0, gradient, factor, out, mean)
        if not descend(layout, block, b, 1.0, gradient, theta[c], factor):
            return t
        moved[c] |= project(layout, matrix[c], matrix_start, bound, theta[c], factor)
        sample[row] = 0.0
    return -1


@compiled
def mirror(
    layout, matrix_start, indptr, successors, groups, states, sample, step_size, bound, theta,
    matrix, moved,
):  # fmt: skip
    """The online mirror descent step, for each transition in turn; in place.

    With M = B + eta Hess l(theta): theta' = Proj_M(theta - eta M^-1 grad l(theta)) and
    B <- B + Hess l(theta'). Otherwise as `newton`.
    """
    m = layout.max_size
    factor = np.empty((m, m))
    hessian = np.empty((m, m))
    before = np.empty((m, m))
    gradient = np.empty(m)
    out = np.empty(2 * layout.max_successors)
    mean = np.empty(m)
    here = np.empty(1, np.int64)
    for t in range(groups.shape[0]):
        g = groups[t]
        b = layout.group_table[g, 4]
        if b < 0:
            continue
        c = min(t, theta.shape[0] - 1)
        size = layout.block_table[b, 2]
        block = view(layout, matrix[c], matrix_start, b)
        here[0] = g
        row = find_row(indptr, successors, g, states[t + 1])
        sample[row] = 1.0
        evaluate_block(layout, here, sample, theta[c], b, 0.0, gradient, hessian, out, mean)
        for i in range(size):
            for j in range(i + 1):
                before[i, j] = block[i, j]
                block[i, j] += step_size * hessian[i, j]
        if not descend(layout, block, b, step_size, gradient, theta[c], factor):
            return t
        moved[c] |= project(layout, matrix[c], matrix_start, bound, theta[c], factor)
        evaluate_block(layout, here, sample, theta[c], b, 0.0, gradient, hessian, out, mean)
        for i in range(size):
            for j in range(i + 1):
                block[i, j] = before[i, j] + hessian[i, j]
        sample[row] = 0.0
    return -1


@compiled
def refresh(
    layout, matrix_start, groups, moved, everything, theta, matrix,
    prob, width, geometry, geometry_start, logdet,
):  # fmt: skip
    """What planning reads, for the (core, block) pairs that the transitions of `groups` touched.

    Where a projection moved a core, all its probabilities; with `everything`, all of all. In
    place, as in `model.refresh`; the upper triangle of matrix is completed.
    """
    table = layout.group_table
    n_blocks = layout.block_table.shape[0] - 1
    n_cores = theta.shape[0]
    m = layout.max_size
    factor = np.empty((m, m))
    rows = np.empty((layout.max_successors, m))
    squares = np.empty(layout.max_successors)
    out = np.empty(2 * layout.max_successors)
    stale = np.zeros((n_cores, n_blocks), np.bool_)
    if everything:
        stale[:] = True
    for t in range(groups.shape[0]):
        if layout.group_table[groups[t], 4] >= 0:
            stale[min(t, n_cores - 1), layout.group_table[groups[t], 4]] = True
    for c in range(n_cores):
        for b in range(n_blocks):
            if not (stale[c, b] or moved[c]):
                continue
            size = layout.block_table[b, 2]
            if stale[c, b]:
                block = view(layout, matrix[c], matrix_start, b)
                if not factored(block, size, 0.0, factor):
                    return b
                total = 0.0
                for i in range(size):
                    total += 2.0 * np.log(factor[i, i])
                    for j in range(i):
                        block[j, i] = block[i, j]
                logdet[c, b] = total
            for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
                g = layout.groups[i]
                first = table[g, 0]
                n = table[g + 1, 0] - first
                softmax(layout, g, theta[c], out)
                for u in range(n):
                    prob[c, first + u] = out[u]
                if stale[c, b]:
                    width[c, g] = measure_group(
                        layout, g, factor, size, geometry[c], geometry_start, rows, squares
                    )
    return -1


@compiled
def local_bonus(indptr, prob, width, geometry, geometry_start, first, second, bonus):
    """bonus (C, S*A) = first * sum_u p_u ||phi_u - mean|| + second * max_u ||phi_u||^2.

    With G the inner products of the group, ||phi_u - mean||^2 = G_uu - 2 (G p)_u + p^T G p.
    """
    image = np.empty(max_successors(indptr))
    for c in range(prob.shape[0]):
        for g in range(indptr.shape[0] - 1):
            n = indptr[g + 1] - indptr[g]
            p = prob[c, indptr[g] : indptr[g + 1]]
            inner = geometry[c, geometry_start[g] : geometry_start[g + 1]]
            centre = 0.0
            for u in range(n):
                x = 0.0
                for t in range(n):
                    x += inner[u * n + t] * p[t]
                image[u] = x
                centre += p[u] * x
            spread = 0.0
            if n > 1:  # one successor is its own mean
                for u in range(n):
                    spread += p[u] * np.sqrt(max(inner[u * n + u] - 2.0 * image[u] + centre, 0.0))
            bonus[c, g] = first * spread + second * width[c, g] * width[c, g]


@compiled
def perturb(factor, m, normals, first, xi):
    """xi (m, M) <- L^-T z, of covariance (L L^T)^-1; z is m rows of normals from `first` on."""
    n_samples = normals.shape[1]
    for i in range(m - 1, -1, -1):
        for l in range(n_samples):
            xi[i, l] = normals[first + i, l]
        for j in range(i + 1, m):
            weight = factor[j, i]
            for l in range(n_samples):
                xi[i, l] -= weight * xi[j, l]
        for l in range(n_samples):
            xi[i, l] /= factor[i, i]


@compiled
def project_noise(layout, g, u, xi, x):
    """x (M,) <- phi_u^T xi for every sample."""
    slots, values = layout.slots, layout.values
    w = layout.group_table[g, 1]
    place = layout.group_table[g, 2]
    start = layout.group_table[g, 3] + u * w
    x[:] = 0.0
    for j in range(w):
        value = values[start + j]
        if value != 0.0:
            k = slots[place + j]
            for l in range(x.shape[0]):
                x[l] += value * xi[k, l]


@compiled
def random_bonus(
    layout, first, last, matrix_start, matrix, prob, geometry, geometry_start, normals, centred,
    bonus,
):  # fmt: skip
    """Perturbations xi ~ N(0, matrix^-1) of each step as bonuses (H, S*A), of blocks first to last.

    Centred: sum_u p_u max_l (phi_u - mean)^T xi_l, a maximum for each successor. Otherwise
    max_l phi_u^T xi_l for the successor with the largest norm. The samples of a step are shared by
    all (s, a). normals (H, rows, samples) has a row for each feature of these blocks, in turn.
    Other groups keep the bonus they have.
    """
    m = layout.max_size
    horizon, _, n_samples = normals.shape
    factor = np.empty((m, m))
    xi = np.empty((m, n_samples))
    x = np.empty((layout.max_successors, n_samples))
    mean = np.empty(n_samples)
    place = 0
    for b in range(first, last):
        size = layout.block_table[b, 2]
        known = -1
        for h in range(horizon):
            c = min(h, matrix.shape[0] - 1)
            if c != known:
                factored(view(layout, matrix[c], matrix_start, b), size, 0.0, factor)
                known = c
            perturb(factor, size, normals[h], place, xi)
            for i in range(layout.block_table[b, 1], layout.block_table[b + 1, 1]):
                g = layout.groups[i]
                n = layout.group_table[g + 1, 0] - layout.group_table[g, 0]
                if not centred:
                    peak = 0
                    for u in range(1, n):
                        at = geometry_start[g]
                        if geometry[c, at + u * n + u] > geometry[c, at + peak * n + peak]:
                            peak = u
                    project_noise(layout, g, peak, xi, x[0])
                    bonus[h, g] = np.max(x[0])
                    continue
                p = prob[c, layout.group_table[g, 0] : layout.group_table[g + 1, 0]]
                mean[:] = 0.0
                for u in range(n):
                    project_noise(layout, g, u, xi, x[u])
                    for l in range(n_samples):
                        mean[l] += p[u] * x[u, l]
                total = 0.0
                for u in range(n):
                    best = -np.inf
                    for l in range(n_samples):
                        best = max(best, x[u, l] - mean[l])
                    total += p[u] * best
                bonus[h, g] = total
        place += size
