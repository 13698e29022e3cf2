"""Episodes: drawing them from the true MDP, counting and checking their transitions.

Everything random is drawn by inverse transform from uniform numbers that the caller made, so an
episode depends on its policy and its numbers alone.
"""

import numpy as np
from numba import types
from numba.experimental import structref

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.planning import update_values


@structref.register
class DynamicsType(types.StructRef):
    """The type of a `Dynamics`."""


class Dynamics(structref.StructRefProxy):
    """The true MDP as kernels read it, in the user's units.

    indptr (S*A + 1,) the first row of each pair, successors (n,); prob (1|H, n); expected_reward
    (1|H, S*A) the mean reward of each pair, what its triples add included, reward (1|H, S*A)
    without that, next_state_reward (1|H, n) what a triple adds, or (1, 0) where there is none;
    starts (m,) the possible first states, start_probability (1, m); terminal (S,) the value of
    ending in each state.
    """


FIELDS = (
    "indptr", "successors", "prob", "expected_reward", "reward", "next_state_reward", "starts",
    "start_probability", "terminal",
)  # fmt: skip
structref.define_proxy(Dynamics, DynamicsType, FIELDS)


@njit_cached
def make_dynamics(*fields):
    """Return the `Dynamics` of these fields."""
    return Dynamics(*fields)


@njit_inline
def draw_index(weights, step, start, stop, u):
    """Return the first i in [start, stop) whose sum of weights[step] exceeds u, or the last."""
    total = 0.0
    for i in range(start, stop - 1):
        total += weights[step, i]
        if u < total:
            return i
    return stop - 1


@njit_inline
def draw_triple(env, h, pair, u):
    """Return a triple of a pair, drawn at step h by the uniform number u, and its reward."""
    step, first, end = min(h, env.prob.shape[0] - 1), env.indptr[pair], env.indptr[pair + 1]
    row = draw_index(env.prob, step, first, end, u)
    reward = env.reward[min(h, env.reward.shape[0] - 1), pair]
    if env.next_state_reward.shape[1] > 0:
        reward += env.next_state_reward[min(h, env.next_state_reward.shape[0] - 1), row]
    return row, reward


@njit_inline
def draw_episode(env, policy, uniforms, i, states, actions, rewards):
    """Draw episode i of policy (H, S) and return the sum of its rewards.

    Of uniforms (n, H+1), the first number of a row draws the first state, the others the
    transitions. Writes states (n, H+1), actions (n, H) and rewards (n, H).
    """
    n_actions, total = (env.indptr.shape[0] - 1) // policy.shape[1], 0.0
    first = draw_index(env.start_probability, 0, 0, env.starts.shape[0], uniforms[i, 0])
    s = env.starts[first]
    for h in range(policy.shape[0]):
        states[i, h], actions[i, h] = s, policy[h, s]
        row, rewards[i, h] = draw_triple(env, h, s * n_actions + policy[h, s], uniforms[i, h + 1])
        total += rewards[i, h]
        s = env.successors[row]
    states[i, policy.shape[0]] = s
    return total


@njit_cached
def play_episode(
    environment, optimum, policy, previous, v, uniforms, i, k, states, actions, rewards, figures
):
    """Evaluate policy (H, S) exactly, `planning.update_values`, then draw episode i of it.

    optimum (S,) is V* of the first step; v (H+1, S) holds the value of `previous` (H, S) and gets
    that of `policy`. The rows i of the other arrays, see `draw_episode`, are those of the episode;
    column k of figures (3, K) gets the return, its terminal value included, and of the first state
    the value of the policy and the optimum. Returns False, and draws nothing, where the policy
    plays an action that does not exist.
    """
    if not update_values(environment, policy, previous, v, 0, len(policy), 0, policy.shape[1]):
        return False
    total = draw_episode(environment, policy, uniforms, i, states, actions, rewards)
    figures[0, k] = total + environment.terminal[states[i, policy.shape[0]]]
    figures[1, k] = v[0, states[i, 0]]
    figures[2, k] = optimum[states[i, 0]]
    return True


@njit_cached
def draw_episodes(environment, policy, uniforms, states, actions, rewards):
    """Draw one episode per row of uniforms (n, H+1), see `draw_episode`."""
    for i in range(uniforms.shape[0]):
        draw_episode(environment, policy, uniforms, i, states, actions, rewards)


@njit_cached
def play_stream(environment, mixture, restart, uniforms, state, states, actions, rewards):
    """Play a stationary policy from `state` until a restart or the end of uniforms (T, 3).

    The columns of uniforms draw the action from mixture (1, S*A), the next state, and with
    probability `restart` a new first state. Writes states (T+1,), actions and rewards (T,). Returns
    the number of steps and the state after them.
    """
    env = environment
    n_actions, s = mixture.shape[1] // env.terminal.shape[0], state
    states[0] = s
    for t in range(uniforms.shape[0]):
        pair = draw_index(mixture, 0, s * n_actions, (s + 1) * n_actions, uniforms[t, 0])
        actions[t] = pair - s * n_actions
        row, rewards[t] = draw_triple(env, 0, pair, uniforms[t, 1])
        s = np.int64(env.successors[row])
        states[t + 1] = s
        if uniforms[t, 2] < restart:
            u = uniforms[t, 2] / restart  # uniform again, given that there is a restart
            first = draw_index(env.start_probability, 0, 0, env.starts.shape[0], u)
            return t + 1, np.int64(env.starts[first])
    return uniforms.shape[0], s


@njit_inline
def find_row(indptr, successors, pair, target):
    """Return the row of the triple that leads from a pair to state `target`, or -1."""
    for row in range(indptr[pair], indptr[pair + 1]):
        if successors[row] == target:
            return row
    return -1


@njit_cached
def count_transitions(indptr, successors, n_actions, states, actions, counts):
    """Add an episode to counts (1|H, n), or only check it against the support, with (1, 0).

    Returns the first step whose transition is outside the declared support, or -1.
    """
    for h in range(actions.shape[0]):
        row = find_row(indptr, successors, states[h] * n_actions + actions[h], states[h + 1])
        if row < 0:
            return h
        if counts.shape[1] > 0:
            counts[min(h, counts.shape[0] - 1), row] += 1.0
    return -1
