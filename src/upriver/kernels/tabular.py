"""The rules of backward passes whose optimism comes from counts alone.

With p the frequencies of the successors of a pair and N its visits,

    UCRL2    Q_h = r + max of q . V over ||q - p||_1 <= radius     (Jaksch, Ortner and Auer 2010)
    KL       Q_h = r + max of q . V over KL(p || q) <= radius      (Filippi, Cappe, Garivier 2010)
    UCBVI    Q_h = r + P V + Hoeffding's or Bernstein's bonus      (Azar, Osband and Munos 2017)

The arguments that all rules share, and their shapes, are explained in `kernels.planning`.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.planning import read_next_values

DUAL_STEPS = 60


@njit_inline
def count_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = r + P V + hoeffding_h / sqrt(N) + sqrt(variance Var_P V / N) + linear_h / N
    + sqrt(P D / N).

    prob (1|H, n), reward (1|H, S*A), visits (S*A,) N, hoeffding (H,), linear (H,); next_doubt
    (1|H, S) D, a squared bonus of the next state; value_range (H,) that of V_{h+1}. A pair with one
    successor has no bonus: there is nothing to learn. Where N = 0 and the bonus is `optimistic`,
    the largest next value stands for P V, and the bonus is that of one visit with the largest
    variance, range^2 / 4; otherwise N = 0 has no bonus.
    """
    prob, reward, visits, hoeffding, variance, linear, next_doubt, value_range, optimistic = data
    c, r, d = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), min(h, len(next_doubt) - 1)
    has_extra, e = next_state_reward.shape[1] > 0, min(h, next_state_reward.shape[0] - 1)
    for pair in range(first, end):
        mean = square = mean_doubt = max_value = max_doubt = 0.0
        for i in range(indptr[pair], indptr[pair + 1]):
            value, doubt = v[h + 1, successors[i]], next_doubt[d, successors[i]]
            if has_extra:
                value += next_state_reward[e, i]
            mean += prob[c, i] * value
            square += prob[c, i] * value * value
            mean_doubt += prob[c, i] * doubt
            max_value, max_doubt = max(max_value, value), max(max_doubt, doubt)
        value_variance, n = max(square - mean * mean, 0.0), visits[pair]
        if n == 0.0 and optimistic:
            n, mean, mean_doubt = 1.0, max_value, max_doubt
            value_variance = 0.25 * value_range[h] ** 2
        q[pair] = reward[r, pair] + mean
        if n > 0.0 and indptr[pair] + 1 < indptr[pair + 1]:
            q[pair] += hoeffding[h] / np.sqrt(n) + linear[h] / n
            q[pair] += np.sqrt(variance * value_variance / n) + np.sqrt(mean_doubt / n)


@njit_inline
def maximize_in_l1_ball(values, n, radius, p):
    """Turn p into the best distribution q, ||q - p||_1 <= radius, and return q . values.

    Half the radius of mass goes to the best successor and is taken from the worst ones first.
    values and p: their first n entries, those of p sum to one.
    """
    best, mean = 0, 0.0
    for u in range(n):
        best = u if values[u] >= values[best] else best
        mean += p[u] * values[u]
    left = min(0.5 * radius, 1.0 - p[best])
    while left > 0.0:
        worst = -1
        for u in range(n):
            if u != best and p[u] > 0.0 and (worst < 0 or values[u] < values[worst]):
                worst = u
        if worst < 0:  # rounding alone is left
            break
        mass = min(left, p[worst])
        p[worst] -= mass
        p[best] += mass
        mean += mass * (values[best] - values[worst])
        left -= mass
    return mean


@njit_cached
def choose_in_l1_balls(indptr, prob, radius, values, chosen):
    """Write the best distributions within L1 distance `radius` (S*A,) of prob into chosen (n,).

    values (n,): those of the next states, one for each triple.
    """
    chosen[:] = prob
    for pair in range(indptr.shape[0] - 1):
        start, stop = indptr[pair], indptr[pair + 1]
        if start < stop:
            maximize_in_l1_ball(values[start:stop], stop - start, radius[pair], chosen[start:stop])


@njit_inline
def evaluate_dual(values, p, n, top, gap):
    """Return f and its derivative at nu = top + gap, over successors with p > 0, of

    f(nu) = sum_u p_u log(nu - V_u) + log sum_u p_u / (nu - V_u).
    """
    logs = first = second = 0.0
    for u in range(n):
        if p[u] > 0.0:
            x = gap + (top - values[u])
            logs += p[u] * np.log(x)
            first += p[u] / x
            second += p[u] / (x * x)
    return logs + np.log(first), first - second / first


@njit_inline
def maximize_in_kl_ball(values, p, n, radius):
    """Return the maximum of q . values over distributions q with KL(p || q) <= radius.

    values and p: their first n entries. On the boundary q_u is proportional to p_u / (nu - V_u),
    where f(nu) = radius (Filippi, Cappe and Garivier 2010), f the dual function above. Where the
    best successor has p = 0 and f(top) is below the radius, it takes the mass that is left over,
    `free`.
    """
    top, bottom, top_seen, mean = -np.inf, np.inf, -np.inf, 0.0
    for u in range(n):
        top, bottom = max(top, values[u]), min(bottom, values[u])
        top_seen = max(top_seen, values[u]) if p[u] > 0.0 else top_seen
        mean += p[u] * values[u]
    if top == bottom or radius <= 0.0:
        return mean
    if radius == np.inf or mean >= top:
        return top
    gap, free, f = 0.0, 0.0, np.inf
    if top_seen < top:
        f, _ = evaluate_dual(values, p, n, top, 0.0)
        free = 1.0 - np.exp(f - radius)
    if f > radius:
        # f falls from infinity to 0 and is convex: from a point left of the root Newton's steps
        # stay left of it. Such a point is found by shrinking the gap.
        free, gap = 0.0, top - bottom
        f, slope = evaluate_dual(values, p, n, top, gap)
        while f < radius:
            gap *= 0.1
            if gap < 1e-300:  # nearly all of the mass is on the best successor
                return top
            f, slope = evaluate_dual(values, p, n, top, gap)
        for _ in range(DUAL_STEPS):
            if f <= radius or slope >= 0.0:
                break
            step = (radius - f) / slope
            gap += step
            f, slope = evaluate_dual(values, p, n, top, gap)
            if step <= 1e-12 * gap:
                break
    total = value = 0.0
    for u in range(n):
        if p[u] > 0.0:
            weight = p[u] / (gap + (top - values[u]))
            total += weight
            value += weight * values[u]
    return max(free * top + (1.0 - free) * value / total, mean)


@njit_inline
def ball_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = r + max of p V_{h+1} over distributions p in the ball of a pair.

    The ball is KL(prob || p) <= radius, or ||p - prob||_1 <= radius where `in_l1`. data: prob
    (1|H, n), which sums to one in each pair; reward and radius (1|H, S*A); max_size, the largest
    number of successors of a pair; in_l1.
    """
    prob, reward, radius, max_size, in_l1 = data
    c, r, k = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), min(h, radius.shape[0] - 1)
    values, p = np.empty(max_size), np.empty(max_size)
    for pair in range(first, end):
        start, stop = np.int64(indptr[pair]), np.int64(indptr[pair + 1])
        if start < stop:
            read_next_values(h, start, stop, successors, next_state_reward, v, values)
            for i in range(start, stop):
                p[i - start] = prob[c, i]
            if in_l1:
                best = maximize_in_l1_ball(values, stop - start, radius[k, pair], p)
            else:
                best = maximize_in_kl_ball(values, p, stop - start, radius[k, pair])
            q[pair] = reward[r, pair] + best
