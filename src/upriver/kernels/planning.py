"""Backward induction, policy evaluation and its derivatives over the triples (s, a, s').

A pair (s, a) is the number s * A + a, and its triples are the rows indptr[pair] to indptr[pair + 1]
of `successors` and of every array with one entry per triple. With p the probabilities of these
rows, (1) in a learned model, and n_h the next-state reward of a triple,

    Bellman   Q_h(s, a) = r_h(s, a) + sum_s' p(s') (V_{h+1}(s') + n_h(s, a, s'))
    (6)       Q_h(s, a) = r + P V_{h+1} + 2 H beta max_s' ||varphi(s, a, s')||_{A^-1}
    clip      Q_h <- min(max(Q_h, low), q_cap_h),   V_h = min(max_a Q_h, v_cap_h)

A backward pass is one skeleton, `compile_backward_pass`, and a local rule that writes Q_h of some
pairs before the clip. A state where episodes end has the value of no reward at all by definition:
no bonus of an agent that never visits it can raise it. `bonus_rule` is the first two formulas: (6)
has scale_h = 2 H beta and the norm as its bonus, and the paper's clip is v_cap_h = H alone. Eq. (4)
is in `kernels.ellipsoid`, bonuses that depend on the next values are in `kernels.optimism`, sets of
distributions in `kernels.tabular`, regressions in `kernels.linear`. A rule has the arguments

    h                  the step, counted from 0
    first, end         the pairs first, ..., end - 1, whose Q it writes
    indptr (S*A + 1,), successors (n,), next_state_reward (1|H, n), or (1, 0) where there is none
    v (H + 1, S)       of which the row h + 1 is known
    q (S*A,)           which it writes to
    data               its own arrays and numbers, a tuple, which it unpacks first

A rule works on all pairs of a step because numba counts references to every array of a call, 8
nanoseconds each; those of one tuple it does not count again at each step. Here `indptr` and
`successors` are unsigned, `Task.kernel_rows`: numba tests signed numbers that it indexes with for
being negative, and a pass then takes 1.25 to 1.6 times as long. A difference of unsigned numbers
wraps around, so sizes are computed as np.int64.
"""

from functools import cache

import numba
import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline


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
    best, arg, ties = q[start], 0, np.uint64(1)
    for a in range(1, n_actions):
        x = q[start + a]
        if x > best:
            best, arg, ties = x, a, np.uint64(1)
        elif x == best:
            ties += np.uint64(1)
            seed = mix_bits(seed)
            if seed % ties == np.uint64(0):
                arg = a
    return arg


@cache
def compile_backward_pass(rule):
    """Return the backward pass of a rule, a function of this module's signature for rules.

    It writes v (H + 1, S), whose last row is given, policy (H, S), and q (S*A,), which ends as Q of
    the first step. is_partial says whether some pairs have no triples, so that they do not exist.
    low, q_cap (1|H,) and v_cap (1|H,) are the clip; the states `ends` (m,) have the
    value of `end_reward` at every step that is left; tie_seed (uint64) breaks ties.
    Only the steps and states between the first and the end given, the ends excluded, are computed,
    so that threads can share the states of a step.
    """

    def backward_pass(
        indptr, successors, next_state_reward, is_partial, low, q_cap, v_cap, ends, end_reward,
        tie_seed, v, policy, q, first_step, end_step, first_state, end_state, data,
    ):  # fmt: skip
        n_states = policy.shape[1]
        n_actions = q.shape[0] // n_states
        first, end = first_state * n_actions, end_state * n_actions
        for h in range(end_step - 1, first_step - 1, -1):
            rule(h, first, end, indptr, successors, next_state_reward, v, q, data)
            q_max, v_max = q_cap[min(h, q_cap.shape[0] - 1)], v_cap[min(h, v_cap.shape[0] - 1)]
            if low > -np.inf or q_max < np.inf:
                for pair in range(first, end):
                    q[pair] = min(max(q[pair], low), q_max)
            if is_partial:
                for pair in range(first, end):
                    q[pair] = -np.inf if indptr[pair] == indptr[pair + 1] else q[pair]
            for s in range(first_state, end_state):
                # Without branches, because which action is the best cannot be predicted.
                start = s * n_actions
                best, arg, tied = q[start], 0, False
                for a in range(1, n_actions):
                    x = q[start + a]
                    tied = (x == best) | (tied & (x < best))
                    arg = a if x > best else arg
                    best = x if x > best else best
                if tied:  # every state and step has a seed of its own, whatever a thread computes
                    seed = tie_seed ^ np.uint64(h * n_states + s)
                    arg = argmax_random_ties(q, start, n_actions, seed)
                policy[h, s] = arg
                v[h, s] = min(best, v_max)
            for k in range(ends.shape[0]):  # what follows an end is known, whatever Q says
                if first_state <= ends[k] < end_state:
                    v[h, ends[k]] = end_reward + v[h + 1, ends[k]]

    if rule.__module__.startswith("upriver.kernels."):
        return njit_cached(backward_pass)
    # The cache on disk would not notice that a rule from elsewhere has changed.
    return numba.njit(nogil=True, error_model="numpy")(backward_pass)


@njit_inline
def bonus_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = r + P V_{h+1} + scale_h bonus; eq. (6) is one of these.

    data: prob (1|H, n), which need not sum to one; reward and bonus (1|H, S*A); scale (1|H,).
    """
    prob, reward, bonus, scale = data
    c, r, b = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), min(h, bonus.shape[0] - 1)
    has_extra, e = next_state_reward.shape[1] > 0, min(h, next_state_reward.shape[0] - 1)
    weight = scale[min(h, scale.shape[0] - 1)]
    i = indptr[first]  # the triples of the pairs follow each other
    for pair in range(first, end):
        expected, stop = 0.0, indptr[pair + 1]
        while i < stop:
            value = v[h + 1, successors[i]]
            if has_extra:
                value += next_state_reward[e, i]
            expected += prob[c, i] * value
            i += np.uint32(1)
        q[pair] = reward[r, pair] + expected
        if weight != 0.0:  # a bonus that has no weight may be infinite
            q[pair] += weight * bonus[b, pair]


@njit_inline
def read_next_values(h, first, end, successors, next_state_reward, v, values):
    """values = V_{h+1}(s') + the next-state reward of the triples from `first` to `end`."""
    has_extra, e = next_state_reward.shape[1] > 0, min(h, next_state_reward.shape[0] - 1)
    for u in range(end - first):
        values[u] = v[h + 1, successors[first + u]]
        if has_extra:
            values[u] += next_state_reward[e, first + u]


@njit_cached
def update_values(dynamics, policy, previous, v, first_step, end_step, first_state, end_state):
    """Write V^pi = r + P V^pi of a policy (H, S) into a part of v (H+1, S).

    dynamics: `episodes.Dynamics`. v holds the value of `previous` (H, S), which becomes `policy`:
    steps after the last one where they differ stay as they are. Returns False where an action does
    not exist; then v is void.
    """
    indptr, successors, is_changed = dynamics.indptr, dynamics.successors, False
    prob, reward = dynamics.prob, dynamics.expected_reward
    n_actions = (indptr.shape[0] - 1) // policy.shape[1]
    for h in range(end_step - 1, first_step - 1, -1):
        c, r, differs = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), is_changed
        for s in range(first_state, end_state):
            a = policy[h, s]
            if a == previous[h, s] and not is_changed:
                continue
            pair = s * n_actions + a
            if a < 0 or a >= n_actions or indptr[pair] == indptr[pair + 1]:
                return False
            previous[h, s], differs = a, True
            total = reward[r, pair]
            for i in range(indptr[pair], indptr[pair + 1]):
                total += prob[c, i] * v[h + 1, successors[i]]
            v[h, s] = total
        is_changed = differs
    return True


@njit_cached
def value_policy(indptr, successors, prob, reward, next_state_reward, policy, mixed, v):
    """Write V^pi (H+1, S) of a policy: actions (H, S), or if mixed their probabilities (1|H, S*A).

    next_state_reward (1|H, n|0) is what `reward` (1|H, S*A) does not contain; prob (1|H, n).
    """
    n_states, has_extra = v.shape[1], next_state_reward.shape[1] > 0
    n_actions = (indptr.shape[0] - 1) // n_states
    for h in range(v.shape[0] - 2, -1, -1):
        c, r = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1)
        e, m = min(h, next_state_reward.shape[0] - 1), min(h, policy.shape[0] - 1)
        for s in range(n_states):
            total, first = 0.0, s * n_actions if mixed else np.int64(s * n_actions + policy[m, s])
            for pair in range(first, first + (n_actions if mixed else 1)):
                chance = policy[m, pair] if mixed else 1.0
                if chance > 0.0:  # an action that is never played need not exist
                    expected = reward[r, pair]
                    for i in range(indptr[pair], indptr[pair + 1]):
                        extra = next_state_reward[e, i] if has_extra else 0.0
                        expected += prob[c, i] * (v[h + 1, successors[i]] + extra)
                    total += chance * expected
            v[h, s] = total


@njit_cached
def differentiate(
    indptr, successors, prob, reward, extra, policy, mixed, start, v, weight, occupancy,
    action_value,
):  # fmt: skip
    """Write the value of a policy and its derivatives into the last four arguments.

    With d_h(s, a) the probability of the pair at step h, and V_{h+1} with the next-state reward,
    the derivative of the value of the start in the parameter theta of a model is

        sum_h sum_(s, a) d_h(s, a) sum_s' p(s') (V_{h+1}(s') - P V_{h+1}) varphi(s, a, s').

    v (H + 1, S) gets the value of the policy; weight (1|H, n) sum_h d_h p (V_{h+1} - P V_{h+1}), so
    that the gradient in theta is weight^T features; occupancy (1|H, S*A) sum_h d_h, or d_h of each
    step; action_value (1|H, S*A|0) sum_h P(s at h) Q_h(s, a), or that of each step: the gradient in
    the probabilities of actions, where it has entries. They begin as zeros, but for the last row of
    v. prob (1|H, n), reward (1|H, S*A), extra (1|H, n|0) the next-state reward, policy (H, S)
    actions, or if mixed (1|H, S*A) probabilities, start (S,) those of the first state.
    """
    n_states, has_extra = v.shape[1], extra.shape[1] > 0
    n_actions, by_action = (indptr.shape[0] - 1) // n_states, action_value.shape[1] > 0
    value_policy(indptr, successors, prob, reward, extra, policy, mixed, v)
    here = start.copy()  # the distribution of the state, step by step
    for h in range(v.shape[0] - 1):
        c, r, e = min(h, len(prob) - 1), min(h, len(reward) - 1), min(h, len(extra) - 1)
        m, w, o = min(h, len(policy) - 1), min(h, len(weight) - 1), min(h, len(occupancy) - 1)
        after = np.zeros(n_states)
        for s in range(n_states):
            if here[s] == 0.0:
                continue
            first = s * n_actions if mixed else np.int64(s * n_actions + policy[m, s])
            for pair in range(first, first + (n_actions if mixed else 1)):
                d = here[s] * (policy[m, pair] if mixed else 1.0)
                if d == 0.0 and not by_action:
                    continue
                mean = v[h, s] - reward[r, pair]
                if mixed:  # then v is not the value of this pair alone
                    mean = 0.0
                    for i in range(indptr[pair], indptr[pair + 1]):
                        following = v[h + 1, successors[i]] + (extra[e, i] if has_extra else 0.0)
                        mean += prob[c, i] * following
                if by_action:
                    step = min(h, action_value.shape[0] - 1)
                    action_value[step, pair] += here[s] * (reward[r, pair] + mean)
                if d > 0.0:
                    occupancy[o, pair] += d
                    for i in range(indptr[pair], indptr[pair + 1]):
                        j, x = successors[i], d * prob[c, i]
                        following = v[h + 1, j] + (extra[e, i] if has_extra else 0.0)
                        weight[w, i] += x * (following - mean)
                        after[j] += x
        here = after
