"""Eq. (4): the largest expected next value over the confidence ellipsoid.

Write p for the probabilities (1) of the n successors of a pair at the estimate, V for their next
values and G (n, n) for the inner products of their features in A^-1. Only differences of logits
count, so features are counted from those of the first successor; with L L^T the Cholesky
factorisation of their products, moving theta within the ellipsoid adds z = L w, |w| <= beta, to the
logits, and (4) is

    max  sum_u q_u V_u,   q_u proportional to p_u exp(z_u),   z = L w,   |w| <= beta.

For a level t let F(w) = log sum_u q_u (V_u - t)+ - log sum_u q_u (t - V_u)+, which is positive
exactly where the expectation is above t. Its gradient is L^T (a - b), with the distributions a and
b proportional to q (V - t)+ and q (t - V)+: a difference of means over different successors, which
neither vanishes nor cancels where one successor is almost certain. Its Hessian is
L^T (Cov_a - Cov_b) L. `ascend` climbs F, with t the expectation at the current w, so F = 0 there.
Its steps are Newton's with the concave part of the Hessian alone: short ones always rise, and where
one successor is above t there is no other part.

The expectation is not concave, but F is where one successor alone counts as above t.
`maximize_in_ellipsoid` climbs from the estimate, w = 0. Where that is not certainly the maximum of
the whole ball, see `is_global`, it climbs again for each better successor, from where F is largest
with the others above t left out; t is halfway between the maximum found and the value of that
successor. A maximum that none of these climbs reaches is missed, so where `is_global` does not hold
the search is a heuristic.
"""

from collections import namedtuple

import numpy as np

from upriver.kernels.compiled import njit_inline
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import read_next_values

ASCENT_STEPS, HALVINGS = 60, 40
TOLERANCE = 1e-13
"""An ascent ends where a step gains less than this much of the range of the values."""
REACH = 2.0
"""The first step changes no log-odds by more, so that it stays near the maximum that it climbs; the
limit doubles with every step."""
TIE = 1e-10
"""Maxima of (4) that differ by less, in parts of the largest range of next values, are ties."""


Search = namedtuple("Search", "values w old q gap weight gradient step outward mean root matrix")
"""The work arrays of a search, (n,) each but the last two, for the largest n: V; the point w of the
ball, and w before a step; q, the probabilities at w; the gap V - t; the weight a - b; the gradient
L^T (a - b); the step; outward, (multiplier I + C)^-1 w, C as in `concave_step`; the mean L^T b; the
root L (n, n) in its first n - 1 columns; and multiplier I + C, or its Cholesky factor."""


@njit_inline
def new_search(n):
    """Return a `Search` for pairs of at most n successors."""
    x, root, matrix = np.empty((10, n)), np.empty((n, n)), np.empty((n, n))
    return Search(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], root, matrix)


@njit_inline
def factor_differences(products, at, n, root):
    """root (n, n - 1): L of the products of the features minus those of the first successor.

    products: G, flat, from `at` on. A column is zero where the features before it span the next.
    """
    corner = products[at]
    for j in range(1, n):
        for u in range(n):
            root[u, j - 1] = 0.0
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
def weigh(n, search):
    """weight = a - b; returns the sums of q gap above the level and of -q gap below it."""
    above = below = 0.0
    for u in range(n):
        y = search.q[u] * search.gap[u]
        search.weight[u] = y
        above += max(y, 0.0)
        below -= min(y, 0.0)
    for u in range(n):
        if search.weight[u] != 0.0:
            search.weight[u] /= above if search.weight[u] > 0.0 else below
    return above, below


@njit_inline
def concave_step(n, multiplier, tangent, search):
    """Write the step (multiplier I + C)^-1 gradient, C = L^T Cov_b L.

    -C is the concave part of the Hessian of F. With `tangent` the step is kept in the plane that
    touches the sphere at w. Returns step . gradient, which is at least 0.
    """
    root, weight, w, m = search.root, search.weight, search.w, n - 1
    mean, matrix, step, outward = search.mean, search.matrix, search.step, search.outward
    for k in range(m):
        mean[k] = 0.0
        for u in range(k + 1, n):
            mean[k] -= min(weight[u], 0.0) * root[u, k]
        for j in range(k + 1):
            y = -mean[k] * mean[j]
            for u in range(k + 1, n):
                y -= min(weight[u], 0.0) * root[u, k] * root[u, j]
            matrix[k, j] = y
        matrix[k, k] += multiplier
        step[k] = search.gradient[k]
        outward[k] = w[k]
    cholesky(matrix, m, multiplier)
    solve_lower(matrix, m, step)
    solve_upper(matrix, m, step)
    if tangent:  # the part of the step along (multiplier I + C)^-1 w that leaves the plane goes
        solve_lower(matrix, m, outward)
        solve_upper(matrix, m, outward)
        along = across = 0.0
        for k in range(m):
            along += step[k] * w[k]
            across += outward[k] * w[k]
        for k in range(m):
            step[k] -= along / across * outward[k]
    rise = 0.0
    for k in range(m):
        rise += step[k] * search.gradient[k]
    return rise


@njit_inline
def move(p, first, n, beta, size, tangent, search):
    """w = old + size step, back on the ball where it is outside, and q = p exp(L w), normalised.

    Returns F there, for the gaps in `search`: positive where the expectation is above their level.
    """
    root, w, q, length2 = search.root, search.w, search.q, 0.0
    for k in range(n - 1):
        w[k] = search.old[k] + size * search.step[k]
        length2 += w[k] * w[k]
    scale = beta / np.sqrt(length2) if tangent or length2 > beta * beta else 1.0
    top = total = 0.0  # the first logit does not move
    for k in range(n - 1):
        w[k] *= scale
    for u in range(n):
        q[u] = 0.0
        for k in range(u):
            q[u] += root[u, k] * w[k]
        top = max(top, q[u])
    for u in range(n):
        q[u] = p[first + u] * np.exp(q[u] - top)
        total += q[u]
    for u in range(n):
        q[u] /= total
    above, below = weigh(n, search)
    return np.log(above / below) if below > 0.0 else np.inf


@njit_inline
def ascend(p, first, n, values, beta, enough, gain, fixed, search):
    """Climb from w and q of `search` to a local maximum of E_q[values] over |w| <= beta.

    Returns the value, and where it is one, where a step would gain no more than `gain`, its
    multiplier mu, gradient = mu w; otherwise -1. A climb also ends after `ASCENT_STEPS`, where no
    step rises, where every probability above or below the level underflows, and at `enough`. With
    `fixed` it climbs F of the gaps in `search` instead, and its value says nothing. Leaves q and
    the gaps of the last w in `search`.
    """
    root, w, weight, gradient = search.root, search.w, search.weight, search.gradient
    q, gap = search.q, search.gap
    square, reach, value = beta * beta, REACH, -np.inf
    for _ in range(ASCENT_STEPS):
        if not fixed:
            # The level is E_q[V], from the value of the likeliest successor, lest a gap be rounded.
            likely, level = 0, 0.0
            for u in range(n):
                likely = u if q[u] > q[likely] else likely
            for u in range(n):
                level += q[u] * (values[u] - values[likely])
            for u in range(n):
                gap[u] = values[u] - values[likely] - level
            value = max(value, values[likely] + level)
        above, below = weigh(n, search)
        if value >= enough or not (above > 0.0 and below > 0.0):
            return value, -1.0
        slope2 = outward = length2 = 0.0
        for k in range(n - 1):
            y = 0.0
            for u in range(k + 1, n):
                y += weight[u] * root[u, k]
            gradient[k], search.old[k] = y, w[k]
            slope2 += y * y
            outward += y * w[k]
            length2 += w[k] * w[k]
        if not slope2 > 0.0:
            return value, 0.0
        # On the boundary the multiplier of |w|^2 / 2 <= beta^2 / 2 at a maximum is its outward
        # slope over beta. Inside it is 0, and a little keeps steps short; at the estimate, where
        # nothing is known, it is that of the fixed point w = beta gradient / |gradient|.
        tangent = outward > 0.0 and length2 > 0.999999 * square
        multiplier = np.sqrt(slope2) / beta * (0.1 if length2 > 0.0 else 1.0)
        if tangent:
            multiplier = outward / square
        slope = concave_step(n, multiplier, tangent, search)
        most = slope + multiplier * max(square - length2, 0.0)  # about what it would gain
        if most * above <= gain and most < 1e-3:
            return value, multiplier if tangent else 0.0
        rise, widest = 0.0, 0.0
        for u in range(n):
            y = 0.0
            for k in range(u):
                y += root[u, k] * search.step[k]
            widest = max(widest, abs(y))
        size = reach / widest if widest > reach else 1.0
        before = np.log(above / below)
        for _ in range(HALVINGS):
            rise = move(p, first, n, beta, size, tangent, search) - before
            if rise > 0.0:
                break
            size *= 0.3
        if not rise > 0.0:  # the last move was none
            return value, -1.0
        reach *= 2.0
    return value, -1.0


@njit_inline
def is_global(n, products, at, multiplier, search):
    """Return whether the maximum w where `ascend` ended is certainly that of the whole ball.

    It is where at most one value is above the level, for then F is concave; and where the gradient
    of F is mu w with mu >= D^2 / 4, D the largest distance of the features of two such values:
    Cov_a <= D^2 / 4 everywhere, so F - mu |w|^2 / 2 is concave.
    """
    for u in range(n):
        for t in range(u):
            distance2 = products[at + u * n + u] + products[at + t * n + t]
            distance2 -= 2.0 * products[at + u * n + t]
            is_above = search.gap[u] > 0.0 and search.gap[t] > 0.0
            if is_above and not distance2 <= 4.0 * multiplier:
                return False
    return True


@njit_inline
def maximize_in_ellipsoid(p, first, n, products, at, beta, search):
    """Return (4) of one pair, the maximum of E_q[V] over |w| <= beta, and max V - min V.

    p: probabilities, those of the pair from `first` on; products: G, flat, from `at` on;
    search.values: V.
    """
    values, w = search.values, search.w
    mean, top, bottom = 0.0, -np.inf, np.inf
    for u in range(n):
        search.q[u], w[u] = p[first + u], 0.0
        mean += p[first + u] * values[u]
        top = max(top, values[u])
        bottom = min(bottom, values[u])
    if top == bottom or beta == 0.0:
        return top if top == bottom else mean, top - bottom
    if n == 2:  # only the difference of the two logits counts: push it all the way
        gap2 = products[at] - 2.0 * products[at + 1] + products[at + 3]
        better = 0 if values[0] > values[1] else 1
        odds = p[first + 1 - better] * np.exp(-beta * np.sqrt(max(gap2, 0.0)))
        return top - odds / (odds + p[first + better]) * (top - bottom), top - bottom
    factor_differences(products, at, n, search.root)
    gain = TOLERANCE * (top - bottom)
    enough = top - gain
    best, multiplier = ascend(p, first, n, values, beta, enough, gain, False, search)
    if best >= enough or (multiplier >= 0.0 and is_global(n, products, at, multiplier, search)):
        return best, top - bottom
    level = best
    for u in range(n):
        if values[u] > level:
            middle = 0.5 * (level + values[u])
            for t in range(n):
                search.q[t], w[t] = p[first + t], 0.0
                search.gap[t] = min(values[t] - middle, 0.0)
            search.gap[u] = values[u] - middle
            ascend(p, first, n, values, beta, np.inf, np.inf, True, search)
            value, _ = ascend(p, first, n, values, beta, enough, gain, False, search)
            best = max(best, value)
    return best, top - bottom


@njit_inline
def exact_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Eq. (4): Q_h = r + max over the ellipsoid of P_theta V_{h+1}, each (s, a, h) by itself.

    prob (1|H, n), reward (1|H, S*A); products (1|H, ...) the flat G of each pair, from square_start
    on; max_size is the largest number of successors of a pair. Actions whose Q differs by rounding
    alone are made equal, so that ties are broken at random.
    """
    prob, products, square_start, reward, beta, max_size = data
    c, r = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1)
    p, flat, search, n_actions = prob[c], products[c], new_search(max_size), len(q) // v.shape[1]
    for state in range(first, end, n_actions):  # the first pair of each state
        best, margin = -np.inf, 0.0
        for pair in range(state, state + n_actions):
            start, stop = np.int64(indptr[pair]), np.int64(indptr[pair + 1])
            if start < stop:
                read_next_values(h, start, stop, successors, next_state_reward, v, search.values)
                value, width = maximize_in_ellipsoid(
                    p, start, stop - start, flat, square_start[pair], beta, search
                )
                q[pair] = reward[r, pair] + value
                best, margin = max(best, q[pair]), max(margin, TIE * width)
        for pair in range(state, state + n_actions):
            if q[pair] >= best - margin and indptr[pair] < indptr[pair + 1]:
                q[pair] = best
