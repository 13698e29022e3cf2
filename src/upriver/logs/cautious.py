"""A plan that maximises a lower confidence bound of its own value, with its choice paid for.

The rectangular pessimism of `plan_from_model(model, "pessimistic")` lets every pair (s, a) have its own
worst core at every step. No single core is that bad. Here the bound is that of the whole policy:
its least value over one ellipsoid of cores, as `policy_value` has it.

A plan that was chosen because it looks good looks better than it is. Where no error of the
estimate would have led to another plan, nothing was chosen, and the bound is the one of a single
policy. Else the plan is chosen by one half of what the log says, and its bound made from the other
half. The halves are made by noise: with w drawn from the law of the estimate's error, theta_hat + w
and theta_hat - w have independent errors, each twice as variable, as if half of the rows had made
each (Leiner, Duan, Wasserman and Ramdas 2023, data fission). So it does not matter how many plans
were tried; it is the same for dense and pooled features, for covariates and clustered errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy import special

from upriver.checks import Array
from upriver.logs.decisions import ModelAt
from upriver.logs.extremes import Found, Worth, moved, played, sweep, worth_of
from upriver.logs.fit import LogModel
from upriver.mdp import Task
from upriver.mdp.formats import from_model
from upriver.planning import Plan, backward_induction, clip_nothing, solve

WIDE = 3.0  # an error is tried three times as large: rare choices are to be found
MATTERS = 0.1  # standard errors by which a choice may flatter before it is paid for
REPLIES = 8  # plans tried by the half of the log that chooses


class Candidate(NamedTuple):
    plan: Any
    """A Plan, or without a last step one for ever."""
    worth: Worth
    found: Found
    image: Array
    error: float
    """The standard error of its value."""
    noise: float
    """The part of it that the log's chance makes; the rest is what the ridge holds back."""

    def along(self, shift: Array) -> float:
        """How much larger the value is, to first order, where theta is moved."""
        return float(self.found.slope[: len(shift)] @ shift)

    def bad(self, radius: float) -> Array:
        """(d,) where theta is worst for this plan, `radius` standard errors from the estimate."""
        d = len(self.worth.model.fitted.theta)
        return self.image[:d] * (-radius / max(self.error, 1e-300))


def cautious(model: LogModel | ModelAt, start: Any, confidence: float) -> Any:
    """The plan with the best lower bound; v are its values under its worst core, in user's units.

    v[0] at the start is the promise: at most what the plan earns, with probability `confidence`.
    Without a last step it is v there, or the gain.
    """
    # noise that differs from log to log, else it would be a part of the truth
    rng = np.random.default_rng(crc32(model.counts.tobytes()))
    z, worth = float(special.ndtri(confidence)), worth_of(model, [], start)
    best, radius = candidate(worth, model.prob), z
    if was_chosen(best, z, rng):
        w = draw(model, rng)
        best = chosen_by(w, worth, z, rng)
        # theta_hat - w says: value - along(w), with its own standard error
        below = best.along(w) + z * np.hypot(best.error, best.noise)
        radius = below / max(best.error, 1e-300)
    worst, _ = best.worth.extreme(best.found, abs(radius), -np.sign(radius))
    if not model.task.infinite_horizon:
        return Plan(best.plan.policy, worst.v, None, model.task)
    if model.task.discount == 1.0:
        bias = worst.v[0] - worst.v[0].mean()
        return best.plan._replace(gain=worst.value, v=bias)
    return best.plan._replace(v=worst.v[0])


def was_chosen(best: Candidate, z: float, rng: np.random.Generator) -> bool:
    """Whether an error of the estimate would have led to another plan, to an advantage.

    Tried: what is bad for this plan, and a drawn error, in which many small choices add up.
    """
    worth, model = best.worth, best.worth.model

    def value(plan: Any, prob: Array) -> float:
        table = played(model.task, plan)
        assert table is not None
        return sweep(model.task, prob, table, worth.first).value

    for error in (best.bad(z), draw(model, rng)):
        prob = moved(model, WIDE * error)
        other = optimum(model.task, prob)
        ahead = value(other, prob) - value(best.plan, prob)
        behind = best.found.value - value(other, model.prob)
        if ahead + behind > WIDE * MATTERS * best.error:
            return True
    return False


def chosen_by(w: Array, worth: Worth, z: float, rng: np.random.Generator) -> Candidate:
    """The plan whose bound promises most when theta_hat + w is all that is known.

    Tried: its optimum, best replies to what is bad for the best so far, and optima around it.
    """
    model = worth.model

    def promise(c: Candidate) -> float:
        return c.found.value + c.along(w) - z * np.hypot(c.error, c.noise)

    best = candidate(worth, moved(model, w))
    for k in range(REPLIES):
        error = best.bad(z) if k % 2 == 0 else WIDE * draw(model, rng)
        best = max(best, candidate(worth, moved(model, w + error)), key=promise)
    return best


def candidate(worth: Worth, prob: Array) -> Candidate:
    """The optimum of a core, and what it is worth under the estimate."""
    plan = optimum(worth.model.task, prob)
    worth = replace(worth, terms=[(played(worth.model.task, plan), 1.0)])
    found = worth.at(worth.origin)
    image, model = worth.image(found.slope), worth.model
    variance = max(float(found.slope @ image), 0.0)
    kept = model.fitted.regularization * float(image @ image) if by_counts(model) else 0.0
    noise = float(np.sqrt(max(variance - kept, 0.0)))
    return Candidate(plan, worth, found, image, float(np.sqrt(variance)), noise)


def optimum(task: Task, prob: Array) -> Any:
    """The best plan for a core; without a last step a `StationaryPlan`."""
    if task.infinite_horizon:
        return solve(from_model(task, prob))
    nothing = np.zeros((1, len(task.sizes)))
    return backward_induction(
        task, prob, task.reward_rows, nothing, np.zeros(task.horizon), clip_nothing(task),
        np.uint64(0),
    ).to_user_units(task)  # fmt: skip


def by_counts(model: LogModel | ModelAt) -> bool:
    """Whether the law of the estimate's error can be told from that of the counts."""
    return isinstance(model, LogModel) and model.fitted.errors == "classical"


def draw(model: LogModel | ModelAt, rng: np.random.Generator) -> Array:
    """(d,) an error of the estimate as the chance of the log makes it, to first order.

    The information's inverse times a score of multinomial counts. What no row speaks of does not
    move: there the ridge holds the estimate.
    """
    fitted, task = model.fitted, model.task
    if by_counts(model):
        p = model.prob[0]
        rows = np.repeat(task.by_pair(model.counts), task.sizes)
        score = np.sqrt(rows * p) * rng.standard_normal(len(p))
        score -= p * np.repeat(task.by_pair(score), task.sizes)
        return fitted.covariance @ (model.steps[0].matrix.T @ score)
    values, vectors = np.linalg.eigh(fitted.covariance)
    return vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(values)))
