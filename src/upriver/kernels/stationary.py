"""Passes for infinite horizons: Bellman backups of relative values, and the chain of one policy.

Values are relative: only their differences matter, so that they, and rounding errors, stay small.
The backup is u = max_a (r + discount P w), and w and u are (S,). In all functions indptr (S*A + 1,)
is the first triple of each pair, successors and prob (n,) belong to triples, and reward (S*A,) to
pairs; a policy is (S,), and its chain are the rows of the pairs that it chooses.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline

CLOSED = 1e-15
"""Leaving a set of states with a smaller probability in a step counts as never; rounding is not far
below."""
KEEP = 1e-14
"""A policy keeps its action where that is worse by at most this much, relative to the value, so
that rounding does not make policies cycle."""
HUGE = 1e200


@njit_cached
def improve_policy(indptr, successors, prob, reward, discount, w, u, policy, q):
    """q (S*A,) = r + discount P w, u = max_a q; returns the least and largest u - w.

    policy (S,), the argmax, keeps its action where that is as good. Pairs without triples do not
    exist: their q is -inf.
    """
    n_actions = reward.shape[0] // w.shape[0]
    low, high = np.inf, -np.inf
    for s in range(w.shape[0]):
        best, arg, current = -np.inf, 0, -np.inf
        for a in range(n_actions):
            pair, x = s * n_actions + a, -np.inf
            if indptr[pair] < indptr[pair + 1]:
                expected = 0.0
                for i in range(indptr[pair], indptr[pair + 1]):
                    expected += prob[i] * w[successors[i]]
                x = reward[pair] + discount * expected
            q[pair] = x
            current = x if a == policy[s] else current
            arg = a if x > best else arg
            best = x if x > best else best
        u[s] = best
        policy[s] = arg if current < best - KEEP * (1.0 + abs(best)) else policy[s]
        low, high = min(low, best - w[s]), max(high, best - w[s])
    return low, high


@njit_cached
def iterate_chain(
    indptr, successors, prob, reward, policy, discount, damping, enough, max_steps, w, u
):
    """Repeat w <- w + (1 - damping) (r + discount P w - w) on a chain, and subtract w[0] at last.

    Stops after max_steps, or when the largest change is within `enough` of the least. Both w and u
    get the result. Returns the number of steps.
    """
    n_actions, done = reward.shape[0] // w.shape[0], 0
    while done < max_steps:
        low, high = np.inf, -np.inf
        for s in range(w.shape[0]):
            pair, expected = s * n_actions + policy[s], 0.0
            for i in range(indptr[pair], indptr[pair + 1]):
                expected += prob[i] * w[successors[i]]
            change = reward[pair] + discount * expected - w[s]
            u[s] = w[s] + (1.0 - damping) * change
            low, high = min(low, change), max(high, change)
        w, u, done = u, w, done + 1
        if high - low <= enough:
            break
    u[:] = w - w[0]
    w[:] = u
    return done


@njit_inline
def eliminate_states(
    indptr, successors, prob, policy, discount, reach, fixed, c, band, lowest, out
):
    """Eliminate one state of a chain after the other, and return the number of closed sets.

    The elimination of Grassmann, Taksar and Heyman (1985): the probability of leaving a state is a
    sum, never 1 - (that of staying), so nothing cancels, however slowly the chain mixes. It leaves
    x_s = (c_s + sum_{j < s} band_sj x_j) / out_s, where x is 0 at the state `fixed`. The last state
    of a closed set gets out_s = 0.
    """
    n_states, n_closed = c.shape[0], 0
    n_actions = (indptr.shape[0] - 1) // n_states
    lost, time = np.full(n_states, 1.0 - discount), np.ones(n_states)
    band[:] = 0.0
    for s in range(n_states):
        lowest[s], pair = s, s * n_actions + policy[s]
        for i in range(indptr[pair], indptr[pair + 1]):
            j, p = np.int64(successors[i]), discount * prob[i]
            if j == fixed:
                lost[s] += p
            else:
                band[s, j - s + reach] += p
                lowest[s] = min(lowest[s], j)
    for s in range(n_states - 1, -1, -1):
        low, shift = lowest[s], reach - s
        if s == fixed:
            continue
        total = lost[s]
        for j in range(low, s):
            total += band[s, j + shift]
        out[s] = total
        above = max(0, s - reach)
        if total < CLOSED * time[s]:  # nothing leaves the states from here on
            out[s], n_closed = 0.0, n_closed + 1
            for i in range(above, s):
                lost[i] += band[i, s - i + reach]
            continue
        for i in range(above, s):
            at = reach - i
            p = band[i, s + at] / total
            if p > 0.0:
                lost[i] += p * lost[s]
                c[i] += p * c[s]
                time[i] += p * time[s]
                for j in range(low, s):
                    band[i, j + at] += p * band[s, j + shift]
                lowest[i] = min(lowest[i], low)
    return n_closed


@njit_cached
def solve_chain(indptr, successors, prob, policy, discount, reach, c, x):
    """Solve x = c - gain + discount P x of a chain; c (S,) is overwritten, x (S,) is written.

    reach: the largest |s' - s| of a step. With a discount the gain is 0. Without one x is 0 at the
    state that is visited most often: from anywhere else it is reached soonest, so what is summed
    until then is small. Returns False where there are two recurrent classes, which have no common
    gain; x is then void.
    """
    n_states, fixed = c.shape[0], -1
    band, lowest = np.empty((n_states, 2 * reach + 1)), np.empty(n_states, np.int64)
    out, earned, chain = np.empty(n_states), c.copy(), (indptr, successors, prob, policy)
    n_closed = eliminate_states(*chain, discount, reach, -1, c, band, lowest, out)
    if n_closed > 1:
        return False
    if n_closed == 1:
        visits, total, most, gain = np.zeros(n_states), 0.0, 0.0, 0.0
        for s in range(n_states):
            above = max(0, s - reach)
            visits[s] = 1.0 if out[s] == 0.0 else 0.0
            for i in range(above, s):
                if visits[i] > 0.0:
                    visits[s] += visits[i] * band[i, s - i + reach] / out[s]
            if visits[s] > most:
                most, fixed = visits[s], s
            total += visits[s]
            gain += visits[s] * earned[s]
            if most > HUGE:  # only ratios count
                total, gain, most = total / most, gain / most, 1.0
                visits[above : s + 1] /= visits[fixed]
        for s in range(n_states):
            c[s] = earned[s] - gain / total
        if eliminate_states(*chain, 1.0, reach, fixed, c, band, lowest, out) > 0:
            return False
    for s in range(n_states):
        total = c[s]
        for j in range(lowest[s], s):
            total += band[s, j - s + reach] * x[j]
        x[s] = total / out[s] if s != fixed else 0.0
    return True
