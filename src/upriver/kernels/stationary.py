"""Passes for infinite horizons: Bellman backups of relative values, and the chain of one policy.

Values are relative: only their differences matter, so that they, and rounding errors, stay small.
The backup is u = max_a (r + discount P w), and w and u are (S,).
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_without_refcounts

CLOSED = 1e-13
"""Leaving a set of states with a smaller probability in a step counts as never; rounding is not far
below."""
KEEP = 1e-14
"""A policy keeps its action where that is worse by at most this much, relative to the value, so
that rounding does not make policies cycle."""


class Rows(NamedTuple):
    """The triples of a stationary model: those of pair (s, a) are rows indptr[pair] and on."""

    indptr: Any
    """(S*A + 1,) the first row of each pair."""
    successors: Any
    """(n,) the next state of each triple."""
    prob: Any
    """(n,) the probability of each triple."""
    reward: Any
    """(S*A,) the mean reward of each pair."""
    n_states: Any


class Chain(NamedTuple):
    """The Markov chain of a policy, packed without gaps: steps of s are start[s] to start[s+1]."""

    start: Any
    """(S + 1,)"""
    successors: Any
    """(m,) the next state of each possible step."""
    prob: Any
    """(m,) its probability."""
    reward: Any
    """(S,) the mean reward of each state."""


@njit_without_refcounts
def improve_policy(rows, discount, q, w, u, policy):
    """u = max_a (r + discount P w) and its argmax; returns the least and largest u - w.

    q (S*A,) is scratch. policy (S,) keeps its action where that is as good. Pairs without triples
    do not exist.
    """
    # Unsigned counters, two triples at a time and no branches, as in `planning.backward_pass`.
    indptr, successors, prob, reward = rows.indptr, rows.successors, rows.prob, rows.reward
    one, two, n_pairs = np.uint64(1), np.uint64(2), np.uint64(reward.shape[0])
    n_states = w.shape[0]
    n_actions = reward.shape[0] // n_states
    i = np.uint64(0)
    pair = np.uint64(0)
    while pair < n_pairs:
        stop = np.uint64(indptr[pair + one])
        exists = i < stop
        expected = 0.0
        while i + one < stop:
            expected += prob[i] * w[np.uint32(successors[i])]
            expected += prob[i + one] * w[np.uint32(successors[i + one])]
            i += two
        if i < stop:
            expected += prob[i] * w[np.uint32(successors[i])]
            i += one
        q[pair] = reward[pair] + discount * expected if exists else -np.inf
        pair += one
    low, high = np.inf, -np.inf
    pair = np.uint64(0)
    for s in range(n_states):
        best = q[pair]
        arg = 0
        current = q[pair + np.uint64(policy[s])]
        for a in range(1, n_actions):
            x = q[pair + np.uint64(a)]
            arg = a if x > best else arg
            best = x if x > best else best
        pair += np.uint64(n_actions)
        u[s] = best
        policy[s] = arg if current < best - KEEP * (1.0 + abs(best)) else policy[s]
        change = best - w[s]
        low, high = min(low, change), max(high, change)
    return low, high


@njit_without_refcounts
def extract_chain(rows, policy, before, chain):
    """Write the `Chain` of a policy (S,), where it differs from that of the policy `before` (S,).

    A start of -1 says that there are no steps yet.
    """
    indptr, start, one, n_states = rows.indptr, chain.start, np.uint64(1), policy.shape[0]
    n_actions = rows.reward.shape[0] // n_states
    place = np.uint64(0)
    for s in range(n_states):
        pair = np.uint64(s * n_actions + policy[s])
        i, stop = np.uint64(indptr[pair]), np.uint64(indptr[pair + one])
        if policy[s] == before[s] and start[s] == np.int64(place):
            place += stop - i
            continue
        start[s] = place
        chain.reward[s] = rows.reward[pair]
        while i < stop:
            chain.successors[place] = rows.successors[i]
            chain.prob[place] = rows.prob[i]
            place += one
            i += one
    start[n_states] = place


@njit_cached
def iterate_chain(chain, discount, damping, enough, max_steps, w, u):
    """Repeat w <- w + (1 - damping) (r + discount P w - w) on a chain, and subtract w[0] at last.

    Stops after max_steps, or when the largest change is within `enough` of the least. Both w and u
    get the result. Returns the number of steps.
    """
    start, successors, prob, reward = chain.start, chain.successors, chain.prob, chain.reward
    one, n_states, done = np.uint64(1), w.shape[0], 0
    while done < max_steps:
        low, high = np.inf, -np.inf
        i = np.uint64(0)
        for s in range(n_states):
            stop = np.uint64(start[s + 1])
            expected = 0.0
            while i < stop:
                expected += prob[i] * w[np.uint32(successors[i])]
                i += one
            change = reward[s] + discount * expected - w[s]
            u[s] = w[s] + (1.0 - damping) * change
            low, high = min(low, change), max(high, change)
        w, u = u, w
        done += 1
        if high - low <= enough:
            break
    shift = w[0]
    for s in range(n_states):
        u[s] = w[s] = w[s] - shift
    return done


@njit_cached
def max_reach(indptr, successors, n_actions, enough):
    """Return max |s' - s| over the triples, or the first that is more than `enough`."""
    far = 0
    for pair in range(indptr.shape[0] - 1):
        s = pair // n_actions
        for i in range(indptr[pair], indptr[pair + 1]):
            far = max(far, abs(np.int64(successors[i]) - s))
        if far > enough:
            break
    return far


@njit_cached
def solve_chain(chain, discount, reach, c, x):
    """Solve x = c - gain + discount P x of a chain, by eliminating one state after the other.

    The elimination of Grassmann, Taksar and Heyman (1985): the probability of leaving a state is a
    sum, never 1 - (that of staying), so nothing cancels, however slowly the chain mixes. reach: the
    largest |s' - s| of a step. c (S,) is overwritten, x (S,) is written. With a discount the gain
    is 0. Without one x is 0 at one recurrent state; returns False where there are two recurrent
    classes, which have no common gain: x is then the gain of each class at one of its states, and
    -inf at all others.
    """
    start, to, weight = chain.start, chain.successors, chain.prob
    n_states = c.shape[0]
    band = np.zeros((n_states, 2 * reach + 1))
    lowest = np.empty(n_states, np.int64)
    out = np.empty(n_states)
    lost = np.full(n_states, 1.0 - discount)
    time = np.ones(n_states)
    gain = 0.0
    known, n_classes = -1, 0
    x[:] = -np.inf
    for s in range(n_states):
        low = s
        for i in range(start[s], start[s + 1]):
            band[s, to[i] - s + reach] += discount * weight[i]
            low = min(low, np.int64(to[i]))
        lowest[s] = low
    for s in range(n_states - 1, -1, -1):
        low, shift = lowest[s], reach - s
        total = lost[s]
        for j in range(low, s):
            total += band[s, j + shift]
        out[s] = total
        above = max(0, s - reach)
        if total < CLOSED * time[s]:  # nothing leaves the states from here on, and x is 0 here
            known = s
            gain = x[s] = c[s] / time[s]
            n_classes += 1
            for i in range(above, s):
                lost[i] += band[i, s - i + reach]
            continue
        share = 1.0 / total
        for i in range(above, s):
            at = reach - i
            p = band[i, s + at]
            if p == 0.0:
                continue
            p *= share
            lost[i] += p * lost[s]
            c[i] += p * c[s]
            time[i] += p * time[s]
            for j in range(low, s):
                band[i, j + at] += p * band[s, j + shift]
            lowest[i] = min(lowest[i], low)
    if n_classes > 1:
        return False
    for s in range(n_states):
        if s == known:
            x[s] = 0.0
            continue
        total = c[s] - gain * time[s]
        shift = reach - s
        for j in range(lowest[s], s):
            total += band[s, j + shift] * x[j]
        x[s] = total / out[s]
    return True
