"""One backup of the soft Bellman equation: values and choice probabilities of all states.

Q(s, a) = r(s, a) + gamma sum_s' P(s'|s, a) w(s'), the new value is sigma log sum_a exp(Q / sigma),
and the choice probability of an action is exp(Q / sigma) over that sum. One pass over the triples;
exponentials are taken of differences from the largest Q of a state, so that none overflows.
"""

import numpy as np

from upriver.kernels.compiled import njit_cached


@njit_cached
def soft_backup(indptr, successors, prob, reward, discount, temperature, w, backup, probability):
    """Write the new values into backup (S,) and the choice probabilities into probability (S, A).

    A pair without triples is an action that the state does not have; its probability is 0. With a
    table of no rows the probabilities are not written, which saves a fifth of the time.
    """
    n_states, n_actions = backup.shape[0], probability.shape[1]
    inverse = 1.0 / temperature
    q = np.empty(n_actions)
    i = 0  # the triples are visited in order
    for s in range(n_states):
        largest, best = -np.inf, 0
        for a in range(n_actions):
            stop = indptr[s * n_actions + a + 1]
            q[a] = -np.inf
            if stop > i:
                total = 0.0
                while i < stop:
                    total += prob[i] * w[successors[i]]
                    i += 1
                q[a] = reward[s * n_actions + a] + discount * total
            if q[a] > largest:
                largest, best = q[a], a
        total = 1.0  # the best action has exp(0); exponentials take most of the time
        for a in range(n_actions):
            q[a] = np.exp((q[a] - largest) * inverse) if a != best else 1.0
            total += q[a] if a != best else 0.0
        backup[s] = largest + temperature * np.log(total)
        if probability.shape[0] > 0:
            for a in range(n_actions):
                probability[s, a] = q[a] / total
