"""The largest expectation over the ellipsoid of one pair, eq. (4), searched from the estimate."""

import numpy as np

from upriver.kernels.compiled import njit_cached

ANGLES = 12  # on the boundary of a set of three successors
STEP = 2.0 * np.pi / ANGLES
COS = np.cos(STEP * np.arange(ANGLES))
SIN = np.sin(STEP * np.arange(ANGLES))
NEWTON_STEPS = 40
ASCENT_STEPS = 50


@njit_cached
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


@njit_cached
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


@njit_cached
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


@njit_cached
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


@njit_cached
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


@njit_cached
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
