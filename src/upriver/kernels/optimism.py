"""Optimistic backward induction where the bonus depends on the next values."""

import numpy as np

from upriver.kernels.compiled import compiled, inner
from upriver.kernels.ellipsoid import ANGLES, largest_expectation
from upriver.kernels.planning import argmax_random_ties, largest_group, settle


@inner
def sweep_steps(
    indptr, successors, pay, prob, reward, width, geometry, beta, sign,
    half_range, low, q_cap, v_cap, seed, v, policy, q, x,
):  # fmt: skip
    """`sweep_gradient`, with x to keep the differences of a pair in."""
    # Unsigned counters, as in `planning.sweep`: signed ones are tested for wrap-around every time.
    one, zero = np.uint64(1), np.uint64(0)
    horizon, n_states = policy.shape
    n_actions = q.shape[0] // n_states
    paid = pay.shape[1] > 0
    for h in range(horizon - 1, -1, -1):
        c = min(h, prob.shape[0] - 1)
        arrival = pay[min(h, pay.shape[0] - 1)]
        p, products = prob[c], geometry[c]
        r = reward[min(h, reward.shape[0] - 1)]
        following = v[h + 1]
        rest, q_most = half_range[h], q_cap[h]
        g = zero
        at = zero  # the products of the pairs follow each other
        first = zero
        for s in range(n_states):
            best = -np.inf
            arg = 0
            tied = False
            for a in range(n_actions):
                stop = np.uint64(indptr[g + one])
                n = stop - first
                mean = 0.0
                i = first
                while i < stop:
                    y = following[np.uint32(successors[i])]
                    if paid:
                        y += arrival[i]
                    x[i - first] = y
                    mean += p[i] * y
                    i += one
                i = first
                while i < stop:
                    x[i - first] = p[i] * (x[i - first] - mean)
                    i += one
                norm2 = 0.0
                u = zero
                while u < n:
                    y = x[u]
                    t = zero
                    while t < n:
                        norm2 += y * x[t] * products[at]
                        at += one
                        t += one
                    u += one
                bonus = beta * np.sqrt(max(norm2, 0.0))
                if rest != 0.0:
                    bonus += rest * (beta * width[c, g]) ** 2
                y = -np.inf
                if n > zero:
                    y = min(max(r[g] + mean + sign * bonus, low), q_most)
                q[g] = y
                tied = (y == best) | (tied & (y < best))
                arg = a if y > best else arg
                best = y if y > best else best
                first = stop
                g += one
            if tied:
                word = seed ^ np.uint64(h * n_states + s)
                arg = argmax_random_ties(q, s * n_actions, n_actions, word)
            policy[h, s] = arg
            v[h, s] = min(best, v_cap[h])


@compiled
def sweep_gradient(
    indptr, successors, pay, prob, reward, width, geometry, beta, sign,
    half_range, low, q_cap, v_cap, seed, v, policy, q,
):  # fmt: skip
    """Q_h = r + P V + sign (beta ||grad PV||_{A^-1} + half_range_h (beta width)^2).

    grad PV = sum_u p_u (V_u - PV) phi_u; with the geometry G of the group its squared norm is
    x^T G x, x_u = p_u (V_u - PV). Shapes as in `planning.sweep`; geometry (1|H, sum U^2).
    """
    sweep_steps(
        indptr, successors, pay, prob, reward, width, geometry, beta, sign, half_range, low,
        q_cap, v_cap, seed, v, policy, q, np.empty(largest_group(indptr)),
    )  # fmt: skip


@compiled
def sweep_exact(
    indptr, successors, pay, prob, reward, geometry, geometry_start, beta, low, q_cap, v_cap, seed,
    v, policy, q,
):  # fmt: skip
    """Q_h = r + max over the confidence set of P_theta V_{h+1}, eq. (4), for each (s, a, h)."""
    horizon, n_states = policy.shape
    n_actions = q.shape[0] // n_states
    work = np.empty((11, max(largest_group(indptr), ANGLES)))
    logits, values = work[9], work[10]
    for h in range(horizon - 1, -1, -1):
        c = min(h, prob.shape[0] - 1)
        r = reward[min(h, reward.shape[0] - 1)]
        for s in range(n_states):
            for g in range(s * n_actions, (s + 1) * n_actions):
                first = indptr[g]
                n = indptr[g + 1] - first
                for u in range(n):
                    logits[u] = np.log(max(prob[c, first + u], 1e-300))
                    values[u] = v[h + 1, successors[first + u]]
                    if pay.shape[1] > 0:
                        values[u] += pay[min(h, pay.shape[0] - 1), first + u]
                products = geometry[c, geometry_start[g] : geometry_start[g + 1]]
                if n > 0:
                    q[g] = r[g] + largest_expectation(logits, products, values, beta, n, work)
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)
