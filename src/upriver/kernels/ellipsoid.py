"""The largest expectation over the ellipsoid of one pair, eq. (4): searched, and followed.

A search begins at the estimate. `follow` begins at the maximum for other values, those of the step
after, and at a distribution of the set, so that a bound or even the value needs no exponential. In
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

from upriver.kernels.compiled import compiled, inner, lean

ANGLES = 12  # on the boundary of a set of three successors
STEP = 2.0 * np.pi / ANGLES
COS = np.cos(STEP * np.arange(ANGLES))
SIN = np.sin(STEP * np.arange(ANGLES))
NEWTON_STEPS = 40
ASCENT_STEPS = 50
ROUNDS = 20  # of Newton's method, from the maximum for other values
CLOSE = 1e-11  # of the spread of the values: as near to the maximum as it is followed
STEEPEST = 1.0 / np.sqrt(108.0)


@compiled
def expected_value(logits, shift, values, n, out):
    """sum_u softmax(logits + shift)_u values_u; the softmax is left in out."""
    top = -np.inf
    for u in range(n):
        out[u] = logits[u] + shift[u]
        top = max(top, out[u])
    total = 0.0
    mean = 0.0
    for u in range(n):
        out[u] = np.exp(out[u] - top)
        total += out[u]
        mean += out[u] * values[u]
    for u in range(n):
        out[u] /= total
    return mean / total


@compiled
def on_circle(logits, a, b, angle, values, n, out):
    """(value, first, second derivative) of the expectation at the shift a cos(t) + b sin(t)."""
    cos = np.cos(angle)
    sin = np.sin(angle)
    top = -np.inf
    for u in range(n):
        out[u] = logits[u] + a[u] * cos + b[u] * sin
        top = max(top, out[u])
    total = 0.0
    value = 0.0
    drift = 0.0
    for u in range(n):
        out[u] = np.exp(out[u] - top)
        total += out[u]
        value += out[u] * values[u]
        drift += out[u] * (b[u] * cos - a[u] * sin)
    value /= total
    drift /= total
    first = 0.0
    second = 0.0
    for u in range(n):
        # Derivatives of a mean are the joint cumulants of the values and the moving logits.
        speed = b[u] * cos - a[u] * sin - drift
        weight = out[u] / total * (values[u] - value)
        first += weight * speed
        second += weight * (speed * speed - a[u] * cos - b[u] * sin)
    return value, first, second


@compiled
def climb(logits, a, b, values, n, low, angle, high, floor, out):
    """(angle, value) of a local maximum of the circle a cos(t) + b sin(t) within [low, high].

    Newton on the derivative from `angle`, bisecting wherever it would leave the bracket. A point
    below `floor` lies behind a valley, so the bracket ends there.
    """
    best = floor
    arg = low
    for _ in range(NEWTON_STEPS):
        value, first, second = on_circle(logits, a, b, angle, values, n, out)
        if value >= best:
            best = value
            arg = angle
        if first > 0.0 and value >= floor:
            low = angle
        else:
            high = angle
        step = first / second if second < 0.0 else np.inf
        if abs(step) <= 1e-9:
            break
        angle -= step
        if not low < angle < high:
            angle = 0.5 * (low + high)
            if high - low <= 1e-9:
                break
    return arg, best


@compiled
def ascend(logits, geometry, values, beta, n, enough, gain, work):
    """Conjugate-gradient ascent over the ellipsoid from the shift in work[1]; returns the value.

    It ends at a local maximum, when no more than `gain` is to be had, or when the value is
    `enough`.

    A shift is z = G x with x in work[2] and length x^T G x <= beta^2. One more coordinate without
    effect, sqrt(beta^2 - x^T G x), turns the ball into a sphere, so that a step is a search along
    a great circle and maxima inside the ball (G may be singular) are found like those on its edge.
    """
    out, z, x = work[0], work[1], work[2]
    dx, dz, gx, gz, old = work[3], work[4], work[5], work[6], work[7]
    length2 = 0.0
    for u in range(n):
        length2 += x[u] * z[u]
    lift = np.sqrt(max(beta * beta - length2, 0.0))
    lift_step = 0.0
    previous = 0.0
    restart = False
    value = expected_value(logits, z, values, n, out)
    for iteration in range(ASCENT_STEPS):
        inward = 0.0
        for u in range(n):
            gx[u] = out[u] * (values[u] - value)
            inward += gx[u] * z[u]
        inward /= beta * beta
        whole = inward * inward * beta * beta
        norm2 = 0.0
        turn = 0.0
        for u in range(n):
            gx[u] -= inward * x[u]
        for u in range(n):
            y = 0.0
            for t in range(n):
                y += geometry[u * n + t] * gx[t]
            gz[u] = y
            norm2 += gx[u] * y
            turn += gx[u] * old[u]
        lift_slope = -inward * lift
        norm2 += lift_slope * lift_slope
        if norm2 <= 1e-15 * (whole + norm2) or value >= enough:
            break
        # Polak-Ribiere, restarted from the gradient every n steps and when it stops helping.
        mix = 0.0
        if not restart and iteration % n:
            mix = max((norm2 - turn) / previous, 0.0)
            along = norm2 + mix * lift_slope * lift_step
            for u in range(n):
                along += mix * gz[u] * dx[u]
            if along <= 0.0:
                mix = 0.0
        restart = False
        size2 = 0.0
        for u in range(n):
            dx[u] = gx[u] + mix * dx[u] if mix > 0.0 else gx[u]
            dz[u] = gz[u] + mix * dz[u] if mix > 0.0 else gz[u]
            size2 += dx[u] * dz[u]
        lift_step = lift_slope + mix * lift_step if mix > 0.0 else lift_slope
        size2 += lift_step * lift_step
        scale = beta / np.sqrt(size2)
        for u in range(n):
            dx[u] *= scale
            dz[u] *= scale
            old[u] = gz[u]
        lift_step *= scale
        _, first, second = on_circle(logits, z, dz, 0.0, values, n, out)
        if second < 0.0 and first * first <= -gain * second:
            if mix == 0.0:
                break
            restart = True  # nothing to be had this way; the gradient has the last word
            expected_value(logits, z, values, n, out)
            continue
        guess = min(-first / second, 1.5) if second < 0.0 else 1.0
        angle, _ = climb(logits, z, dz, values, n, 0.0, guess, np.pi, value, out)
        cos = np.cos(angle)
        sin = np.sin(angle)
        for u in range(n):
            y = x[u]
            x[u] = y * cos + dx[u] * sin
            dx[u] = (dx[u] * cos - y * sin) / scale
            y = z[u]
            z[u] = y * cos + dz[u] * sin
            dz[u] = (dz[u] * cos - y * sin) / scale
        y = lift
        lift = y * cos + lift_step * sin
        lift_step = (lift_step * cos - y * sin) / scale
        length2 = lift * lift
        for u in range(n):
            length2 += x[u] * z[u]
        back = beta / np.sqrt(length2)  # onto the sphere: an error of the length would grow
        for u in range(n):
            x[u] *= back
            z[u] *= back
        lift *= back
        previous = norm2
        value = expected_value(logits, z, values, n, out)
    return value


@compiled
def largest_on_ellipse(logits, geometry, values, beta, work):
    """Three successors: the boundary is one circle, scanned and then refined at every local top."""
    out, a, b, seen = work[0], work[1], work[2], work[3, :ANGLES]
    # Logit differences against successor 0 span the plane; a and b are their Cholesky factor.
    # Where the plane is only a line the circle runs along it and back, the inside included.
    ga = geometry[4] - 2.0 * geometry[1] + geometry[0]
    gb = geometry[5] - geometry[1] - geometry[2] + geometry[0]
    gc = geometry[8] - 2.0 * geometry[2] + geometry[0]
    root = np.sqrt(max(ga, 0.0))
    a[0] = 0.0
    a[1] = beta * root
    a[2] = beta * gb / root if root > 0.0 else 0.0
    b[0] = 0.0
    b[1] = 0.0
    b[2] = np.sqrt(max(beta * beta * gc - a[2] * a[2], 0.0))
    for i in range(ANGLES):
        top = -np.inf
        for u in range(3):
            out[u] = logits[u] + a[u] * COS[i] + b[u] * SIN[i]
            top = max(top, out[u])
        total = 0.0
        mean = 0.0
        for u in range(3):
            weight = np.exp(out[u] - top)
            total += weight
            mean += weight * values[u]
        seen[i] = mean / total
    best = -np.inf
    for i in range(ANGLES):
        if seen[i] >= seen[i - 1] and seen[i] >= seen[(i + 1) % ANGLES]:
            angle = i * STEP
            _, found = climb(
                logits, a, b, values, 3, angle - STEP, angle, angle + STEP, seen[i - 1], out
            )
            best = max(best, found)
    return best


@compiled
def largest_expectation(logits, geometry, values, beta, n, work):
    """max over ||theta - theta_hat||_A <= beta of E_theta[values], eq. (4), for one group.

    geometry (n*n,) holds the inner products G of the group's features in A^-1, so that the shifts
    of the logits are {G x : x^T G x <= beta^2}. Two successors: closed form. Three: a search along
    the boundary. More: ascent from the estimate, then towards each promising successor, unless the
    first one can be seen to have found the maximum f. Two certificates, in coordinates w where the
    set is a ball: (a) where only one value exceeds t, {f >= t} is convex, so a local maximum above
    the second largest value is global; (b) the second derivative, E[(V - f)(z - Ez)^2] along a
    unit direction, is at most K = (spread of V) (diameter of the features)^2 / 4, so f - K|w|^2/2
    is concave, and a maximum on the edge with outward slope at least K beta is global.
    """
    out, z, x, target = work[0], work[1], work[2], work[8]
    top = -np.inf
    second = -np.inf
    bottom = np.inf
    for u in range(n):
        if values[u] > top:
            second = top
            top = values[u]
        else:
            second = max(second, values[u])
        bottom = min(bottom, values[u])
    for u in range(n):
        z[u] = 0.0
        x[u] = 0.0
    if top == bottom or beta <= 0.0:
        return expected_value(logits, z, values, n, out)
    if n == 2:
        # Only the difference of the two logits matters; push it towards the better successor.
        gap = np.sqrt(max(geometry[0] - 2.0 * geometry[1] + geometry[3], 0.0))
        z[0 if values[0] > values[1] else 1] = beta * gap
        return expected_value(logits, z, values, n, out)
    if n == 3:
        return largest_on_ellipse(logits, geometry, values, beta, work)
    spread = top - bottom
    enough = top - 1e-14 * spread
    best = ascend(logits, geometry, values, beta, n, enough, 1e-15 * spread, work)
    if best > second + 1e-6 * spread:
        return best
    expected_value(logits, z, values, n, out)
    outward = 0.0
    diameter2 = 0.0
    for u in range(n):
        outward += out[u] * (values[u] - best) * z[u]
        for t in range(u):
            gap2 = geometry[u * n + u] - 2.0 * geometry[u * n + t] + geometry[t * n + t]
            diameter2 = max(diameter2, gap2)
    if outward >= 0.25 * spread * diameter2 * beta * beta:
        return best
    for u in range(n):
        if values[u] > best:
            # The probability of one successor has one maximum and, relative to itself, a slope
            # everywhere; where values are flat far from the estimate it leads to where they rise.
            for t in range(n):
                z[t] = 0.0
                x[t] = 0.0
                target[t] = 0.0
            target[u] = 1.0
            ascend(logits, geometry, target, beta, n, 0.5, 0.0, work)
            found = ascend(logits, geometry, values, beta, n, enough, 1e-15 * spread, work)
            best = max(best, found)
    return best


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
