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
def tilted_rule(h, first, end, indptr, successors, next_state_reward, v, q, data):
    """Q_h = r + sum_u w_u V_u / sum_u w_u with the weights w_u = p_u exp(z_u / sqrt(x^T K x)).

    z = K x, x_u = p_u (V_u - P V), and K are the inner products of the features minus those of the
    first successor, which has z = 0: as x sums to 0, sums over differences are those over features.
    products (1|H, ...) has the K of each pair, flat, from starts[pair] on; or, where there is less
    room, (U - 1, m + 1), the rows B of a factor and in the last column the roots of a diagonal D,
    K = B B^T + D^2. prob (1|H, n), reward (1|H, S*A); scratch (2 n,) gets V and w of each triple.

    starts is unsigned as indptr is; x is computed again where it is needed, because short loops
    that write are slower than that.
    """
    prob, products, starts, reward, scratch = data
    c, r, n = min(h, prob.shape[0] - 1), min(h, reward.shape[0] - 1), np.uint64(prob.shape[1])
    has_extra, e = next_state_reward.shape[1] > 0, min(h, next_state_reward.shape[0] - 1)
    one = np.uint64(1)
    for i in range(indptr[first], indptr[end]):
        scratch[i] = v[h + 1, successors[i]]
        if has_extra:
            scratch[i] += next_state_reward[e, i]
    for pair in range(first, end):
        start, stop, at = indptr[pair], indptr[pair + 1], starts[pair]
        if start == stop:
            continue
        # Values are relative to the first: equal ones give x = 0, without rounding.
        origin, mean, norm2, size = scratch[start], 0.0, 0.0, stop - start - one
        for i in range(start + one, stop):
            mean += prob[c, i] * (scratch[i] - origin)
        scratch[n + start] = 0.0
        if starts[pair + 1] - at == size * size:
            for i in range(start + one, stop):
                z = 0.0
                for j in range(size):
                    t = start + one + j
                    z += products[c, at + j] * (prob[c, t] * (scratch[t] - origin - mean))
                norm2 += prob[c, i] * (scratch[i] - origin - mean) * z
                scratch[n + i] = z
                at += size
        else:
            width = (starts[pair + 1] - at) // size
            for i in range(start + one, stop):
                x = prob[c, i] * (scratch[i] - origin - mean)
                root = products[c, at + (i - start) * width - one]
                scratch[n + i] = x * root * root
            for j in range(width - one):
                image = 0.0  # the j-th entry of B^T x
                for i in range(start + one, stop):
                    x = prob[c, i] * (scratch[i] - origin - mean)
                    image += products[c, at + (i - start - one) * width + j] * x
                for i in range(start + one, stop):
                    scratch[n + i] += products[c, at + (i - start - one) * width + j] * image
            for i in range(start + one, stop):
                norm2 += prob[c, i] * (scratch[i] - origin - mean) * scratch[n + i]
        # Equal values, or nothing to doubt: the distribution is p.
        scale = 1.0 / np.sqrt(norm2) if norm2 > 0.0 else 0.0
        for i in range(start + one, stop):
            scratch[n + i] *= scale
    for i in range(indptr[first], indptr[end]):
        scratch[n + i] = prob[c, i] * exponential(scratch[n + i])
    for pair in range(first, end):
        start, stop, value, total = indptr[pair], indptr[pair + 1], 0.0, 0.0
        if start < stop:
            for i in range(start, stop):
                value += scratch[n + i] * (scratch[i] - scratch[start])
                total += scratch[n + i]
            q[pair] = reward[r, pair] + (scratch[start] + value / total)


@njit_cached
def choose_tilted(indptr, prob, products, starts, values, chosen):
    """Write the tilted distribution of each pair into chosen (n,), see `tilted_rule`.

    prob (1, n) and values (n,): the probabilities and the values of the next states of each triple.
    """
    n, n_pairs = values.shape[0], indptr.shape[0] - 1
    scratch, q, rows = np.empty(2 * n), np.empty(n_pairs), np.arange(n).astype(np.uint64)
    data = prob, products, starts, np.zeros((1, n_pairs)), scratch
    v = values.reshape((1, n))  # each triple leads to a state of its own
    tilted_rule(-1, 0, n_pairs, indptr, rows, np.empty((1, 0)), v, q, data)
    for pair in range(n_pairs):
        total = 0.0
        for i in range(indptr[pair], indptr[pair + 1]):
            total += scratch[n + np.int64(i)]
        for i in range(indptr[pair], indptr[pair + 1]):
            chosen[i] = scratch[n + np.int64(i)] / total
