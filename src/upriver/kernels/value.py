"""The value of a policy and its derivatives in the model: one backward and one forward pass.

With d_h(s, a) the probability of the pair at step h, and V_{h+1} with what the triple pays beside
the reward, the derivative of the value of the start in theta is

    sum_h sum_(s, a) d_h(s, a) sum_s' p(s') (V_{h+1}(s') - P V_{h+1}) varphi(s, a, s').
"""

import numpy as np

from upriver.kernels.compiled import njit_cached
from upriver.kernels.planning import find_pairs, value_policy


@njit_cached
def differentiate(
    indptr, successors, prob, reward, extra, policy, mixed, start,
    v, weight, occupancy, action_value,
):  # fmt: skip
    """Write the value of a policy and its derivatives into the last four arguments.

    v (H + 1, S) gets the value of the policy; weight (1|H, n) sum_h d_h p (V_{h+1} - P V_{h+1}), so
    that the gradient in theta is weight^T features; occupancy (1|H, S*A) sum_h d_h, or d_h of each
    step; action_value (1|H, S*A|0) sum_h P(s at h) Q_h(s, a), or that of each step: the gradient in
    the probabilities of actions, where it has entries. They begin as zeros, but for the last row of
    v.
    prob (1|H, n), reward (1|H, S*A), extra (1|H, n|0) the next-state reward, policy (H, S) actions,
    or if it is mixed (1|H, S*A) probabilities, start (S,) the probabilities of the first state.
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
            first, last = find_pairs(s, n_actions, policy, m, mixed)
            for pair in range(first, last):
                d = here[s] * policy[m, pair] if mixed else here[s]
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


@njit_cached
def tilt_probabilities(indptr, prob, logits, out):
    """out = prob exp(logits), normalised in each pair; all (n,)."""
    for pair in range(indptr.shape[0] - 1):
        first, last = indptr[pair], indptr[pair + 1]
        top = -np.inf
        for i in range(first, last):
            top = max(top, logits[i])
        total = 0.0
        for i in range(first, last):
            out[i] = prob[i] * np.exp(logits[i] - top)
            total += out[i]
        for i in range(first, last):
            out[i] /= total
