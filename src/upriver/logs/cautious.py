"""A plan that maximises a lower confidence bound of its own value, with its choice paid for.

The rectangular pessimism of `plan_with(model, "pessimistic")` lets every pair (s, a) have its own
worst core at every step. No single core is that bad. Here the bound is that of the whole policy:
its least value over one ellipsoid of cores, as `policy_value` has it.

A plan that was chosen because it looks good looks better than it is. So the bound must hold for all
plans that might have been chosen: the optimum of the estimate, the best reply to a core that is
far on the bad side of it, and where that is another plan, the optima of cores drawn widely around
the estimate, until they are nothing new. Their values have correlated errors; the radius is the
quantile of the largest of these errors (the max-t statistic): that of one normal number where all
plausible plans are alike, Bonferroni's where nothing connects them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from upriver import kernels
from upriver.checks import Array
from upriver.logs.decisions import ModelAt
from upriver.logs.extremes import Found, Worth, moved, played, worth_of
from upriver.logs.fit import LogModel
from upriver.mdp import Task
from upriver.mdp.formats import from_model
from upriver.planning import Plan, backward_induction, clip_nothing, solve

DRAWS = 64  # plans at most, of drawn cores
WIDE = 3.0  # standard errors of a draw for each of the estimate's: rare choices are to be found
NEWS = 0.99  # correlation from which on a plan's error is that of another
PATIENCE = 8  # draws without news that end the search
NORMALS = 20_000  # draws of the max-t statistic


class Candidate(NamedTuple):
    plan: Any
    """A Plan, or without a last step one for ever."""
    worth: Worth
    found: Found
    image: Array
    error: float


def cautious(model: LogModel | ModelAt, start: Any, confidence: float) -> Any:
    """The plan with the best lower bound; v are its values under its worst core, in user's units.

    v[0] at the start is the promise: at most what the plan earns, with probability `confidence`.
    Without a last step it is v there, or the gain.
    """
    rng, d = np.random.default_rng(0), len(model.fitted.theta)
    worth = worth_of(model, [], start)
    first = candidate(worth, model.prob)
    far = WIDE * float(special.ndtri(confidence)) / max(first.error, 1e-300)
    found = [first, candidate(worth, moved(model, -far * first.image[:d]))]
    idle = PATIENCE if is_old(found[1], found[:1]) else 0
    for _ in range(DRAWS):
        if idle == PATIENCE:
            break
        made = candidate(worth, moved(model, WIDE * draw(model, rng)))
        idle = idle + 1 if is_old(made, found) else 0
        found.append(made)
    radius = largest_error(found, confidence)
    best = max(found, key=lambda c: c.found.value - radius * c.error)
    worst, _ = best.worth.extreme(best.found, radius, -1.0)
    if not model.task.endless:
        return Plan(best.plan.policy, worst.v, None, model.task)
    if model.task.discount == 1.0:
        bias = worst.v[0] - worst.v[0].mean()
        return best.plan._replace(gain=worst.value, bias=bias)
    return best.plan._replace(v=worst.v[0])


def candidate(worth: Worth, prob: Array) -> Candidate:
    """The optimum of a core, and what it is worth under the estimate."""
    plan = optimum(worth.model.task, prob)
    worth = replace(worth, terms=[(played(worth.model.task, plan), 1.0)])
    found = worth.at(worth.origin)
    image = worth.image(found.slope)
    return Candidate(plan, worth, found, image, float(np.sqrt(max(found.slope @ image, 0.0))))


def optimum(task: Task, prob: Array) -> Any:
    """The best plan for a core; without a last step a `DiscountedPlan` or an `AveragePlan`."""
    if task.endless:
        return solve(from_model(task, prob))
    nothing = np.zeros((1, len(task.sizes)))
    return backward_induction(
        task, prob, task.reward_rows, nothing, np.zeros(task.horizon), clip_nothing(task),
        np.uint64(0),
    ).in_units(task)  # fmt: skip


def correlation(a: Candidate, b: Candidate) -> float:
    scale = a.error * b.error
    return float(a.found.slope @ b.image) / scale if scale > 0 else float(a.error == b.error)


def is_old(made: Candidate, found: list[Candidate]) -> bool:
    return any(correlation(made, c) > NEWS for c in found)


def largest_error(found: list[Candidate], confidence: float) -> float:
    """The quantile of the largest of the candidates' errors, each in its own standard errors."""
    found = [c for i, c in enumerate(found) if c.error > 0 and not is_old(c, found[:i])]
    if len(found) < 2:
        return float(special.ndtri(confidence))
    table = np.array([[correlation(a, b) for b in found] for a in found])
    values, vectors = np.linalg.eigh(table)
    normals = np.random.default_rng(0).standard_normal((NORMALS, len(found)))
    # the symmetric root: that of the vectors alone turns with their signs, which are rounding's
    errors = normals @ (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return float(np.quantile(errors.max(axis=1), confidence))


def draw(model: LogModel | ModelAt, rng: np.random.Generator) -> Array:
    """(d,) an error of the estimate, from its normal approximation."""
    covariance, normals = model.fitted.covariance, rng.standard_normal(len(model.fitted.theta))
    if isinstance(covariance, np.ndarray):
        values, vectors = np.linalg.eigh(covariance)
        return vectors @ (np.sqrt(np.maximum(values, 0.0)) * normals)
    features, theta, counts, lam = model.fitted.fit
    kernels.sampling.draw(features.layout, counts, theta, lam, normals)
    return normals - theta
