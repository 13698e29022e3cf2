"""Extended value iteration with an infinite horizon, one optimistic backup at a time.

The backup is u = max_a (r + max of p y over a set of distributions p), y = next-state reward +
discount w (Jaksch, Ortner and Auer 2010). As in `stationary.improve_policy`, but `chosen`, a
`stationary.Rows`, gets the best distribution of each pair in its prob, and the mean reward of the
pair under it, so that the chain of a policy in the chosen model can be followed or solved.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.planning import max_successors
from upriver.kernels.stationary import KEEP
from upriver.kernels.tabular import rank_values


@njit_inline
def update_state(q, s, w, u, policy):
    """Write u[s] and the policy from q (A,); return u - w. The action stays where it is as good."""
    best = -np.inf
    arg = 0
    for a in range(q.shape[0]):
        if q[a] > best:
            best = q[a]
            arg = a
    u[s] = best
    if q[policy[s]] < best - KEEP * (1.0 + abs(best)):
        policy[s] = arg
    return best - w[s]


@njit_inline
def discounted_values(rows, extra, discount, w, first, n, values):
    """values (n,) = y of the n triples from row `first` on; extra (n|0,) next-state reward."""
    for i in range(n):
        values[i] = discount * w[rows.successors[first + i]]
        if extra.shape[0] > 0:
            values[i] += extra[first + i]


@njit_inline
def value_of_choice(rows, extra, chosen, pair, first, n, values):
    """Write the mean reward of a pair under the chosen distribution, and return its Q."""
    expected = 0.0
    earned = rows.reward[pair]
    for i in range(n):
        expected += chosen.prob[first + i] * values[i]
        if extra.shape[0] > 0:
            earned += chosen.prob[first + i] * extra[first + i]
    chosen.reward[pair] = earned
    return rows.reward[pair] + expected


@njit_cached
def improve_l1(rows, next_state_reward, radius, discount, chosen, w, u, policy):
    """u = max_a (r + max of p y over ||p - prob||_1 <= radius); radius (S*A,).

    rows: a `stationary.Rows`; next_state_reward (n|0,). Returns the least and largest u - w.
    """
    n_states, p = w.shape[0], chosen.prob
    n_actions = rows.reward.shape[0] // n_states
    most = max_successors(rows.indptr)
    values, order, q = np.empty(most), np.empty(most, np.int64), np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            pair = s * n_actions + a
            first, n = rows.indptr[pair], rows.indptr[pair + 1] - rows.indptr[pair]
            q[a] = -np.inf
            if n == 0:
                continue
            discounted_values(rows, next_state_reward, discount, w, first, n, values)
            for i in range(first, first + n):
                p[i] = rows.prob[i]
            rank_values(values, n, order)
            best = first + order[n - 1]
            left = min(0.5 * radius[pair], 1.0 - p[best])
            for i in range(n - 1):  # take mass from the worst first, and give it to the best
                mass = min(left, p[first + order[i]])
                p[first + order[i]] -= mass
                p[best] += mass
                left -= mass
            q[a] = value_of_choice(rows, next_state_reward, chosen, pair, first, n, values)
        change = update_state(q, s, w, u, policy)
        low, high = min(low, change), max(high, change)
    return low, high


@njit_inline
def maximize_in_errors(prob, products, values, beta, n, p, cov):
    """p (n,) = a distribution with a large p . values among those within beta errors of prob.

    Those are prob + J delta, ||delta|| <= beta, J the derivative of the probabilities in theta: an
    ellipsoid. p moves to its best point. Where a probability reaches 0 on the way, the set is
    restricted to where it is 0, an ellipsoid again, and p moves on to the best point of that. cov
    (n + 2, n) holds its matrix, its centre and its best point, all of p / prob, so that rare
    successors have numbers of the same size as common ones.
    """
    centre, best = cov[n], cov[n + 1]
    mean = 0.0
    for i in range(n):
        best[i] = 0.0
        for j in range(n):
            best[i] += products[i * n + j] * prob[j]
        mean += prob[i] * best[i]
    for i in range(n):
        centre[i] = p[i] = 1.0
        for j in range(n):
            cov[i, j] = products[i * n + j] - best[i] - best[j] + mean
    left = beta * beta
    for _ in range(n):
        norm2 = 0.0
        for i in range(n):
            best[i] = 0.0
            for j in range(n):
                best[i] += cov[i, j] * prob[j] * values[j]
            norm2 += best[i] * prob[i] * values[i]
        far = np.sqrt(max(left, 0.0) / norm2) if norm2 > 0.0 else 0.0
        step, first = 1.0, -1
        for i in range(n):
            best[i] = centre[i] + far * best[i]
            if best[i] < 0.0 and p[i] < step * (p[i] - best[i]):
                step, first = p[i] / (p[i] - best[i]), i
        for i in range(n):
            p[i] += step * (best[i] - p[i])
        if first < 0 or cov[first, first] <= 1e-12 * products[first * n + first]:
            break
        pivot, lack = cov[first, first], centre[first]
        left -= lack * lack / pivot
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
    rows, next_state_reward, products, products_start, beta, discount, chosen, w, u, policy
):
    """u = max_a (r + p y), p the best within beta standard errors of prob, `maximize_in_errors`.

    That is P y + beta ||grad P y|| where no probability falls below 0. products: inner products of
    the features of each pair, flat, from products_start[pair] on. Returns as `improve_l1`.
    """
    n_states = w.shape[0]
    n_actions = rows.reward.shape[0] // n_states
    most = max_successors(rows.indptr)
    values, cov, q = np.empty(most), np.empty((most + 2, most)), np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            pair = s * n_actions + a
            first, n = rows.indptr[pair], rows.indptr[pair + 1] - rows.indptr[pair]
            q[a] = -np.inf
            if n == 0:
                continue
            discounted_values(rows, next_state_reward, discount, w, first, n, values)
            p, own = chosen.prob[first : first + n], products[products_start[pair] :]
            maximize_in_errors(rows.prob[first : first + n], own, values, beta, n, p, cov)
            q[a] = value_of_choice(rows, next_state_reward, chosen, pair, first, n, values)
        change = update_state(q, s, w, u, policy)
        low, high = min(low, change), max(high, change)
    return low, high
