"""Online estimates of the MNL model, one transition at a time, and the bonuses read off them.

    Newton   A <- A + rate * sum_u phi_u phi_u^T, theta <- Proj_A(theta - A^-1 grad l(theta))
    mirror   M = B + rate * Hess l(theta), theta' = Proj_M(theta - rate * M^-1 grad l(theta)),
             B <- B + Hess l(theta')

l is the loss of one transition, (2) without the ridge. The cost is O(1) in the number of episodes.
The arrays are those of a `mnl.online.Online`: theta (C, d), matrix (C, sum m^2) with the symmetric
m x m matrix of each block, flat, from matrix_start[b] on, prob (C, n), max_norm (C, S*A), products
(C, sum U^2) and logdet (C, B). C is 1 or H, and step h learns and reads parameter min(h, C - 1).
Triple effects are not supported.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.episodes import find_row
from upriver.kernels.gram import (
    cholesky,
    log_determinant,
    solve_lower,
    solve_rows,
    solve_upper,
    store_inner_products,
)
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import add_moments, evaluate_pair, reset_matrix, softmax

ROOT_STEPS = 100
ROOT_TOLERANCE = 1e-13


@njit_inline
def load_block(layout, matrix, c, b, shift, block):
    """block (m, m) <- matrix of block b + shift I, lower triangle."""
    start, m = layout.matrix_start[b], layout.blocks[b].size
    for i in range(m):
        for j in range(i + 1):
            block[i, j] = matrix[c, start + i * m + j]
        block[i, i] += shift


@njit_inline
def store_block(layout, block, matrix, c, b):
    """Store the lower triangle of block (m, m) as the symmetric matrix of block b."""
    start, m = layout.matrix_start[b], layout.blocks[b].size
    for i in range(m):
        for j in range(i + 1):
            matrix[c, start + i * m + j] = block[i, j]
            matrix[c, start + j * m + i] = block[i, j]


@njit_inline
def project(layout, matrix, c, bound, theta):
    """Project theta[c], in place, onto the ball ||x|| <= bound in the norm of matrix[c].

    The projection is x(mu) = (M + mu I)^-1 M theta with ||x(mu)|| = bound. 1 / ||x(mu)|| rises and
    is concave in mu, so Newton's method on it climbs from mu = 0 to the root in a few steps and
    never passes it. All blocks move together, since the ball couples them. Returns whether theta
    moved.
    """
    norm2 = 0.0
    for j in range(theta.shape[1]):
        norm2 += theta[c, j] * theta[c, j]
    if norm2 <= bound * bound:
        return False
    n_blocks, features = layout.blocks.shape[0] - 1, layout.features
    image = np.zeros(theta.shape[1])  # M theta, by blocks
    for b in range(n_blocks):
        first, m = layout.blocks[b].first_feature, layout.blocks[b].size
        for i in range(m):
            for j in range(m):
                x = matrix[c, layout.matrix_start[b] + i * m + j]
                image[first + i] += x * theta[c, features[first + j]]
    x = np.empty(layout.max_block_size)
    factor = np.empty((layout.max_block_size, layout.max_block_size))
    mu = 0.0
    for _ in range(ROOT_STEPS):
        norm2 = 0.0
        slope = 0.0  # x^T (M + mu I)^-1 x
        for b in range(n_blocks):
            first, m = layout.blocks[b].first_feature, layout.blocks[b].size
            load_block(layout, matrix, c, b, mu, factor)
            cholesky(factor, m, 0.0)
            for i in range(m):
                x[i] = image[first + i]
            solve_lower(factor, m, x)
            solve_upper(factor, m, x)
            for i in range(m):
                theta[c, features[first + i]] = x[i]
                norm2 += x[i] * x[i]
            slope += solve_lower(factor, m, x)
        excess = np.sqrt(norm2) / bound - 1.0
        if excess <= ROOT_TOLERANCE:
            break
        mu += excess * norm2 / slope
    return True


@njit_inline
def evaluate_transition(layout, work, pair, u, theta, c, b):
    """Fill work.gradient and work.hessian with those of the loss of one transition, to u."""
    pairs, outcomes, gradient, hessian = layout.pairs, work.outcomes, work.gradient, work.hessian
    reset_matrix(hessian, layout.blocks[b].size, 0.0)
    for i in range(layout.blocks[b].size):
        gradient[i] = 0.0
    for t in range(pairs[pair + 1].first_row - pairs[pair].first_row):
        outcomes[t].count = 1.0 if t == u else 0.0
    evaluate_pair(
        pairs, layout.columns, layout.slots, layout.values, pair, theta, c, 0.0, 0.0, outcomes,
        work.mean, gradient, hessian,
    )  # fmt: skip


@njit_inline
def take_step(layout, work, before, pair, u, theta, matrix, c, b, rate, bound, mirror):
    """Do an online step for the transition of a pair to its successor u; before (m, m) is scratch.

    Returns whether the matrix is positive definite, and whether a projection moved theta.
    """
    m, first, features = layout.blocks[b].size, layout.blocks[b].first_feature, layout.features
    gradient, hessian, factor = work.gradient, work.hessian, work.factor
    evaluate_transition(layout, work, pair, u, theta, c, b)
    load_block(layout, matrix, c, b, 0.0, before)
    if not mirror:
        outcomes, mean = work.outcomes, work.mean
        for t in range(layout.max_successors):
            outcomes[t].prob = rate
        for i in range(m):
            mean[i] = 0.0
        add_moments(layout.pairs, layout.slots, layout.values, pair, outcomes, mean, before)
    for i in range(m):
        for j in range(i + 1):
            factor[i, j] = before[i, j] + (rate * hessian[i, j] if mirror else 0.0)
    if not mirror or bound < np.inf:  # a projection reads the matrix
        store_block(layout, factor, matrix, c, b)
    if not cholesky(factor, m, 0.0):
        return False, False
    solve_lower(factor, m, gradient)
    solve_upper(factor, m, gradient)
    for i in range(m):
        theta[c, features[first + i]] -= (rate if mirror else 1.0) * gradient[i]
    is_moved = bound < np.inf and project(layout, matrix, c, bound, theta)
    if mirror:
        evaluate_transition(layout, work, pair, u, theta, c, b)
        for i in range(m):
            for j in range(i + 1):
                before[i, j] += hessian[i, j]
        store_block(layout, before, matrix, c, b)
    return True, is_moved


@njit_inline
def refresh_block(layout, work, theta, matrix, prob, max_norm, products, logdet, c, b):
    """Compute what planning reads of block b; where its logdet is not NaN the matrix is as before.

    Returns whether the matrix is positive definite.
    """
    pairs, columns, slots, values = layout.pairs, layout.columns, layout.slots, layout.values
    outcomes, rows, factor, square_start = (
        work.outcomes,
        work.rows,
        work.factor,
        layout.square_start,
    )
    size, is_stale = layout.blocks[b].size, np.isnan(logdet[c, b])
    if is_stale:
        load_block(layout, matrix, c, b, 0.0, factor)
        if not cholesky(factor, size, 0.0):
            return False
        logdet[c, b] = log_determinant(factor, size)
    for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
        pair = layout.block_pairs[i]
        first = pairs[pair].first_row
        n = pairs[pair + 1].first_row - first
        softmax(pairs, columns, values, pair, theta, c, 0.0, outcomes)
        for u in range(n):
            prob[c, first + u] = outcomes[u].prob
        if is_stale:
            solve_rows(pairs, slots, values, pair, factor, size, rows, outcomes)
            max_norm[c, pair] = store_inner_products(
                n, size, products, c, square_start[pair], square_start[pair + 1], rows, outcomes
            )
    return True


@njit_cached
def learn(
    layout, theta, matrix, prob, max_norm, products, logdet, states, actions, rate, bound, mirror
):
    """Do an online step for each transition, then compute what planning reads of what changed.

    states (T + 1,) and actions (T,) are the episode; what has no log-determinant (NaN) is computed
    in any case. Returns the first step outside the support, and the first step and block whose
    matrix is not positive definite; each is -1 if there is none.
    """
    work, n_parameters = new_work(layout, 0.0), theta.shape[0]
    before = np.empty((layout.max_block_size, layout.max_block_size))
    is_moved = np.zeros(n_parameters, np.bool_)
    for h in range(actions.shape[0]):
        pair, c = states[h] * layout.n_actions + actions[h], min(h, n_parameters - 1)
        row = find_row(layout.indptr, layout.successors, pair, states[h + 1])
        if row < 0:
            return h, -1, -1
        b = layout.pairs[pair].block
        if b < 0:
            continue
        is_definite, by_projection = take_step(
            layout, work, before, pair, row - layout.indptr[pair], theta, matrix, c, b, rate,
            bound, mirror,
        )  # fmt: skip
        if not is_definite:
            return -1, h, -1
        is_moved[c] |= by_projection
        logdet[c, b] = np.nan  # which says that the block is to be computed
    for c in range(n_parameters):
        for b in range(layout.blocks.shape[0] - 1):
            if (is_moved[c] or np.isnan(logdet[c, b])) and not refresh_block(
                layout, work, theta, matrix, prob, max_norm, products, logdet, c, b
            ):
                return -1, -1, b
    return -1, -1, -1


@njit_cached
def local_bonus(indptr, prob, max_norm, products, product_start, first, second, bonus):
    """bonus (C, S*A) = first * sum_u p_u ||phi_u - mean|| + second * max_u ||phi_u||^2.

    With G the inner products of the pair, ||phi_u - mean||^2 = G_uu - 2 (G p)_u + p^T G p.
    """
    largest = 0
    for pair in range(indptr.shape[0] - 1):
        largest = max(largest, indptr[pair + 1] - indptr[pair])
    image = np.empty(largest)  # G p
    for c in range(prob.shape[0]):
        for pair in range(indptr.shape[0] - 1):
            row, n, at = indptr[pair], indptr[pair + 1] - indptr[pair], product_start[pair]
            centre = 0.0  # p^T G p
            for u in range(n):
                image[u] = 0.0
                for t in range(n):
                    image[u] += products[c, at + u * n + t] * prob[c, row + t]
                centre += prob[c, row + u] * image[u]
            distance = 0.0
            if n > 1:  # one successor is its own mean
                for u in range(n):
                    square = products[c, at + u * n + u] - 2.0 * image[u] + centre
                    distance += prob[c, row + u] * np.sqrt(max(square, 0.0))
            bonus[c, pair] = first * distance + second * max_norm[c, pair] * max_norm[c, pair]


@njit_inline
def perturb(factor, m, normals, step, first, xi):
    """xi (m, M) <- L^-T z, of covariance (L L^T)^-1; z: m rows of normals[step] from first on."""
    n_samples = normals.shape[2]
    for i in range(m - 1, -1, -1):
        for l in range(n_samples):
            xi[i, l] = normals[step, first + i, l]
        for j in range(i + 1, m):
            weight = factor[j, i]
            for l in range(n_samples):
                xi[i, l] -= weight * xi[j, l]
        for l in range(n_samples):
            xi[i, l] /= factor[i, i]


@njit_inline
def project_noise(pairs, slots, values, pair, u, xi, x):
    """x[u] <- phi_u^T xi for every sample; xi (m, M), x (U + 1, M)."""
    row, column = pairs[pair].first_value + u * pairs[pair].n_columns, pairs[pair].first_column
    for l in range(x.shape[1]):
        x[u, l] = 0.0
    for j in range(pairs[pair].n_columns):
        value, slot = values[row + j], slots[column + j]
        if value != 0.0:
            for l in range(x.shape[1]):
                x[u, l] += value * xi[slot, l]


@njit_inline
def largest_noise(pairs, slots, values, pair, products, c, at, xi, x):
    """Return max_l phi_u^T xi_l for the successor u with the largest norm; products from at on."""
    n, peak = pairs[pair + 1].first_row - pairs[pair].first_row, 0
    for u in range(1, n):
        if products[c, at + u * n + u] > products[c, at + peak * n + peak]:
            peak = u
    project_noise(pairs, slots, values, pair, peak, xi, x)
    largest = -np.inf
    for l in range(x.shape[1]):
        largest = max(largest, x[peak, l])
    return largest


@njit_inline
def centred_noise(pairs, slots, values, pair, prob, c, xi, x):
    """Return sum_u p_u max_l (phi_u - mean)^T xi_l, a maximum for each successor."""
    row, total = pairs[pair].first_row, 0.0
    n = pairs[pair + 1].first_row - row
    for l in range(x.shape[1]):
        x[n, l] = 0.0  # the mean of each sample
    for u in range(n):
        project_noise(pairs, slots, values, pair, u, xi, x)
        for l in range(x.shape[1]):
            x[n, l] += prob[c, row + u] * x[u, l]
    for u in range(n):
        largest = -np.inf
        for l in range(x.shape[1]):
            largest = max(largest, x[u, l] - x[n, l])
        total += prob[c, row + u] * largest
    return total


@njit_cached
def random_bonus(layout, matrix, prob, products, first_step, normals, is_alone, centred, bonus):
    """Write perturbations xi ~ N(0, matrix^-1) as bonuses into (H, S*A), from first_step on.

    The samples of a step are shared by all pairs. normals (steps, rows, samples) has a row for each
    feature of the blocks in turn, except for those that are alone (B,), whose pairs keep the bonus
    they have. With `centred` a bonus is `centred_noise`, otherwise `largest_noise`.
    """
    n_steps, _, n_samples = normals.shape
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    factor = np.empty((layout.max_block_size, layout.max_block_size))
    xi = np.empty((layout.max_block_size, n_samples))
    x = np.empty((layout.max_successors + 1, n_samples))
    normal_row = 0
    for b in range(layout.blocks.shape[0] - 1):
        if is_alone[b]:
            continue
        size = layout.blocks[b].size
        factored = -1  # the parameter whose matrix is in `factor`
        for h in range(first_step, first_step + n_steps):
            c = min(h, matrix.shape[0] - 1)
            if c != factored:
                load_block(layout, matrix, c, b, 0.0, factor)
                cholesky(factor, size, 0.0)
                factored = c
            perturb(factor, size, normals, h - first_step, normal_row, xi)
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                if centred:
                    bonus[h, pair] = centred_noise(pairs, slots, values, pair, prob, c, xi, x)
                else:
                    at = layout.square_start[pair]
                    bonus[h, pair] = largest_noise(
                        pairs, slots, values, pair, products, c, at, xi, x
                    )
        normal_row += size
