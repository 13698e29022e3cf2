"""Optimistic sweeps where the bonus depends on the next values: backwards, or of endless tasks.

The latter are extended value iteration, one sweep at a time: as `stationary.improve`, and `chosen`
(n,) gets the distribution that was best for each pair, and `earned` (S*A,) what the pair then pays,
so that the chain of a policy and of these can be followed or solved.
"""

import numpy as np

from upriver.kernels.compiled import compiled, divisible, inner
from upriver.kernels.ellipsoid import ANGLES, follow, largest_expectation, rivals
from upriver.kernels.planning import argmax_random_ties, largest_group, settle
from upriver.kernels.tabular import rank

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


@inner
def keep_or_change(q, s, n_actions, w, u, policy):
    """u[s] and the policy from q (A,); the action stays where it is as good. Returns u - w."""
    best = -np.inf
    arg = 0
    for a in range(n_actions):
        if q[a] > best:
            best = q[a]
            arg = a
    u[s] = best
    if q[policy[s]] < best - 1e-14 * (1.0 + abs(best)):
        policy[s] = arg
    return best - w[s]


@inner
def next_values(successors, pay, discount, w, first, n, values):
    """values (n,) = pay + discount * w of the n triples from `first` on."""
    for i in range(n):
        values[i] = discount * w[successors[first + i]]
        if pay.shape[0] > 0:
            values[i] += pay[first + i]


@inner
def paid_by(reward, pay, chosen, g, first, n):
    """What the pair g pays on average, its n triples from `first` on as likely as `chosen` says."""
    total = reward[g]
    if pay.shape[0] > 0:
        for i in range(first, first + n):
            total += chosen[i] * pay[i]
    return total


@compiled
def improve_l1(
    indptr, successors, prob, reward, pay, radius, discount, chosen, earned, w, u, policy
):
    """u = max_a (r + max of p (pay + discount * w) over ||p - prob||_1 <= radius); radius (S*A,).

    pay (n|0,) is what a triple pays, here and below.
    """
    n_states = w.shape[0]
    n_actions = reward.shape[0] // n_states
    most = largest_group(indptr)
    values, order = np.empty(most), np.empty(most, np.int64)
    q = np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            g = s * n_actions + a
            first = indptr[g]
            n = indptr[g + 1] - first
            q[a] = -np.inf
            if n == 0:
                continue
            next_values(successors, pay, discount, w, first, n, values)
            for i in range(first, first + n):
                chosen[i] = prob[i]
            rank(values, n, order)
            best = first + order[n - 1]
            left = min(0.5 * radius[g], 1.0 - chosen[best])
            for i in range(n - 1):  # from the worst to the best
                moved = min(left, chosen[first + order[i]])
                chosen[first + order[i]] -= moved
                chosen[best] += moved
                left -= moved
            expected = 0.0
            for i in range(n):
                expected += chosen[first + i] * values[i]
            q[a] = reward[g] + expected
            earned[g] = paid_by(reward, pay, chosen, g, first, n)
        change = keep_or_change(q, s, n_actions, w, u, policy)
        low = min(low, change)
        high = max(high, change)
    return low, high


@inner
def within_errors(prob, geometry, values, beta, n, p, cov):
    """p (n,) = a distribution with a large p @ values among those within beta errors of prob.

    Those are prob + J delta, ||delta|| <= beta, J the derivative of the probabilities in theta: an
    ellipsoid. p goes to its best point. Where a share reaches 0 on the way, the set is cut to where
    that share is 0, an ellipsoid again, and p goes on to the best point of that. In cov (n + 2, n)
    are its matrix, its centre and its best point, all of p / prob, so that rare successors have
    numbers of the same size as common ones.
    """
    centre, best = cov[n], cov[n + 1]
    mean = 0.0
    for i in range(n):
        best[i] = 0.0
        for j in range(n):
            best[i] += geometry[i * n + j] * prob[j]
        mean += prob[i] * best[i]
    for i in range(n):
        centre[i] = p[i] = 1.0
        for j in range(n):
            cov[i, j] = geometry[i * n + j] - best[i] - best[j] + mean
    room = beta * beta
    for _ in range(n):
        norm2 = 0.0
        for i in range(n):
            best[i] = 0.0
            for j in range(n):
                best[i] += cov[i, j] * prob[j] * values[j]
            norm2 += best[i] * prob[i] * values[i]
        far = np.sqrt(max(room, 0.0) / norm2) if norm2 > 0.0 else 0.0
        step, first = 1.0, -1
        for i in range(n):
            best[i] = centre[i] + far * best[i]
            if best[i] < 0.0 and p[i] < step * (p[i] - best[i]):
                step, first = p[i] / (p[i] - best[i]), i
        for i in range(n):
            p[i] += step * (best[i] - p[i])
        if first < 0 or cov[first, first] <= 1e-12 * geometry[first * n + first]:
            break
        pivot, lack = cov[first, first], centre[first]
        room -= lack * lack / pivot
        for i in range(n):
            share = cov[i, first] / pivot
            centre[i] -= lack * share
            for j in range(n):
                if i != first:
                    cov[i, j] -= share * cov[first, j]
        for i in range(n):
            cov[first, i] = cov[i, first] = 0.0
        centre[first] = p[first] = 0.0
    total = 0.0
    for i in range(n):
        p[i] *= prob[i]
        total += p[i]
    for i in range(n):
        p[i] /= total


@compiled
def improve_errors(
    indptr, successors, prob, reward, pay, geometry, geometry_start, beta, discount, chosen, earned,
    w, u, policy,
):  # fmt: skip
    """u = max_a (r + p y), y = pay + discount * w, p the best within beta standard errors of prob.

    That is P y + beta ||grad P y|| where no share of p falls below 0, see `within_errors`.
    """
    n_states = w.shape[0]
    n_actions = reward.shape[0] // n_states
    most = largest_group(indptr)
    values, cov = np.empty(most), np.empty((most + 2, most))
    q = np.empty(n_actions)
    low, high = np.inf, -np.inf
    for s in range(n_states):
        for a in range(n_actions):
            g = s * n_actions + a
            first = indptr[g]
            n = indptr[g + 1] - first
            q[a] = -np.inf
            if n == 0:
                continue
            next_values(successors, pay, discount, w, first, n, values)
            p, products = chosen[first : first + n], geometry[geometry_start[g] :]
            within_errors(prob[first : first + n], products, values, beta, n, p, cov)
            q[a] = reward[g]
            for i in range(n):
                q[a] += p[i] * values[i]
            earned[g] = paid_by(reward, pay, chosen, g, first, n)
        change = keep_or_change(q, s, n_actions, w, u, policy)
        low = min(low, change)
        high = max(high, change)
    return low, high
