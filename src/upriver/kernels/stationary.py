"""Sweeps for policies that never end: Bellman backups of relative values, and chains of one policy.

Values are relative: only their differences matter, so that they stay small and rounding does too.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_without_refcounts

CLOSED = 1e-13
"""Leaving a set of states more rarely in a step counts as never; rounding is not far below."""


@njit_without_refcounts
def improve(indptr, successors, prob, reward, discount, q, w, u, policy):
    """u = max_a (r + discount * P w) and its argmax; returns the least and largest u - w.

    prob (n,), reward (S*A,), w and u (S,), q (S*A,) is scratch; policy (S,) keeps its action where
    that is as good, so that rounding does not make policies cycle. Pairs without triples do not
    exist.
    """
    # Unsigned counters, two triples at a time and no branches, as in `planning.sweep`.
    one, two, n_groups = np.uint64(1), np.uint64(2), np.uint64(reward.shape[0])
    n_states = w.shape[0]
    n_actions = reward.shape[0] // n_states
    i = np.uint64(0)
    g = np.uint64(0)
    while g < n_groups:
        stop = np.uint64(indptr[g + one])
        exists = i < stop
        expected = 0.0
        while i + one < stop:
            expected += prob[i] * w[np.uint32(successors[i])]
            expected += prob[i + one] * w[np.uint32(successors[i + one])]
            i += two
        if i < stop:
            expected += prob[i] * w[np.uint32(successors[i])]
            i += one
        q[g] = reward[g] + discount * expected if exists else -np.inf
        g += one
    low, high = np.inf, -np.inf
    g = np.uint64(0)
    for s in range(n_states):
        best = q[g]
        arg = 0
        kept = q[g + np.uint64(policy[s])]
        for a in range(1, n_actions):
            x = q[g + np.uint64(a)]
            arg = a if x > best else arg
            best = x if x > best else best
        g += np.uint64(n_actions)
        u[s] = best
        policy[s] = arg if kept < best - 1e-14 * (1.0 + abs(best)) else policy[s]
        change = best - w[s]
        low = min(low, change)
        high = max(high, change)
    return low, high


@njit_without_refcounts
def follow(indptr, successors, prob, reward, policy, followed, start, to, weight, pay):
    """The chain of a policy (S,): start (S+1,), to and weight (m,), pay (S,), packed tightly.

    followed (S,): the policy whose chain is there already, -1 where there is none; it becomes
    `policy`. What stays where it is is not written again.
    """
    one = np.uint64(1)
    n_states = policy.shape[0]
    n_actions = reward.shape[0] // n_states
    place = np.uint64(0)
    for s in range(n_states):
        g = np.uint64(s * n_actions + policy[s])
        i, stop = np.uint64(indptr[g]), np.uint64(indptr[g + one])
        if policy[s] == followed[s] and np.uint64(start[s]) == place:
            place += stop - i
            continue
        followed[s] = policy[s]
        start[s] = place
        pay[s] = reward[g]
        while i < stop:
            to[place] = successors[i]
            weight[place] = prob[i]
            place += one
            i += one
    start[n_states] = place


@njit_cached
def advance(start, to, weight, pay, discount, lazy, enough, most, w, u):
    """Up to `most` times w <- w + (1 - lazy) * (pay + discount * P w - w), and at last less w[0].

    Stops when the largest change is within `enough` of the least. Uses u (S,); returns how often.
    """
    one = np.uint64(1)
    n_states = w.shape[0]
    done = 0
    while done < most:
        low, high = np.inf, -np.inf
        i = np.uint64(0)
        for s in range(n_states):
            stop = np.uint64(start[s + 1])
            expected = 0.0
            while i < stop:
                expected += weight[i] * w[np.uint32(to[i])]
                i += one
            change = pay[s] + discount * expected - w[s]
            u[s] = w[s] + (1.0 - lazy) * change
            low = min(low, change)
            high = max(high, change)
        w, u = u, w
        done += 1
        if high - low <= enough:
            break
    shift = w[0]
    for s in range(n_states):
        u[s] = w[s] = w[s] - shift
    return done


@njit_cached
def furthest(indptr, successors, n_actions, enough):
    """max |s' - s| over the triples, or the first that is more than `enough`."""
    far = 0
    for g in range(indptr.shape[0] - 1):
        s = g // n_actions
        for i in range(indptr[g], indptr[g + 1]):
            far = max(far, abs(np.int64(successors[i]) - s))
        if far > enough:
            break
    return far


@njit_cached
def eliminate(start, to, weight, discount, reach, c, x, band):
    """x = c - gain + discount * P x of a chain, by censoring one state after the other.

    Grassmann, Taksar and Heyman's elimination: what leaves a state is summed and never found as
    1 - (what stays), so nothing cancels, however slowly the chain mixes. reach: the furthest a step
    leads. c (S,) is used up, x (S,) is written, band (S, 2 reach + 1) is scratch. With a discount
    the gain is 0. Without one x is 0 at one recurrent state; returns False where there are two
    recurrent classes, which have no gain in common.
    """
    n_states = c.shape[0]
    lowest = np.empty(n_states, np.int64)
    out = np.empty(n_states)
    lost = np.full(n_states, 1.0 - discount)
    time = np.ones(n_states)
    gain = 0.0
    known = -1
    for s in range(n_states):
        low = s
        for k in range(band.shape[1]):
            band[s, k] = 0.0
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
            if known >= 0:
                return False
            known = s
            gain = c[s] / time[s]
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


@njit_cached
def leave(indptr, successors, n_actions, label, allowed, alive):
    """Forbid pairs that may leave their class or meet a dead state; kill states without a pair.

    label (S,), allowed (S*A,) and alive (S,) of booleans, changed in place until nothing changes.
    Returns whether anything did.
    """
    n_states = label.shape[0]
    changed = False
    again = True
    down = False
    while again:
        again = False
        for k in range(n_states):
            s = n_states - 1 - k if down else k
            if not alive[s]:
                continue
            left = 0
            for g in range(s * n_actions, (s + 1) * n_actions):
                if not allowed[g]:
                    continue
                for i in range(indptr[g], indptr[g + 1]):
                    t = successors[i]
                    if not alive[t] or label[t] != label[s]:
                        allowed[g] = False
                        again = True
                        break
                if allowed[g]:
                    left += 1
            if left == 0:
                alive[s] = False
                again = True
        changed = changed or again
        down = not down
    return changed
