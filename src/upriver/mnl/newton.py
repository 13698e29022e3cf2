"""Maximum likelihood of choice data: Newton's method with few Hessians.

A fit on a sample gives the start and the Hessian. From there one gradient per step suffices: secant
pairs (limited-memory BFGS) correct the Hessian of the sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs  # pyright: ignore[reportAttributeAccessIssue]

from upriver.checks import Array
from upriver.mnl.choices import Choices

DECREMENT = 1e-12  # squared Newton decrement at which the step is the last
SAMPLED = 0.1  # squared decrement at which the fit of a sample is as good as the sample
SLOW = 0.25  # a squared decrement that falls by less than this calls for a new Hessian
VANISHED = 1e-6  # share of its first information at which a coefficient is on its way to infinity
ITERATIONS = 100


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged; its estimate is not the maximum of the likelihood."""


class Minimum(NamedTuple):
    theta: Array
    loss: float
    hessian: Any = None
    """The last Hessian that was computed, lower triangle."""
    converged: bool = True


def fit_newton(data: Choices, names: Sequence[str] | None) -> Minimum:
    """Return theta at the minimum of (2), and the loss there.

    names are the columns, for error messages. Raises a ValueError where no minimum exists, and
    warns after `ITERATIONS` steps.
    """
    # DECREMENT is meant for data that weigh an observation
    tolerance = DECREMENT * min(float(data.visits.sum()), 1.0)
    theta = np.zeros(data.x.shape[1])
    sampled = data.sample()
    if sampled is not None:
        part, times = sampled
        try:
            start = newton(part, theta, names, SAMPLED)
            return newton(data, start.theta, names, tolerance, times * start.hessian)
        except (ValueError, RuntimeError):  # the sample identifies less than the whole
            pass
    return newton(data, theta, names, tolerance)


def newton(
    data: Choices, theta: Array, names: Sequence[str] | None, tolerance: float, hessian: Any = None
) -> Minimum:
    """Minimise (2) by Newton's method with step halving, from theta on.

    The step whose squared decrement is at most `tolerance` is the last. `hessian` is an approximate
    one to begin with, lower triangle, which serves for all steps unless their progress is slow;
    without it every step computes its own. Raises a ValueError if there is no ridge and a
    coefficient is not identified or goes to infinity.
    """
    is_exact, ridge = hessian is None, data.lam
    loss, gradient, computed = data.evaluate(theta, is_exact)
    new = computed if is_exact else hessian
    begun, before = np.diag(new).copy(), np.inf
    pairs: list[tuple[Array, Array, float]] = []
    for n_iter in range(ITERATIONS):
        if new is not None:
            if ridge == 0.0 and (np.diag(new) < VANISHED * begun).any():
                raise separated(data, names, theta)
            try:
                solve = solver(new, names, ridge)
            except ValueError as error:
                if n_iter == 0:
                    raise
                raise separated(data, names, theta) from error
            hessian, pairs = new, []
        step = direction(solve, pairs, gradient)
        decrement = float(gradient @ step)
        if decrement <= max(tolerance, 1e-15 * abs(loss)):
            return Minimum(theta - step, loss - 0.5 * decrement, hessian)
        is_exact, before = is_exact or decrement > SLOW * before, decrement
        size = 1.0
        while True:
            trial = theta - size * step
            trial_loss, trial_gradient, new = data.evaluate(trial, is_exact)
            near = decrement <= 1e-11 * abs(loss)  # rounding hides the decrease
            if trial_loss <= loss - 1e-4 * size * decrement or near:
                break
            size *= 0.5
            if size < 1e-10:
                if ridge > 0.0:  # there is a minimum, and rounding hides the rest of the way
                    return Minimum(theta, loss, hessian)
                raise RuntimeError("the maximum-likelihood fit found no step that improves it")
        moved, turned = trial - theta, trial_gradient - gradient
        if (product := float(moved @ turned)) > 0.0:
            pairs.append((moved, turned, 1.0 / product))
        theta, loss, gradient = trial, trial_loss, trial_gradient
    if ridge == 0.0:  # so many steps go to infinity
        raise separated(data, names, theta)
    warnings.warn(f"the fit did not converge in {ITERATIONS} iterations; use a larger "
                  "regularization", ConvergenceWarning, stacklevel=6)  # fmt: skip
    return Minimum(theta, loss, hessian, False)


def direction(
    solve: Callable[[Array], Array], pairs: list[tuple[Array, Array, float]], gradient: Array
) -> Array:
    """Return the inverse of the factored Hessian, corrected by secant pairs, times the gradient.

    The two loops of limited-memory BFGS (Nocedal 1980), with the Hessian as its first matrix.
    """
    result, along = gradient.copy(), []
    for moved, turned, rho in reversed(pairs):
        along.append(rho * float(moved @ result))
        result -= along[-1] * turned
    result = solve(result)
    for (moved, turned, rho), a in zip(pairs, reversed(along), strict=True):
        result += (a - rho * float(turned @ result)) * moved
    return result


def solver(hessian: Array, names: Sequence[str] | None, ridge: float) -> Callable[[Array], Array]:
    """Return the function g -> H^-1 g, H given by its lower triangle and at least ridge I.

    It uses the Cholesky factor of H scaled to a unit diagonal, so that badly scaled columns do no
    harm. Where rounding makes H singular its eigenvalues are held at the ridge, or above rounding
    error: smaller ones would turn the rounding of g into steps of any length. Without a ridge a
    singular H is an error.
    """
    diagonal = np.diag(hessian)
    if not (diagonal > 0).all():
        raise singular(names, int(np.argmin(diagonal > 0)))
    scale = 1.0 / np.sqrt(diagonal)
    factor, info = dpotrf(hessian * scale[:, None] * scale, lower=1)
    if info == 0 and not (np.diag(factor) < 1e-8).any():
        return lambda g: (scale * dpotrs(factor, (g.T * scale).T, lower=1)[0].T).T
    if ridge == 0.0:
        raise singular(names, info - 1 if info > 0 else int(np.argmin(np.diag(factor))))
    size, axes = np.linalg.eigh(hessian)  # reads the lower triangle
    size = np.maximum(size, max(ridge, 1e-14 * size[-1]))
    return lambda g: axes @ ((axes.T @ g).T / size).T


def singular(names: Sequence[str] | None, i: int) -> ValueError:
    """Return the error about column i, which the data do not identify."""
    name = names[i] if names else f"number {i}"
    return ValueError(
        f"the information matrix is singular at feature {name}: the data do not identify it; drop "
        "it, or use a positive regularization"
    )


def separated(data: Choices, names: Sequence[str] | None, theta: Array) -> ValueError:
    """Return the error about columns whose coefficients go to infinity."""
    columns = data.separating()
    if not len(columns):  # several columns together; the largest coefficient is among them
        columns = np.argmax(np.abs(theta), keepdims=True)
    return infinite(names, columns)


def infinite(names: Sequence[str] | None, columns: Array) -> ValueError:
    """Return the error about these columns, whose coefficients go to infinity."""
    found = [repr(str(names[i])) if names else f"number {i}" for i in columns[:3].tolist()]
    more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
    return ValueError(
        f"the choices are predicted perfectly by {', '.join(found)}{more}, so no finite estimate "
        "exists; drop or merge such columns, or use a positive regularization"
    )
