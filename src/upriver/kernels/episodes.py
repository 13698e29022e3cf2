"""Episodes: drawing them from the true MDP, counting and checking their transitions.

Everything random is drawn by inverse transform from uniform numbers that the caller made, so an
episode depends on its policy and its numbers alone.
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_inline, njit_without_refcounts
from upriver.kernels.planning import evaluate_steps, last_difference


class Environment(NamedTuple):
    """The true MDP as the kernels of this file and `planning.evaluate` read it, in user's units."""

    indptr: Any
    """(S*A + 1,) the first row of each pair."""
    successors: Any
    """(n,) the next state of each triple."""
    prob: Any
    """(1|H, n) the probability of each triple."""
    expected_reward: Any
    """(1|H, S*A) the mean reward of each pair, what its triples add included."""
    reward: Any
    """(1|H, S*A) the reward of each pair without what its triples add."""
    next_state_reward: Any
    """(1|H, n) the reward that a triple adds, or (1, 0) where there is none."""
    starts: Any
    """(m,) the possible first states."""
    start_probability: Any
    """(m,) their probabilities."""
    terminal: Any
    """(S,) the value of ending in each state."""


@njit_inline
def draw_index(weights, start, stop, u):
    """Return the first i in [start, stop) whose running sum of weights exceeds u, or the last."""
    total = 0.0
    for i in range(start, stop - 1):
        total += weights[i]
        if u < total:
            return i
    return stop - 1


@njit_inline
def draw_episode(env, policy, uniforms, states, actions, rewards):
    """Draw one episode of policy (H, S) and return the sum of its rewards.

    uniforms (H+1,): the first number draws the first state, the others the transitions. Writes
    states (H+1,), actions (H,) and rewards (H,).
    """
    indptr, extra = env.indptr, env.next_state_reward
    horizon, n_states = policy.shape
    n_actions = (indptr.shape[0] - 1) // n_states
    total = 0.0
    first = draw_index(env.start_probability, np.int64(0), env.starts.shape[0], uniforms[0])
    s = env.starts[first]
    for h in range(horizon):
        a = policy[h, s]
        pair = s * n_actions + a
        states[h] = s
        actions[h] = a
        rewards[h] = env.reward[min(h, env.reward.shape[0] - 1), pair]
        p = env.prob[min(h, env.prob.shape[0] - 1)]
        i = draw_index(p, indptr[pair], indptr[pair + 1], uniforms[h + 1])
        if extra.shape[1] > 0:
            rewards[h] += extra[min(h, extra.shape[0] - 1), i]
        total += rewards[h]
        s = env.successors[i]
    states[horizon] = s
    return total


@njit_without_refcounts
def play_episode(
    environment, optimum, policy, previous, v, uniforms, states, actions, rewards, outcome
):
    """Evaluate policy (H, S) exactly, `planning.evaluate`, then draw one episode of it.

    optimum (S,) is V* of the first step; v (H+1, S) holds the value of `previous` (H, S) and gets
    that of `policy`. outcome (3,) gets the return of the episode, its terminal value included, and
    of its first state the value of the policy and the optimum. Returns False, and draws nothing,
    where the policy plays an action that does not exist.
    """
    env = environment
    end = last_difference(policy, previous) + 1  # later steps have the same policy and value
    if not evaluate_steps(env, policy, previous, v, 0, end, 0, policy.shape[1]):
        return False
    total = draw_episode(env, policy, uniforms, states, actions, rewards)
    outcome[0] = total + env.terminal[states[states.shape[0] - 1]]
    outcome[1] = v[0, states[0]]
    outcome[2] = optimum[states[0]]
    return True


@njit_without_refcounts
def play_episodes(environment, policy, uniforms, states, actions, rewards):
    """Draw one episode per row of uniforms (n, H+1); states (n, H+1), actions, rewards (n, H)."""
    env = environment
    for i in range(uniforms.shape[0]):
        draw_episode(env, policy, uniforms[i], states[i], actions[i], rewards[i])


@njit_without_refcounts
def play_stream(environment, mixture, restart, uniforms, state, states, actions, rewards):
    """Play a stationary policy from `state` until a restart or the end of uniforms (T, 3).

    The columns of uniforms draw the action from mixture (S*A,), the next state, and with
    probability `restart` a new first state. Writes states (T+1,), actions and rewards (T,). Returns
    the number of steps and the state after them.
    """
    env = environment
    indptr, prob, extra = env.indptr, env.prob[0], env.next_state_reward[0]
    n_actions = mixture.shape[0] // env.terminal.shape[0]
    s = state
    states[0] = s
    for t in range(uniforms.shape[0]):
        pair = draw_index(mixture, s * n_actions, (s + 1) * n_actions, uniforms[t, 0])
        actions[t] = pair - s * n_actions
        rewards[t] = env.reward[0, pair]
        i = draw_index(prob, indptr[pair], indptr[pair + 1], uniforms[t, 1])
        if extra.shape[0] > 0:
            rewards[t] += extra[i]
        s = np.int64(env.successors[i])
        states[t + 1] = s
        if uniforms[t, 2] < restart:
            u = uniforms[t, 2] / restart  # uniform again, given that there is a restart
            first = draw_index(env.start_probability, np.int64(0), env.starts.shape[0], u)
            return t + 1, np.int64(env.starts[first])
    return uniforms.shape[0], s


@njit_inline
def find_row(indptr, successors, pair, target):
    """Return the row of the triple that leads from a pair to state `target`, or -1."""
    low, high = indptr[pair], indptr[pair + 1]
    while low < high:  # a binary search: successors are sorted within a pair
        middle = (low + high) // 2
        if successors[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < indptr[pair + 1] and successors[low] == target else -1


@njit_without_refcounts
def count_transitions(indptr, successors, n_actions, states, actions, counts, visited):
    """Add an episode to counts (1|H, n); visited (H,) gets the pair of each step.

    Returns the first step whose transition is outside the declared support, or -1.
    """
    for h in range(actions.shape[0]):
        pair = states[h] * n_actions + actions[h]
        row = find_row(indptr, successors, pair, states[h + 1])
        if row < 0:
            return h
        counts[min(h, counts.shape[0] - 1), row] += 1.0
        visited[h] = pair
    return -1
