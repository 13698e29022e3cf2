"""Plans from a fitted model: greedy, or cautious; docs/explanation/intervals.md says how it works.

A cautious plan maximises a lower confidence bound of its own value. The bound is that of the whole
policy, its least value over one ellipsoid of parameters: a worst parameter for each pair (s, a) and
step would give one that is much too low. With w drawn from the distribution of the estimate's
error, theta_hat + w and theta_hat - w have independent errors, as if half of the rows had made each
(data fission; Leiner, Duan, Wasserman and Ramdas 2023): one chooses the plan, the other bounds it.
The draw of w is fixed by the counts of the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy import special

from upriver.checks import Array, check_choice, check_kinds, open_fraction
from upriver.logs.model import TransitionModel, for_population
from upriver.logs.value_function import (
    PolicyValueFunction,
    ValueGradient,
    build_value_function,
    evaluate_policy,
    policy_table,
)  # fmt: skip
from upriver.mdp import Task
from upriver.mdp.building import from_model
from upriver.planning import Plan, solve

ENLARGED = 3.0  # errors are tried three times as large, so that rare choices are found
MATTERS = 0.1  # standard errors by which a choice may flatter before the bound is adjusted
REPLIES = 8  # plans tried by the half of the log that chooses


class Candidate(NamedTuple):
    """A plan and its value under the estimate."""

    plan: Any  # A Plan, or a StationaryPlan with an infinite horizon
    function: PolicyValueFunction
    centre: ValueGradient
    image: Array  # The covariance of all estimates times the gradient of the value
    error: float  # The standard error of its value

    def worst_shift(self, radius: float) -> Array:
        """Return the worst shift of the estimates, `radius` standard errors from them."""
        # where the value has no error, rounding may leave an image
        return self.image * (-radius / self.error if self.error > 0.0 else 0.0)


@check_kinds
def plan_from_model(model: TransitionModel, how: str = "greedy", confidence: float = 0.95) -> Any:
    """Plan with a fitted model, for its population.

    Parameters
    ----------
    model
        A fitted model; where individuals have covariates of their own, the plan depends on them.
    how
        "greedy" takes the estimate for the truth. "cautious" maximises a lower confidence bound of
        the plan's own value for the population; `v[0]` there is the bound, adjusted for choosing
        the plan, see `logs.planning`. With an infinite horizon it is `v` there, or the `gain`.
    confidence
        The probability with which the bound is to hold.

    Returns
    -------
    Plan or StationaryPlan
    """
    model = for_population(model)
    check_choice("how", how, ("greedy", "cautious"))
    open_fraction("confidence", confidence)
    if how == "greedy":
        return optimal_plan(model.task, model.prob)
    best, w = find_cautious(model, confidence)
    z = special.stdtrit(best.function.degrees(best.centre), confidence)
    worst, task = lowest(best.function, w, z), model.task  # v: values at the worst parameter
    if not task.infinite_horizon:
        return Plan(best.plan.policy, worst.v, None, task)
    if task.discount == 1.0:
        return best.plan._replace(gain=worst.value, v=worst.v[0] - worst.v[0].mean())
    return best.plan._replace(v=worst.v[0])


def find_cautious(model: TransitionModel, confidence: float) -> tuple[Candidate, Array | None]:
    """Return the cautious plan, and the error that the half of the log which chose it had.

    There is no such error where the pre-test finds that nothing was chosen.
    """
    # noise that differs from log to log, otherwise it would be a fixed shift of the estimate
    rng = np.random.default_rng(crc32(model.counts.tobytes()))
    z = special.stdtrit(model.fitted.degrees, confidence)
    function = build_value_function(model, [])
    best = build_candidate(function, function.origin)
    if not is_chosen(best, z, rng):
        return best, None
    w = function.draw(rng)
    return choose_candidate(w, function, z, rng), w


def lowest(function: PolicyValueFunction, w: Array | None, z: float) -> ValueGradient:
    """Return the least value that is z standard errors below the estimate of another half.

    w: the error of the half that chose the plan; None where nothing was chosen.
    """
    centre = function.at(function.origin)
    error = standard_error(centre, function.image(centre.slope))
    radius = z
    if w is not None:
        # theta_hat - w gives the value minus the change, with a standard error of its own
        below = float(centre.slope @ w) + z * np.sqrt(2.0) * error
        # the halves may disagree so much that this is above the estimate, which no bound should be
        radius = max(below, 0.0) / max(error, 1e-300)
    return function.optimize_in_ellipsoid(centre, radius, -1.0)


def standard_error(centre: ValueGradient, image: Array) -> float:
    """Return the standard error of a value; image: the covariance times its gradient."""
    return float(np.sqrt(max(float(centre.slope @ image), 0.0)))


def is_chosen(best: Candidate, z: float, rng: np.random.Generator) -> bool:
    """Return whether an error of the estimate would have led to a plan that looks better.

    The errors tried are the worst for this plan, and a random one, in which many small choices
    add up.
    """
    function, task = best.function, best.function.model.task

    def value(plan: Any, world: Any) -> float:
        table = policy_table(task, plan)
        assert table is not None
        return evaluate_policy(task, world[0], table, function.start, world[1]).value

    for error in (best.worst_shift(z), function.draw(rng)):
        world = function.world(ENLARGED * error)
        other = optimal_plan(task, *world)
        ahead = value(other, world) - value(best.plan, world)
        behind = best.centre.value - value(other, function.world(function.origin))
        if ahead + behind > ENLARGED * MATTERS * best.error:
            return True
    return False


def choose_candidate(
    w: Array, function: PolicyValueFunction, z: float, rng: np.random.Generator
) -> Candidate:
    """Return the plan with the best bound when only the estimates + w are known.

    Tried are their optimum, best replies to the worst parameter of the best so far, and optima of
    parameters around it.
    """

    def bound(c: Candidate) -> float:
        return float(c.centre.value + c.centre.slope @ w - z * np.sqrt(2.0) * c.error)

    best = build_candidate(function, w)
    for k in range(REPLIES):
        error = best.worst_shift(z) if k % 2 == 0 else ENLARGED * function.draw(rng)
        reply = build_candidate(function, w + error)
        best = max(best, reply, key=bound)
    return best


def build_candidate(function: PolicyValueFunction, point: Array) -> Candidate:
    """Return the optimal plan at a point, and its value under the estimate."""
    task = function.model.task
    plan = optimal_plan(task, *function.world(point))
    function = replace(function, terms=[(policy_table(task, plan), 1.0)])
    centre = function.at(function.origin)
    image = function.image(centre.slope)
    return Candidate(plan, function, centre, image, standard_error(centre, image))


def optimal_plan(task: Task, prob: Array, rewards: tuple[Array, Array] | None = None) -> Any:
    """Return the best plan for some probabilities; a stationary one with an infinite horizon.

    rewards: instead of `task.user_rewards`.
    """
    if rewards is not None and rewards[1] is not task.user_rewards[1]:
        task = replace(task, next_state_reward=rewards[1], reward_range=None)
    return solve(from_model(task, prob))
