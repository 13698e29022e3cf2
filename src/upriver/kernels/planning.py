"""Backward induction and policy evaluation over the rows of reachable triples.

A pair (s, a) is the number s * A + a, and its triples (s, a, s') are the rows indptr[pair] to
indptr[pair + 1] of `successors` and of every array with one entry per triple. With p the
probabilities of these rows, (1) in a learned model, and n_h the next-state reward of a triple,

    Bellman   Q_h(s, a) = r_h(s, a) + sum_s' p(s') (V_{h+1}(s') + n_h(s, a, s'))
    (6)       Q_h(s, a) = r + P V_{h+1} + 2 H beta max_s' ||varphi(s, a, s')||_{A^-1}
    clip      Q_h <- min(max(Q_h, low), q_cap_h),   V_h = min(max_a Q_h, v_cap_h)

`backward_pass` computes all three; (6) has scale_h = 2 H beta and the norm as its bonus, and the
paper's clip is v_cap_h = H alone. A state where episodes end has the value of no reward at all by
definition: no bonus of an agent that never visits it can raise it. The backward passes of other
files differ in Q only: (4) is in `kernels.ellipsoid`, bonuses that depend on the next values are in
`kernels.optimism`, sets of distributions in `kernels.tabular`, regressions in `kernels.linear`.

Every backward pass is called as pass(problem, ..., tie_seed, v, policy, q, span). `problem` is a
`Constants` of a `Problem`. tie_seed (uint64) breaks ties. It writes v (H+1, S), whose last row is
given, policy (H, S), and q (S*A,), which ends as Q of the first step. A pair without triples does
not exist: its q is -inf and it is never chosen. span = (first step, end step, first state, end
state), the ends excluded, is the part to compute, so that threads can share the states of a step.
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline, njit_without_refcounts


class Problem(NamedTuple):
    """What every backward pass of one task reads, the same in every episode."""

    indptr: Any
    """(S*A + 1,) the first row of each pair."""
    successors: Any
    """(n,) the next state of each triple."""
    next_state_reward: Any
    """(1|H, n) the reward that a triple adds to V_{h+1}(s'), or (1, 0) where there is none."""
    low: Any
    """The least value that Q is clipped to, before the maximum over actions."""
    q_cap: Any
    """(H,) the largest value that Q is clipped to."""
    v_cap: Any
    """(H,) the largest value that V is clipped to, after the maximum over actions."""
    end_reward: Any
    """(S,) the reward of each step in a state where episodes end, NaN in all other states."""


@njit_inline
def mix_bits(x):
    """Return the splitmix64 finaliser of a 64-bit number: one that looks random."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit_inline
def argmax_random_ties(q, start, n_actions, seed):
    """Return the index of the largest of q[start : start + n_actions], uniform among exact ties.

    Reservoir sampling: the k-th of the tied actions replaces the choice with probability 1 / k.
    """
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
            seed = mix_bits(seed)
            if seed % ties == np.uint64(0):
                arg = a
    return arg


@njit_inline
def choose_action(problem, h, s, tie_seed, v, policy, q):
    """Clip the Q of state s, and write its largest value into v and its action into policy."""
    n_states = policy.shape[1]
    n_actions = q.shape[0] // n_states
    start = s * n_actions
    for pair in range(start, start + n_actions):
        if problem.indptr[pair] < problem.indptr[pair + 1]:
            q[pair] = min(max(q[pair], problem.low), problem.q_cap[h])
        else:
            q[pair] = -np.inf
    # every state and step has a seed of its own, whatever part of them a thread computes
    a = argmax_random_ties(q, start, n_actions, tie_seed ^ np.uint64(h * n_states + s))
    policy[h, s] = a
    v[h, s] = min(q[start + a], problem.v_cap[h])
    if not np.isnan(problem.end_reward[s]):  # what follows an end is known, whatever Q says
        v[h, s] = problem.end_reward[s] + v[h + 1, s]


@njit_inline
def max_successors(indptr):
    """Return U, the largest number of successors of a pair."""
    most = 0
    for pair in range(indptr.shape[0] - 1):
        most = max(most, indptr[pair + 1] - indptr[pair])
    return most


@njit_inline
def read_next_values(problem, h, following, first, n, values):
    """values[:n] = V_{h+1}(s') + the next-state reward of the n triples from row `first` on."""
    for u in range(n):
        values[u] = following[problem.successors[first + u]]
    if problem.next_state_reward.shape[1] > 0:
        extra = problem.next_state_reward[min(h, problem.next_state_reward.shape[0] - 1)]
        for u in range(n):
            values[u] += extra[first + u]


@njit_without_refcounts
def backward_pass(problem, prob, reward, bonus, scale, tie_seed, v, policy, q, span):
    """Q_h = clip(r + P V_{h+1} + scale_h bonus), V_h = clip(max_a Q_h); eq. (6) is one of these.

    prob (1|H, n) need not sum to one; reward and bonus (1|H, S*A); scale (1|H,).
    """
    # Rows are read with unsigned counters: a signed index is tested for wrap-around every time,
    # which costs a third of the whole loop. The largest action is found without branches: which
    # one it is cannot be predicted, and each wrong guess costs as much as several triples.
    indptr, successors = problem.indptr, problem.successors
    one, two, n_states = np.uint64(1), np.uint64(2), policy.shape[1]
    n_actions = q.shape[0] // n_states
    has_extra = problem.next_state_reward.shape[1] > 0
    start, end = span[2] * n_actions, np.uint64(span[3] * n_actions)
    for h in range(span[1] - 1, span[0] - 1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        extra = problem.next_state_reward[min(h, problem.next_state_reward.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        b = bonus[min(h, bonus.shape[0] - 1)]
        following, values, actions = v[h + 1], v[h], policy[h]
        scale_h = scale[min(h, scale.shape[0] - 1)]
        low, q_cap, v_cap = problem.low, problem.q_cap[h], problem.v_cap[h]
        i = np.uint64(indptr[start])
        pair = np.uint64(start)
        while pair < end:
            stop = np.uint64(indptr[pair + one])
            exists = i < stop
            expected = 0.0
            while has_extra and i < stop:
                expected += p[i] * (extra[i] + following[np.uint32(successors[i])])
                i += one
            while i + one < stop:  # two at a time: most sets of successors are small
                expected += p[i] * following[np.uint32(successors[i])]
                expected += p[i + one] * following[np.uint32(successors[i + one])]
                i += two
            if i < stop:
                expected += p[i] * following[np.uint32(successors[i])]
                i += one
            x = r[pair] + expected
            if scale_h != 0.0:  # a bonus that has no weight may be infinite
                x += scale_h * b[pair]
            q[pair] = min(max(x, low), q_cap) if exists else -np.inf
            pair += one
        pair = np.uint64(start)
        for s in range(span[2], span[3]):
            best = q[pair]
            arg = 0
            tied = False
            for a in range(1, n_actions):
                x = q[pair + np.uint64(a)]
                tied = (x == best) | (tied & (x < best))
                arg = a if x > best else arg
                best = x if x > best else best
            pair += np.uint64(n_actions)
            if tied:
                seed = tie_seed ^ np.uint64(h * n_states + s)
                arg = argmax_random_ties(q, s * n_actions, n_actions, seed)
            actions[s] = arg
            values[s] = min(best, v_cap)
            if not np.isnan(problem.end_reward[s]):
                values[s] = problem.end_reward[s] + following[s]


@njit_without_refcounts
def last_difference(policy, previous):
    """Return the last step at which two policies (H, S) differ, or -1."""
    for h in range(policy.shape[0] - 1, -1, -1):
        for s in range(policy.shape[1]):
            if policy[h, s] != previous[h, s]:
                return h
    return -1


@njit_inline
def evaluate_steps(rows, policy, previous, v, first_step, end_step, first_state, end_state):
    """See `evaluate`."""
    indptr, successors, one = rows.indptr, rows.successors, np.uint64(1)
    n_actions = (indptr.shape[0] - 1) // policy.shape[1]
    for h in range(end_step - 1, first_step - 1, -1):
        p = rows.prob[min(h, rows.prob.shape[0] - 1)]
        r = rows.expected_reward[min(h, rows.expected_reward.shape[0] - 1)]
        following, values, chosen, before = v[h + 1], v[h], policy[h], previous[h]
        for s in range(first_state, end_state):
            a = chosen[s]
            if a < 0 or a >= n_actions:
                return False
            before[s] = a
            pair = np.uint64(s * n_actions + a)
            i, stop = np.uint64(indptr[pair]), np.uint64(indptr[pair + one])
            if i == stop:
                return False
            total = r[pair]
            while i < stop:
                total += p[i] * following[np.uint32(successors[i])]
                i += one
            values[s] = total
    return True


@njit_cached
def evaluate(environment, policy, previous, v, span):
    """Write V^pi = r + P V^pi of a policy (H, S) into the part `span` of v (H+1, S).

    environment: a `Constants` of an `episodes.Environment`. There `previous` becomes `policy`.
    Returns False where an action does not exist; then v is void.
    """
    return evaluate_steps(environment, policy, previous, v, span[0], span[1], span[2], span[3])


@njit_inline
def find_pairs(s, n_actions, policy, mixed):
    """Return the first pair of state s that a policy may take, and the pair after the last.

    Where a policy is not mixed this is one pair: to look at all is three times slower. Numbers are
    unsigned, as in `backward_pass`.
    """
    first = np.uint64(s * n_actions)
    if mixed:
        return first, first + np.uint64(n_actions)
    first += np.uint64(policy[s])
    return first, first + np.uint64(1)


@njit_without_refcounts
def evaluate_policy(indptr, successors, prob, reward, extra, policy, mixed, v):
    """Write V^pi (H+1, S) of a policy: actions (H, S), or if mixed their probabilities (1|H, S*A).

    extra (1|H, n|0) is the next-state reward that `reward` does not contain.
    """
    horizon, n_states = v.shape[0] - 1, v.shape[1]
    n_actions, has_extra = (indptr.shape[0] - 1) // n_states, extra.shape[1] > 0
    one = np.uint64(1)
    for h in range(horizon - 1, -1, -1):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y, m = extra[min(h, extra.shape[0] - 1)], policy[min(h, policy.shape[0] - 1)]
        following = v[h + 1]
        for s in range(n_states):
            total = 0.0
            first, last = find_pairs(s, n_actions, m, mixed)
            for pair in range(first, last):
                chance = m[pair] if mixed else 1.0
                if chance > 0.0:  # an action that is never played need not exist
                    expected = r[pair]
                    for i in range(np.uint64(indptr[pair]), np.uint64(indptr[pair + one])):
                        ahead = following[np.uint32(successors[i])]
                        expected += p[i] * (ahead + (y[i] if has_extra else 0.0))
                    total += chance * expected
            v[h, s] = total
