"""Optimistic backward sweeps where the bonus depends on the next values."""

import numpy as np

from upriver.kernels.compiled import divisible, inner
from upriver.kernels.ellipsoid import ANGLES, largest_expectation
from upriver.kernels.maximum import follow, rivals
from upriver.kernels.planning import argmax_random_ties, largest_group, settle

KEPT = 6  # numbers for each triple in the memory of `sweep_exact`
SAME = 1e-10  # of the spread of the values: maxima so close are ties


@inner
def sweep_steps(
    indptr, successors, pay, prob, reward, width, geometry, beta, sign,
    half_range, low, q_cap, v_cap, seed, v, policy, q, span, x,
):  # fmt: skip
    """`sweep_gradient`, with x to keep the differences of a pair in."""
    # Unsigned counters, as in `planning.sweep`: signed ones are tested for wrap-around every time.
    one, zero, n_states = np.uint64(1), np.uint64(0), policy.shape[1]
    n_actions = q.shape[0] // n_states
    paid = pay.shape[1] > 0
    start = span[2] * n_actions
    products_start = zero  # the products of the pairs follow each other
    for before in range(start):
        n = np.uint64(indptr[before + 1] - indptr[before])
        products_start += n * n
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, prob.shape[0] - 1)
        arrival = pay[min(h, pay.shape[0] - 1)]
        p, products = prob[c], geometry[c]
        r = reward[min(h, reward.shape[0] - 1)]
        following = v[h + 1]
        rest, q_most = half_range[h], q_cap[h]
        g = np.uint64(start)
        at = products_start
        first = np.uint64(indptr[start])
        for s in range(span[2], span[3]):
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
                norm2 = 0.0
                if n > one:  # a single successor is certain
                    i = first
                    while i < stop:
                        x[i - first] = p[i] * (x[i - first] - mean)
                        i += one
                    u = zero
                    while u < n:
                        y = x[u]
                        twice = 0.0  # off the diagonal, where products are symmetric
                        t = zero
                        while t < u:
                            twice += x[t] * products[at + t]
                            t += one
                        norm2 += y * (2.0 * twice + y * products[at + u])
                        at += n
                        u += one
                else:
                    at += n
                bonus = beta * np.sqrt(norm2) if norm2 > 0.0 else 0.0
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


@divisible
def sweep_gradient(
    indptr, successors, pay, prob, reward, width, geometry, beta, sign,
    half_range, low, q_cap, v_cap, seed, v, policy, q, span,
):  # fmt: skip
    """Q_h = r + P V + sign (beta ||grad PV||_{A^-1} + half_range_h (beta width)^2).

    grad PV = sum_u p_u (V_u - PV) phi_u; with the geometry G of the group its squared norm is
    x^T G x, x_u = p_u (V_u - PV). Shapes as in `planning.sweep`; geometry (1|H, sum U^2).
    """
    sweep_steps(
        indptr, successors, pay, prob, reward, width, geometry, beta, sign, half_range, low,
        q_cap, v_cap, seed, v, policy, q, span, np.empty(largest_group(indptr)),
    )  # fmt: skip


@inner
def squared_norm(x, geometry, n, columns, image):
    """x^T G x, x (n,), of geometry (n, columns), flat: G, or the factor that `keep_rows` keeps."""
    norm2 = 0.0
    if columns == n:
        for u in range(n):
            twice = 0.0
            for t in range(u):
                twice += x[t] * geometry[u * n + t]
            norm2 += x[u] * (2.0 * twice + x[u] * geometry[u * n + u])
        return norm2
    for i in range(columns):
        image[i] = 0.0
    last = columns - 1
    for u in range(n):
        for i in range(last):
            image[i] += x[u] * geometry[u * columns + i]
        norm2 += (x[u] * geometry[u * columns + last]) ** 2
    for i in range(last):
        norm2 += image[i] * image[i]
    return norm2


@divisible
def sweep_errors(
    indptr, successors, pay, prob, reward, geometry, geometry_start, beta, low, q_cap, v_cap, seed,
    v, policy, q, span,
):  # fmt: skip
    """`sweep_gradient` without a remainder, the geometry of large pairs as a factor: U m, not U^2,
    for a pair and step."""
    n_actions = q.shape[0] // policy.shape[1]
    most = largest_group(indptr)
    x, image = np.empty(most), np.empty(most)
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, prob.shape[0] - 1)
        r = reward[min(h, reward.shape[0] - 1)]
        for s in range(span[2], span[3]):
            for g in range(s * n_actions, (s + 1) * n_actions):
                first, at = indptr[g], geometry_start[g]
                n = indptr[g + 1] - first
                if n == 0:
                    continue
                mean = 0.0
                for u in range(n):
                    x[u] = v[h + 1, successors[first + u]]
                    if pay.shape[1] > 0:
                        x[u] += pay[min(h, pay.shape[0] - 1), first + u]
                    mean += prob[c, first + u] * x[u]
                for u in range(n):
                    x[u] = prob[c, first + u] * (x[u] - mean)
                columns = (geometry_start[g + 1] - at) // n
                norm2 = squared_norm(x, geometry[c, at:], n, columns, image)
                q[g] = r[g] + mean + beta * np.sqrt(max(norm2, 0.0))
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)


@divisible
def sweep_exact(
    indptr, successors, pay, prob, reward, geometry, packed, kappa, geometry_start, beta, memory,
    low, q_cap, v_cap, seed, v, policy, q, span,
):  # fmt: skip
    """Q_h = r + max over the confidence set of P_theta V_{h+1}, eq. (4), for each (s, a, h).

    packed and kappa (1|H, ...) of `pessimism.from_last`. memory (KEPT, n) is what a step leaves to
    the one before it: where each maximum was, a bound of it, and one of other maxima, both of which
    rise by at most as much as the values do. An action that cannot be the best is not searched, its
    q is -inf; where the memory is (KEPT, 0), all are.
    """
    one = np.uint64(1)
    n_actions = q.shape[0] // policy.shape[1]
    most = max(largest_group(indptr), ANGLES)
    work, small = np.empty((11, most)), np.empty((13, most))
    logits, values, triangle = work[9], work[10], np.empty(most * most)
    every, paid = memory.shape[1] == 0, pay.shape[1] > 0
    kept = np.zeros((KEPT, indptr[-1])) if every else memory
    x, z, p, above, rival, warm = kept[0], kept[1], kept[2], kept[3], kept[4], kept[5]
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, prob.shape[0] - 1)
        here, triangles, bends = prob[c], packed[c], kappa[c]
        r = reward[min(h, reward.shape[0] - 1)]
        arrival = pay[min(h, pay.shape[0] - 1)]
        following = v[h + 1]
        fresh = h == policy.shape[0] - 1 or prob.shape[0] > 1 or pay.shape[0] > 1
        later = following if fresh else v[h + 2]
        for s in range(span[2], span[3]):
            best = -np.inf
            margin = 0.0
            guess = 0 if fresh else policy[h + 1, s]
            begin = np.uint64(s * n_actions)
            for k in range(n_actions):
                a = guess if k == 0 else k - 1 if k <= guess else k
                g = begin + np.uint64(a)
                q[g] = -np.inf
                first, stop = np.uint64(indptr[g]), np.uint64(indptr[g + one])
                if first == stop:
                    continue
                need = -np.inf if every else best - r[g] - margin
                if fresh:
                    warm[first] = 0.0
                else:
                    rise = -np.inf
                    for i in range(first, stop):
                        y = following[np.uint32(successors[i])] - later[np.uint32(successors[i])]
                        rise = y if y > rise else rise
                    above[first] += rise
                    rival[first] += rise
                    if above[first] < need:
                        continue
                n = stop - first
                mean = 0.0
                top = -np.inf
                least = np.inf
                for u in range(n):
                    y = following[np.uint32(successors[first + u])]
                    if paid:
                        y += arrival[first + u]
                    values[u] = y
                    mean += here[first + u] * y
                    top = y if y > top else top
                    least = y if y < least else least
                spread = top - least
                margin = SAME * spread if SAME * spread > margin else margin
                found = mean
                if spread > 0.0 and beta > 0.0:
                    at = (np.uint64(geometry_start[g]) - first) >> one
                    if warm[first] == 0.0:
                        rival[first] = np.inf
                        for i in range(first, stop):
                            p[i] = here[i]
                            x[i] = 0.0
                            z[i] = 0.0
                    found, bound, sure = follow(
                        here, first, values, top, spread, triangles, at, n - one, beta, bends[g],
                        need, x, z, p, warm, small,
                    )  # fmt: skip
                    above[first] = bound
                    if bound < need:
                        continue
                    if sure == 1 and rival[first] >= found:
                        found, other, sure = rivals(
                            here, first, values, top, spread, triangles, at, n - one, beta,
                            bends[g], found, x, z, p, small, triangle,
                        )  # fmt: skip
                        # others may appear once the values have changed by a tenth of this
                        room = min(top - found, found - mean)
                        rival[first] = max(other, found - 0.1 * room)
                    if sure == 0:
                        for u in range(n):
                            logits[u] = np.log(max(here[first + u], 1e-300))
                        products = geometry[c, geometry_start[g] : geometry_start[g + one]]
                        found = largest_expectation(logits, products, values, beta, n, work)
                above[first] = found
                q[g] = r[g] + found
                best = q[g] if q[g] > best else best
            if not every:
                for g in range(begin, begin + np.uint64(n_actions)):
                    q[g] = best if q[g] >= best - margin else q[g]
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)
