"""Backward passes whose optimism depends on the next values: second-order bonus and tilt.

With m = max_s' ||varphi(s, a, s')||_{A^-1} and G the inner products of the pair's features in A^-1,

    gradient   Q_h = r + P V + beta ||grad P V||_{A^-1} + remainder_h (beta m)^2
    tilted     Q_h = r + P_theta V_{h+1} at theta = theta_hat + A^-1 grad P V / ||grad P V||_{A^-1}

where grad P V = sum_u p_u (V_u - P V) varphi_u; its squared norm is x^T G x, x_u = p_u (V_u - P V).
Eq. (4) is in `kernels.ellipsoid`, eq. (6) in `kernels.planning`, with the arguments that all
backward passes share.
"""

from typing import Any, NamedTuple

import numpy as np

from upriver.kernels.compiled import njit_inline, njit_nogil
from upriver.kernels.planning import (
    argmax_random_ties,
    choose_action,
    max_successors,
    read_next_values,
)


class Ellipsoid(NamedTuple):
    """An estimate and its confidence ellipsoid, as the backward passes of this file read them."""

    prob: Any
    """(1|H, n) the probabilities (1) at the estimate."""
    max_norm: Any
    """(1|H, S*A) the largest norm of the features of each pair in A^-1."""
    products: Any
    """(1|H, ...) G of each pair, flat; or a factor of it, see `tilt`."""
    products_start: Any
    """(S*A + 1,) where the products of each pair begin."""


@njit_inline
def gradient_steps(rows, ellipsoid, reward, beta, remainder, tie_seed, v, policy, q, span, x):
    """See `backward_pass_gradient`; x is room for one pair. Without reference counts."""
    # Unsigned counters, as in `planning.backward_pass`.
    indptr, successors = rows.indptr, rows.successors
    one, zero, n_states = np.uint64(1), np.uint64(0), policy.shape[1]
    n_actions = q.shape[0] // n_states
    has_extra = rows.next_state_reward.shape[1] > 0
    start = span[2] * n_actions
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, ellipsoid.prob.shape[0] - 1)
        p, products, max_norm = ellipsoid.prob[c], ellipsoid.products[c], ellipsoid.max_norm[c]
        extra = rows.next_state_reward[min(h, rows.next_state_reward.shape[0] - 1)]
        r = reward[min(h, reward.shape[0] - 1)]
        following = v[h + 1]
        remainder_h, low, q_cap = remainder[h], rows.low, rows.q_cap[h]
        pair = np.uint64(start)
        at = np.uint64(ellipsoid.products_start[start])
        first = np.uint64(indptr[start])
        for s in range(span[2], span[3]):
            best = -np.inf
            arg = 0
            tied = False
            for a in range(n_actions):
                stop = np.uint64(indptr[pair + one])
                n = stop - first
                mean = 0.0  # P V
                i = first
                while i < stop:
                    y = following[np.uint32(successors[i])]
                    if has_extra:
                        y += extra[i]
                    x[i - first] = y
                    mean += p[i] * y
                    i += one
                norm2 = 0.0  # x^T G x
                if n > one:  # a single successor is certain
                    i = first
                    while i < stop:
                        x[i - first] = p[i] * (x[i - first] - mean)
                        i += one
                    u = zero
                    while u < n:
                        y = x[u]
                        off_diagonal = 0.0
                        t = zero
                        while t < u:
                            off_diagonal += x[t] * products[at + t]
                            t += one
                        norm2 += y * (2.0 * off_diagonal + y * products[at + u])
                        at += n
                        u += one
                else:
                    at += n
                bonus = beta * np.sqrt(norm2) if norm2 > 0.0 else 0.0
                if remainder_h != 0.0:
                    bonus += remainder_h * (beta * max_norm[pair]) ** 2
                y = -np.inf
                if n > zero:
                    y = min(max(r[pair] + mean + bonus, low), q_cap)
                q[pair] = y
                tied = (y == best) | (tied & (y < best))
                arg = a if y > best else arg
                best = y if y > best else best
                first = stop
                pair += one
            if tied:
                seed = tie_seed ^ np.uint64(h * n_states + s)
                arg = argmax_random_ties(q, s * n_actions, n_actions, seed)
            policy[h, s] = arg
            v[h, s] = min(best, rows.v_cap[h])


@njit_nogil
def backward_pass_gradient(
    problem, ellipsoid, reward, beta, remainder, tie_seed, v, policy, q, span
):
    """Q_h = clip(r + P V + beta ||grad P V||_{A^-1} + remainder_h (beta m)^2).

    ellipsoid: an `Ellipsoid`; reward (1|H, S*A); remainder (H,). A negative beta and remainder
    give a pessimistic plan.
    """
    rows = problem.values
    x = np.empty(max_successors(rows.indptr))
    gradient_steps(rows, ellipsoid, reward, beta, remainder, tie_seed, v, policy, q, span, x)


@njit_inline
def tilt(p, first, n, products, at, columns, values, x, q):
    """Write the tilted distribution of a pair into q (n,), and return its mean of values (n,).

    q_u is proportional to p_u exp((G x)_u / sqrt(x^T G x)), x_u = p_u (V_u - P V). It is (1) at
    theta_hat + A^-1 g / ||g||_{A^-1}, g = grad P V: the point of the ellipsoid where the linear
    bonus ||g||_{A^-1} has its maximum. G begins at `at`: itself, (n, n), where columns = n; or else
    (n, columns), rows B of a factor and in the last column the roots of a diagonal D, with
    G = B B^T + D^2. x (n,) is scratch.
    """
    # Values are taken relative to the first one, so that equal values give exactly that value.
    base, mean, norm2 = values[0], 0.0, 0.0
    for u in range(n):
        mean += p[first + u] * (values[u] - base)
    for u in range(n):
        x[u] = p[first + u] * (values[u] - base - mean)
        q[u] = 0.0
    if columns == n:
        for u in range(n):
            for t in range(n):
                q[u] += products[at + u * n + t] * x[t]
    else:
        last = columns - 1
        for u in range(n):
            q[u] = x[u] * products[at + u * columns + last] ** 2
        for i in range(last):
            image = 0.0  # the i-th entry of B^T x
            for u in range(n):
                image += products[at + u * columns + i] * x[u]
            for u in range(n):
                q[u] += products[at + u * columns + i] * image
    top = -np.inf
    for u in range(n):
        norm2 += x[u] * q[u]
        top = max(top, q[u])
    if not norm2 > 0.0:  # the values are equal, or there is nothing to doubt
        for u in range(n):
            q[u] = p[first + u]
        return base + mean
    scale, total, mean = 1.0 / np.sqrt(norm2), 0.0, 0.0
    for u in range(n):
        q[u] = p[first + u] * np.exp(scale * (q[u] - top))
        total += q[u]
        mean += q[u] * (values[u] - base)
    for u in range(n):
        q[u] /= total
    return base + mean / total


@njit_nogil
def backward_pass_tilted(problem, ellipsoid, reward, tie_seed, v, policy, q, span):
    """Q_h = clip(r + sum_u q_u V_u) with the tilted distribution q of each pair, see `tilt`."""
    most = max_successors(problem.values.indptr)
    values, x, tilted = np.empty(most), np.empty(most), np.empty(most)
    tilted_steps(problem.values, ellipsoid, reward, tie_seed, v, policy, q, span, values, x, tilted)


@njit_inline
def tilted_steps(rows, ellipsoid, reward, tie_seed, v, policy, q, span, values, x, tilted):
    indptr, starts = rows.indptr, ellipsoid.products_start
    n_actions = q.shape[0] // policy.shape[1]
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, ellipsoid.prob.shape[0] - 1)
        p, products = ellipsoid.prob[c], ellipsoid.products[c]
        r = reward[min(h, reward.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                first, at = indptr[pair], starts[pair]
                n, size = indptr[pair + 1] - first, starts[pair + 1] - at
                if n > 0:
                    read_next_values(rows, h, v[h + 1], first, n, values)
                    columns = n if size == n * n else size // n
                    q[pair] = r[pair] + tilt(p, first, n, products, at, columns, values, x, tilted)
            choose_action(rows, h, s, tie_seed, v, policy, q)
