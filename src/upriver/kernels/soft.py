"""Action values of the soft Bellman equation, ready for exponentials that do not overflow.

Exponentials and logarithms are left to NumPy, whose vectorized ones take a tenth of the time.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached


@njit_cached
def relative_values(indptr, successors, prob, reward, discount, inverse, w, q, top):
    """Write Q(s, a) / sigma less the largest of the state into q (S, A), and that into top (S,).

    Q(s, a) = r(s, a) + gamma sum_s' P(s'|s, a) w(s'); inverse is 1 / sigma. A pair without triples
    is an action that the state does not have; its q is -inf.
    """
    n_states, n_actions = q.shape
    i = 0  # the triples are visited in order
    for s in range(n_states):
        largest = -np.inf
        for a in range(n_actions):
            stop = indptr[s * n_actions + a + 1]
            q[s, a] = -np.inf
            if stop > i:
                total = 0.0
                while i < stop:
                    total += prob[i] * w[successors[i]]
                    i += 1
                q[s, a] = (reward[s * n_actions + a] + discount * total) * inverse
                largest = max(largest, q[s, a])
        top[s] = largest
        for a in range(n_actions):
            q[s, a] -= largest
