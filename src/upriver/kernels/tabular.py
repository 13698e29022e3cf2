"""Counts of visits, and backward passes whose optimism comes from counts alone.

UCRL2 takes the best distribution within an L1 distance of the frequencies (Jaksch, Ortner and Auer
2010); likelihood-ratio sets hold every distribution q whose Kullback-Leibler divergence KL(p || q)
from the frequencies p is at most a radius; UCBVI adds Hoeffding's or Bernstein's bonus (Azar,
Osband and Munos 2017). Arguments that all backward passes share are explained in
`kernels.planning`.
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_nogil
from upriver.kernels.planning import choose_action, max_successors, read_next_values

ROOT_STEPS = 60


@njit_cached
def steps_until_doubled(pairs, visits):
    """Return the first k such that pairs[:k] has a pair max(1, visits) times, or all steps."""
    new = np.zeros(visits.shape[0])
    for k in range(pairs.shape[0]):
        pair = pairs[k]
        new[pair] += 1.0
        if new[pair] >= max(visits[pair], 1.0):
            return k + 1
    return pairs.shape[0]


@njit_cached
def maximize_in_l1_ball(values, p, radius, chosen):
    """Write the best distribution q, ||q - p||_1 <= radius, into chosen, and return q . values.

    Half the radius of mass goes to the best successor and is taken from the worst ones first.
    values, p and chosen (n,); p sums to one.
    """
    order = np.argsort(values, kind="mergesort")
    best, expected = order[-1], (p * values).sum()
    left = min(0.5 * radius, 1.0 - p[best])
    chosen[:] = p
    for u in order[:-1]:
        mass = min(left, p[u])
        chosen[u] -= mass
        chosen[best] += mass
        expected += mass * (values[best] - values[u])
        left -= mass
    return expected


@njit_cached
def choose_in_l1_balls(indptr, prob, radius, values, chosen):
    """Write the best distributions within L1 distance `radius` (S*A,) of prob into chosen (n,).

    values (n,): those of the next states, one for each triple.
    """
    for pair in range(indptr.shape[0] - 1):
        first, end = indptr[pair], indptr[pair + 1]
        if first < end:
            maximize_in_l1_ball(values[first:end], prob[first:end], radius[pair], chosen[first:end])


class CountBonus(NamedTuple):
    """The terms of the bonus of `backward_pass_counts`."""

    visits: Any
    """(S*A,) N, the visits of each pair."""
    hoeffding: Any
    """(H,) what is divided by sqrt(N)."""
    variance: Any
    """The factor of Var_P V / N under the root."""
    linear: Any
    """(H,) what is divided by N."""
    next_doubt: Any
    """(1|H, S) D, a squared bonus of the next state, read at the step of (s, a)."""
    next_value_range: Any
    """(H,) the range of V_{h+1}."""
    optimistic: Any
    """Whether a pair without visits has a bonus."""


@njit_nogil
def backward_pass_counts(problem, prob, reward, bonus, tie_seed, v, policy, q, span):
    """Q_h = r + P V + hoeffding_h / sqrt(N) + sqrt(variance Var_P V / N) + linear_h / N
    + sqrt(P D / N), clipped.

    bonus: a `CountBonus`. A pair with one successor has no bonus: there is nothing to learn. Where
    N = 0 and the bonus is optimistic, the largest next value stands for P V, and the bonus is that
    of one visit with the largest variance, range^2 / 4; otherwise N = 0 has no bonus.
    """
    indptr, successors = problem.indptr, problem.successors
    n_actions = q.shape[0] // policy.shape[1]
    values = np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        doubt = bonus.next_doubt[min(h, bonus.next_doubt.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                first, n = indptr[pair], indptr[pair + 1] - indptr[pair]
                read_next_values(problem, h, v[h + 1], first, n, values)
                mean = square = mean_doubt = max_value = max_doubt = 0.0
                for u in range(n):
                    d = doubt[successors[first + u]]
                    mean += p[first + u] * values[u]
                    square += p[first + u] * values[u] * values[u]
                    mean_doubt += p[first + u] * d
                    max_value = max(max_value, values[u])
                    max_doubt = max(max_doubt, d)
                spread = max(square - mean * mean, 0.0)
                visits = bonus.visits[pair]
                if visits == 0.0 and bonus.optimistic:
                    visits = 1.0
                    mean = max_value
                    spread = 0.25 * bonus.next_value_range[h] ** 2
                    mean_doubt = max_doubt
                x = r[pair] + mean
                if visits > 0.0 and n > 1:
                    x += (
                        bonus.hoeffding[h] / np.sqrt(visits)
                        + np.sqrt(bonus.variance * spread / visits)
                        + bonus.linear[h] / visits
                        + np.sqrt(mean_doubt / visits)
                    )
                q[pair] = x
            choose_action(problem, h, s, tie_seed, v, policy, q)


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
def maximize_in_kl_ball(values, p, radius):
    """Return the maximum of q . values over distributions q with KL(p || q) <= radius.

    values and p (n,). On the boundary q_u is proportional to p_u / (nu - V_u), where f(nu) = radius
    (Filippi, Cappe and Garivier 2010), f the dual function above. Where the best successor has
    p = 0 and f(top) is below the radius, it takes the mass that is left over, `free`.
    """
    n, top, bottom, mean = p.shape[0], values.max(), values.min(), (p * values).sum()
    if top == bottom or radius <= 0.0:
        return mean
    if radius == np.inf or mean >= top:
        return top
    gap = 0.0
    free = 0.0
    f = np.inf
    if values[p > 0.0].max() < top:
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
def backward_pass_ball(problem, prob, reward, radius, is_kl, tie_seed, v, policy, q, span):
    """Q_h = clip(r + max of p V_{h+1} over a ball around prob), V_h = clip(max_a Q_h).

    p is a distribution over the successors of (s, a) with KL(prob || p) <= radius, or
    ||p - prob||_1 <= radius unless `is_kl`. prob (1|H, n) sums to one in each pair; reward and
    radius (1|H, S*A).
    """
    indptr = problem.indptr
    n_actions = q.shape[0] // policy.shape[1]
    room, chosen = np.empty(max_successors(indptr)), np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        radius_h = radius[min(h, radius.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                first, n = indptr[pair], indptr[pair + 1] - indptr[pair]
                if n == 0:
                    continue
                read_next_values(problem, h, v[h + 1], first, n, room)
                values, centre = room[:n], p[first : first + n]
                if is_kl:
                    best = maximize_in_kl_ball(values, centre, radius_h[pair])
                else:
                    best = maximize_in_l1_ball(values, centre, radius_h[pair], chosen[:n])
                q[pair] = r[pair] + best
            choose_action(problem, h, s, tie_seed, v, policy, q)
