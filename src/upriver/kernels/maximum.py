"""The largest expectation over the ellipsoid of one pair, eq. (4), followed from other values.

`ellipsoid` searches from the estimate. `follow` begins at the maximum for other values, those of
the step after, at a distribution of the set, so that a bound or even the value needs no exp. In
coordinates w where the set is the ball |w| <= beta, f(w) = E_w[V] has the second derivative
E_w[(V - f) (z - Ez)^2] along a unit vector, z what it adds to the logits. For z in [0, 1] and V in
[0, 1] that is at most 1 / sqrt(108), `STEEPEST`: it is linear in V, so V is an indicator, of chance
t, and with the means a, b of z where it is 1 and 0 it is at most
t (1 - t) (a (1 - a) + (1 - 2t) (a - b)^2). So f + g (w' - w) + K |w' - w|^2 / 2 is above f(w'), and
the same with -K below; where the gradient g is outward and at least K beta long a stationary point
is the maximum. It is, too, where g is at least K' beta E[(V - f)+], K' a quarter of the squared
diameter of the features of the successors whose V is above f: nowhere then is
log E[(V - f)+] - log E[(f - V)+] above 0, because only its first term bends upwards.
"""

import numpy as np

from upriver.kernels.compiled import inner, lean

ROUNDS = 20  # of Newton's method, from the maximum for other values
CLOSE = 1e-11  # of the spread of the values: as near to the maximum as it is followed
STEEPEST = 1.0 / np.sqrt(108.0)


@inner
def tilt(prob, first, m, z, p):
    """p = prob with its logits shifted by z, of the pair that begins at first; the last by 0."""
    top = 0.0
    for i in range(first, first + m):
        top = z[i] if z[i] > top else top
    last = first + m
    total = prob[last] * np.exp(-top)
    p[last] = total
    for i in range(first, last):
        y = prob[i] * np.exp(z[i] - top)
        p[i] = y
        total += y
    total = 1.0 / total
    for i in range(first, last + np.uint64(1)):
        p[i] *= total


@inner
def image(packed, at, m, a, out):
    """out = G a, both (m,), of a triangle that `pessimism.from_last` packed."""
    for u in range(m):
        y = a[u]
        row = 0.0
        for t in range(u):
            row += packed[at] * a[t]
            out[t] += 0.5 * packed[at] * y
            at += np.uint64(1)
        out[u] = 0.5 * row + packed[at] * y
        at += np.uint64(1)


@inner
def bend_above(values, p, first, packed, at, m, f):
    """E[(V - f)+], and a quarter of the squared diameter of the features where V > f."""
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    whole = 0.0
    widest = 0.0
    for u in range(m + one):
        if values[u] > f:
            whole += p[first + u] * (values[u] - f)
            for t in range(u):
                if values[t] > f:
                    gap = packed[at + t * (t + three) // two]
                    if u < m:
                        row = at + u * (u + one) // two
                        gap += packed[row + u] - packed[row + t]
                    widest = gap if gap > widest else widest
    return whole, 0.25 * widest


@inner
def follow(prob, first, values, top, spread, packed, at, m, beta, kappa, need, x, z, p, warm, work):
    """(value, bound, how sure) of a maximum, by Newton's method from the shift z of the logits.

    Logits are counted from that of the last successor, so that m = U - 1 of them move: packed has
    their products G from `at` on, see `pessimism.from_last`, with kappa. z = G x, x^T G x = beta^2,
    and p, the distribution there, begin at first; where warm is 0 they are 0, 0 and prob. 2: it
    is the maximum, up to CLOSE, or below need, as the bound is; 1: it is stationary; 0: neither.
    """
    one, zero = np.uint64(1), np.uint64(0)
    n = m + one
    q, y, r, gr, d, e, dx, dz = (
        work[0], work[1], work[2], work[3], work[4], work[5], work[6], work[7],
    )  # fmt: skip
    close = CLOSE * spread
    beta2 = beta * beta
    inverse = 1.0 / beta2
    bend = kappa * spread * beta2
    f = 0.0
    for _ in range(ROUNDS):
        f = 0.0
        for u in range(n):
            f += p[first + u] * values[u]
        for u in range(m):
            q[u] = p[first + u] * (values[u] - f)
        image(packed, at, m, q, y)
        slope2 = 0.0
        along = 0.0
        for u in range(m):
            slope2 += q[u] * y[u]
            along += q[u] * z[first + u]
        slope2 *= beta2
        tilted = warm[first] != 0.0
        rest = slope2 + bend * (bend - 2.0 * along)
        bound = f - along + (bend if tilted else 0.5 * bend)
        bound += np.sqrt(max(rest if tilted else slope2, 0.0))
        bound = bound if bound < top else top
        if bound < need or top - f <= close:
            return f, bound, 2
        near = False
        if tilted and along > 0.0:
            sure = 2 if along >= bend else 1
            exact = spread
            if sure == 2:
                least = f - along - bend + np.sqrt(max(slope2 + bend * (bend + 2.0 * along), 0.0))
                if bound - least <= close:
                    return 0.5 * (least + bound), bound, 2
            else:
                whole, bent_above = bend_above(values, p, first, packed, at, m, f)
                if along >= beta2 * whole * bent_above:
                    sure = 2
                    exact = whole
            if m == one and sure == 2:
                return f, f, 2
            # Conjugate gradients for the Newton step in the plane that touches the sphere: with x
            # at its multiplier mu, (mu - H G) dx = q - mu x, H = diag(q) - p q' - q p'.
            mu = along * inverse
            rr = 0.0
            for u in range(m):
                r[u] = q[u] - mu * x[first + u]
                gr[u] = y[u] - mu * z[first + u]
                d[u] = r[u]
                e[u] = gr[u]
                dx[u] = 0.0
                dz[u] = 0.0
                rr += r[u] * gr[u]
            gain = 0.0
            near = True
            bent = False
            for step in range(m):
                if rr <= 0.0:
                    break
                qe = 0.0
                pe = 0.0
                dd = 0.0
                qee = 0.0
                for u in range(m):
                    qe += q[u] * e[u]
                    pe += p[first + u] * e[u]
                    dd += d[u] * e[u]
                    qee += q[u] * e[u] * e[u]
                curvature = mu * dd - qee + 2.0 * qe * pe
                bent = curvature <= 0.0
                if bent:  # as far as the logarithm of f would go
                    curvature += qe * qe / (f - top + spread)
                    near = curvature > 0.0 and step == zero
                    if not near:
                        break
                alpha = rr / curvature
                gain += 0.5 * alpha * rr
                for u in range(m):
                    dx[u] += alpha * d[u]
                    dz[u] += alpha * e[u]
                if bent or step + one + one >= m or alpha * rr <= close:
                    break
                out = 0.0
                for u in range(m):
                    gr[u] = mu * d[u] - q[u] * (e[u] - pe) + p[first + u] * qe
                    out += gr[u] * z[first + u]
                out *= inverse
                for u in range(m):
                    r[u] -= alpha * (gr[u] - out * x[first + u])
                image(packed, at, m, r, gr)
                turn = rr
                rr = 0.0
                for u in range(m):
                    rr += r[u] * gr[u]
                turn = rr / turn
                for u in range(m):
                    d[u] = r[u] + turn * d[u]
                    e[u] = gr[u] + turn * e[u]
            low = 0.0
            high = 0.0
            angle2 = 0.0
            for u in range(m):
                low = dz[u] if dz[u] < low else low
                high = dz[u] if dz[u] > high else high
                angle2 += dx[u] * dz[u]
            angle2 = max(angle2, 0.0) * inverse
            move = high - low
            error = spread * move * move * move / 48.0 + along * angle2 * angle2
            error += 0.5 * min(bend, along) * angle2 * np.sqrt(angle2)
            if near and not bent and error <= CLOSE * exact and gain <= 0.01 * exact:
                return f + gain, f + gain if sure == 2 else bound, sure
            near = near and angle2 < 1.0
        length2 = 0.0
        for u in range(m):
            x[first + u] = x[first + u] + dx[u] if near else q[u]
            z[first + u] = z[first + u] + dz[u] if near else y[u]
            length2 += x[first + u] * z[first + u]
        if length2 <= 0.0:
            break
        scale = beta / np.sqrt(length2)  # anew: an error of the length would grow
        for u in range(m):
            x[first + u] *= scale
            z[first + u] *= scale
        tilt(prob, first, m, z, p)
        warm[first] = 1.0
    return f, top, 0


@inner
def has_inside(packed, at, m, triangle):
    """Whether G is singular, by its pivots: then a maximum may lie inside the set."""
    one, two = np.uint64(1), np.uint64(2)
    for i in range(m):
        row = i * (i + one) // two
        for j in range(i + one):
            other = j * (j + one) // two
            y = packed[at + row + j] * (1.0 if i == j else 0.5)
            for k in range(j):
                y -= triangle[row + k] * triangle[other + k]
            if i == j:
                if y <= 1e-9 * packed[at + row + i]:
                    return True
                triangle[row + j] = np.sqrt(y)
            else:
                triangle[row + j] = y / triangle[other + j]
    return False


@lean
def rivals(
    prob, first, values, top, spread, packed, at, m, beta, kappa, found, x, z, p, work, triangle
):
    """(largest, second, how sure) of the maxima behind each successor whose value is above found.

    The probability of one successor has one maximum, and from there the values lead on. found, x, z
    and p are those of one maximum, and become those of the largest.
    """
    if has_inside(packed, at, m, triangle):
        return found, found, 0
    own, zero, n = prob[first:], np.uint64(0), m + np.uint64(1)
    x2, z2, p2, warm, target = work[8], work[9], work[10], work[11], work[12]
    same = 1e-9 * spread
    other = -np.inf
    sure = 1
    for u in range(n):
        if values[u] <= found:
            continue
        for i in range(n):
            x2[i] = 0.0
            z2[i] = 0.0
            p2[i] = own[i]
            target[i] = 1.0 if i == u else 0.0
        warm[0] = 0.0
        f = found
        how = 0
        for last in (False, True):
            f, _, how = follow(
                own, zero, values if last else target, top if last else 1.0,
                spread if last else 1.0, packed, at, m, beta, kappa, -np.inf, x2, z2, p2, warm,
                work,
            )  # fmt: skip
            if how == 0:
                return found, found, 0
        sure = how if how == 2 else sure
        if f > found + same:
            other = max(other, found)
            found = f
            for i in range(n):
                x[first + i] = x2[i]
                z[first + i] = z2[i]
                p[first + i] = p2[i]
        elif f < found - same:
            other = max(other, f)
    return found, other, sure
