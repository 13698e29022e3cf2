"""The value of a policy and its derivatives in the model: one backward and one forward pass.

With d_h(s, a) the probability of the pair at step h, and V_{h+1} with what the triple pays beside
the reward, the derivative of the value of the start in theta is

    sum_h sum_(s, a) d_h(s, a) sum_s' p(s') (V_{h+1}(s') - P V_{h+1}) varphi(s, a, s').
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached
from upriver.kernels.planning import evaluate_policy, find_pairs


class ValueGradient(NamedTuple):
    """What `differentiate` writes; the arrays begin as zeros, but for the last row of v."""

    v: Any
    """(H + 1, S) the value of the policy."""
    weight: Any
    """(1|H, n) sum_h d_h p (V_{h+1} - P V_{h+1}): the gradient in theta is weight^T features."""
    occupancy: Any
    """(1|H, S*A) sum_h d_h, or d_h of each step."""
    action_value: Any
    """(1|H, S*A | 0) sum_h P(s at h) Q_h(s, a), the gradient in the probabilities of actions, or
    that of each step; not written where it has no entries."""


@njit_cached
def differentiate(indptr, successors, prob, reward, extra, policy, mixed, start, out):
    """Write the value of a policy and its derivatives, see `ValueGradient`.

    prob (1|H, n), reward (1|H, S*A), extra (1|H, n|0) the next-state reward, policy (H, S) actions,
    or if it is mixed (1|H, S*A) probabilities, start (S,) the probabilities of the first state.
    """
    v, horizon, n_states = out.v, out.v.shape[0] - 1, out.v.shape[1]
    n_actions = (indptr.shape[0] - 1) // n_states
    has_extra, by_action = extra.shape[1] > 0, out.action_value.shape[1] > 0
    evaluate_policy(indptr, successors, prob, reward, extra, policy, mixed, v)
    one = np.uint64(1)
    here = start.copy()  # the distribution of the state, step by step
    for h in range(horizon):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y = extra[min(h, extra.shape[0] - 1)]
        m = policy[min(h, policy.shape[0] - 1)]
        w = out.weight[min(h, out.weight.shape[0] - 1)]
        steps = out.occupancy[min(h, out.occupancy.shape[0] - 1)]
        following, after = v[h + 1], np.zeros(n_states)
        for s in range(n_states):
            if here[s] == 0.0:
                continue
            first, last = find_pairs(s, n_actions, m, mixed)
            for pair in range(first, last):
                d = here[s] * m[pair] if mixed else here[s]
                if d == 0.0 and not by_action:
                    continue
                begin, end = np.uint64(indptr[pair]), np.uint64(indptr[pair + one])
                mean = v[h, s] - r[pair]
                if mixed:  # then v is not the value of this pair alone
                    mean = 0.0
                    for i in range(begin, end):
                        ahead = following[np.uint32(successors[i])]
                        mean += p[i] * (ahead + (y[i] if has_extra else 0.0))
                if by_action:
                    step = min(h, out.action_value.shape[0] - 1)
                    out.action_value[step, pair] += here[s] * (r[pair] + mean)
                if d > 0.0:
                    steps[pair] += d
                    for i in range(begin, end):
                        j, x = np.uint32(successors[i]), d * p[i]
                        w[i] += x * (following[j] + (y[i] if has_extra else 0.0) - mean)
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
