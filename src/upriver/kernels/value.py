"""The value of a policy and its derivatives in the model: one backward and one forward pass.

With d_h(s, a) the probability of the pair at step h, and V_{h+1} with what the triple pays beside
the reward, the derivative of the value of the start in theta is

    sum_h sum_(s, a) d_h(s, a) sum_s' p(s') (V_{h+1}(s') - P V_{h+1}) varphi(s, a, s').
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_cached
from upriver.kernels.planning import evaluate_random_policy


class ValueGradient(NamedTuple):
    """What `differentiate` writes; the arrays begin as zeros, but for the last row of v."""

    v: Any
    """(H + 1, S) the value of the policy."""
    weight: Any
    """(1|H, n) sum_h d_h p (V_{h+1} - P V_{h+1}): the gradient in theta is weight^T features."""
    occupancy: Any
    """(1|H, S*A) sum_h d_h, or d_h of each step."""
    action_value: Any
    """(S*A | 0,) sum_h P(s at h) Q_h(s, a), the gradient in the probabilities of actions; not
    written where it has no entries."""


@njit_cached
def differentiate(indptr, successors, prob, reward, extra, mixture, start, out):
    """Write the value of a policy and its derivatives, see `ValueGradient`.

    prob (1|H, n), reward (1|H, S*A), extra (1|H, n|0) the next-state reward, mixture (1|H, S*A) the
    probabilities of actions, start (S,) the probabilities of the first state.
    """
    v, horizon, n_states = out.v, out.v.shape[0] - 1, out.v.shape[1]
    n_actions = (indptr.shape[0] - 1) // n_states
    has_extra, by_action = extra.shape[1] > 0, out.action_value.shape[0] > 0
    evaluate_random_policy(indptr, successors, prob, reward, extra, mixture, v)
    here = start.copy()  # the distribution of the state, step by step
    for h in range(horizon):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y = extra[min(h, extra.shape[0] - 1)]
        m = mixture[min(h, mixture.shape[0] - 1)]
        w = out.weight[min(h, out.weight.shape[0] - 1)]
        steps = out.occupancy[min(h, out.occupancy.shape[0] - 1)]
        after = np.zeros(n_states)
        for s in range(n_states):
            if here[s] == 0.0:
                continue
            for pair in range(s * n_actions, (s + 1) * n_actions):
                d = here[s] * m[pair]
                if d == 0.0 and not by_action:
                    continue
                following = 0.0
                for i in range(indptr[pair], indptr[pair + 1]):
                    following += p[i] * (v[h + 1, successors[i]] + (y[i] if has_extra else 0.0))
                if by_action:
                    out.action_value[pair] += here[s] * (r[pair] + following)
                if d > 0.0:
                    steps[pair] += d
                    for i in range(indptr[pair], indptr[pair + 1]):
                        ahead = v[h + 1, successors[i]] + (y[i] if has_extra else 0.0)
                        w[i] += d * p[i] * (ahead - following)
                        after[successors[i]] += d * p[i]
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
