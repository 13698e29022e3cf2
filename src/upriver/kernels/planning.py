"""Backward induction, policy evaluation and episodes, over the rows of reachable triples."""

from functools import partial

import numpy as np

from upriver.kernels.compiled import njit_inline, njit_without_refcounts


@njit_inline
def scramble(x):
    """The splitmix64 finaliser: a random-looking 64-bit word for each word."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit_inline
def argmax_random_ties(q, start, n_actions, word):
    """Index of the largest of q[start : start + n_actions], uniform among exact ties."""
    best = q[start]
    arg = 0
    ties = np.uint64(1)
    for a in range(1, n_actions):
        x = q[start + a]
        if x > best:
            best = x
            arg = a
            ties = np.uint64(1)
        elif x == best:
            ties += np.uint64(1)
            word = scramble(word)
            if word % ties == np.uint64(0):
                arg = a
    return arg


@njit_inline
def settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q):
    """Clip the Q of state s, play the largest, ties at random; a missing pair is never played."""
    n_actions = q.shape[0] // policy.shape[1]
    start = s * n_actions
    for g in range(start, start + n_actions):
        q[g] = min(max(q[g], low), q_cap[h]) if indptr[g] < indptr[g + 1] else -np.inf
    a = argmax_random_ties(q, start, n_actions, seed ^ np.uint64(h * policy.shape[1] + s))
    policy[h, s] = a
    v[h, s] = min(q[start + a], v_cap[h])


@njit_inline
def largest_group(indptr):
    """U, the largest number of successors of a pair."""
    most = 0
    for g in range(indptr.shape[0] - 1):
        most = max(most, indptr[g + 1] - indptr[g])
    return most


@partial(njit_without_refcounts, nogil=True)
def sweep(
    indptr, successors, pay, prob, reward, bonus, beta, scale, low, q_cap, v_cap, seed, v, policy,
    q, span,
):  # fmt: skip
    """Q_h = clip(r + P V_{h+1} + beta scale_h * bonus, low, q_cap_h), V_h = min(max_a Q, v_cap_h).

    pay (1|H, n|0) is what a triple pays: where there is any, it is added to V_{h+1}(s'), here and
    in all sweeps. prob (1|H, n), reward and bonus (1|H, S*A), scale, q_cap and v_cap (H,), seed
    uint64 for ties. Writes v (H+1, S), whose last row is given, policy (H, S) and q (S*A,), which
    ends as Q_1. A pair without triples does not exist: its q is -inf, and it is never played.
    span = (first step, last step, first state, last state), the last ones left out, is the part to
    write; here and in all sweeps.
    """
    # Rows are read with unsigned counters: a signed index is tested for wrap-around every time,
    # which costs a third of the whole loop. And the largest action is found without branches: which
    # one it is cannot be predicted, and each wrong guess costs as much as several triples.
    one, two, n_states = np.uint64(1), np.uint64(2), policy.shape[1]
    n_actions = q.shape[0] // n_states
    paid = pay.shape[1] > 0
    start, n_groups = span[2] * n_actions, np.uint64(span[3] * n_actions)
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        y = pay[min(h, pay.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        b = bonus[min(h, bonus.shape[0] - 1)]
        following, values, actions = v[h + 1], v[h], policy[h]
        scale_h, q_most, v_most = beta * scale[h], q_cap[h], v_cap[h]
        i = np.uint64(indptr[start])
        g = np.uint64(start)
        while g < n_groups:
            stop = np.uint64(indptr[g + one])
            exists = i < stop
            expected = 0.0
            while paid and i < stop:
                expected += p[i] * (y[i] + following[np.uint32(successors[i])])
                i += one
            while i + one < stop:  # two at a time: most sets of successors are small
                expected += p[i] * following[np.uint32(successors[i])]
                expected += p[i + one] * following[np.uint32(successors[i + one])]
                i += two
            if i < stop:
                expected += p[i] * following[np.uint32(successors[i])]
                i += one
            x = r[g] + expected
            if scale_h != 0.0:
                x += scale_h * b[g]
            q[g] = min(max(x, low), q_most) if exists else -np.inf
            g += one
        g = np.uint64(start)
        for s in range(span[2], span[3]):
            best = q[g]
            arg = 0
            tied = False
            for a in range(1, n_actions):
                x = q[g + np.uint64(a)]
                tied = (x == best) | (tied & (x < best))
                arg = a if x > best else arg
                best = x if x > best else best
            g += np.uint64(n_actions)
            if tied:
                word = seed ^ np.uint64(h * n_states + s)
                arg = argmax_random_ties(q, s * n_actions, n_actions, word)
            actions[s] = arg
            values[s] = min(best, v_most)


@njit_without_refcounts
def last_change(policy, previous):
    """The last step at which two policies (H, S) differ, or -1."""
    for h in range(policy.shape[0] - 1, -1, -1):
        for s in range(policy.shape[1]):
            if policy[h, s] != previous[h, s]:
                return h
    return -1


@partial(njit_without_refcounts, nogil=True)
def evaluate(indptr, successors, prob, reward, policy, previous, v, last, h, s, t):
    """V^pi (H+1, S) in place, of the steps from `last` down to h and the states s to t, left out.

    There `previous` becomes `policy`. False where an action does not exist; then v is void.
    """
    one = np.uint64(1)  # unsigned counters, as in `sweep`
    n_actions = (indptr.shape[0] - 1) // policy.shape[1]
    for step in range(last, h - 1, -1):
        p = prob[min(step, prob.shape[0] - 1)]
        r = reward[min(step, reward.shape[0] - 1)]
        following, values, played, before = v[step + 1], v[step], policy[step], previous[step]
        for state in range(s, t):
            a = played[state]
            if a < 0 or a >= n_actions:
                return False
            before[state] = a
            g = np.uint64(state * n_actions + a)
            i, stop = np.uint64(indptr[g]), np.uint64(indptr[g + one])
            if i == stop:
                return False
            total = r[g]
            while i < stop:
                total += p[i] * following[np.uint32(successors[i])]
                i += one
            values[state] = total
    return True


@njit_without_refcounts
def evaluate_mixed(indptr, successors, prob, reward, mixture, v):
    """V^pi (H+1, S) in place of a randomised policy: mixture (1|H, S*A) of probabilities."""
    horizon = v.shape[0] - 1
    n_states = v.shape[1]
    n_actions = (indptr.shape[0] - 1) // n_states
    for h in range(horizon - 1, -1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        m = mixture[min(h, mixture.shape[0] - 1)]
        for s in range(n_states):
            total = 0.0
            for g in range(s * n_actions, (s + 1) * n_actions):
                if m[g] > 0.0:
                    expected = r[g]
                    for i in range(indptr[g], indptr[g + 1]):
                        expected += p[i] * v[h + 1, successors[i]]
                    total += m[g] * expected
            v[h, s] = total


@njit_inline
def pick(weights, start, stop, u):
    """The first i in [start, stop) where the running sum of weights exceeds u; the last if none."""
    total = 0.0
    for i in range(start, stop - 1):
        total += weights[i]
        if u < total:
            return i
    return stop - 1


@njit_inline
def rollout(
    indptr, successors, prob, reward, pay, starts, start_prob, policy, uniforms, states, actions,
    rewards,
):  # fmt: skip
    """One episode by inverse transform: uniforms (H+1,), the first one draws the start.

    reward (1|H, S*A) and pay (1|H, n|0), see `sweep`. Writes states (H+1,), actions (H,),
    rewards (H,) and returns the sum of the rewards.
    """
    horizon, n_states = policy.shape
    n_actions = (indptr.shape[0] - 1) // n_states
    total = 0.0
    s = starts[pick(start_prob, np.int64(0), starts.shape[0], uniforms[0])]
    for h in range(horizon):
        a = policy[h, s]
        g = s * n_actions + a
        states[h] = s
        actions[h] = a
        rewards[h] = reward[min(h, reward.shape[0] - 1), g]
        p = prob[min(h, prob.shape[0] - 1)]
        i = pick(p, indptr[g], indptr[g + 1], uniforms[h + 1])
        if pay.shape[1] > 0:
            rewards[h] += pay[min(h, pay.shape[0] - 1), i]
        total += rewards[h]
        s = successors[i]
    states[horizon] = s
    return total


@njit_without_refcounts
def play(
    indptr, successors, prob, expected, reward, pay, starts, start_prob, best, last, uniforms,
    figures, v, k, row, policy, previous, states, actions, rewards,
):  # fmt: skip
    """Episode k: `evaluate`, with the expected reward, then `rollout`, with what is paid.

    figures[:, k] gets the return with last (S,), the value of the end, and of where it began the
    value of the policy and best (S,), the optimum. uniforms and states (m, H+1), actions and
    rewards (m, H): `row` is for this episode. Where an action does not exist nothing is played, and
    it returns False.
    """
    changed = last_change(policy, previous)
    if not evaluate(
        indptr, successors, prob, expected, policy, previous, v, changed, 0, 0, policy.shape[1]
    ):
        return False
    total = rollout(
        indptr, successors, prob, reward, pay, starts, start_prob, policy,
        uniforms[row], states[row], actions[row], rewards[row],
    )  # fmt: skip
    first = states[row, 0]
    figures[0, k] = total + last[states[row, states.shape[1] - 1]]
    figures[1, k] = v[0, first]
    figures[2, k] = best[first]
    return True


@njit_without_refcounts
def stream(
    indptr, successors, prob, reward, pay, starts, start_prob, mixture, n_actions, restart,
    uniforms, state, states, actions, rewards,
):  # fmt: skip
    """Steps from `state` on until a restart or the end of uniforms (T, 3); (steps, where it is).

    The columns of uniforms draw the action from mixture (S*A,), the successor, and with chance
    `restart` a new start. prob (n,), reward (S*A,), pay (n|0,), see `sweep`; writes states (T+1,),
    actions and rewards (T,).
    """
    s = state
    states[0] = s
    for t in range(uniforms.shape[0]):
        a = pick(mixture, s * n_actions, (s + 1) * n_actions, uniforms[t, 0])
        actions[t] = a - s * n_actions
        rewards[t] = reward[a]
        i = pick(prob, indptr[a], indptr[a + 1], uniforms[t, 1])
        if pay.shape[0] > 0:
            rewards[t] += pay[i]
        s = successors[i]
        states[t + 1] = s
        if uniforms[t, 2] < restart:
            u = uniforms[t, 2] / restart
            return t + 1, starts[pick(start_prob, np.int64(0), starts.shape[0], u)]
    return uniforms.shape[0], s


@njit_inline
def row_of(indptr, successors, g, target):
    """The row of the triple that leads from group g to state `target`, or -1."""
    low, high = indptr[g], indptr[g + 1]
    while low < high:  # successors are sorted within a group
        middle = (low + high) // 2
        if successors[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < indptr[g + 1] and successors[low] == target else -1


@njit_without_refcounts
def count(indptr, successors, n_actions, states, actions, counts, touched):
    """Add an episode to counts (1|H, n); touched (H,) gets the group of each step.

    Returns the first step whose transition is outside the declared support, or -1.
    """
    for h in range(actions.shape[0]):
        g = states[h] * n_actions + actions[h]
        row = row_of(indptr, successors, g, states[h + 1])
        if row < 0:
            return h
        counts[min(h, counts.shape[0] - 1), row] += 1.0
        touched[h] = g
    return -1


@njit_without_refcounts
def check_episode(states, actions, rewards, n_states, n_actions, indptr):
    """3 h + (0, 1, 2) for the first step h whose state, action or reward cannot be; else -1."""
    for h in range(states.shape[0]):
        if states[h] < 0 or states[h] >= n_states:
            return 3 * h
        if h == actions.shape[0]:
            break
        if actions[h] < 0 or actions[h] >= n_actions:
            return 3 * h + 1
        g = states[h] * n_actions + actions[h]
        if indptr[g] == indptr[g + 1]:
            return 3 * h + 1
        if not np.isfinite(rewards[h]):
            return 3 * h + 2
    return -1


@njit_without_refcounts
def rollout_batch(
    indptr, successors, prob, reward, pay, starts, start_prob, policy, uniforms, states, actions,
    rewards,
):  # fmt: skip
    """One episode per row of uniforms (n, H+1); states (n, H+1), actions and rewards (n, H)."""
    for i in range(uniforms.shape[0]):
        rollout(
            indptr, successors, prob, reward, pay, starts, start_prob, policy, uniforms[i],
            states[i], actions[i], rewards[i],
        )  # fmt: skip
