"""Backward induction over likelihood-ratio sets: distributions within a Kullback-Leibler ball.

The set of a pair holds every distribution q whose Kullback-Leibler divergence KL(p || q) from the
frequencies p is at most a radius. Arguments that all backward passes share are explained in
`kernels.planning`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil
from upriver.kernels.planning import choose_action, max_successors, read_next_values

ROOT_STEPS = 60


@njit_inline
def evaluate_dual(values, p, n, top, gap):
    """Return f and its derivative at nu = top + gap, over successors with p > 0, of

    f(nu) = sum_u p_u log(nu - V_u) + log sum_u p_u / (nu - V_u).
    """
    logs = 0.0
    first = 0.0
    second = 0.0
    for u in range(n):
        if p[u] > 0.0:
            x = gap + (top - values[u])
            logs += p[u] * np.log(x)
            first += p[u] / x
            second += p[u] / (x * x)
    return logs + np.log(first), first - second / first


@njit_cached
def maximize_in_kl_ball(values, p, n, radius):
    """Return the maximum of q . values over distributions q with KL(p || q) <= radius.

    values and p (n,). On the boundary q_u is proportional to p_u / (nu - V_u), where f(nu) = radius
    (Filippi, Cappe and Garivier 2010), f the dual function above. Where the best successor has
    p = 0 and f(top) is below the radius, it takes the mass that is left over, `free`.
    """
    top = -np.inf
    seen = -np.inf
    bottom = np.inf
    mean = 0.0
    for u in range(n):
        top = max(top, values[u])
        if p[u] > 0.0:
            seen = max(seen, values[u])
        bottom = min(bottom, values[u])
        mean += p[u] * values[u]
    if top == bottom or radius <= 0.0:
        return mean
    if radius == np.inf or mean >= top:
        return top
    gap = 0.0
    free = 0.0
    f = np.inf
    if seen < top:
        f, _ = evaluate_dual(values, p, n, top, 0.0)
        free = 1.0 - np.exp(f - radius)
    if f > radius:
        # f falls from infinity to 0 and is convex: from a point left of the root Newton's steps
        # stay left of it. Such a point is found by shrinking the gap.
        free = 0.0
        gap = top - bottom
        f, slope = evaluate_dual(values, p, n, top, gap)
        while f < radius:
            gap *= 0.1
            if gap < 1e-300:  # nearly all of the mass is on the best successor
                return top
            f, slope = evaluate_dual(values, p, n, top, gap)
        for _ in range(ROOT_STEPS):
            if f <= radius or slope >= 0.0:
                break
            step = (radius - f) / slope
            gap += step
            f, slope = evaluate_dual(values, p, n, top, gap)
            if step <= 1e-12 * gap:
                break
    total = 0.0
    value = 0.0
    for u in range(n):
        if p[u] > 0.0:
            weight = p[u] / (gap + (top - values[u]))
            total += weight
            value += weight * values[u]
    return max(free * top + (1.0 - free) * value / total, mean)


@njit_nogil
def backward_pass_kl(problem, prob, reward, radius, tie_seed, v, policy, q, span):
    """Q_h = clip(r + max of q V_{h+1} over KL(prob || q) <= radius), V_h = clip(max_a Q_h).

    q is a distribution over the successors of (s, a). prob (1|H, n), reward and radius (1|H, S*A).
    """
    rows = problem.values
    indptr = rows.indptr
    n_actions = q.shape[0] // policy.shape[1]
    values = np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        radius_h = radius[min(h, radius.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                first = indptr[pair]
                n = indptr[pair + 1] - first
                if n > 0:
                    read_next_values(rows, h, v[h + 1], first, n, values)
                    best = maximize_in_kl_ball(values, p[first : first + n], n, radius_h[pair])
                    q[pair] = r[pair] + best
            choose_action(rows, h, s, tie_seed, v, policy, q)
