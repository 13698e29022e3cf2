"""Simulation and planning of factored problems, whose state is a vector of small integers.

The functions of a problem and of a base policy are compiled functions that are arguments of the
kernels, so numba compiles the kernels for each problem and makes its functions a part of them. Such
a kernel cannot be cached on disk, since the next process has other functions.

Every random number is a hash of a key and a counter (splitmix64). The same key gives the same
numbers whatever the order of the calls: policies are compared on common random numbers, and the
number of threads changes no bit of a result.

What functions of the user return is checked where it is used: a kernel that meets an impossible
value writes it into `fault` and stops. fault (4,) has what is wrong, two numbers that say where,
and the value.

`problem` is (n_actions, n_values, discount, kind, reward, allowed, constant, base); the base policy
is the action `constant`, or the function `base` where that is -1. `cumulative` (K, m) has the
cumulative probabilities of the values of each kind; from the last possible value on they are 2.
"""

from functools import lru_cache

import numba
import numpy as np

njit = numba.njit(nogil=True, error_model="numpy")
CompileError = numba.errors.NumbaError  # pyright: ignore[reportPrivateImportUsage]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

BAD_KIND, BAD_VALUE, BAD_REWARD, BAD_BASE, NO_ACTION = range(1, 6)


@lru_cache(maxsize=256)  # the same functions must have the same kernels
def compile_function(function, checked=False):
    """Compile a function of the user; `checked` is for trying it out, with checks of indices."""
    if checked:
        python = getattr(function, "py_func", function)
        return numba.njit(boundscheck=True, error_model="numpy")(python)
    return function if hasattr(function, "py_func") else njit(function)


@lru_cache(maxsize=256)
def with_next_state(reward):
    """Return a compiled function of (x, a) as one of (x, a, x2)."""
    return njit(lambda x, a, x2: reward(x, a))


@njit
def allow_all(x, a):
    """Return True: every state has every action."""
    return True


@njit
def no_base(x, h):
    """Stand for the base policy where that is one action."""
    return 0


@njit
def mix(z):
    """Return the hash of a 64-bit number (the finaliser of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit
def derive_key(key, number):
    """Return the key of a numbered stream below `key`."""
    return mix(key ^ mix(np.uint64(number) + GOLDEN))


@njit
def fill_uniforms(key, uniforms):
    """Fill an array with the uniform numbers in [0, 1) of a key."""
    for i in range(uniforms.shape[0]):
        key += GOLDEN
        uniforms[i] = np.int64(mix(key) >> np.uint64(11)) * 2.0**-53


@njit
def set_fault(fault, what, first, second, value):
    fault[0], fault[1], fault[2], fault[3] = what, first, second, value


@njit
def find_kinds(kind, states, actions, kinds):
    """Write the kind of each component, kinds (T, n), in states (T, n) after actions (T,)."""
    x = np.empty(states.shape[1], np.int64)
    for t in range(actions.shape[0]):
        for i in range(x.shape[0]):
            x[i] = states[t, i]
        for i in range(x.shape[0]):
            kinds[t, i] = kind(x, actions[t], i)


@njit
def choose_base_action(problem, x, h, fault):
    """Return the action of the base policy, or the first allowed one where that is not allowed."""
    n_actions, _, _, _, _, allowed, constant, base = problem
    a = constant if constant >= 0 else np.int64(base(x, h))
    if a < 0 or a >= n_actions:
        set_fault(fault, BAD_BASE, 0, 0, a)
        return -1
    if allowed(x, a):
        return a
    for b in range(n_actions):
        if allowed(x, b):
            return b
    set_fault(fault, NO_ACTION, 0, 0, 0)
    return -1


@njit
def play(problem, cumulative, x, x2, a, h, n_steps, uniforms, fault):
    """Return the discounted reward of action a in x, then the base policy, for n_steps in all.

    x is overwritten, x2 is a work array, and uniforms (n_steps * n,) draw the components of one
    step after the other by inverse transform.
    """
    _, n_values, discount, kind, reward, _, _, _ = problem
    n = x.shape[0]
    total, weight = 0.0, 1.0
    for t in range(n_steps):
        if t > 0:
            a = choose_base_action(problem, x, h + t, fault)
            if a < 0:
                return 0.0
        for i in range(n):
            k = kind(x, a, i)
            if k < 0 or k >= cumulative.shape[0]:
                set_fault(fault, BAD_KIND, a, i, k)
                return 0.0
            v = 0
            while uniforms[t * n + i] >= cumulative[k, v]:
                v += 1
            if v >= n_values[i]:
                set_fault(fault, BAD_VALUE, k, i, v)
                return 0.0
            x2[i] = v
        r = np.float64(reward(x, a, x2))
        if not np.isfinite(r):
            set_fault(fault, BAD_REWARD, a, 0, 0)
            return 0.0
        total += weight * r
        weight *= discount
        for i in range(n):
            x[i] = x2[i]
    return total


@njit
def choose_action(
    problem, cumulative, x, h, n_steps, scenarios, halving, key, y, y2, uniforms, sums, candidates,
    fault,
):  # fmt: skip
    """Return the action whose rollouts in x earn most: sequential halving on common scenarios.

    All allowed actions are followed by the base policy on the same `scenarios` random scenarios.
    The better half is kept and the number of scenarios doubled; the last round compares two. Among
    equals the base policy's own action goes first, then the smallest number.
    """
    n_actions, _, _, _, _, allowed, _, _ = problem
    candidates[0] = choose_base_action(problem, x, h, fault)
    if candidates[0] < 0:
        return -1
    m = 1
    for a in range(n_actions):
        sums[a] = 0.0
        if a != candidates[0] and allowed(x, a):
            candidates[m] = a
            m += 1
    done, more = 0, scenarios
    while m > 1:
        for scenario in range(done, done + more):
            fill_uniforms(derive_key(key, scenario), uniforms)
            for c in range(m):
                for i in range(x.shape[0]):
                    y[i] = x[i]
                a = candidates[c]
                sums[a] += play(problem, cumulative, y, y2, a, h, n_steps, uniforms, fault)
                if fault[0]:
                    for i in range(x.shape[0]):
                        x[i] = y[i]  # the state that the fault is about
                    return -1
        done += more
        more = done
        for c in range(1, m):  # insertion sort, the largest sum first; it keeps the order of ties
            a, place = candidates[c], c
            while place > 0 and sums[candidates[place - 1]] < sums[a]:
                candidates[place] = candidates[place - 1]
                place -= 1
            candidates[place] = a
        m = (m + 1) // 2 if halving and m > 2 else 1
    return candidates[0]


@njit
def run_episodes(
    problem, world, model, horizon, start, h0, depth, scenarios, halving, world_key, plan_key,
    first, last, states, actions, rewards, fault,
):  # fmt: skip
    """Play episodes first to last - 1 from `start` at step h0; T is rewards.shape[1].

    With scenarios = 0 the base policy is played, otherwise the one of `choose_action`, which looks
    `depth` steps ahead, at most to the horizon. `world` (K, m) draws what happens, `model` (K, m)
    the rollouts. Writes states (E, T + 1, n) unless it is empty, actions and rewards (E, T). In a
    fault the state that it is about is left in start.
    """
    n, n_actions, n_steps = start.shape[0], problem[0], rewards.shape[1]
    x, x2, y, y2 = start.copy(), start.copy(), start.copy(), start.copy()
    step_uniforms, uniforms = np.empty(n), np.empty(depth * n)
    sums, candidates = np.empty(n_actions), np.empty(n_actions, np.int64)
    for episode in range(first, last):
        episode_key = derive_key(world_key, episode)
        for i in range(n):
            x[i] = start[i]
        for t in range(n_steps + 1):
            if states.shape[0] > 0:
                for i in range(n):
                    states[episode, t, i] = x[i]
            if t == n_steps:
                break
            h = h0 + t
            if scenarios == 0:
                a = choose_base_action(problem, x, h, fault)
            else:
                a = choose_action(
                    problem, model, x, h, min(depth, horizon - h), scenarios, halving,
                    derive_key(plan_key, h), y, y2, uniforms, sums, candidates, fault,
                )  # fmt: skip
            if a >= 0:
                fill_uniforms(derive_key(episode_key, t), step_uniforms)
                actions[episode, t] = a
                rewards[episode, t] = play(
                    problem, world, x, x2, a, h, 1, step_uniforms, fault
                )  # fmt: skip
            if fault[0]:
                for i in range(n):
                    start[i] = x[i]
                return
