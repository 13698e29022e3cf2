"""Backward induction over likelihood-ratio sets: distributions within a Kullback-Leibler ball."""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil
from upriver.kernels.planning import largest_group, settle

ROOT_STEPS = 60


@njit_inline
def dual(values, p, n, top, gap):
    """(f, f') at nu = top + gap of f(nu) = sum p log(nu - V) + log sum p / (nu - V), p > 0."""
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
def largest_in_kl_ball(values, p, n, size):
    """max of q . values over distributions q on n successors with KL(p || q) <= size.

    On the edge q_u is proportional to p_u / (nu - V_u), f(nu) = size (Filippi, Cappe and Garivier,
    2010). Where the best successor has p = 0 and f is below `size` even there, it takes the mass
    that is left.
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
    if top == bottom or size <= 0.0:
        return mean
    if size == np.inf or mean >= top:
        return top
    gap = 0.0
    free = 0.0
    f = np.inf
    if seen < top:
        f, _ = dual(values, p, n, top, 0.0)
        free = 1.0 - np.exp(f - size)
    if f > size:
        # f falls from infinity to 0 and is convex: from a point left of the root Newton's steps
        # stay left of it. Such a point is found by shrinking the gap.
        free = 0.0
        gap = top - bottom
        f, slope = dual(values, p, n, top, gap)
        while f < size:
            gap *= 0.1
            if gap < 1e-300:  # all but nothing of the mass is on the top
                return top
            f, slope = dual(values, p, n, top, gap)
        for _ in range(ROOT_STEPS):
            if f <= size or slope >= 0.0:
                break
            step = (size - f) / slope
            gap += step
            f, slope = dual(values, p, n, top, gap)
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
def sweep_kl(
    indptr, successors, pay, prob, reward, size, low, q_cap, v_cap, seed, v, policy, q, span
):
    """Q_h = clip(r + max of q V_{h+1} over KL(prob || q) <= size), size (1|H, S*A).

    q is a distribution over the successors of (s, a). The rest is as in `planning.sweep`.
    """
    n_actions = q.shape[0] // policy.shape[1]
    values = np.empty(largest_group(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        room = size[min(h, size.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for g in range(s * n_actions, (s + 1) * n_actions):
                first = indptr[g]
                n = indptr[g + 1] - first
                for u in range(n):
                    values[u] = v[h + 1, successors[first + u]]
                    if pay.shape[1] > 0:
                        values[u] += pay[min(h, pay.shape[0] - 1), first + u]
                if n > 0:
                    q[g] = r[g] + largest_in_kl_ball(values, p[first : first + n], n, room[g])
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)
