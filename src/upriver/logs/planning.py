"""Plans from a fitted model: greedy, or cautious."""

from __future__ import annotations

from typing import Any

from upriver.checks import check_choice, check_kinds
from upriver.logs.cautious import cautious_plan, optimal_plan
from upriver.logs.model import TransitionModel, check_model
from upriver.logs.value_function import with_infinite_horizon


@check_kinds
def plan_from_model(
    model: TransitionModel, how: str = "greedy", confidence: float = 0.95, start: Any = None,
    *, discount: float | None = None, average: bool = False,
) -> Any:  # fmt: skip
    """Plan with a fitted model.

    Parameters
    ----------
    model
        A fitted model, at fixed covariates.
    how
        "greedy" takes the estimate for the truth. "cautious" maximises a lower confidence bound of
        the plan's own value from `start`; `v[0]` there is the bound, adjusted for choosing the
        plan, see `logs.cautious`.
    confidence
        The probability with which the bound is to hold.
    start
        The first state, or {state: probability}; the first state of the task unless given.
    discount, average
        An infinite horizon with a discount, or its average reward, instead of the task's horizon.
        The bound of a cautious plan is then its `v` at the start, or its `gain`.

    Returns
    -------
    Plan or StationaryPlan
    """
    check_model(model)
    check_choice("how", how, ("greedy", "cautious"))
    model.fitted.quantile(confidence)  # which refuses what is no probability
    model = with_infinite_horizon(model, discount, average)
    if how == "greedy":
        return optimal_plan(model.task, model.prob)
    return cautious_plan(model, start, confidence)
