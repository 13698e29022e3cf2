"""Linear learners from their histories, sample by sample, with dense matrices."""

import numpy as np

import upriver as up
from upriver.agents.base import Episode, State
from upriver.agents.lsvi import StepSums


def samples(task, episodes):
    """(h, g, reward, s') of every step ever taken, g = s * A + a."""
    return [
        (h, e.states[h] * task.n_actions + e.actions[h], e.rewards[h], e.states[h + 1])
        for e in episodes
        for h in range(len(e.actions))
    ]


def lsvi_step(task, history, h, phi, lam, v):
    """(Lambda_h^-1 (d, d), w_h (d,)): ridge regression of r + V_{h+1}(s') on phi at step h."""
    gram, target = lam * np.eye(phi.shape[1]), np.zeros(phi.shape[1])
    for step, g, r, s2 in history:
        if step == h:
            gram += np.outer(phi[g], phi[g])
            target += phi[g] * (r + v[s2])
    inverse = np.linalg.inv(gram)
    return inverse, inverse @ target


def many_visits(mdp, n, rng):
    """What n visits of every (h, s, a) of a full task would have left, drawn from the MDP."""
    prob = np.zeros((mdp.n_states * mdp.n_actions, mdp.n_states))
    s, a, s2 = mdp.true_task.triples
    prob[s * mdp.n_actions + a, s2] = mdp.probability[0]
    counts = np.array([rng.multinomial(n, prob).ravel() for _ in range(mdp.horizon)], float)
    return State(1, StepSums(counts, n * np.tile(mdp.reward.ravel(), (mdp.horizon, 1))), None)


def two_states(horizon=2):
    prob = np.full((2, 2, 2), 0.5)
    return up.FiniteMDP.from_arrays(prob, np.array([[0.1, 0.2], [0.3, 0.4]]), horizon)


def right_then_stay():
    """(0, a=1) to state 1, then (1, a=0) back to state 0; paid 0.2 and 0.3."""
    return Episode(np.array([0, 1, 0]), np.array([1, 0]), np.array([0.2, 0.3]))


def optimal_q(mdp, h):
    return up.solve(mdp).q(h)
