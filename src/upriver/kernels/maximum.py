"""The largest expectation over the ellipsoid of one pair, eq. (4), followed from other values.

`ellipsoid` searches from the estimate. `climb` begins anywhere, as at the maximum for the values of
the step after. In coordinates w where the set is the ball |w| <= beta let f(w) = E_w[V] and, for a
level t, phi(w) = log E_w[(V - t)+] - log E_w[(t - V)+], which is above 0 exactly where f is above
t. With t the value at w its gradient g is that of f over E[(V - t)+], so Newton's method climbs
phi, which is nearly straight where f is flat. Both terms are logarithms of sums of exponentials,
so only the first bends upwards, by the variance of the features of the successors above t: at most
K = D^2 / 4, D their diameter. Hence phi(w') <= B = max g (w' - w) + K |w' - w|^2 / 2 in the ball,
and f(w') <= t + (top - t) (1 - e^-B): where g is outward and at least K beta long, as it is where
one V alone is above t, a stationary point is the maximum.

A smaller K will do. Let r_u be the weight of u over that of all below t, so that f > t where the
sum over those above, 1 at w, is above 1. log r_u is concave, with gradient d_u = phi_u - the mean
below, so r_u <= r_u(w) exp(beta |d_u| - d_u w), and r_u r_v likewise with d_u + d_v. Let v be the
heaviest at w, R the sum of the others, and R <= M, R r_v <= E < 1/4 by these bounds; e < 1/2 with
e (1 - e) = E. Where f > t, r_v (1 - r_v) <= E, so r_v >= 1 - e, or r_v <= e and R >= 1 - e, which
M < 1 - e rules out. {r_v >= 1 - e} is convex, has w in it, and there the others have at most a
share e of the weight above, because R <= E / r_v: the variance is at most e (1 - e) D^2, K = E D^2.
"""

import numpy as np

from upriver.kernels.compiled import njit_inline

ROUNDS = 30  # of Newton's method, or half way back where it went too far
CLOSE = 1e-11  # of the spread of the values: as near to the maximum as it is followed

# One array for all that is kept, and one to work in: a dozen would not fit into the registers.
KEPT = 5
X, Z, P, ABOVE, BELOW = range(KEPT)  # of each triple, from one set of values to the next
WORK = 10
Q, Y, R, GR, D, E, DX, DZ, XO, ZO = range(WORK)  # of each successor


@njit_inline
def image(packed, at, m, rows, a, out):
    """rows[:m, out] = G a, a = rows[:m, a], of a triangle that `pessimism.from_last` packed.

    Returns a^T G a.
    """
    norm2 = 0.0
    for u in range(m):
        y = rows[u, a]
        row = 0.0
        for t in range(u):
            row += packed[at] * rows[t, a]
            rows[t, out] += 0.5 * packed[at] * y
            at += np.uint64(1)
        rows[u, out] = 0.5 * row + packed[at] * y
        norm2 += y * (row + packed[at] * y)
        at += np.uint64(1)
    return norm2


@njit_inline
def product(packed, at, m, u, t):
    """G_ut; the features of the last successor, m, are 0."""
    row, column = (u, t) if u > t else (t, u)
    if row == m:
        return 0.0
    y = packed[at + row * (row + np.uint64(1)) // np.uint64(2) + column]
    return y if u == t else 0.5 * y


@njit_inline
def restart(prob, first, stop, kept):
    """Back to the estimate."""
    for i in range(first, stop):
        kept[i, X] = 0.0
        kept[i, Z] = 0.0
        kept[i, P] = prob[i]


@njit_inline
def tilt(prob, first, m, beta, kept):
    """Scale z = G x to x^T z = beta^2; p = prob with its logits shifted by z, the last by 0.

    Returns False where x is held by rounding alone, as G is singular, or a probability is 0.
    """
    length2 = size = 0.0
    for i in range(first, first + m):
        length2 += kept[i, X] * kept[i, Z]
        size += abs(kept[i, X] * kept[i, Z])
    if not size < 1e4 * length2:
        return False
    scale = beta / np.sqrt(length2)  # anew: an error of the length would grow
    top = 0.0
    for i in range(first, first + m):
        kept[i, X] *= scale
        kept[i, Z] *= scale
        top = kept[i, Z] if kept[i, Z] > top else top
    last = first + m
    total = least = prob[last] * np.exp(-top)
    kept[last, P] = total
    for i in range(first, last):
        y = prob[i] * np.exp(kept[i, Z] - top)
        kept[i, P] = y
        total += y
        least = y if y < least else least
    total = 1.0 / total
    for i in range(first, last + np.uint64(1)):
        kept[i, P] *= total
    return least > 1e-280


@njit_inline
def push(prob, first, packed, at, m, u, kept):
    """x and z of where the logarithm of the probability of u rises most from the estimate."""
    for t in range(m):
        kept[first + t, X] = (1.0 if t == u else 0.0) - prob[first + t]
    image(packed, at, m, kept[first:], X, Z)


@njit_inline
def balanced(first, n, kept, work):
    """(sum of q above 0, q z), the q of the likeliest successor minus the sum of the others.

    By itself that is a difference of numbers that may be equal up to rounding.
    """
    likely = np.uint64(0)
    for u in range(n):
        likely = u if kept[first + u, P] > kept[first + likely, P] else likely
    work[likely, Q] = whole = along = 0.0
    for u in range(n):
        work[likely, Q] -= work[u, Q] if u != likely else 0.0
    for u in range(n):
        whole += max(work[u, Q], 0.0)
        along += work[u, Q] * kept[first + u, Z]
    return whole, along


@njit_inline
def upward(first, packed, at, m, beta, along, whole, kept, work):
    """(K beta^2 E[(V - t)+], the successor with the largest bound of r_u), see above."""
    n, share = m + np.uint64(1), 1.0 / whole
    widest = 0.0
    main = np.uint64(0)
    for u in range(n):
        main = u if work[u, Q] > work[main, Q] else main
        if work[u, Q] > 0.0:
            for t in range(u):
                if work[t, Q] > 0.0:
                    gap = product(packed, at, m, u, u) + product(packed, at, m, t, t)
                    gap -= 2.0 * product(packed, at, m, u, t)
                    widest = gap if gap > widest else widest
    widest *= whole * beta * beta
    if along >= 0.25 * widest:
        return 0.25 * widest, main
    level = 0.0
    for u in range(m):
        work[u, D] = -share * work[u, Q] if work[u, Q] < 0.0 else 0.0
        level += work[u, D] * kept[first + u, Z]
    norm2 = image(packed, at, m, work, D, E)
    work[m, E] = 0.0
    base = product(packed, at, m, main, main) - 2.0 * work[main, E] + norm2
    rival = main
    most = others = both = 0.0
    for u in range(n):
        if work[u, Q] > 0.0:
            length2 = product(packed, at, m, u, u) - 2.0 * work[u, E] + norm2
            shift = kept[first + u, Z] - level
            weight = share * work[u, Q]
            alone = weight * np.exp(beta * np.sqrt(max(length2, 0.0)) - shift)
            rival = u if alone > most else rival
            most = alone if alone > most else most
            if u != main:
                others += alone
                length2 += base + 2.0 * (norm2 - work[u, E] - work[main, E])
                length2 += 2.0 * product(packed, at, m, u, main)
                shift += kept[first + main, Z] - level
                weight *= share * work[main, Q]
                both += weight * np.exp(beta * np.sqrt(max(length2, 0.0)) - shift)
    sharper = both < 0.25 and others < 0.5 + np.sqrt(0.25 - both)
    return (both if sharper else 0.25) * widest, rival


@njit_inline
def newton(first, packed, at, m, inverse, close, along, whole, kept, work):
    """dx and dz = G dx of Newton's method for phi in the plane that touches the sphere, in work.

    By conjugate gradients: with x at its multiplier mu, (mu - H G) dx = q - mu x, where H is
    diag(q) - a a' / whole + b b' / whole, a and -b the parts of q above and below 0. Returns the
    squared angle, what phi gains, and whether it bends upwards there; then the step is as if a
    were straight.
    """
    one, mu, share = np.uint64(1), along * inverse, 1.0 / whole
    rr = 0.0
    for u in range(m):
        work[u, R] = work[u, Q] - mu * kept[first + u, X]
        work[u, GR] = work[u, Y] - mu * kept[first + u, Z]
        work[u, D] = 0.0
        work[u, E] = 0.0
        work[u, DX] = 0.0
        work[u, DZ] = 0.0
        rr += work[u, R] * work[u, GR]
    angle2 = gain = turn = 0.0
    bent, step = False, one
    while rr > 0.0:
        upper = lower = curvature = convex = 0.0
        for u in range(m):
            work[u, D] = work[u, R] + turn * work[u, D]
            work[u, E] = work[u, GR] + turn * work[u, E]
            qe = work[u, Q] * work[u, E]
            up = qe if work[u, Q] > 0.0 else 0.0
            upper += up
            lower += qe - up
            convex += up * work[u, E]
            curvature += mu * work[u, D] * work[u, E] - (qe - up) * work[u, E]
        curvature -= lower * lower * share
        convex -= upper * upper * share
        bent = curvature <= convex
        if bent and step > one:
            break
        alpha = rr / (curvature if bent else curvature - convex)
        gain += 0.5 * alpha * rr
        angle2 = 0.0
        for u in range(m):
            work[u, DX] += alpha * work[u, D]
            work[u, DZ] += alpha * work[u, E]
            angle2 += work[u, DX] * work[u, DZ]
        step += one
        if bent or step >= m or alpha * rr <= close:
            break
        upper *= share
        lower *= -share
        out = 0.0
        for u in range(m):
            y = work[u, E] - (upper if work[u, Q] > 0.0 else lower)
            work[u, GR] = mu * work[u, D] - work[u, Q] * y
            out += work[u, GR] * kept[first + u, Z]
        out *= inverse
        for u in range(m):
            work[u, R] -= alpha * (work[u, GR] - out * kept[first + u, X])
        turn = 1.0 / rr
        rr = image(packed, at, m, work, R, GR)
        turn *= rr
    return angle2 * inverse, gain * share, bent


@njit_inline
def climb(prob, indptr, g, values, top, packed, at, beta, kappa, close, need, kept, work):
    """(top - f at a maximum, no more than the least top - f in the set), from what is kept of g.

    Logits are counted from that of the last successor, so that m = U - 1 of them move: packed has
    their products G from `at` on, see `pessimism.from_last`, with kappa. z = G x, x^T G x = beta^2,
    and p is the distribution there; or they are 0, 0 and prob. Either the two are as close as
    `close`, or the second is above `need`, or nothing is known but that the first is stationary.
    """
    first = np.uint64(indptr[g])
    beta2, inverse = beta * beta, 1.0 / (beta * beta)
    here, before, pushed = 0.0, np.inf, False
    for _ in range(ROUNDS):
        # Read anew, so that what prepares a loop is not done ahead for all of them: most are short.
        n = np.uint64(indptr[g + np.uint64(1)]) - first
        m = n - np.uint64(1)
        here = 0.0
        for u in range(n):
            here += kept[first + u, P] * (top - values[u])
        if here <= close:
            return here, 0.0
        if here > before:  # too far: half way back
            for u in range(m):
                kept[first + u, X] += work[u, XO]
                kept[first + u, Z] += work[u, ZO]
            if not tilt(prob, first, m, beta, kept):
                break
            continue
        whole = along = ratio = 0.0
        for u in range(n):
            y = kept[first + u, P] * (here - (top - values[u]))
            work[u, Q] = y
            whole += y if y > 0.0 else 0.0
            along += y * kept[first + u, Z]
            ratio += kept[first + u, X] * kept[first + u, Z]
        if whole < 1e-4 * here:
            whole, along = balanced(first, n, kept, work)
        if not whole > 0.0:
            break
        ratio *= inverse
        slope2 = beta2 * image(packed, at, m, work, Q, Y)
        bend = kappa * beta2 * whole
        rival = np.uint64(0)
        if along < bend:
            bend, rival = upward(first, packed, at, m, beta, along, whole, kept, work)
        # The bound is here - B here / whole, B = sqrt(long2) - inward; no root where it is too low.
        long2 = slope2 + bend * (ratio * bend - 2.0 * along)
        inward = along - 0.5 * bend * (1.0 + ratio)
        enough = inward * here + max(here - need, close) * whole
        if enough > 0.0 and long2 * here * here <= enough * enough:
            return here, here - (np.sqrt(max(long2, 0.0)) - inward) * here / whole
        before = here if along > 0.0 else np.inf
        if along > 0.0:
            angle2, gain, bent = newton(
                first, packed, at, m, inverse, close, along, whole, kept, work
            )
            # f at the end of the step by series, and how far that is below the maximum if the third
            # derivatives are as large as they can be.
            back = 0.3125 - 0.2734375 * angle2
            back = angle2 * (0.5 - angle2 * (0.375 - angle2 * back))  # 1 - 1 / sqrt(1 + angle2)
            low = high = rise = 0.0
            total = 1.0
            for u in range(m):
                y = work[u, DZ] - back * (work[u, DZ] + kept[first + u, Z])
                low = y if y < low else low
                high = y if y > high else high
                y *= 1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0)))  # e^y - 1
                rise += work[u, Q] * y
                total += kept[first + u, P] * y
            move = high - low
            wide = 0.5 * angle2 * beta * np.sqrt(kappa)
            third = move * (0.033 * move * move + wide + 2.0 * gain)
            small = not bent and max(move, 2.5 * angle2) <= 0.01
            if small and 2.25 * third * third * here <= gain * close:
                here -= rise / total
                if along >= bend or pushed or work[rival, Q] >= 0.5 * whole:
                    return here, here if along >= bend else 0.0
                pushed = True  # another maximum may be higher: if it is, that can be seen there
                before = np.inf
                push(prob, first, packed, at, m, rival, kept)
            else:
                short = 1.0 / np.sqrt(max(angle2, 1.0))
                for u in range(m):
                    work[u, XO] = kept[first + u, X]
                    work[u, ZO] = kept[first + u, Z]
                    kept[first + u, X] += short * work[u, DX]
                    kept[first + u, Z] += short * work[u, DZ]
        elif ratio == 0.0 and bend * bend > slope2:
            push(prob, first, packed, at, m, rival, kept)
        else:
            for u in range(m):
                kept[first + u, X] = work[u, Q]
                kept[first + u, Z] = work[u, Y]
        if not tilt(prob, first, m, beta, kept):
            break
    restart(prob, first, np.uint64(indptr[g + np.uint64(1)]), kept)
    return here, 0.0
