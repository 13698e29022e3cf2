"""Optimistic backward induction where the bonus depends on the next values."""

import numpy as np

from upriver.kernels.compiled import compiled
from upriver.kernels.planning import argmax_random_ties

ANGLES = 12
FIXED_POINT_STEPS = 60
TOLERANCE = 1e-12


@compiled
def sweep_gradient(
    indptr, successors, prob, reward, width, geometry, geometry_start, beta, sign,
    half_range, low, q_cap, v_cap, seed, v, policy, q,
):  # fmt: skip
    """Q_h = r + P V + sign (beta ||grad PV||_{A^-1} + half_range_h (beta width)^2).

    grad PV = sum_u p_u (V_u - PV) phi_u; with the geometry G of the group its squared norm is
    x^T G x, x_u = p_u (V_u - PV). Shapes as in `planning.sweep`; geometry (1|H, sum U^2).
    """
    horizon, n_states = policy.shape
    n_actions = q.shape[0] // n_states
    for h in range(horizon - 1, -1, -1):
        c = min(h, prob.shape[0] - 1)
        p = prob[c]
        r = reward[min(h, reward.shape[0] - 1)]
        following = v[h + 1]
        for s in range(n_states):
            for g in range(s * n_actions, (s + 1) * n_actions):
                first = indptr[g]
                n = indptr[g + 1] - first
                mean = 0.0
                for u in range(n):
                    mean += p[first + u] * following[successors[first + u]]
                norm2 = 0.0
                start = geometry_start[g]
                for u in range(n):
                    x = p[first + u] * (following[successors[first + u]] - mean)
                    for t in range(n):
                        y = p[first + t] * (following[successors[first + t]] - mean)
                        norm2 += x * y * geometry[c, start + u * n + t]
                bonus = beta * np.sqrt(max(norm2, 0.0)) + half_range[h] * (beta * width[c, g]) ** 2
                q[g] = min(max(r[g] + mean + sign * bonus, low), q_cap[h])
            word = seed ^ np.uint64(h * n_states + s)
            a = argmax_random_ties(q, s * n_actions, n_actions, word)
            policy[h, s] = a
            v[h, s] = max(min(q[s * n_actions + a], v_cap[h]), low)


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
def ascend(logits, geometry, values, beta, n, shift, out, slope, image):
    """Climb from `shift` by z <- beta G x / sqrt(x^T G x), x the slope at z; returns the value.

    Each step maximises the linear model over the ellipsoid; a step that would lose is halved
    towards the last point, which stays feasible because the ellipsoid is convex.
    """
    value = expected_value(logits, shift, values, n, out)
    for _ in range(FIXED_POINT_STEPS):
        for u in range(n):
            slope[u] = out[u] * (values[u] - value)
        norm2 = 0.0
        for u in range(n):
            x = 0.0
            for t in range(n):
                x += geometry[u * n + t] * slope[t]
            image[u] = x
            norm2 += x * slope[u]
        if norm2 <= 0.0:
            return value
        scale = beta / np.sqrt(norm2)
        step = 1.0
        gained = False
        for _ in range(30):
            for u in range(n):
                image[n + u] = shift[u] + step * (scale * image[u] - shift[u])
            trial = expected_value(logits, image[n:], values, n, out)
            if trial >= value:
                gained = True
                break
            step *= 0.5
        if not gained:
            return value
        for u in range(n):
            shift[u] = image[n + u]
        if trial - value <= TOLERANCE * (1.0 + abs(trial)):
            return trial
        value = trial
    return value


@compiled
def largest_expectation(logits, geometry, values, beta, n, work):
    """max over ||theta - theta_hat||_A <= beta of E_theta[values], eq. (4), for one group.

    geometry (n*n,) holds the inner products G of the group's features in A^-1, so that the shifts
    of the logits are {G x : x^T G x <= beta^2}. Two successors: closed form. Three: a scan of the
    boundary, then ascent. More: ascent from the estimate and from both ends of every axis.
    """
    out, shift, slope, image = work[0], work[1], work[2], work[3:5].ravel()
    top = values[0]
    bottom = values[0]
    for u in range(1, n):
        top = max(top, values[u])
        bottom = min(bottom, values[u])
    for u in range(n):
        shift[u] = 0.0
    if top == bottom or beta == 0.0:
        return expected_value(logits, shift, values, n, out)
    if n == 2:
        # Only the difference of the two logits matters; push it towards the better successor.
        gap = np.sqrt(max(geometry[0] - 2.0 * geometry[1] + geometry[3], 0.0))
        shift[0 if values[0] > values[1] else 1] = beta * gap
        return expected_value(logits, shift, values, n, out)
    best = ascend(logits, geometry, values, beta, n, shift, out, slope, image)
    if n == 3:
        # Logit differences against successor 0 span the plane; C is their Cholesky factor.
        a = geometry[4] - 2.0 * geometry[1] + geometry[0]
        b = geometry[5] - geometry[1] - geometry[2] + geometry[0]
        c = geometry[8] - 2.0 * geometry[2] + geometry[0]
        c00 = np.sqrt(max(a, 0.0))
        c10 = b / c00 if c00 > 0.0 else 0.0
        c11 = np.sqrt(max(c - c10 * c10, 0.0))
        scan = -np.inf
        arg = 0.0
        for i in range(ANGLES):
            angle = 2.0 * np.pi * i / ANGLES
            shift[0] = 0.0
            shift[1] = beta * c00 * np.cos(angle)
            shift[2] = beta * (c10 * np.cos(angle) + c11 * np.sin(angle))
            value = expected_value(logits, shift, values, n, out)
            if value > scan:
                scan = value
                arg = angle
        shift[0] = 0.0
        shift[1] = beta * c00 * np.cos(arg)
        shift[2] = beta * (c10 * np.cos(arg) + c11 * np.sin(arg))
        return max(best, ascend(logits, geometry, values, beta, n, shift, out, slope, image))
    for i in range(n):
        length = np.sqrt(max(geometry[i * n + i], 0.0))
        if length > 0.0:
            for side in range(2):
                for u in range(n):
                    shift[u] = (1 - 2 * side) * beta * geometry[u * n + i] / length
                best = max(
                    best, ascend(logits, geometry, values, beta, n, shift, out, slope, image)
                )
    return best


@compiled
def sweep_exact(
    indptr, successors, prob, reward, geometry, geometry_start, beta, low, q_cap, v_cap, seed,
    v, policy, q,
):  # fmt: skip
    """Q_h = r + max over the confidence set of P_theta V_{h+1}, eq. (4), separately by (s, a, h)."""
    horizon, n_states = policy.shape
    n_actions = q.shape[0] // n_states
    most = 0
    for g in range(indptr.shape[0] - 1):
        most = max(most, indptr[g + 1] - indptr[g])
    work = np.empty((7, most))
    logits, values = work[5], work[6]
    for h in range(horizon - 1, -1, -1):
        c = min(h, prob.shape[0] - 1)
        r = reward[min(h, reward.shape[0] - 1)]
        for s in range(n_states):
            for g in range(s * n_actions, (s + 1) * n_actions):
                first = indptr[g]
                n = indptr[g + 1] - first
                for u in range(n):
                    logits[u] = np.log(max(prob[c, first + u], 1e-300))
                    values[u] = v[h + 1, successors[first + u]]
                inner = geometry[c, geometry_start[g] : geometry_start[g + 1]]
                best = largest_expectation(logits, inner, values, beta, n, work)
                q[g] = min(max(r[g] + best, low), q_cap[h])
            word = seed ^ np.uint64(h * n_states + s)
            a = argmax_random_ties(q, s * n_actions, n_actions, word)
            policy[h, s] = a
            v[h, s] = min(q[s * n_actions + a], v_cap[h])
