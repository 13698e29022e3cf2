"""The value of a policy and its derivatives in the model: one backward and one forward pass.

With d_h(s, a) the probability of the pair at step h, the derivative of the value of the start in
theta is sum_h sum_(s, a) d_h(s, a) sum_s' p (V_{h+1}(s') - P V_{h+1}) varphi(s, a, s').
"""

import numpy as np

from upriver.kernels.compiled import njit_cached


@njit_cached
def sensitivity(indptr, successors, prob, reward, pay, actions, start, v, weight, occupancy):
    """V of a policy (H, S), and what its first value owes to every triple.

    prob and weight (1|H, n), reward (1|H, S*A), pay (1|H, n|0), start (S,), v (H+1, S) whose last
    row is given, occupancy (S*A,). With d_h the chance of (s, a) at step h, weight gets
    sum_h d_h p (V_{h+1} - PV), V with what the triple pays, so that the gradient in theta is
    weight^T features, and occupancy gets sum_h d_h.
    """
    # Unsigned counters, as in `planning.sweep`: signed ones are tested for wrap-around every time.
    one, zero = np.uint64(1), np.uint64(0)
    horizon, n_states = actions.shape
    n_actions = np.uint64((indptr.shape[0] - 1) // n_states)
    paid = pay.shape[1] > 0
    for h in range(horizon - 1, -1, -1):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y = pay[min(h, pay.shape[0] - 1)]
        following, values, played = v[h + 1], v[h], actions[h]
        base = zero
        for s in range(n_states):
            g = base + np.uint64(played[s])
            i, stop = np.uint64(indptr[g]), np.uint64(indptr[g + one])
            expected = r[g]
            while i < stop:
                ahead = following[np.uint32(successors[i])] + (y[i] if paid else 0.0)
                expected += p[i] * ahead
                i += one
            values[s] = expected
            base += n_actions
    here, after = start.copy(), np.empty(n_states)
    for h in range(horizon):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y, w = pay[min(h, pay.shape[0] - 1)], weight[min(h, weight.shape[0] - 1)]
        following, values, played = v[h + 1], v[h], actions[h]
        after[:] = 0.0
        base = zero
        for s in range(n_states):
            d = here[s]
            if d > 0.0:
                g = base + np.uint64(played[s])
                i, stop = np.uint64(indptr[g]), np.uint64(indptr[g + one])
                mean = values[s] - r[g]
                occupancy[g] += d
                while i < stop:
                    j = np.uint32(successors[i])
                    x = d * p[i]
                    w[i] += x * (following[j] + (y[i] if paid else 0.0) - mean)
                    after[j] += x
                    i += one
            base += n_actions
        here, after = after, here


@njit_cached
def sensitivity_mixed(
    indptr, successors, prob, reward, pay, mixture, start, v, weight, occupancy, worth
):  # fmt: skip
    """The same of a policy with chance, mixture (1|H, S*A).

    worth (S*A,) gets sum_h P(s at h) Q_h(s, a), the gradient in the chance of the action.
    """
    horizon, n_states = v.shape[0] - 1, v.shape[1]
    n_actions = (indptr.shape[0] - 1) // n_states
    paid = pay.shape[1] > 0
    for h in range(horizon - 1, -1, -1):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y = pay[min(h, pay.shape[0] - 1)]
        m = mixture[min(h, mixture.shape[0] - 1)]
        for s in range(n_states):
            total = 0.0
            for g in range(s * n_actions, (s + 1) * n_actions):
                if m[g] > 0.0:
                    expected = r[g]
                    for i in range(indptr[g], indptr[g + 1]):
                        expected += p[i] * (v[h + 1, successors[i]] + (y[i] if paid else 0.0))
                    total += m[g] * expected
            v[h, s] = total
    here = start.copy()
    for h in range(horizon):
        p, r = prob[min(h, prob.shape[0] - 1)], reward[min(h, reward.shape[0] - 1)]
        y = pay[min(h, pay.shape[0] - 1)]
        m = mixture[min(h, mixture.shape[0] - 1)]
        w = weight[min(h, weight.shape[0] - 1)]
        after = np.zeros(n_states)
        for s in range(n_states):
            if here[s] == 0.0:
                continue
            for g in range(s * n_actions, (s + 1) * n_actions):
                following = 0.0
                for i in range(indptr[g], indptr[g + 1]):
                    following += p[i] * (v[h + 1, successors[i]] + (y[i] if paid else 0.0))
                worth[g] += here[s] * (r[g] + following)
                d = here[s] * m[g]
                if d > 0.0:
                    occupancy[g] += d
                    for i in range(indptr[g], indptr[g + 1]):
                        ahead = v[h + 1, successors[i]] + (y[i] if paid else 0.0)
                        w[i] += d * p[i] * (ahead - following)
                        after[successors[i]] += d * p[i]
        here = after


@njit_cached
def tilt(indptr, prob, rows, shift, used, out):
    """out = prob exp(rows shift), normalised, in each (s, a) that is used; elsewhere prob.

    prob and out (n,), rows (n, d), shift (d,), used (S*A,).
    """
    for g in range(indptr.shape[0] - 1):
        first, last = indptr[g], indptr[g + 1]
        if not used[g]:
            for i in range(first, last):
                out[i] = prob[i]
            continue
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
def gather(rows, weight, out):
    """out += rows^T weight; rows without weight are not read. rows (n, d), weight (n,), out (d,)"""
    for i in range(rows.shape[0]):
        w = weight[i]
        if w != 0.0:
            for j in range(rows.shape[1]):
                out[j] += w * rows[i, j]
