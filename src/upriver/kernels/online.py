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
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.layout import new_work
from upriver.kernels.likelihood import evaluate_block, load_block
from upriver.kernels.model import measure_pairs

ROOT_STEPS = 100
ROOT_TOLERANCE = 1e-13


@njit_inline
def factor_block(matrix, c, start, m, shift, factor):
    """factor (m, m) <- that of the matrix of a block + shift I; False if not positive definite."""
    for i in range(m):
        for j in range(i + 1):
            factor[i, j] = matrix[c, start + i * m + j]
        factor[i, i] += shift
    return cholesky(factor, m, 0.0)


@njit_inline
def add_matrix(block, m, rate, matrix, c, start):
    """Add rate * block, given by its lower triangle, to the symmetric matrix of a block."""
    for i in range(m):
        for j in range(i + 1):
            matrix[c, start + i * m + j] += rate * block[i, j]
            matrix[c, start + j * m + i] = matrix[c, start + i * m + j]


@njit_inline
def project(layout, matrix, c, bound, theta):
    """Project theta[c], in place, onto the ball ||x|| <= bound in the norm of matrix[c].

    The projection is x(mu) = theta - mu (M + mu I)^-1 theta with ||x(mu)|| = bound. 1 / ||x(mu)||
    rises and is concave in mu, so Newton's method on it climbs from mu = 0 to the root in a few
    steps and never passes it. All blocks move together, since the ball couples them. Returns
    whether theta moved.
    """
    blocks, features, starts = layout.blocks, layout.features, layout.matrix_start
    given, size, mu = theta[c].copy(), layout.max_block_size, 0.0
    if (given**2).sum() <= bound * bound:
        return False
    x, factor = np.empty(size), np.empty((size, size))
    for _ in range(ROOT_STEPS):
        norm2 = slope = 0.0  # the latter is x^T (M + mu I)^-1 x
        for b in range(blocks.shape[0] - 1):
            first, m = blocks[b].first_feature, blocks[b].size
            factor_block(matrix, c, starts[b], m, mu, factor)
            for i in range(m):
                x[i] = given[features[first + i]]
            solve_lower(factor, m, x)
            solve_upper(factor, m, x)
            for i in range(m):
                x[i] = given[features[first + i]] - mu * x[i]
                theta[c, features[first + i]] = x[i]
                norm2 += x[i] * x[i]
            slope += solve_lower(factor, m, x)
        excess = np.sqrt(norm2) / bound - 1.0
        if excess <= ROOT_TOLERANCE:
            break
        mu += excess * norm2 / slope
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
    pairs, slots, values = layout.pairs, layout.slots, layout.values
    blocks, features, starts = layout.blocks, layout.features, layout.matrix_start
    visited, outcomes, effects, mean, point, gradient, hessian = new_work(layout, 0.0)
    factor, rows = np.empty_like(hessian), np.empty((layout.max_successors, len(point) + 1))
    chosen, n_parameters = np.zeros((1, layout.successors.shape[0])), theta.shape[0]
    for h in range(actions.shape[0]):
        pair, c = states[h] * layout.n_actions + actions[h], min(h, n_parameters - 1)
        row = find_row(layout.indptr, layout.successors, pair, states[h + 1])
        if row < 0:
            return h, -1, -1
        b = pairs[pair].block
        if b < 0:
            continue
        m, start, visited[0], chosen[0, row] = blocks[b].size, starts[b], pair, 1.0
        load_block(blocks, features, b, theta, c, point)
        # For Newton the matrix is that of the features themselves, for mirror the Hessian.
        evaluate_block(
            pairs, slots, values, m, visited, 1, chosen, 0, 0.0, 0.0, mirror, point, theta, effects,
            outcomes, mean, gradient, hessian,
        )  # fmt: skip
        add_matrix(hessian, m, rate, matrix, c, start)
        if not factor_block(matrix, c, start, m, 0.0, factor):
            return -1, h, -1
        solve_lower(factor, m, gradient)
        solve_upper(factor, m, gradient)
        for i in range(m):
            point[i] -= (rate if mirror else 1.0) * gradient[i]
            theta[c, features[blocks[b].first_feature + i]] = point[i]
        if bound < np.inf and project(layout, matrix, c, bound, theta):
            logdet[c] = np.nan  # which says that a block is to be computed
        if mirror:
            add_matrix(hessian, m, -rate, matrix, c, start)
            load_block(blocks, features, b, theta, c, point)
            evaluate_block(
                pairs, slots, values, m, visited, 1, chosen, 0, 0.0, 0.0, True, point, theta,
                effects, outcomes, mean, gradient, hessian,
            )  # fmt: skip
            add_matrix(hessian, m, 1.0, matrix, c, start)
        chosen[0, row] = 0.0
        logdet[c, b] = np.nan
    for c in range(n_parameters):
        for b in range(blocks.shape[0] - 1):
            if not np.isnan(logdet[c, b]):
                continue
            load_block(blocks, features, b, theta, c, point)
            if not factor_block(matrix, c, starts[b], blocks[b].size, 0.0, factor):
                return -1, -1, b
            logdet[c, b] = 0.0
            for i in range(blocks[b].size):
                logdet[c, b] += 2.0 * np.log(factor[i, i])
            measure_pairs(
                pairs, slots, values, layout.block_pairs, blocks[b].first_pair,
                blocks[b + 1].first_pair, blocks[b].size, 0, chosen, c, 0.0, 0.0, True, 1.0, 1.0,
                point, theta, outcomes, factor, rows, prob, max_norm, products, layout.square_start,
            )  # fmt: skip
    return -1, -1, -1


@njit_cached
def local_bonus(indptr, prob, max_norm, products, product_start, first, second, bonus):
    """bonus (C, S*A) = first * sum_u p_u ||phi_u - mean|| + second * max_u ||phi_u||^2.

    With G the inner products of the pair, ||phi_u - mean||^2 = G_uu - 2 (G p)_u + p^T G p.
    """
    image = np.empty(np.diff(indptr).max())  # G p
    for c in range(prob.shape[0]):
        for pair in range(indptr.shape[0] - 1):
            row, n, at = indptr[pair], indptr[pair + 1] - indptr[pair], product_start[pair]
            centre = distance = 0.0  # p^T G p
            for u in range(n):
                image[u] = 0.0
                for t in range(n):
                    image[u] += products[c, at + u * n + t] * prob[c, row + t]
                centre += prob[c, row + u] * image[u]
            for u in range(n if n > 1 else 0):  # one successor is its own mean
                square = products[c, at + u * n + u] - 2.0 * image[u] + centre
                distance += prob[c, row + u] * np.sqrt(max(square, 0.0))
            bonus[c, pair] = first * distance + second * max_norm[c, pair] * max_norm[c, pair]


@njit_cached
def random_bonus(layout, matrix, prob, products, first_step, normals, is_alone, centred, bonus):
    """Write perturbations xi ~ N(0, matrix^-1) as bonuses into (H, S*A), from first_step on.

    The samples of a step are shared by all pairs. normals (steps, rows, samples) has a row for each
    feature of the blocks in turn, except for those that are alone (B,), whose pairs keep the bonus
    they have. With `centred` a bonus is sum_u p_u max_l (phi_u - mean)^T xi_l, otherwise max_l
    phi_u^T xi_l for the successor u with the largest norm.
    """
    n_steps, _, n_samples = normals.shape
    pairs, slots, values, blocks = layout.pairs, layout.slots, layout.values, layout.blocks
    factor = np.empty((layout.max_block_size, layout.max_block_size))
    xi, noise = np.empty((len(factor), n_samples)), np.empty((layout.max_successors, n_samples))
    centre, normal_row = np.empty(n_samples), 0
    for b in range(blocks.shape[0] - 1):
        if is_alone[b]:
            continue
        m = blocks[b].size
        for h in range(n_steps):
            c = min(first_step + h, matrix.shape[0] - 1)
            if h == 0 or matrix.shape[0] > 1:
                factor_block(matrix, c, layout.matrix_start[b], m, 0.0, factor)
            for i in range(m - 1, -1, -1):  # xi (m, M) = L^-T normals, of covariance (L L^T)^-1
                for l in range(n_samples):
                    xi[i, l] = normals[h, normal_row + i, l]
                for j in range(i + 1, m):
                    for l in range(n_samples):
                        xi[i, l] -= factor[j, i] * xi[j, l]
                for l in range(n_samples):
                    xi[i, l] /= factor[i, i]
            for k in range(blocks[b].first_pair, blocks[b + 1].first_pair):
                pair = layout.block_pairs[k]
                record, square, total = pairs[pair], layout.square_start[pair], 0.0
                n, peak = pairs[pair + 1].first_row - record.first_row, 0
                for u in range(n):
                    if products[c, square + u * n + u] > products[c, square + peak * n + peak]:
                        peak = u
                first, last = (0, n) if centred else (peak, peak + 1)
                centre[:] = 0.0
                for u in range(first, last):
                    noise[u] = 0.0
                    for j in range(record.n_columns):
                        value = values[record.first_value + u * record.n_columns + j]
                        slot = slots[record.first_column + j]
                        for l in range(n_samples if value != 0.0 else 0):
                            noise[u, l] += value * xi[slot, l]
                    for l in range(n_samples if centred else 0):
                        centre[l] += prob[c, record.first_row + u] * noise[u, l]
                for u in range(first, last):
                    largest = -np.inf
                    for l in range(n_samples):
                        largest = max(largest, noise[u, l] - centre[l])
                    total += (prob[c, record.first_row + u] if centred else 1.0) * largest
                bonus[first_step + h, pair] = total
        normal_row += m
