"""Simulation and planning of factored problems, whose state is a vector of small integers.

`compile_kernels` makes loops of which the functions of a problem and of a base policy are a part.
They cannot be cached on disk, since the next process has other functions.

Every random number is a hash of a key and a counter (splitmix64). The same key gives the same
numbers whatever the order of the calls: policies are compared on common random numbers, and the
number of threads changes no bit of a result.

A loop that meets an impossible value writes it into fault (4 + n,) and stops: what is wrong, two
numbers that say where, the value, and the state.
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


allow_all = njit(lambda x, a: True)  # for problems without actions by state
no_base = njit(lambda x, h: 0)  # stands for the base policy where that is one action


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
def set_fault(fault, what, first, second, value, x):
    fault[0], fault[1], fault[2], fault[3] = what, first, second, value
    for i in range(x.shape[0]):
        fault[4 + i] = x[i]


@njit
def find_kinds(kind, n_kinds, states, actions, kinds, fault):
    """Write the kind of each component, kinds (T, n), in states (T, n) after actions (T,)."""
    for t in range(actions.shape[0]):
        for i in range(states.shape[1]):
            k = kinds[t, i] = kind(states[t], actions[t], i)
            if k < 0 or k >= n_kinds:
                set_fault(fault, BAD_KIND, actions[t], i, k, states[t])
                return


@lru_cache(maxsize=256)
def compile_kernels(kind, reward, allowed, base):
    """Return the loops for compiled functions: find_candidates, run_scenarios, play_steps, play.

    `rule` is (n_actions, constant): the base policy is the action `constant`, or the function
    base(x, h) where that is -1. n_values (n,) and `discount` are those of the problem. cumulative
    (K, m) has the cumulative probabilities of each kind, 2 from the last possible value on.
    """

    @njit
    def choose_base_action(x, h, rule, fault):
        """Return the base policy's action, or the first allowed one where that is not allowed."""
        a = rule[1] if rule[1] >= 0 else np.int64(base(x, h))
        if a < 0 or a >= rule[0]:
            set_fault(fault, BAD_BASE, 0, 0, a, x)
            return -1
        if allowed(x, a):
            return a
        for b in range(rule[0]):
            if allowed(x, b):
                return b
        set_fault(fault, NO_ACTION, 0, 0, 0, x)
        return -1

    @njit
    def find_candidates(x, h, rule, candidates, fault):
        """Write the allowed actions, the base policy's own one first; return how many there are."""
        own = choose_base_action(x, h, rule, fault)
        if own < 0:
            return 0
        candidates[0], m = own, 1
        for a in range(rule[0]):
            if a != own and allowed(x, a):
                candidates[m] = a
                m += 1
        return m

    @njit
    def play(x, x2, a, h, n_steps, uniforms, rule, n_values, discount, cumulative, fault):
        """Return the discounted reward of action a in x, then the base policy, for n_steps in all.

        x becomes the last state, x2 is a work array, and uniforms (n_steps * n,) draw the
        components of one step after the other by inverse transform.
        """
        n = x.shape[0]
        total, weight = 0.0, 1.0
        for t in range(n_steps):
            if t > 0:
                a = choose_base_action(x, h + t, rule, fault)
                if a < 0:
                    return 0.0
            for i in range(n):
                k = kind(x, a, i)
                if k < 0 or k >= cumulative.shape[0]:
                    set_fault(fault, BAD_KIND, a, i, k, x)
                    return 0.0
                v = 0
                while uniforms[t * n + i] >= cumulative[k, v]:
                    v += 1
                if v >= n_values[i]:
                    set_fault(fault, BAD_VALUE, k, i, v, x)
                    return 0.0
                x2[i] = v
            r = np.float64(reward(x, a, x2))
            if not np.isfinite(r):
                set_fault(fault, BAD_REWARD, a, 0, 0, x)
                return 0.0
            total += weight * r
            weight *= discount
            for i in range(n):
                x[i] = x2[i]
        return total

    @njit
    def run_scenarios(
        start, h, n_steps, rule, n_values, discount, cumulative, key, done, candidates, returns,
        first, last, fault,
    ):  # fmt: skip
        """Write returns (scenarios, m) of a candidate in `start`, then the base, for n_steps.

        Row j of the returns is scenario done + j; only rows first to last - 1 are filled.
        """
        n = start.shape[0]
        x, x2, uniforms = start.copy(), start.copy(), np.empty(n_steps * n)
        for row in range(first, last):
            fill_uniforms(derive_key(derive_key(key, h), done + row), uniforms)
            for c in range(candidates.shape[0]):
                for i in range(n):
                    x[i] = start[i]
                a = candidates[c]
                returns[row, c] = play(
                    x, x2, a, h, n_steps, uniforms, rule, n_values, discount, cumulative, fault
                )
                if fault[0]:
                    return

    @njit
    def play_steps(x, h, rule, n_values, cumulative, key, states, actions, rewards, fault):
        """Write states (T + 1, n), actions (T,), rewards (T,) of the base policy from x at h."""
        x2, uniforms = x.copy(), np.empty(x.shape[0])
        for t in range(actions.shape[0]):
            a = choose_base_action(x, h + t, rule, fault)
            if a >= 0:
                fill_uniforms(derive_key(key, h + t), uniforms)
                actions[t] = a
                rewards[t] = play(
                    x, x2, a, h + t, 1, uniforms, rule, n_values, 1.0, cumulative, fault
                )
            if fault[0]:
                return
            states[t + 1] = x

    return find_candidates, run_scenarios, play_steps, play
