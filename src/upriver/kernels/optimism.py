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

from upriver.kernels.compiled import (
    njit_cached,
    njit_inline,
    njit_inline_ir,
    njit_nogil,
    njit_without_refcounts,
)
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
    """(1|H, ...) G of each pair, flat; or a factor of it, see `tilt_pairs`."""
    products_start: Any
    """(S*A + 1,) where the products of each pair begin."""


@njit_nogil
def backward_pass_gradient(
    problem, ellipsoid, reward, beta, remainder, tie_seed, v, policy, q, span
):
    """Q_h = clip(r + P V + beta ||grad P V||_{A^-1} + remainder_h (beta m)^2).

    ellipsoid: an `Ellipsoid`; reward (1|H, S*A); remainder (H,). A negative beta and remainder
    give a pessimistic plan.
    """
    indptr, starts = problem.indptr, ellipsoid.products_start
    n_actions = q.shape[0] // policy.shape[1]
    x = np.empty(max_successors(indptr))
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, ellipsoid.prob.shape[0] - 1)
        p, products, max_norm = ellipsoid.prob[c], ellipsoid.products[c], ellipsoid.max_norm[c]
        r = reward[min(h, reward.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                first, n, at = indptr[pair], indptr[pair + 1] - indptr[pair], starts[pair]
                read_next_values(problem, h, v[h + 1], first, n, x)
                mean = norm2 = 0.0  # P V and x^T G x
                for u in range(n):
                    mean += p[first + u] * x[u]
                for u in range(n):
                    x[u] = p[first + u] * (x[u] - mean)
                    for t in range(u):
                        norm2 += 2.0 * x[u] * x[t] * products[at + u * n + t]
                    norm2 += x[u] * x[u] * products[at + u * n + u]
                q[pair] = r[pair] + mean
                if n > 1:  # a single successor is certain
                    q[pair] += beta * np.sqrt(max(norm2, 0.0))
                if remainder[h] != 0.0:  # a bonus that has no weight may be infinite
                    q[pair] += remainder[h] * (beta * max_norm[pair]) ** 2
            choose_action(problem, h, s, tie_seed, v, policy, q)


@njit_inline
def exponential(x):
    """Return exp(x), |x| taken to be at most 700, to about three units in the last place.

    A loop over it is turned into vector instructions, which a call of np.exp prevents, and that
    halves the time of a tilted plan. exp(x) = 2^k e^r with x = k log 2 + r and |r| <= log(2) / 2:
    adding 1.5 * 2^52 rounds x / log 2 to k and leaves k in the low bits of the sum, from where it
    is added to the exponent of e^r, the Taylor polynomial of degree 12.
    """
    x = min(max(x, -700.0), 700.0)
    rounded = x * 1.4426950408889634 + 6755399441055744.0
    k = rounded - 6755399441055744.0
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10  # log 2 in two parts
    y = 1.0 / 479001600.0
    y = y * r + 1.0 / 39916800.0
    y = y * r + 1.0 / 3628800.0
    y = y * r + 1.0 / 362880.0
    y = y * r + 1.0 / 40320.0
    y = y * r + 1.0 / 5040.0
    y = y * r + 1.0 / 720.0
    y = y * r + 1.0 / 120.0
    y = y * r + 1.0 / 24.0
    y = y * r + 1.0 / 6.0
    y = y * r + 0.5
    y = y * r + 1.0
    y = y * r + 1.0
    bits = np.float64(y).view(np.int64) + (np.float64(rounded).view(np.int64) << np.int64(52))
    return np.int64(bits).view(np.float64)


@njit_inline_ir
def tilt_pairs(indptr, starts, first_pair, end_pair, p, products, scratch):
    """Write how the tilt changes the odds of the successors of the pairs [first_pair, end_pair).

    tilts = exp((z_u - z_0) / sqrt(x^T z)), z = G x, x_u = p_u (V_u - P V). scratch (4, n) has the
    V_u in its first row and gets the tilts in its second. The first successor of a pair has 1,
    which is left out; the tilts have the others, pair after pair, from the first row of the first
    pair on. p_u tilt_u, divided by their sum in a pair, are (1) at theta_hat + A^-1 g /
    ||g||_{A^-1}, g = grad P V: where the linear bonus ||g||_{A^-1} has its maximum.
    G of a pair begins at starts[pair]: itself, (U, U); or, where there is less room, (U, m + 1),
    rows B of a factor and in the last column the roots of a diagonal D, G = B B^T + D^2.
    """
    # Unsigned counters, as in `planning.backward_pass`.
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    pair, end = np.uint64(first_pair), np.uint64(end_pair)
    first, at, found = np.uint64(indptr[pair]), np.uint64(starts[pair]), np.uint64(indptr[pair])
    start, values, tilts = found, scratch[0], scratch[1]
    while pair < end:
        stop, after = np.uint64(indptr[pair + one]), np.uint64(starts[pair + one])
        n, size = stop - first, after - at
        if n == three and size == three * three:
            # Three successors are so frequent that their loops are written out, which takes a third
            # off the time of a plan. The sums are those below, in the same order.
            y1, y2 = values[first + one] - values[first], values[first + two] - values[first]
            mean = p[first + one] * y1 + p[first + two] * y2
            x0, x1, x2 = (
                -p[first] * mean,
                p[first + one] * (y1 - mean),
                p[first + two] * (y2 - mean),
            )
            z0 = products[at] * x0 + products[at + one] * x1 + products[at + two] * x2
            at += three
            z1 = products[at] * x0 + products[at + one] * x1 + products[at + two] * x2
            at += three
            z2 = products[at] * x0 + products[at + one] * x1 + products[at + two] * x2
            norm2 = x0 * z0 + x1 * z1 + x2 * z2
            scale = 1.0 / np.sqrt(norm2) if norm2 > 0.0 else 0.0
            tilts[found], tilts[found + one] = scale * (z1 - z0), scale * (z2 - z0)
            found += two
        elif n > one:
            # values are taken relative to the first: equal ones give x = 0, without rounding
            mean, norm2, x, z = 0.0, 0.0, scratch[2, first:], scratch[3, first:]
            for u in range(n):
                mean += p[first + u] * (values[first + u] - values[first])
            for u in range(n):
                x[u] = p[first + u] * (values[first + u] - values[first] - mean)
            if size == n * n:
                for u in range(n):
                    z[u] = 0.0
                    for t in range(n):
                        z[u] += products[at + t] * x[t]
                    at += n
            else:
                columns = size // n
                last = columns - one
                for u in range(n):
                    z[u] = x[u] * products[at + u * columns + last] ** 2
                for j in range(last):
                    image = 0.0  # the j-th entry of B^T x
                    for u in range(n):
                        image += products[at + u * columns + j] * x[u]
                    for u in range(n):
                        z[u] += products[at + u * columns + j] * image
            for u in range(n):
                norm2 += x[u] * z[u]
            # Equal values, or nothing to doubt: the distribution is p.
            scale = 1.0 / np.sqrt(norm2) if norm2 > 0.0 else 0.0
            for u in range(one, n):
                tilts[found] = scale * (z[u] - z[0])
                found += one
        first, at = stop, after
        pair += one
    for i in range(start, found):
        tilts[i] = exponential(tilts[i])


@njit_cached
def choose_tilted(indptr, prob, products, products_start, values, chosen):
    """Write the tilted distribution of each pair into chosen (n,), see `tilt_pairs`.

    prob and values (n,): the probabilities and the values of the next states, for each triple.
    """
    n_pairs, found, scratch = indptr.shape[0] - 1, 0, np.empty((4, prob.shape[0]))
    for i in range(values.shape[0]):
        scratch[0, i] = values[i]
    tilt_pairs(indptr, products_start, 0, n_pairs, prob, products, scratch)
    tilts = scratch[1]
    for pair in range(n_pairs):
        first, end = indptr[pair], indptr[pair + 1]
        if first == end:
            continue
        chosen[first] = total = prob[first]
        for i in range(first + 1, end):
            chosen[i] = prob[i] * tilts[found]
            total += chosen[i]
            found += 1
        for i in range(first, end):
            chosen[i] /= total


@njit_without_refcounts
def backward_pass_tilted(problem, estimate, reward, scratch, tie_seed, v, policy, q, span):
    """Q_h = r + sum_u q_u V_u with the tilted distribution q of each pair, see `tilt_pairs`.

    Nothing is clipped. estimate: prob, products and products_start of an `Ellipsoid`, as a plain
    tuple because numba takes three times as long over a named one. scratch (4, n) is written to.
    """
    model_prob, model_products, products_start = estimate
    indptr, successors, values, tilts = problem.indptr, problem.successors, scratch[0], scratch[1]
    one, n_states, rewards = np.uint64(1), policy.shape[1], problem.next_state_reward
    n_actions, has_extra = q.shape[0] // n_states, rewards.shape[1] > 0
    start, end = span[2] * n_actions, span[3] * n_actions
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, model_prob.shape[0] - 1)
        p, r = model_prob[c], reward[min(h, reward.shape[0] - 1)]
        extra, following = rewards[min(h, rewards.shape[0] - 1)], v[h + 1]
        for i in range(np.uint64(indptr[start]), np.uint64(indptr[end])):
            values[i] = following[np.uint32(successors[i])]
            if has_extra:
                values[i] += extra[i]
        tilt_pairs(indptr, products_start, start, end, p, model_products[c], scratch)
        pair, i, found = np.uint64(start), np.uint64(indptr[start]), np.uint64(indptr[start])
        for s in range(span[2], span[3]):
            best, arg, tied = -np.inf, 0, False
            for a in range(n_actions):
                stop = np.uint64(indptr[pair + one])
                value = -np.inf
                if i < stop:
                    base, mean, total = values[i], 0.0, p[i]
                    i += one
                    while i < stop:
                        weight = p[i] * tilts[found]
                        mean += weight * (values[i] - base)
                        total += weight
                        found += one
                        i += one
                    value = r[pair] + (base + mean / total)
                q[pair] = value
                tied = (value == best) | (tied & (value < best))
                arg = a if value > best else arg
                best = value if value > best else best
                pair += one
            if tied:
                seed = tie_seed ^ np.uint64(h * n_states + s)
                arg = argmax_random_ties(q, s * n_actions, n_actions, seed)
            policy[h, s] = arg
            v[h, s] = best
