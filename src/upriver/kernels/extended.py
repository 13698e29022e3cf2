"""Extended value iteration with an infinite horizon, one optimistic backup at a time.

The backup is u = max_a (r + max of p y over a set of distributions p), y = next-state reward +
discount w (Jaksch, Ortner and Auer 2010). As in `stationary.improve_policy`, but `chosen`, a
`stationary.Rows`, gets the best distribution of each pair in its prob, and the mean reward of the
pair under it, so that the chain of a policy in the chosen model can be followed or solved.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.optimism import tilt_pairs
from upriver.kernels.planning import max_successors
from upriver.kernels.stationary import KEEP
from upriver.kernels.tabular import maximize_in_l1_ball


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
    values, q = np.empty(max_successors(rows.indptr)), np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            pair = s * n_actions + a
            first, n = rows.indptr[pair], rows.indptr[pair + 1] - rows.indptr[pair]
            q[a] = -np.inf
            if n == 0:
                continue
            discounted_values(rows, next_state_reward, discount, w, first, n, values)
            end = first + n
            maximize_in_l1_ball(values[:n], rows.prob[first:end], radius[pair], p[first:end])
            q[a] = value_of_choice(rows, next_state_reward, chosen, pair, first, n, values)
        change = update_state(q, s, w, u, policy)
        low, high = min(low, change), max(high, change)
    return low, high


@njit_cached
def improve_tilted(
    rows, next_state_reward, products, products_start, discount, chosen, w, u, policy
):
    """u = max_a (r + q y), q the tilted distribution of each pair, see `optimism.tilt_pairs`.

    products: inner products of the features of each pair, flat, or a factor of them, from
    products_start[pair] on. Returns as `improve_l1`.
    """
    n_states, p = w.shape[0], chosen.prob
    n_actions = rows.reward.shape[0] // n_states
    values, tilts, q = np.empty(p.shape[0]), np.empty(p.shape[0]), np.empty(n_actions)
    x, n_pairs, found = np.empty(2 * max_successors(rows.indptr)), rows.reward.shape[0], 0
    discounted_values(rows, next_state_reward, discount, w, 0, p.shape[0], values)
    tilt_pairs(rows.indptr, products_start, 0, n_pairs, rows.prob, products, values, tilts, x)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            pair = s * n_actions + a
            first, end = rows.indptr[pair], rows.indptr[pair + 1]
            q[a] = -np.inf
            if first == end:
                continue
            p[first] = total = rows.prob[first]
            for i in range(first + 1, end):
                p[i] = rows.prob[i] * tilts[found]
                total += p[i]
                found += 1
            for i in range(first, end):
                p[i] /= total
            q[a] = value_of_choice(
                rows, next_state_reward, chosen, pair, first, end - first, values[first:end]
            )
        change = update_state(q, s, w, u, policy)
        low, high = min(low, change), max(high, change)
    return low, high
