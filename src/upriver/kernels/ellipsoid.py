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

The expectation is not concave, but the log-probability of one successor is. So there is a start for
every local maximum that a better successor dominates: where that successor is likeliest.
`maximize_expectation` climbs from the estimate. Where that does not certainly lead to the maximum
of the whole ball, see `is_global`, it climbs again from where each better successor is likeliest.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_nogil
from upriver.kernels.gram import cholesky, solve_lower, solve_upper
from upriver.kernels.planning import choose_action, max_successors, read_next_values

ASCENT_STEPS, HALVINGS = 60, 40
TOLERANCE = 1e-13
"""An ascent ends where a step gains less than this much of the range of the values."""
REACH = 2.0
"""The first step changes no log-odds by more, so that it stays near the maximum that it climbs; the
limit doubles with every step."""
TIE = 1e-10
"""Maxima of (4) that differ by less, in parts of the largest range of next values, are ties."""


@njit_cached
def factor_differences(products):
    """Return L (n, n - 1) of the products of the features minus those of the first successor.

    products: G. A column is zero where the features before it span the next.
    """
    n = products.shape[0]
    differences = products - products[0] - products[:, :1] + products[0, 0]
    root = np.zeros((n, n - 1))
    for j in range(1, n):
        pivot = differences[j, j] - (root[j] ** 2).sum()
        if pivot > 1e-13 * differences[j, j]:
            for u in range(j, n):
                y = differences[u, j] - (root[u] * root[j]).sum()
                root[u, j - 1] = y / np.sqrt(pivot)
    return root


@njit_cached
def tilt(p, root, w):
    """Return q = p exp(L w), normalised: the probabilities (1) at w."""
    logits = np.zeros(p.shape[0])
    for u in range(1, p.shape[0]):
        for k in range(u):
            logits[u] += root[u, k] * w[k]
    q = p * np.exp(logits - logits.max())
    return q / q.sum()


@njit_cached
def concave_step(root, weight, gradient, w, multiplier, tangent):
    """Return the step (multiplier I + C)^-1 (gradient - multiplier w), C = L^T Cov_b L.

    -C is the concave part of the Hessian of F; weight is a - b. With `tangent` the step is kept in
    the plane that touches the sphere at w.
    """
    m = w.shape[0]
    below = np.maximum(-weight, 0.0).reshape(-1, 1)
    centred = root - (below * root).sum(axis=0)
    matrix = centred.T @ (below * centred) + multiplier * np.eye(m)
    cholesky(matrix, m, multiplier)
    step = gradient - multiplier * w
    solve_lower(matrix, m, step)
    solve_upper(matrix, m, step)
    if tangent:
        outward = w.copy()
        solve_lower(matrix, m, outward)
        solve_upper(matrix, m, outward)
        step -= (step @ w) / (outward @ w) * outward
    return step


@njit_cached
def ascend(p, root, values, beta, gain, w):
    """Climb from w to a local maximum of E_q[values] over |w| <= beta, and return it.

    Ends where a step gains no more than `gain`; w becomes the maximiser.
    """
    value, square, reach = 0.0, beta * beta, REACH
    q = tilt(p, root, w)
    for _ in range(ASCENT_STEPS):
        # Values are counted from that of the likeliest successor: no gap is lost to rounding.
        likely = q.argmax()
        gap = values - values[likely]
        mean = q @ gap
        value = values[likely] + mean
        gap -= mean
        weight = q * gap
        above = np.maximum(weight, 0.0).sum()
        if not above > 0.0:
            break
        weight /= above
        gradient = weight @ root
        slope2, outward, length2 = gradient @ gradient, gradient @ w, w @ w
        if not slope2 > 0.0:
            break
        # On the boundary the multiplier of |w|^2 / 2 <= beta^2 / 2 at a maximum is its outward
        # slope over beta. Inside it is 0, and a little keeps steps short; at the estimate, where
        # nothing is known, it is that of the fixed point w = beta gradient / |gradient|.
        tangent = outward > 0.0 and length2 > 0.999999 * square
        multiplier = np.sqrt(slope2) / beta * (0.1 if length2 > 0.0 else 1.0)
        if tangent:
            multiplier = outward / square
        step = concave_step(root, weight, gradient, w, multiplier, tangent)
        most = step @ gradient + multiplier * max(square - length2, 0.0)  # about what it gains
        if most * above <= gain and most < 1e-3:
            break
        widest = np.abs(root @ step).max()
        size = reach / widest if widest > reach else 1.0
        old, risen = w.copy(), False
        for _ in range(HALVINGS):
            w[:] = old + size * step
            length = np.sqrt(w @ w)
            if tangent or length > beta:
                w *= beta / length
            q = tilt(p, root, w)
            risen = q @ gap > 0.0
            if risen:
                break
            size *= 0.3
        if not risen:
            w[:] = old
            break
        reach *= 2.0
    return value


@njit_cached
def is_global(p, root, gap, beta, w):
    """Return whether w, a local maximum, is certainly that of the whole ball; gap is V - E_q[V].

    It is where at most one value is above the level, for then F is concave; and where the gradient
    of F is mu w with mu >= D^2 / 4, D the largest distance between two rows of L above the level:
    Cov_a <= D^2 / 4 everywhere, so F - mu |w|^2 / 2 is concave.
    """
    weight = tilt(p, root, w) * gap
    gradient = weight @ root / np.maximum(weight, 0.0).sum()
    outward, limit = gradient @ w, 0.0
    if outward > 0.999999 * beta * np.sqrt(gradient @ gradient):
        limit = 4.0 * outward / (beta * beta)
    rows = root[gap > 0.0]
    for u in range(rows.shape[0]):
        for t in range(u):
            if not ((rows[u] - rows[t]) ** 2).sum() <= limit:
                return False
    return True


@njit_cached
def maximize_expectation(p, products, values, beta):
    """Return (4) of one pair: the maximum of E_q[V] over the ellipsoid of radius beta >= 0.

    p and values (n,); products (n, n).
    """
    n, top, bottom = p.shape[0], values.max(), values.min()
    if top == bottom:
        return top
    if beta == 0.0:
        return p @ values
    if n == 2:  # only the difference of the two logits counts: push it all the way
        gap2 = products[0, 0] - 2.0 * products[0, 1] + products[1, 1]
        better = values.argmax()
        odds = p[1 - better] * np.exp(-beta * np.sqrt(max(gap2, 0.0)))
        return top - odds / (odds + p[better]) * (top - bottom)
    root, gain, w = factor_differences(products), TOLERANCE * (top - bottom), np.zeros(n - 1)
    best = ascend(p, root, values, beta, gain, w)
    gap = values - best + gain
    if is_global(p, root, gap, beta, w):
        return best
    for u in range(n):
        if gap[u] > 0.0:
            w, target = np.zeros(n - 1), np.zeros(n)
            target[u] = 1.0
            ascend(p, root, target, beta, 1e-3, w)
            best = max(best, ascend(p, root, values, beta, gain, w))
    return best


@njit_nogil
def backward_pass_ellipsoid(problem, ellipsoid, reward, beta, tie_seed, v, policy, q, span):
    """Eq. (4): Q_h = clip(r + max over the ellipsoid of P_theta V_{h+1}), each (s, a, h) by itself.

    ellipsoid: an `optimism.Ellipsoid`; reward (1|H, S*A). Actions whose Q differs by rounding alone
    are made equal, so that ties are broken at random.
    """
    rows = problem.values
    indptr = rows.indptr
    n_actions = q.shape[0] // policy.shape[1]
    room = np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, ellipsoid.prob.shape[0] - 1)
        p, products = ellipsoid.prob[c], ellipsoid.products[c]
        r = reward[min(h, reward.shape[0] - 1)]
        for s in range(span[2], span[3]):
            best, margin = -np.inf, 0.0
            for pair in range(s * n_actions, (s + 1) * n_actions):
                first, at = indptr[pair], ellipsoid.products_start[pair]
                n = indptr[pair + 1] - first
                if n == 0:
                    continue
                read_next_values(rows, h, v[h + 1], first, n, room)
                values, square = room[:n], products[at : at + n * n].reshape(n, n)
                margin = max(margin, TIE * (values.max() - values.min()))
                q[pair] = r[pair] + maximize_expectation(p[first : first + n], square, values, beta)
                best = max(best, q[pair])
            for pair in range(s * n_actions, (s + 1) * n_actions):
                if q[pair] >= best - margin:
                    q[pair] = best
            choose_action(rows, h, s, tie_seed, v, policy, q)
