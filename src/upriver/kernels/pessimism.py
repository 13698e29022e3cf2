"""The least expectation over the ellipsoid of every pair, as a bound that is never too high.

In coordinates w where the set of a pair is the ball |w| <= beta, f(w) = E_w[V] has the second
derivative E_w[(V - f) (z - Ez)^2] along a unit vector, z what it adds to the logits. So -f'' is at
most K = (most of f - least V) kappa there, kappa a bound of the variance of z, and
(0) f >= f(0) - beta |grad f(0)| - K beta^2 / 2, with no exponential at all, and
(1) at any w of length beta, with c = grad f(w) + K w, f >= f(w) - c w - beta |c| in the whole ball,
because f + K |w|^2 / 2 is convex; that is exact at the minimum if the gradient there is at least
K beta. The better one is taken until it is close, for the actions that might be the best.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.ellipsoid import ANGLES, largest_expectation
from upriver.kernels.planning import largest_group

STEPS = 6  # points at which the second bound is tried


def inner_products(indptr, start, rows, out):
    """out = the inner products of the rows of each pair, which begin there at start[g].

    rows (n, d) are those from indptr[0] on.
    """
    for g in range(indptr.shape[0] - 1):
        first = indptr[g] - indptr[0]
        n = indptr[g + 1] - indptr[g]
        for u in range(n):
            for t in range(u + 1):
                total = 0.0
                for j in range(rows.shape[1]):
                    total += rows[first + u, j] * rows[first + t, j]
                out[start[g] + u * n + t] = total
                out[start[g] + t * n + u] = total


# sums in any order, so that several numbers are added at once
inner_products = njit_cached(inner_products, fastmath={"reassoc", "contract"})


@njit_cached
def centre(indptr, start, prob, products):
    """The products of features minus their mean under prob, in place."""
    means = np.empty(largest_group(indptr))
    for g in range(indptr.shape[0] - 1):
        first, at = indptr[g], start[g]
        n = indptr[g + 1] - first
        whole = 0.0
        for u in range(n):
            means[u] = 0.0
            for t in range(n):
                means[u] += prob[first + t] * products[at + u * n + t]
            whole += prob[first + u] * means[u]
        for u in range(n):
            for t in range(n):
                products[at + u * n + t] += whole - means[u] - means[t]


@njit_cached
def from_last(indptr, start, products, prob, beta, packed, kappa):
    """The products of the features minus those of the pair's last successor, and kappa.

    packed (sum U (U - 1) / 2,): of each pair the lower triangle, what is beside the diagonal
    doubled, so that a quadratic form is one pass. kappa (S*A,): a quarter of the squared diameter
    of the features, or, where beta is finite, the norm of their covariance at the estimate times
    how much likelier a successor can be elsewhere in the ball, e^(beta diameter).
    """
    place = 0
    means = np.empty(largest_group(indptr))
    for g in range(indptr.shape[0] - 1):
        first, at = indptr[g], start[g]
        n = indptr[g + 1] - first
        last = at + (n - 1) * n
        widest = 0.0
        for u in range(n):
            for t in range(u + 1):
                y = products[at + u * n + t]
                gap = products[at + u * n + u] - 2.0 * y + products[at + t * n + t]
                widest = gap if gap > widest else widest
                if u < n - 1:
                    y += products[last + n - 1] - products[last + u] - products[last + t]
                    packed[place] = y if u == t else 2.0 * y
                    place += 1
        kappa[g] = 0.25 * widest
        if beta == np.inf:
            continue
        whole = 0.0
        for u in range(n):
            mean = 0.0
            for t in range(n):
                mean += prob[first + t] * products[at + u * n + t]
            means[u] = mean
            whole += prob[first + u] * mean
        norm2 = 0.0
        for u in range(n):
            row = 0.0
            for t in range(u + 1):
                inside = products[at + u * n + t] + whole - means[u] - means[t]
                row += prob[first + t] * inside * inside * (1.0 if u == t else 2.0)
            norm2 += prob[first + u] * row
        grown = np.sqrt(norm2) * np.exp(beta * np.sqrt(widest))
        kappa[g] = grown if grown < kappa[g] else kappa[g]


@njit_inline
def lowest(prob, first, values, products, at, n, beta, curved, close, x, z, p):
    """A lower bound of f that is at most `close` of what it allows for below the minimum, or -inf.

    The pair's prob and products begin at first and at; values (n,), curved is K; x, z, p (n,) are
    to work in.
    """
    mean = 0.0
    for u in range(n):
        mean += prob[first + u] * values[u]
    for u in range(n):
        x[u] = prob[first + u] * (values[u] - mean)
    for _ in range(STEPS):
        length2 = 0.0
        for u in range(n):
            y = 0.0
            for t in range(n):
                y += products[at + u * n + t] * x[t]
            z[u] = y
            length2 += x[u] * y
        if length2 <= 0.0:
            break
        scale = -beta / np.sqrt(length2)
        total = 0.0
        here = 0.0
        for u in range(n):
            z[u] *= scale
            p[u] = prob[first + u] * np.exp(z[u])
            total += p[u]
            here += p[u] * values[u]
        here /= total
        along = 0.0
        for u in range(n):
            x[u] = p[u] * (values[u] - here) / total
            along += x[u] * z[u]
        slope2 = 0.0
        for u in range(n):
            y = 0.0
            for t in range(u):
                y += x[t] * products[at + u * n + t]
            slope2 += x[u] * (2.0 * y + x[u] * products[at + u * n + u])
        c2 = slope2 + curved * (2.0 * along + curved * beta * beta)
        gap = along + curved * beta * beta + beta * np.sqrt(max(c2, 0.0))
        if gap <= close * (mean - here):
            return here - max(gap, 0.0)
    return -np.inf


@njit_cached
def sweep(
    indptr, successors, pay, prob, reward, geometry, start, packed, kappa, beta, close, v,
    policy, q,
):  # fmt: skip
    """Q_h = r + min over the confidence set of P_theta V_{h+1} for each (s, a, h), or little less.

    Shapes as in `optimism.sweep_exact`; packed and kappa (1|H, ...) of `from_last`. Where an
    action cannot be the best its Q is the rough bound.
    """
    # Unsigned counters, as in `planning.sweep`: signed ones are tested for wrap-around every time.
    one, zero = np.uint64(1), np.uint64(0)
    horizon, n_states = policy.shape
    n_actions = np.uint64(q.shape[0] // n_states)
    most = max(largest_group(indptr), ANGLES)
    work, above, bend = np.empty((11, most)), np.empty(n_actions), np.empty(n_actions)
    x, z, p1, logits, values = work[0], work[1], work[2], work[9], work[10]
    paid = pay.shape[1] > 0
    for h in range(horizon - 1, -1, -1):
        c = min(h, prob.shape[0] - 1)
        p, products, triangle, varied = prob[c], geometry[c], packed[c], kappa[c]
        r = reward[min(h, reward.shape[0] - 1)]
        y = pay[min(h, pay.shape[0] - 1)]
        following, now, played = v[h + 1], v[h], policy[h]
        g = zero
        at = zero  # the triangles of the pairs follow each other
        first = zero
        for s in range(n_states):
            best = -np.inf
            arg = 0
            unsure = False
            for a in range(n_actions):
                stop = np.uint64(indptr[g + one])
                n = stop - first
                above[a] = -np.inf
                q[g] = -np.inf
                if n > zero:
                    mean = 0.0
                    low = np.inf
                    high = -np.inf
                    i = first
                    while i < stop:
                        ahead = following[np.uint32(successors[i])]
                        if paid:
                            ahead += y[i]
                        x[i - first] = ahead
                        mean += p[i] * ahead
                        low = ahead if ahead < low else low
                        high = ahead if ahead > high else high
                        i += one
                    norm2 = 0.0
                    u = zero
                    while u + one < n:
                        x[u] = p[first + u] * (x[u] - mean)
                        row = 0.0
                        t = zero
                        while t <= u:
                            row += x[t] * triangle[at]
                            at += one
                            t += one
                        norm2 += x[u] * row
                        u += one
                    bonus = beta * np.sqrt(norm2 if norm2 > 0.0 else 0.0)
                    rough = 0.5 * beta * beta * varied[g] * (high - low)
                    most_f = mean + bonus + rough
                    bend[a] = varied[g] * ((most_f if most_f < high else high) - low)
                    slack = 0.5 * beta * beta * bend[a]
                    lower = mean - bonus - slack
                    q[g] = r[g] + (lower if lower > low else low)
                    if slack > close * bonus:  # not close: the least value may be this high
                        above[a] = r[g] + mean + (rough - bonus if rough < bonus else 0.0)
                        unsure = True
                    if q[g] > best:
                        best = q[g]
                        arg = a
                first = stop
                g += one
            if unsure:
                for a in range(n_actions):
                    if above[a] > best:
                        k = s * n_actions + a
                        begin = indptr[k]
                        m = indptr[k + 1] - begin
                        top = -np.inf
                        for j in range(m):
                            values[j] = following[successors[begin + j]]
                            if paid:
                                values[j] += y[begin + j]
                            top = max(top, values[j])
                        found = lowest(
                            p,
                            begin,
                            values,
                            products,
                            start[k],
                            m,
                            beta,
                            bend[a],
                            close,
                            x,
                            z,
                            p1,
                        )
                        if found == -np.inf:
                            own = products[start[k] : start[k + 1]]
                            for j in range(m):
                                logits[j] = np.log(max(p[begin + j], 1e-300))
                                values[j] = top - values[j]
                            found = top - largest_expectation(logits, own, values, beta, m, work)
                        q[k] = max(q[k], r[k] + found)
                        if q[k] > best:
                            best = q[k]
                            arg = a
            played[s] = arg
            now[s] = best
