"""The value of a policy and how it moves with the model: one backward and one forward sweep."""

import numpy as np

from upriver.kernels.compiled import compiled


@compiled
def sensitivity(
    indptr, successors, prob, reward, pay, mixture, start, v, weight, occupancy, worth
):  # fmt: skip
    """V of a policy, and what its first value owes to every triple and to every action.

    prob and weight (1|H, n), reward and mixture (1|H, S*A), pay (1|H, n|0), start (S,), v (H+1, S)
    whose last row is given, occupancy and worth (S*A,). With d_h the chance of (s, a) at step h,
    weight gets sum_h d_h p (V_{h+1} - PV), V with what the triple pays, so that the gradient in
    theta is weight^T features; occupancy gets sum_h d_h; worth gets sum_h P(s at h) Q_h(s, a), the
    gradient in the chance of the action.
    """
    horizon, n_states = v.shape[0] - 1, v.shape[1]
    n_actions = (indptr.shape[0] - 1) // n_states
    paid = pay.shape[1] > 0
    for h in range(horizon - 1, -1, -1):
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
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
        p = prob[min(h, prob.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
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
