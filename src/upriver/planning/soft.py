"""Soft Bellman equations: the optimum of a decision maker whose choices have random shocks.

In each state the decision maker receives r(s, a) plus an independent type-I extreme-value shock of
scale sigma, the temperature, for each available action (Rust 1987). With the shocks centred,

    Q(s, a) = r(s, a) + gamma sum_s' P(s'|s, a) V(s')
    V(s)    = sigma log sum_a exp(Q(s, a) / sigma)
    pi(a|s) = exp((Q(s, a) - V(s)) / sigma)

The operator T with T V the right-hand side is monotone, and T(V + c) = T V + gamma c, so the bounds
of MacQueen (1966) hold as for the plain optimum: with d = T V - V,

    T V + gamma / (1 - gamma) min d <= V* <= T V + gamma / (1 - gamma) max d.

Contraction steps on relative values converge at the rate at which the chain mixes. Where that is
slow, a Newton-Kantorovich step solves (I - gamma P_pi) x = T V - V, which is policy iteration and
converges quadratically also at gamma = 0.9999 (Rust 1987; Iskhakov et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse, special
from scipy.sparse import linalg

from upriver import kernels
from upriver.checks import Array, kernel_view, positive_number
from upriver.mdp import FiniteMDP, Task
from upriver.planning.induction import Plan
from upriver.planning.policy_iteration import band_reach, scale_exponent
from upriver.planning.stationary import (
    StationaryPlan,
    check_stationary_discount,
    choose_tolerance,
    expected_reward_bounds,
    largest_reward,
)

MAX_ITERATIONS = 100_000
SLOW_CONTRACTION = 0.7
"""Where one step reduces the span of T V - V by less than this factor, Newton steps begin."""


class SoftSolution(NamedTuple):
    """The fixed point of the soft Bellman equation."""

    v: Array
    """(S,) values, with centred shocks."""
    probability: Array
    """(S, A) choice probabilities; 0 for actions that a state does not have."""
    error: float
    """A bound of the largest error of `v`."""


def factorize_discounted(
    task: Task, prob: Array, probability: Array, discount: float
) -> Callable[..., Array]:
    """Return (b, transposed=False) -> (I - gamma P_pi)^-1 b, P_pi the chain of a policy.

    b is (S,) or (S, m); with transposed=True it is multiplied by the inverse of the transpose. prob
    (n,) are the probabilities of triples, and probability (S, A) those of choices.
    """
    pair = np.repeat(np.arange(len(task.sizes)), task.sizes)
    weight = discount * probability.ravel()[pair] * prob
    places = pair // task.n_actions, task.successors
    mixed = sparse.csc_array((weight, places), shape=(task.n_states, task.n_states))
    lu = linalg.splu(sparse.eye_array(task.n_states, format="csc") - mixed)
    return lambda b, transposed=False: lu.solve(b, "T" if transposed else "N")


def solve_soft_discounted(
    task: Task, prob: Array, reward: Array, discount: float, temperature: float,
    tolerance: float = 1e-8, start: Array | None = None,
) -> SoftSolution:  # fmt: skip
    """Solve an infinite horizon to a bound of the error.

    prob (n,) and reward (S*A,), in the user's units, are of the task's triples and pairs; discount
    and temperature are gamma in [0, 1) and sigma > 0; start (S,) are values to begin from, for
    example those of a similar reward. tolerance is the bound of the error to reach, without that of
    rounding, about 1e-15 / (1 - gamma), which the bound of the solution includes.
    """
    # Only differences of values decide the choices, so w holds values less a constant: with a
    # discount near 1 the constant would cost most of the digits. It is added at the end.
    w = np.zeros(task.n_states) if start is None else np.array(start, dtype=float)
    w -= w.mean()
    rows = *task.kernel_rows, kernel_view(prob), reward / temperature
    top, q, ones = np.empty_like(w), np.empty(task.available.shape), np.ones(task.n_actions)
    policy, improve = np.zeros(len(w), np.int32), kernels.stationary.improve_policy
    horizon = discount / (1.0 - discount)
    span = error = best = np.inf
    use_newton = band_reach(task.indptr, task.successors, task.n_states) is not None
    stalled = 0
    for _ in range(MAX_ITERATIONS):
        improve(*rows, discount / temperature, w, top, policy, q.reshape(-1))
        q -= top[:, None]
        weights = np.exp(q, out=q)
        total = weights @ ones
        backup = temperature * (top + np.log(total))
        change = backup - w
        low, high = float(change.min()), float(change.max())
        middle = 0.5 * (low + high)
        previous, span = span, high - low
        error = 0.5 * horizon * span
        stalled = 0 if error < best else stalled + 1
        best = min(best, error)
        largest = max(float(np.abs(x).max()) for x in (backup, temperature * top))
        # every backup of the infinite horizon may be off by a few units in the last place
        rounding = (horizon + 1.0) * 8.0 * np.finfo(float).eps * largest
        if error <= tolerance or (stalled >= 3 and error <= rounding):
            v = backup + horizon * middle
            return SoftSolution(v, weights / total[:, None], error + rounding)
        if use_newton and span > SLOW_CONTRACTION * previous:
            solve = factorize_discounted(task, prob, weights / total[:, None], discount)
            w = w + solve(change - middle)
            span = np.inf  # the next backup says how good this step was
        else:
            w = backup - middle
        w -= w.mean()
    raise ArithmeticError(
        f"the soft Bellman equation did not converge: after {MAX_ITERATIONS} iterations the error "
        f"is below {error:.3g}, and tolerance is {tolerance:g}"
    )


def solve_soft(
    mdp: FiniteMDP, discount: float | None, temperature: float, tolerance: float | None
) -> Plan | StationaryPlan:
    """Return the soft optimum as a plan with action probabilities; see `solve`."""
    temperature, task = positive_number("temperature", temperature), mdp.task()
    positive_number("1 / temperature", 1.0 / temperature)
    if discount is None and mdp.discount is None:
        return solve_soft_horizon(mdp, temperature)
    if discount is None and mdp.discount == 1.0:
        raise ValueError(f"temperature is {temperature:g}; the average reward has no soft optimum")
    discount = check_stationary_discount(mdp.discount if discount is None else discount)
    mdp.check_steps_are_alike()
    low, high = expected_reward_bounds(mdp)
    positive_number("the largest reward / temperature", max(-low, high, temperature) / temperature)
    reward = mdp.reward_rows[0]
    best = largest_reward(reward.reshape(task.available.shape), task.available)
    k = scale_exponent(max(best, temperature))
    tolerance = choose_tolerance(mdp, tolerance, temperature)
    scaled = float(np.ldexp(temperature, -k)), float(np.ldexp(tolerance, -k))
    reward = np.ldexp(reward, -k)
    found = solve_soft_discounted(task, mdp.probability[0], reward, discount, *scaled)
    v, error = np.ldexp(found.v, k), float(np.ldexp(found.error, k))
    return StationaryPlan(found.probability, v, discount, None, error, 0, task)


def solve_soft_horizon(mdp: FiniteMDP, temperature: float) -> Plan:
    """Solve a finite horizon by one backward pass; exact up to rounding."""
    task = mdp.task()
    v = np.empty((task.horizon + 1, task.n_states))
    v[-1], probability = mdp.terminal, np.empty((task.horizon, *task.available.shape))
    for h in reversed(range(task.horizon)):
        reward = mdp.reward_rows[min(h, len(mdp.reward_rows) - 1)]
        prob = mdp.probability[min(h, len(mdp.probability) - 1)]
        q = (reward + task.by_pair(prob * v[h + 1][task.successors])) / temperature
        q = np.where(task.available, q.reshape(task.available.shape), -np.inf)
        v[h] = temperature * special.logsumexp(q, axis=1)
        probability[h] = special.softmax(q, axis=1)
    return Plan(probability, v, None, task, in_user_units=True)
