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
    """(S*A,) sum_h P(s at h) Q_h(s, a), the gradient in the action probabilities of a randomised
    policy; not written for a deterministic one."""


@njit_cached
def differentiate(indptr, successors, prob, reward, extra, actions, start, out):
    """Write the value of a policy (H, S) and its derivatives, see `ValueGradient`.

    prob (1|H, n), reward (1|H, S*A), extra (1|H, n|0) the next-state reward, start (S,) the
    probabilities of the first state.
    """
    # Unsigned counters, as in `planning.backward_pass`.
    one, zero = np.uint64(1), np.uint64(0)
    horizon, n_states = actions.shape
    n_actions = np.uint64((indptr.shape[0] - 1) // n_states)
    has_extra = extra.shape[1] > 0
    for h in range(horizon - 1, -1, -1):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y = extra[min(h, extra.shape[0] - 1)]
        following, values, chosen = out.v[h + 1], out.v[h], actions[h]
        base = zero
        for s in range(n_states):
            pair = base + np.uint64(chosen[s])
            i, stop = np.uint64(indptr[pair]), np.uint64(indptr[pair + one])
            expected = r[pair]
            while i < stop:
                ahead = following[np.uint32(successors[i])] + (y[i] if has_extra else 0.0)
                expected += p[i] * ahead
                i += one
            values[s] = expected
            base += n_actions
    here, after = start.copy(), np.empty(n_states)  # the distribution of the state, step by step
    for h in range(horizon):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y, w = extra[min(h, extra.shape[0] - 1)], out.weight[min(h, out.weight.shape[0] - 1)]
        steps = out.occupancy[min(h, out.occupancy.shape[0] - 1)]
        following, values, chosen = out.v[h + 1], out.v[h], actions[h]
        after[:] = 0.0
        base = zero
        for s in range(n_states):
            d = here[s]
            if d > 0.0:
                pair = base + np.uint64(chosen[s])
                i, stop = np.uint64(indptr[pair]), np.uint64(indptr[pair + one])
                mean = values[s] - r[pair]
                steps[pair] += d
                while i < stop:
                    j = np.uint32(successors[i])
                    x = d * p[i]
                    w[i] += x * (following[j] + (y[i] if has_extra else 0.0) - mean)
                    after[j] += x
                    i += one
            base += n_actions
        here, after = after, here


@njit_cached
def differentiate_random_policy(indptr, successors, prob, reward, extra, mixture, start, out):
    """`differentiate` of a randomised policy, mixture (1|H, S*A) of action probabilities."""
    v, horizon, n_states = out.v, out.v.shape[0] - 1, out.v.shape[1]
    n_actions = (indptr.shape[0] - 1) // n_states
    has_extra = extra.shape[1] > 0
    evaluate_random_policy(indptr, successors, prob, reward, extra, mixture, v)
    here = start.copy()
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
                following = 0.0
                for i in range(indptr[pair], indptr[pair + 1]):
                    following += p[i] * (v[h + 1, successors[i]] + (y[i] if has_extra else 0.0))
                out.action_value[pair] += here[s] * (r[pair] + following)
                d = here[s] * m[pair]
                if d > 0.0:
                    steps[pair] += d
                    for i in range(indptr[pair], indptr[pair + 1]):
                        ahead = v[h + 1, successors[i]] + (y[i] if has_extra else 0.0)
                        w[i] += d * p[i] * (ahead - following)
                        after[successors[i]] += d * p[i]
        here = after


@njit_cached
def tilt_probabilities(indptr, prob, rows, shift, out):
    """out = prob exp(rows shift), normalised in each pair.

    prob and out (n,), rows (n, d), shift (d,).
    """
    for pair in range(indptr.shape[0] - 1):
        first, last = indptr[pair], indptr[pair + 1]
        top = -np.inf
        for i in range(first, last):
            out[i] = 0.0
            for j in range(shift.shape[0]):
                out[i] += rows[i, j] * shift[j]
            top = max(top, out[i])
        total = 0.0
        for i in range(first, last):
            out[i] = prob[i] * np.exp(out[i] - top)
            total += out[i]
        for i in range(first, last):
            out[i] /= total


@njit_cached
def add_weighted_rows(rows, weight, out):
    """out += rows^T weight; rows without weight are not read. rows (n, d), weight (n,), out (d,)"""
    for i in range(rows.shape[0]):
        w = weight[i]
        if w != 0.0:
            for j in range(rows.shape[1]):
                out[j] += w * rows[i, j]
