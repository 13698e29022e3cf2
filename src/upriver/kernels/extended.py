"""Extended value iteration of endless tasks, one optimistic sweep at a time.

As `stationary.improve`, and `chosen` (n,) gets the distribution that was best for each pair, and
`earned` (S*A,) what the pair then pays, so that the chain of a policy and of these can be followed
or solved.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.planning import largest_group
from upriver.kernels.tabular import rank


@njit_inline
def keep_or_change(q, s, n_actions, w, u, policy):
    """u[s] and the policy from q (A,); the action stays where it is as good. Returns u - w."""
    best = -np.inf
    arg = 0
    for a in range(n_actions):
        if q[a] > best:
            best = q[a]
            arg = a
    u[s] = best
    if q[policy[s]] < best - 1e-14 * (1.0 + abs(best)):
        policy[s] = arg
    return best - w[s]


@njit_inline
def next_values(successors, pay, discount, w, first, n, values):
    """values (n,) = pay + discount * w of the n triples from `first` on."""
    for i in range(n):
        values[i] = discount * w[successors[first + i]]
        if pay.shape[0] > 0:
            values[i] += pay[first + i]


@njit_inline
def paid_by(reward, pay, chosen, g, first, n):
    """What the pair g pays on average, its n triples from `first` on as likely as `chosen` says."""
    total = reward[g]
    if pay.shape[0] > 0:
        for i in range(first, first + n):
            total += chosen[i] * pay[i]
    return total


@njit_cached
def improve_l1(
    indptr, successors, prob, reward, pay, radius, discount, chosen, earned, w, u, policy
):
    """u = max_a (r + max of p (pay + discount * w) over ||p - prob||_1 <= radius); radius (S*A,).

    pay (n|0,) is what a triple pays, here and below.
    """
    n_states = w.shape[0]
    n_actions = reward.shape[0] // n_states
    most = largest_group(indptr)
    values, order = np.empty(most), np.empty(most, np.int64)
    q = np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            g = s * n_actions + a
            first = indptr[g]
            n = indptr[g + 1] - first
            q[a] = -np.inf
            if n == 0:
                continue
            next_values(successors, pay, discount, w, first, n, values)
            for i in range(first, first + n):
                chosen[i] = prob[i]
            rank(values, n, order)
            best = first + order[n - 1]
            left = min(0.5 * radius[g], 1.0 - chosen[best])
            for i in range(n - 1):  # from the worst to the best
                moved = min(left, chosen[first + order[i]])
                chosen[first + order[i]] -= moved
                chosen[best] += moved
                left -= moved
            expected = 0.0
            for i in range(n):
                expected += chosen[first + i] * values[i]
            q[a] = reward[g] + expected
            earned[g] = paid_by(reward, pay, chosen, g, first, n)
        change = keep_or_change(q, s, n_actions, w, u, policy)
        low = min(low, change)
        high = max(high, change)
    return low, high


@njit_inline
def within_errors(prob, geometry, values, beta, n, p, cov):
    """p (n,) = a distribution with a large p @ values among those within beta errors of prob.

    Those are prob + J delta, ||delta|| <= beta, J the derivative of the probabilities in theta: an
    ellipsoid. p goes to its best point. Where a share reaches 0 on the way, the set is cut to where
    that share is 0, an ellipsoid again, and p goes on to the best point of that. In cov (n + 2, n)
    are its matrix, its centre and its best point, all of p / prob, so that rare successors have
    numbers of the same size as common ones.
    """
    centre, best = cov[n], cov[n + 1]
    mean = 0.0
    for i in range(n):
        best[i] = 0.0
        for j in range(n):
            best[i] += geometry[i * n + j] * prob[j]
        mean += prob[i] * best[i]
    for i in range(n):
        centre[i] = p[i] = 1.0
        for j in range(n):
            cov[i, j] = geometry[i * n + j] - best[i] - best[j] + mean
    room = beta * beta
    for _ in range(n):
        norm2 = 0.0
        for i in range(n):
            best[i] = 0.0
            for j in range(n):
                best[i] += cov[i, j] * prob[j] * values[j]
            norm2 += best[i] * prob[i] * values[i]
        far = np.sqrt(max(room, 0.0) / norm2) if norm2 > 0.0 else 0.0
        step, first = 1.0, -1
        for i in range(n):
            best[i] = centre[i] + far * best[i]
            if best[i] < 0.0 and p[i] < step * (p[i] - best[i]):
                step, first = p[i] / (p[i] - best[i]), i
        for i in range(n):
            p[i] += step * (best[i] - p[i])
        if first < 0 or cov[first, first] <= 1e-12 * geometry[first * n + first]:
            break
        pivot, lack = cov[first, first], centre[first]
        room -= lack * lack / pivot
        for i in range(n):
            share = cov[i, first] / pivot
            centre[i] -= lack * share
            for j in range(n):
                if i != first:
                    cov[i, j] -= share * cov[first, j]
        for i in range(n):
            cov[first, i] = cov[i, first] = 0.0
        centre[first] = p[first] = 0.0
    total = 0.0
    for i in range(n):
        p[i] *= prob[i]
        total += p[i]
    for i in range(n):
        p[i] /= total


@njit_cached
def improve_errors(
    indptr, successors, prob, reward, pay, geometry, geometry_start, beta, discount, chosen, earned,
    w, u, policy,
):  # fmt: skip
    """u = max_a (r + p y), y = pay + discount * w, p the best within beta standard errors of prob.

    That is P y + beta ||grad P y|| where no share of p falls below 0, see `within_errors`.
    """
    n_states = w.shape[0]
    n_actions = reward.shape[0] // n_states
    most = largest_group(indptr)
    values, cov = np.empty(most), np.empty((most + 2, most))
    q = np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            g = s * n_actions + a
            first = indptr[g]
            n = indptr[g + 1] - first
            q[a] = -np.inf
            if n == 0:
                continue
            next_values(successors, pay, discount, w, first, n, values)
            p, products = chosen[first : first + n], geometry[geometry_start[g] :]
            within_errors(prob[first : first + n], products, values, beta, n, p, cov)
            q[a] = reward[g]
            for i in range(n):
                q[a] += p[i] * values[i]
            earned[g] = paid_by(reward, pay, chosen, g, first, n)
        change = keep_or_change(q, s, n_actions, w, u, policy)
        low = min(low, change)
        high = max(high, change)
    return low, high
