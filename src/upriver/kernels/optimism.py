"""The rules of backward passes whose optimism depends on the next values: gradient and tilt.

With m = max_s' ||varphi(s, a, s')||_{A^-1} and G the inner products of the pair's features in A^-1,

    gradient   Q_h = r + P V + beta ||grad P V||_{A^-1} + remainder_h (beta m)^2
    tilted     Q_h = r + P_theta V_{h+1} at theta = theta_hat + A^-1 grad P V / ||grad P V||_{A^-1}

where grad P V = sum_u p_u (V_u - P V) varphi_u; its squared norm is x^T G x, x_u = p_u (V_u - P V).
The G of all pairs are kept flat, `products` (1|H, ...), that of a pair from starts[pair] on. The
arguments that all rules share are explained in `kernels.planning`.
"""

from math import factorial

import numpy as np

from upriver.kernels.compiled import njit_cached, njit_inline
from upriver.kernels.planning import read_next_values

TAYLOR = tuple(1.0 / factorial(k) for k in range(12, -1, -1))
"""The coefficients of e^r, the highest power first."""


@njit_inline
def gradient_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = r + P V + beta ||grad P V||_{A^-1} + remainder_h (beta m)^2.

    prob (1|H, n), max_norm (1|H, S*A) m, reward (1|H, S*A), remainder (H,); max_size is the largest
    number of successors of a pair. A negative beta and remainder give a pessimistic plan.
    """
    prob, max_norm, products, starts, reward, beta, remainder, max_size = data
    c, r, x = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), np.empty(max_size)
    for pair in range(first, end):
        start, stop = np.int64(indptr[pair]), np.int64(indptr[pair + 1])
        n, at = stop - start, starts[pair]
        read_next_values(h, start, stop, successors, next_state_reward, v, x)
        mean = norm2 = 0.0  # P V and x^T G x
        for u in range(n):
            mean += prob[c, start + u] * x[u]
        for u in range(n):
            x[u] = prob[c, start + u] * (x[u] - mean)
            for t in range(u):
                norm2 += 2.0 * x[u] * x[t] * products[c, at + u * n + t]
            norm2 += x[u] * x[u] * products[c, at + u * n + u]
        q[pair] = reward[r, pair] + mean
        if n > 1:  # a single successor is certain
            q[pair] += beta * np.sqrt(max(norm2, 0.0))
        if remainder[h] != 0.0:  # a bonus that has no weight may be infinite
            q[pair] += remainder[h] * (beta * max_norm[c, pair]) ** 2


@njit_inline
def exponential(x):
    """Return exp(x), |x| taken to be at most 700, with a relative error below 1e-15.

    LLVM turns a loop over it into vector instructions, which a call of np.exp prevents: 1.1 instead
    of 4.4 nanoseconds a number, half of the time of a plan. With k the integer next to x / log 2,
    exp(x) = 2^k e^r, |r| <= log(2) / 2: adding 1.5 * 2^52 rounds to k and leaves k in the low bits,
    from where it is added to the exponent of e^r, the Taylor polynomial of degree 12.
    """
    x = min(max(x, -700.0), 700.0)
    rounded = x * 1.4426950408889634 + 6755399441055744.0
    k = rounded - 6755399441055744.0
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10  # log 2 in two parts
    y = 0.0
    for i in range(13):
        y = y * r + TAYLOR[i]
    bits = np.float64(y).view(np.int64) + (np.float64(rounded).view(np.int64) << np.int64(52))
    return np.int64(bits).view(np.float64)


@njit_inline
def tilt_pairs(first_pair, end_pair, indptr, c, prob, products, starts, base, values, weights):
    """Write the tilted distributions of the pairs [first_pair, end_pair), up to their sums.

    weights_u = p_u exp((z_u - z_0) / sqrt(x^T z)), z = G x, x_u = p_u (V_u - P V); divided by their
    sum in a pair they are (1) at theta_hat + A^-1 g / ||g||_{A^-1}, g = grad P V: where the linear
    bonus ||g||_{A^-1} has its maximum. values and weights have an entry for each triple, that of
    row i at i - base; c is the row of prob and products. G of a pair is itself, (U, U); or, where
    there is less room, (U, m + 1), rows B of a factor and in the last column the roots of a
    diagonal D, G = B B^T + D^2.

    indptr, starts and base are unsigned, which halves the time, see `kernels.planning`; x is
    computed again where it is needed, because short loops that write are slower than that.
    """
    for pair in range(first_pair, end_pair):
        first, end, at = indptr[pair], indptr[pair + 1], starts[pair]
        if end - first <= 1:  # what is certain is not tilted
            for i in range(first, end):
                weights[i - base] = 0.0
            continue
        n, size = end - first, starts[pair + 1] - at
        # Values are relative to the first: equal ones give x = 0, without rounding.
        origin, mean, norm2 = values[first - base], 0.0, 0.0
        for i in range(first, end):
            mean += prob[c, i] * (values[i - base] - origin)
        if size == n * n:
            for i in range(first, end):
                z = 0.0
                for j in range(first, end):
                    x = prob[c, j] * (values[j - base] - origin - mean)
                    z += products[c, at + (j - first)] * x
                weights[i - base] = z
                at += n
        else:
            columns = size // n
            for i in range(first, end):
                x = prob[c, i] * (values[i - base] - origin - mean)
                root = products[c, at + (i - first + np.uint64(1)) * columns - np.uint64(1)]
                weights[i - base] = x * root * root
            for j in range(columns - np.uint64(1)):
                image = 0.0  # the j-th entry of B^T x
                for i in range(first, end):
                    x = prob[c, i] * (values[i - base] - origin - mean)
                    image += products[c, at + (i - first) * columns + j] * x
                for i in range(first, end):
                    weights[i - base] += products[c, at + (i - first) * columns + j] * image
        for i in range(first, end):
            norm2 += prob[c, i] * (values[i - base] - origin - mean) * weights[i - base]
        # Equal values, or nothing to doubt: the distribution is p.
        scale, z = 1.0 / np.sqrt(norm2) if norm2 > 0.0 else 0.0, weights[first - base]
        for i in range(first, end):
            weights[i - base] = scale * (weights[i - base] - z)
    for i in range(indptr[first_pair], indptr[end_pair]):
        weights[i - base] = prob[c, i] * exponential(weights[i - base])


@njit_cached
def choose_tilted(indptr, prob, products, starts, values, chosen):
    """Write the tilted distribution of each pair into chosen (n,), see `tilt_pairs`.

    prob (1, n) and values (n,): the probabilities and the values of the next states of each triple.
    """
    n_pairs = indptr.shape[0] - 1
    tilt_pairs(0, n_pairs, indptr, 0, prob, products, starts, indptr[0], values, chosen)
    for pair in range(n_pairs):
        total = 0.0
        for i in range(indptr[pair], indptr[pair + 1]):
            total += chosen[i]
        for i in range(indptr[pair], indptr[pair + 1]):
            chosen[i] /= total


@njit_inline
def tilted_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = r + sum_u q_u V_u with the tilted distribution q of each pair, see `tilt_pairs`.

    data: prob (1|H, n), products, starts and reward (1|H, S*A).
    """
    prob, products, starts, reward = data
    c, r, base = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), indptr[first]
    values, weights = np.empty(indptr[end] - base), np.empty(indptr[end] - base)
    read_next_values(h, base, indptr[end], successors, next_state_reward, v, values)
    tilt_pairs(first, end, indptr, c, prob, products, starts, base, values, weights)
    for pair in range(first, end):
        if indptr[pair] < indptr[pair + 1]:
            origin, mean, total = values[indptr[pair] - base], 0.0, 0.0
            for i in range(indptr[pair], indptr[pair + 1]):
                mean += weights[i - base] * (values[i - base] - origin)
                total += weights[i - base]
            q[pair] = reward[r, pair] + (origin + mean / total)
