"""Counting visits, and backward induction with what counts alone can promise."""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_nogil
from upriver.kernels.planning import count, settle


@njit_cached
def absorb(indptr, successors, n_actions, states, actions, counts, visits, prob, touched):
    """Add an episode to counts (1, n) and visits (S*A,), and bring the frequencies up to date.

    prob (1, n) is counts / visits; only the pairs of the episode are computed again. touched (H,)
    is scratch. Returns the first step outside the declared support, or -1.
    """
    bad = count(indptr, successors, n_actions, states, actions, counts, touched)
    if bad >= 0:
        return bad
    for g in touched:
        visits[g] += 1.0
    for g in touched:
        for i in range(indptr[g], indptr[g + 1]):
            prob[0, i] = counts[0, i] / visits[g]
    return -1


@njit_cached
def until_doubled(pairs, visits):
    """The first k with a pair as often in pairs[:k] as max(1, visits) says, or all."""
    new = np.zeros(visits.shape[0])
    for k in range(pairs.shape[0]):
        g = pairs[k]
        new[g] += 1.0
        if new[g] >= max(visits[g], 1.0):
            return k + 1
    return pairs.shape[0]


@njit_cached
def largest_in_l1_ball(values, p, first, order, n, radius):
    """max of p' . values over distributions p' with ||p' - p||_1 <= radius.

    Half the radius of mass goes to the best successor and is taken from the worst ones first.
    values (n,); p sums to one over its n entries from `first` on; order (n,) ranks the successors,
    worst first.
    """
    best = order[n - 1]
    expected = 0.0
    for u in range(n):
        expected += p[first + u] * values[u]
    left = min(0.5 * radius, 1.0 - p[first + best])
    for i in range(n - 1):
        if left <= 0.0:
            break
        u = order[i]
        moved = min(left, p[first + u])
        expected += moved * (values[best] - values[u])
        left -= moved
    return expected


@njit_cached
def rank(values, n, order):
    """order[:n] such that values[order] ascends; an insertion sort, since n is small."""
    for i in range(n):
        j = i
        while j > 0 and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@njit_nogil
def sweep_l1(
    indptr, successors, pay, prob, reward, radius, low, q_cap, v_cap, seed, v, policy, q, span
):
    """Q_h = clip(r + max of p V_{h+1} over ||p - prob||_1 <= radius), V_h = min(max_a Q_h, v_cap).

    p is a distribution over the successors of (s, a). prob (1|H, n) sums to one in each pair,
    radius (1|H, S*A); a radius of 2 or more allows every distribution. The rest is as in
    `planning.sweep`: reward (1|H, S*A), q_cap and v_cap (H,), seed uint64; writes v (H+1, S),
    policy (H, S) and q (S*A,), which ends as Q_1.
    """
    n_states = policy.shape[1]
    n_actions = q.shape[0] // n_states
    values = np.empty(n_states)
    order = np.empty(n_states, np.int64)
    overall = order
    anywhere = False
    for g in range(indptr.shape[0] - 1):
        anywhere = anywhere or indptr[g + 1] - indptr[g] == n_states
    paid = pay.shape[1] > 0
    anywhere = anywhere and not paid
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        size = radius[min(h, radius.shape[0] - 1)]
        following = v[h + 1]
        if anywhere:  # one order serves all pairs that may reach every state
            overall = np.argsort(following)
        for s in range(span[2], span[3]):
            for g in range(s * n_actions, (s + 1) * n_actions):
                first = indptr[g]
                n = indptr[g + 1] - first
                if n == 0:
                    continue
                if n == n_states and not paid:
                    best = largest_in_l1_ball(following, p, first, overall, n, size[g])
                else:
                    for u in range(n):
                        values[u] = following[successors[first + u]]
                        if paid:
                            values[u] += pay[min(h, pay.shape[0] - 1), first + u]
                    rank(values, n, order)
                    best = largest_in_l1_ball(values, p, first, order, n, size[g])
                q[g] = r[g] + best
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)


@njit_nogil
def sweep_visits(
    indptr, successors, pay, prob, reward, doubt, visits, variance, optimistic, flat, linear, ahead,
    low, q_cap, v_cap, seed, v, policy, q, span,
):  # fmt: skip
    """Q_h = r + P V + flat_h / sqrt(n) + sqrt(variance Var_P V / n) + linear_h / n + sqrt(P D / n).

    n = visits (S*A,); flat and linear (H,); variance a number; D = doubt (1|H, S) belongs to the
    next state, and is read at the step of (s, a). A pair with one successor has no bonus: there is
    nothing to learn. Where n = 0 and `optimistic`, the largest next value stands for P V, and the
    bonus is that of one visit with the largest variance, ahead_h^2 / 4; else n = 0 has no bonus.
    The rest is as in `planning.sweep`.
    """
    n_actions = q.shape[0] // policy.shape[1]
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        d = doubt[min(h, doubt.shape[0] - 1)]
        following = v[h + 1]
        for s in range(span[2], span[3]):
            for g in range(s * n_actions, (s + 1) * n_actions):
                n = visits[g]
                mean = 0.0
                square = 0.0
                doubts = 0.0
                top = 0.0
                most = 0.0
                for i in range(indptr[g], indptr[g + 1]):
                    x = following[successors[i]]
                    if pay.shape[1] > 0:
                        x += pay[min(h, pay.shape[0] - 1), i]
                    y = d[successors[i]]
                    mean += p[i] * x
                    square += p[i] * x * x
                    doubts += p[i] * y
                    top = max(top, x)
                    most = max(most, y)
                spread = max(square - mean * mean, 0.0)
                if n == 0.0 and optimistic:
                    n = 1.0
                    mean = top
                    spread = 0.25 * ahead[h] ** 2
                    doubts = most
                x = r[g] + mean
                if n > 0.0 and indptr[g + 1] - indptr[g] > 1:
                    x += (
                        flat[h] / np.sqrt(n)
                        + np.sqrt(variance * spread / n)
                        + linear[h] / n
                        + np.sqrt(doubts / n)
                    )
                q[g] = x
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)


@njit_cached
def normalise(indptr, weights, prob):
    """prob (1, n) <- weights (n,) divided by their sum in each pair; uniform where the sum is 0."""
    for g in range(indptr.shape[0] - 1):
        total = 0.0
        for i in range(indptr[g], indptr[g + 1]):
            total += weights[i]
        for i in range(indptr[g], indptr[g + 1]):
            prob[0, i] = weights[i] / total if total > 0.0 else 1.0 / (indptr[g + 1] - indptr[g])
