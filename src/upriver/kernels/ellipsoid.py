"""Eq. (4) for one pair: the largest, or least, expected next value over the confidence ellipsoid.

Write p for the probabilities (1) of the n successors at the estimate, V for their next values and
G (n, n) for the inner products of their features in A^-1. Only differences of logits count, so
features are counted from those of the first successor; with L L^T the Cholesky factorisation of
their products, moving theta within the ellipsoid adds z = L w, |w| <= beta, to the logits, and (4)
is

    max  sum_u q_u V_u,   q_u proportional to p_u exp(z_u),   z = L w,   |w| <= beta.

For a level t let F(w) = log sum_u q_u (V_u - t)+ - log sum_u q_u (t - V_u)+, which is positive
exactly where the expectation is above t. Its gradient is L^T (a - b), with the distributions a and
b proportional to q (V - t)+ and q (t - V)+: a difference of means over different successors, which
neither vanishes nor cancels where one successor is almost certain. `ascend` climbs F with t the
expectation at the current w, so F = 0 there, by Newton's method: the Hessian is L^T (Cov_a - Cov_b)
L, of which the first part is left out where it makes F convex. Its first step from the estimate is
towards the tilted distribution, w = beta times the direction of the gradient; a local maximum on
the boundary is a fixed point of that step.

The expectation is not concave. `optimize_in_ellipsoid` climbs from the estimate, then again from
where each successor that is better than the best expectation so far is likeliest. No restart is
needed where the best expectation is above the second largest value, for then F is concave, nor
where `is_global` proves it.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import max_successors

ASCENT_STEPS, HALVINGS = 60, 40
TOLERANCE = 1e-13
"""An ascent ends where a step gains less than this much of the range of the values."""
REACH = 2.0
"""The first step changes no log-odds by more, so that it stays near the maximum that it climbs; the
limit doubles with every step."""
N_WORK = 12
"""The number of work arrays of a search."""


@njit_inline
def factor_differences(products, at, n, root):
    """root (n, n - 1): L of the products of the features minus those of the first successor.

    products: G, flat, from `at` on. A column is zero where the features before it span the next.
    """
    corner = products[at]
    for u in range(n):
        for t in range(n - 1):
            root[u, t] = 0.0
    for j in range(1, n):
        pivot = own = products[at + j * n + j] - 2.0 * products[at + j * n] + corner
        for k in range(j - 1):
            pivot -= root[j, k] * root[j, k]
        if not pivot > 1e-13 * own:
            continue
        pivot = np.sqrt(pivot)
        root[j, j - 1] = pivot
        for u in range(j + 1, n):
            y = products[at + u * n + j] - products[at + u * n] - products[at + j * n] + corner
            for k in range(j - 1):
                y -= root[u, k] * root[j, k]
            root[u, j - 1] = y / pivot


@njit_inline
def tilt(p, first, n, root, w, q):
    """q = p exp(L w), normalised: the probabilities (1) at w."""
    top = 0.0  # the first logit does not move
    for u in range(n):
        z = 0.0
        for k in range(u):
            z += root[u, k] * w[k]
        q[u] = z
        top = max(top, z)
    total = 0.0
    for u in range(n):
        q[u] = p[first + u] * np.exp(q[u] - top)
        total += q[u]
    for u in range(n):
        q[u] /= total


@njit_inline
def set_level(n, values, q, gap, weight):
    """gap = V - t with t = E_q[V], and weight = q gap; returns t and the sum of weight above 0.

    Values are counted from that of the likeliest successor, so that no gap is lost to rounding.
    """
    likely = 0
    for u in range(n):
        likely = u if q[u] > q[likely] else likely
    offset = 0.0
    for u in range(n):
        offset += q[u] * (values[u] - values[likely])
    above = 0.0
    for u in range(n):
        gap[u] = values[u] - values[likely] - offset
        weight[u] = q[u] * gap[u]
        above += max(weight[u], 0.0)
    return values[likely] + offset, above


@njit_inline
def rise_over(n, q, gap):
    """Return F at q for the level of `gap`: positive where the expectation is above the level."""
    above = below = 0.0
    for u in range(n):
        above += q[u] * max(gap[u], 0.0)
        below -= q[u] * min(gap[u], 0.0)
    return np.log(above / below) if below > 0.0 else np.inf


@njit_inline
def newton_step(n, root, w, multiplier, convex, tangent, work, matrix):
    """Write the step (multiplier I - H)^-1 (gradient - multiplier w), H the Hessian of F.

    H = L^T (Cov_a - Cov_b) L, without the first part unless `convex`. With `tangent` the step is
    kept in the plane that touches the sphere at w. Returns step . gradient, which is positive
    where the step leads upwards, or -1 where multiplier I - H is not positive definite.
    """
    weight, gradient, step, radial = work[3], work[4], work[5], work[6]
    mean_above, mean_below, m = work[7], work[8], n - 1
    for k in range(m):
        mean_above[k] = mean_below[k] = 0.0
        for u in range(k + 1, n):
            mean_above[k] += max(weight[u], 0.0) * root[u, k]
            mean_below[k] -= min(weight[u], 0.0) * root[u, k]
        for j in range(k + 1):
            y = -mean_below[k] * mean_below[j]
            if convex:
                y += mean_above[k] * mean_above[j]
            for u in range(k + 1, n):
                if convex or weight[u] < 0.0:
                    y -= weight[u] * root[u, k] * root[u, j]
            matrix[k, j] = y
        matrix[k, k] += multiplier
        step[k] = gradient[k] - multiplier * w[k]
        radial[k] = w[k]
    if not cholesky(matrix, m):
        return -1.0
    solve_lower(matrix, m, step)
    solve_upper(matrix, m, step)
    if tangent:
        solve_lower(matrix, m, radial)
        solve_upper(matrix, m, radial)
        along = across = 0.0
        for k in range(m):
            along += step[k] * w[k]
            across += radial[k] * w[k]
        for k in range(m):
            step[k] -= along / across * radial[k]
    rise = 0.0
    for k in range(m):
        rise += step[k] * gradient[k]
    return rise


@njit_inline
def ascend(p, first, n, root, values, beta, enough, gain, work, matrix):
    """Climb from w = work[0] to a local maximum of E_q[values] over |w| <= beta, and return it.

    Ends early where it is at least `enough`, or where a step gains no more than `gain`. Leaves q
    and the gaps of w in work[1] and work[2].
    """
    w, q, gap, weight, gradient = work[0], work[1], work[2], work[3], work[4]
    step, old = work[5], work[9]
    m, square, reach = n - 1, beta * beta, REACH
    tilt(p, first, n, root, w, q)
    value, above = set_level(n, values, q, gap, weight)
    for _ in range(ASCENT_STEPS):
        if value >= enough or not above > 0.0:
            break
        slope2 = outward = length2 = 0.0
        for u in range(n):
            weight[u] /= above
        for k in range(m):
            y = 0.0
            for u in range(k + 1, n):
                y += weight[u] * root[u, k]
            gradient[k] = y
            slope2 += y * y
            outward += y * w[k]
            length2 += w[k] * w[k]
            old[k] = w[k]
        if not slope2 > 0.0:
            break
        # On the boundary the multiplier of |w|^2 / 2 <= beta^2 / 2 at a maximum is its outward
        # slope over beta. Inside it is 0, and a little keeps steps short; at the estimate, where
        # nothing is known, it is that of the fixed point.
        tangent = outward > 0.0 and length2 > 0.999999 * square
        multiplier = np.sqrt(slope2) / beta * (0.1 if length2 > 0.0 else 1.0)
        if tangent:
            multiplier = outward / square
        outside = multiplier * max(square - length2, 0.0)  # on the way to the boundary
        rise = 0.0
        for attempt in range(2):  # Newton's step, and where it does not rise the cautious one
            slope = newton_step(n, root, old, multiplier, attempt == 0, tangent, work, matrix)
            most = slope + outside  # what the step would gain, roughly
            if slope >= 0.0 and most * above <= gain and most < 1e-3:
                return value
            size, widest = 1.0 if slope > 0.0 else 0.0, 0.0
            for u in range(n):
                y = 0.0
                for k in range(u):
                    y += root[u, k] * step[k]
                widest = max(widest, abs(y))
            if widest > reach:
                size *= reach / widest
            for _ in range(3 if attempt == 0 else HALVINGS):
                if size == 0.0:
                    break
                length2 = 0.0
                for k in range(m):
                    w[k] = old[k] + size * step[k]
                    length2 += w[k] * w[k]
                if tangent or length2 > square:
                    scale = beta / np.sqrt(length2)
                    for k in range(m):
                        w[k] *= scale
                tilt(p, first, n, root, w, q)
                rise = rise_over(n, q, gap)
                if rise > 0.0:
                    break
                size *= 0.3
            if rise > 0.0:
                break
        if not rise > 0.0:
            for k in range(m):
                w[k] = old[k]
            tilt(p, first, n, root, w, q)
            break
        reach *= 2.0
        old_above = above
        new, above = set_level(n, values, q, gap, weight)
        value = max(value, new)
        if rise * max(old_above, above) <= gain and rise < 1e-3:
            break
    return value


@njit_inline
def is_global(n, root, beta, work):
    """Return whether the maximum w where `ascend` ended is certainly that of the whole ball.

    It is where the gradient of F is mu w with mu >= D^2 / 4, D the largest distance between two
    rows of L above the level: Cov_a <= D^2 / 4 everywhere, so F - mu |w|^2 / 2 is concave.
    """
    w, q, gap = work[0], work[1], work[2]
    above = outward = slope2 = 0.0
    for u in range(n):
        above += q[u] * max(gap[u], 0.0)
    for k in range(n - 1):
        y = 0.0
        for u in range(k + 1, n):
            y += q[u] * gap[u] * root[u, k]
        outward += y * w[k]
        slope2 += y * y
    if not outward > 0.999999 * beta * np.sqrt(slope2):
        return False
    limit = 4.0 * outward / (above * beta * beta)
    for u in range(n):
        for t in range(u):
            if gap[u] > 0.0 and gap[t] > 0.0:
                distance2 = 0.0
                for k in range(u):
                    distance2 += (root[u, k] - root[t, k]) ** 2
                if distance2 > limit:
                    return False
    return True


@njit_inline
def optimize_in_ellipsoid(p, first, n, products, at, values, beta, work, root, matrix):
    """Return the maximum (beta > 0) or minimum (beta < 0) of E_q[values] over the ellipsoid, (4).

    p: probabilities, those of the pair from `first` on; products: G, flat, from `at` on; values
    (n,); |beta| is the radius. work (N_WORK, n), root and matrix (n, n) are scratch.
    """
    w, signed, target = work[0], work[10], work[11]
    sign = 1.0 if beta > 0.0 else -1.0
    beta = abs(beta)
    mean, top, second, bottom = 0.0, -np.inf, -np.inf, np.inf
    for u in range(n):
        y = sign * values[u]
        mean += p[first + u] * y
        second = max(second, min(y, top))
        top = max(top, y)
        bottom = min(bottom, y)
        signed[u] = y
        w[u] = 0.0
    if top == bottom:
        return sign * top
    if beta == 0.0:
        return sign * mean
    if n == 2:  # only the difference of the two logits counts: push it all the way
        gap2 = products[at] - 2.0 * products[at + 1] + products[at + 3]
        better = 0 if signed[0] > signed[1] else 1
        odds = p[first + 1 - better] * np.exp(-beta * np.sqrt(max(gap2, 0.0)))
        return sign * (top - odds / (odds + p[first + better]) * (top - bottom))
    factor_differences(products, at, n, root)
    gain = TOLERANCE * (top - bottom)
    enough = top - gain
    best = ascend(p, first, n, root, signed, beta, enough, gain, work, matrix)
    if best <= second and not is_global(n, root, beta, work):
        for u in range(n):
            if signed[u] > best:
                # the log-odds of u are concave, and rise where the expectation is flat
                for t in range(n):
                    w[t] = 0.0
                    target[t] = 1.0 if t == u else 0.0
                ascend(p, first, n, root, target, beta, 0.5, 1e-3, work, matrix)
                value = ascend(p, first, n, root, signed, beta, enough, gain, work, matrix)
                best = max(best, value)
    return sign * best


@njit_cached
def optimize_expectation(p, products, values, beta):
    """Return `optimize_in_ellipsoid` of one pair: p and values (n,), products (n, n)."""
    n = p.shape[0]
    work, root, matrix = np.empty((N_WORK, n)), np.empty((n, n)), np.empty((n, n))
    return optimize_in_ellipsoid(p, 0, n, products.ravel(), 0, values, beta, work, root, matrix)


def compute_products(indptr, start, rows, out):
    """Write the inner products of the rows of each pair into out, flat, from start[pair] on.

    rows (n, d): those of the pairs of indptr, from row indptr[0] on.
    """
    for pair in range(indptr.shape[0] - 1):
        first = indptr[pair] - indptr[0]
        n = indptr[pair + 1] - indptr[pair]
        for u in range(n):
            for t in range(u + 1):
                total = 0.0
                for j in range(rows.shape[1]):
                    total += rows[first + u, j] * rows[first + t, j]
                out[start[pair] + u * n + t] = total
                out[start[pair] + t * n + u] = total


# sums in any order, so that the compiler may add several numbers at once
compute_products = njit_cached(compute_products, fastmath={"reassoc", "contract"})


@njit_cached
def center_products(indptr, start, prob, products):
    """Turn the products of features into those of features minus their mean under prob (n,)."""
    means = np.empty(max_successors(indptr))
    for pair in range(indptr.shape[0] - 1):
        first, at = indptr[pair], start[pair]
        n = indptr[pair + 1] - first
        overall = 0.0
        for u in range(n):
            means[u] = 0.0
            for t in range(n):
                means[u] += prob[first + t] * products[at + u * n + t]
            overall += prob[first + u] * means[u]
        for u in range(n):
            for t in range(n):
                products[at + u * n + t] += overall - means[u] - means[t]
