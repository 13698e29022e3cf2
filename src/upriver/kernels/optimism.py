"""Optimistic backward sweeps where the bonus depends on the next values."""

import numpy as np

from upriver.kernels.compiled import njit_inline, njit_nogil
from upriver.kernels.ellipsoid import ANGLES, largest_expectation
from upriver.kernels.maximum import ABOVE, BELOW, CLOSE, KEPT, WORK, climb, restart
from upriver.kernels.planning import argmax_random_ties, largest_group, settle

SAME = 1e-10  # of the spread of the values: maxima so close are ties


@njit_inline
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
        next_state_reward = pay[min(h, pay.shape[0] - 1)]
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
                        y += next_state_reward[i]
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


@njit_nogil
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


@njit_inline
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


@njit_nogil
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


@njit_nogil
def sweep_exact(
    indptr, successors, pay, prob, reward, geometry, packed, kappa, geometry_start, beta, memory,
    low, q_cap, v_cap, seed, v, policy, q, span,
):  # fmt: skip
    """Q_h = r + max over the confidence set of P_theta V_{h+1}, eq. (4), for each (s, a, h).

    packed and kappa (1|H, ...) of `pessimism.from_last`. memory (n, KEPT) is what a step leaves to
    the one before it: where each maximum was, and bounds of it, which rise by as much as the values
    do, at least and at most. Where they meet, the maximum is known. An action that cannot be the
    best is not searched, its q is -inf; where the memory is (0, KEPT), all are.
    """
    one = np.uint64(1)
    n_actions = q.shape[0] // policy.shape[1]
    room = max(largest_group(indptr), ANGLES)
    work, small = np.empty((11, room)), np.empty((room, WORK))
    logits, values = work[9], work[10]
    every, paid = memory.shape[0] == 0, pay.shape[1] > 0
    kept = np.zeros((indptr[-1], KEPT)) if every else memory
    for h in range(span[1] - 1, span[0] - 1, -1):
        c = min(h, prob.shape[0] - 1)
        here, triangles, bends = prob[c], packed[c], kappa[c]
        r = reward[min(h, reward.shape[0] - 1)]
        next_state_reward = pay[min(h, pay.shape[0] - 1)]
        following = v[h + 1]
        fresh = h == policy.shape[0] - 1 or prob.shape[0] > 1 or pay.shape[0] > 1
        later = following if fresh else v[h + 2]
        for s in range(span[2], span[3]):
            best, margin, searched = -np.inf, 0.0, 0
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
                    kept[first, ABOVE] = np.inf
                    kept[first, BELOW] = -np.inf
                    restart(here, first, stop, kept)
                else:
                    rise, fall = -np.inf, np.inf
                    for i in range(first, stop):
                        y = following[np.uint32(successors[i])] - later[np.uint32(successors[i])]
                        rise = y if y > rise else rise
                        fall = y if y < fall else fall
                    kept[first, ABOVE] += rise
                    kept[first, BELOW] += fall
                    if kept[first, ABOVE] < need:
                        continue
                n = stop - first
                top, least = -np.inf, np.inf
                for u in range(n):
                    y = following[np.uint32(successors[first + u])]
                    if paid:
                        y += next_state_reward[first + u]
                    values[u] = y
                    top = y if y > top else top
                    least = y if y < least else least
                close = CLOSE * (top - least)
                margin = SAME * (top - least) if SAME * (top - least) > margin else margin
                if top == least or beta <= 0.0:
                    kept[first, BELOW] = 0.0
                    for u in range(n):
                        kept[first, BELOW] += here[first + u] * values[u]
                    kept[first, ABOVE] = kept[first, BELOW]
                elif kept[first, ABOVE] - kept[first, BELOW] > close:
                    at = (np.uint64(geometry_start[g]) - first) >> one
                    lost, bound = climb(
                        here, indptr, g, values, top, triangles, at, beta, bends[g],
                        close, top - need, kept, small,
                    )  # fmt: skip
                    kept[first, BELOW] = max(kept[first, BELOW], top - lost)
                    kept[first, ABOVE] = min(kept[first, ABOVE], top - bound)
                    if kept[first, ABOVE] < need:
                        continue
                    if min(lost - bound, kept[first, ABOVE] - kept[first, BELOW]) > 2.0 * close:
                        for u in range(n):
                            logits[u] = np.log(max(here[first + u], 1e-300))
                        products = geometry[c, geometry_start[g] : geometry_start[g + one]]
                        found = largest_expectation(logits, products, values, beta, n, work)
                        kept[first, BELOW] = max(kept[first, BELOW], found)
                    kept[first, ABOVE] = kept[first, BELOW]
                q[g] = r[g] + kept[first, BELOW]
                best = q[g] if q[g] > best else best
                searched += 1
            if searched > 1 and not every:
                for g in range(begin, begin + np.uint64(n_actions)):
                    q[g] = best if q[g] >= best - margin else q[g]
            settle(indptr, h, s, low, q_cap, v_cap, seed, v, policy, q)
