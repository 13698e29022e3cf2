"""Online estimates of the MNL model, one transition at a time, and the bonuses read off them.

The cost is O(1) in the number of episodes. `model` is a `mnl.online.Online`: model.matrix
(C, sum m^2) holds the symmetric m x m matrix of each block, flat, from matrix_start[b] on; C is the
number of parameters, 1 or H, and step h learns and reads parameter min(h, C - 1). `problem` is a
`compiled.Constants` that holds a `Problem`. Triple effects are not supported.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached
from upriver.kernels.episodes import find_row
from upriver.kernels.gram import (
    add_logdet,
    add_outer,
    cholesky,
    solve_lower,
    solve_rows,
    solve_upper,
    store_inner_products,
)
from upriver.kernels.likelihood import evaluate_block, softmax
from upriver.kernels.planning import max_successors

ROOT_STEPS = 100
ROOT_TOLERANCE = 1e-13


@njit_cached
def view_block(layout, matrix, matrix_start, b):
    """Return the m x m matrix of block b of one parameter's matrix, not a copy."""
    m = layout.blocks[b].size
    return matrix[matrix_start[b] : matrix_start[b] + m * m].reshape(m, m)


@njit_cached
def factor_shifted(block, m, shift, factor):
    """Write the Cholesky factor of block + shift I into factor; False if not positive definite."""
    for i in range(m):
        for j in range(i):
            factor[i, j] = block[i, j]
        factor[i, i] = block[i, i] + shift
    return cholesky(factor, m)


@njit_cached
def project(layout, matrix, matrix_start, bound, theta, factor):
    """Project theta, in place, onto the ball ||x|| <= bound in the norm of `matrix`.

    The projection is x(mu) = (M + mu I)^-1 M theta with ||x(mu)|| = bound. 1 / ||x(mu)|| rises and
    is concave in mu, so Newton's method on it climbs from mu = 0 to the root in a few steps and
    never passes it. All blocks move together, since the ball couples them. Returns whether theta
    moved.
    """
    norm2 = 0.0
    for x in theta:
        norm2 += x * x
    if norm2 <= bound * bound:
        return False
    n_blocks, features = layout.blocks.shape[0] - 1, layout.features
    image = np.zeros(theta.shape[0])  # M theta, by blocks
    for b in range(n_blocks):
        start = layout.blocks[b].first_feature
        block = view_block(layout, matrix, matrix_start, b)
        for i in range(layout.blocks[b].size):
            for j in range(i + 1):
                image[start + i] += block[i, j] * theta[features[start + j]]
                if j < i:
                    image[start + j] += block[i, j] * theta[features[start + i]]
    x = np.empty(layout.max_block_size)
    mu = 0.0
    for _ in range(ROOT_STEPS):
        norm2 = 0.0
        slope = 0.0  # x^T (M + mu I)^-1 x
        for b in range(n_blocks):
            start, m = layout.blocks[b].first_feature, layout.blocks[b].size
            factor_shifted(view_block(layout, matrix, matrix_start, b), m, mu, factor)
            for i in range(m):
                x[i] = image[start + i]
            solve_lower(factor, m, x)
            solve_upper(factor, m, x)
            for i in range(m):
                theta[features[start + i]] = x[i]
                norm2 += x[i] * x[i]
            slope += solve_lower(factor, m, x)
        excess = np.sqrt(norm2) / bound - 1.0
        if excess <= ROOT_TOLERANCE:
            break
        mu += excess * norm2 / slope
    return True


@njit_cached
def descend(layout, block, b, step_size, gradient, theta, factor):
    """theta <- theta - step_size * block^-1 gradient on the coordinates of block b."""
    m = layout.blocks[b].size
    if not factor_shifted(block, m, 0.0, factor):
        return False
    solve_lower(factor, m, gradient)
    solve_upper(factor, m, gradient)
    for i in range(m):
        theta[layout.features[layout.blocks[b].first_feature + i]] -= step_size * gradient[i]
    return True


@njit_cached
def evaluate_transition(problem, pair, next_state, theta, b, count):
    """Evaluate (2) without ridge for one transition: fills work.gradient and work.hessian.

    count (n,) is 0 everywhere, before and after.
    """
    layout, work = problem.layout, problem.work
    row = find_row(problem.indptr, problem.successors, pair, next_state)
    count[row] = 1.0
    work.visited[0] = pair
    evaluate_block(layout, work, b, work.visited[:1], count, theta, 0.0, work.hessian)
    count[row] = 0.0


@njit_cached
def learn(problem, model, pairs, states, rate, bound, moved, mirror):
    """Do an online step for each transition in turn, in place in `model`; l is its loss.

    Newton:   A <- A + rate * sum_u phi_u phi_u^T, then theta <- Proj_A(theta - A^-1 grad l(theta)).
    Mirror descent, with M = B + rate * Hess l(theta):
    theta' = Proj_M(theta - rate * M^-1 grad l(theta)), then B <- B + Hess l(theta').

    The episode is pairs (T,) and states (T + 1,). moved (C,) becomes True where a projection moved
    all blocks. Returns the step that failed, or -1.
    """
    layout, matrix_start, work = problem.layout, problem.matrix_start, problem.work
    count = np.zeros(problem.successors.shape[0])
    before = np.empty((layout.max_block_size, layout.max_block_size))
    for t in range(pairs.shape[0]):
        b = layout.pairs[pairs[t]].block
        if b < 0:
            continue
        c, size = min(t, model.theta.shape[0] - 1), layout.blocks[b].size
        theta, matrix = model.theta[c], model.matrix[c]
        block = view_block(layout, matrix, matrix_start, b)
        evaluate_transition(problem, pairs[t], states[t + 1], theta, b, count)
        if mirror:
            for i in range(size):
                for j in range(i + 1):
                    before[i, j] = block[i, j]
                    block[i, j] += rate * work.hessian[i, j]
        else:
            add_outer(layout, pairs[t], rate, block)
        step_size = rate if mirror else 1.0
        if not descend(layout, block, b, step_size, work.gradient, theta, work.factor):
            return t
        moved[c] |= project(layout, matrix, matrix_start, bound, theta, work.factor)
        if mirror:
            evaluate_transition(problem, pairs[t], states[t + 1], theta, b, count)
            for i in range(size):
                for j in range(i + 1):
                    block[i, j] = before[i, j] + work.hessian[i, j]
    return -1


@njit_cached
def refresh(problem, model, pairs, moved, everything):
    """Compute what planning reads of the blocks that the transitions of pairs (T,) touched.

    Where a projection moved a parameter, all its probabilities; with `everything`, all of all
    parameters. In place in `model`, as in `model.refresh`; the upper triangle of its matrix is
    completed. Returns the first block that is not positive definite, or -1.
    """
    layout, work = problem.layout, problem.work
    n_blocks, n_parameters = layout.blocks.shape[0] - 1, model.theta.shape[0]
    stale = np.zeros((n_parameters, n_blocks), np.bool_)
    if everything:
        stale[:] = True
    for t in range(pairs.shape[0]):
        if layout.pairs[pairs[t]].block >= 0:
            stale[min(t, n_parameters - 1), layout.pairs[pairs[t]].block] = True
    for c in range(n_parameters):
        for b in range(n_blocks):
            if not (stale[c, b] or moved[c]):
                continue
            size = layout.blocks[b].size
            if stale[c, b]:
                block = view_block(layout, model.matrix[c], problem.matrix_start, b)
                if not factor_shifted(block, size, 0.0, work.factor):
                    return b
                for i in range(size):
                    for j in range(i):
                        block[j, i] = block[i, j]
                model.logdet[c, b] = add_logdet(work.factor, size, 0.0)
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                first = layout.pairs[pair].first_row
                softmax(layout, pair, model.theta[c], work.prob)
                for u in range(layout.pairs[pair + 1].first_row - first):
                    model.prob[c, first + u] = work.prob[u]
                if stale[c, b]:
                    solve_rows(layout, pair, work.factor, size, work.rows, work.squares)
                    model.max_norm[c, pair] = store_inner_products(
                        layout, pair, size, model.inverse_products[c], problem.square_start,
                        work.rows, work.squares,
                    )  # fmt: skip
    return -1


@njit_cached
def local_bonus(indptr, prob, max_norm, products, product_start, first, second, bonus):
    """bonus (C, S*A) = first * sum_u p_u ||phi_u - mean|| + second * max_u ||phi_u||^2.

    With G the inner products of the pair, ||phi_u - mean||^2 = G_uu - 2 (G p)_u + p^T G p.
    """
    image = np.empty(max_successors(indptr))
    for c in range(prob.shape[0]):
        for pair in range(indptr.shape[0] - 1):
            n = indptr[pair + 1] - indptr[pair]
            p = prob[c, indptr[pair] : indptr[pair + 1]]
            gram = products[c, product_start[pair] : product_start[pair + 1]]
            centre = 0.0  # p^T G p
            for u in range(n):
                x = 0.0
                for t in range(n):
                    x += gram[u * n + t] * p[t]
                image[u] = x
                centre += p[u] * x
            spread = 0.0
            if n > 1:  # one successor is its own mean
                for u in range(n):
                    spread += p[u] * np.sqrt(max(gram[u * n + u] - 2.0 * image[u] + centre, 0.0))
            bonus[c, pair] = first * spread + second * max_norm[c, pair] * max_norm[c, pair]


@njit_cached
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


@njit_cached
def project_noise(layout, pair, u, xi, x):
    """x (M,) <- phi_u^T xi for every sample."""
    slots, values = layout.slots, layout.values
    w, column = layout.pairs[pair].n_columns, layout.pairs[pair].first_column
    start = layout.pairs[pair].first_value + u * w
    x[:] = 0.0
    for j in range(w):
        value = values[start + j]
        if value != 0.0:
            k = slots[column + j]
            for l in range(x.shape[0]):
                x[l] += value * xi[k, l]


@njit_cached
def random_bonus(problem, model, first_step, normals, is_alone, centred, bonus):
    """Write perturbations xi ~ N(0, matrix^-1) as bonuses into (H, S*A), from first_step on.

    Centred: sum_u p_u max_l (phi_u - mean)^T xi_l, a maximum for each successor. Otherwise
    max_l phi_u^T xi_l for the successor with the largest norm. The samples of a step are shared by
    all pairs. normals (steps, rows, samples) has a row for each feature of the blocks in turn,
    except for those that are alone (B,), whose pairs keep the bonus they have.
    """
    layout, factor, square_start = problem.layout, problem.work.factor, problem.square_start
    n_steps, _, n_samples = normals.shape
    xi = np.empty((layout.max_block_size, n_samples))
    x = np.empty((layout.max_successors, n_samples))
    mean = np.empty(n_samples)
    normal_row = 0
    for b in range(layout.blocks.shape[0] - 1):
        if is_alone[b]:
            continue
        size = layout.blocks[b].size
        factored = -1  # the parameter whose matrix is in `factor`
        for h in range(first_step, first_step + n_steps):
            c = min(h, model.matrix.shape[0] - 1)
            if c != factored:
                block = view_block(layout, model.matrix[c], problem.matrix_start, b)
                factor_shifted(block, size, 0.0, factor)
                factored = c
            perturb(factor, size, normals[h - first_step], normal_row, xi)
            for i in range(layout.blocks[b].first_pair, layout.blocks[b + 1].first_pair):
                pair = layout.block_pairs[i]
                row = layout.pairs[pair].first_row
                n = layout.pairs[pair + 1].first_row - row
                if not centred:
                    gram = model.inverse_products[c, square_start[pair] :]
                    peak = 0
                    for u in range(1, n):
                        if gram[u * n + u] > gram[peak * n + peak]:
                            peak = u
                    project_noise(layout, pair, peak, xi, x[0])
                    bonus[h, pair] = np.max(x[0])
                    continue
                p = model.prob[c, row : row + n]
                mean[:] = 0.0
                for u in range(n):
                    project_noise(layout, pair, u, xi, x[u])
                    for l in range(n_samples):
                        mean[l] += p[u] * x[u, l]
                total = 0.0
                for u in range(n):
                    best = -np.inf
                    for l in range(n_samples):
                        best = max(best, x[u, l] - mean[l])
                    total += p[u] * best
                bonus[h, pair] = total
        normal_row += size
