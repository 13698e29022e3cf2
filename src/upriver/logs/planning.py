"""Plans from a fitted log: greedy, cautious, or for every core in a confidence ellipsoid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from upriver import kernels
from upriver.logs import cautious
from upriver.logs.decisions import ModelAt
from upriver.logs.extremes import check_model, for_ever
from upriver.logs.fit import LogModel
from upriver.logs.pessimistic import pessimistic, products
from upriver.mnl.model import Model
from upriver.planning import optimism


def plan_from_model(
    model: LogModel | ModelAt,
    how: str | optimism.Optimism = "greedy",
    confidence: float = 0.95,
    reward: Any = None,
    start: Any = None,
    *,
    discount: float | None = None,
    average: bool = False,
) -> Any:
    """Plan with a fitted model: "greedy", "cautious", "pessimistic" or "optimistic".

    greedy takes the estimate for the truth. cautious maximises a lower confidence bound of the
    plan's own value from `start` (a state, or {state: probability}; the first unless given):
    `v[0]` there is the promise, which holds with probability `confidence` although the plan was
    chosen, see `logs.cautious`. The others allow for every core in the ellipsoid
    (theta - theta_hat)^T I (theta - theta_hat) <= chi-squared quantile, I the observed information:
    asymptotically it holds the true core with probability `confidence`, and then an optimistic
    plan's values are at least V*, a pessimistic plan's at most what the plan really earns, at every
    state and step: they take the largest and the smallest expectation in the ellipsoid, for each
    pair by itself, which is far too low for a whole episode. how may also be a function of
    `upriver.planning.optimism`. reward (S, A) or (H, S, A): the task's own unless given.

    discount, or average=True: for a process that never ends instead of the task's horizon, greedy
    or cautious, and a `StationaryPlan` as `solve` makes it. The promise of a
    cautious one is then its `v` at the start, or its `gain`.
    """
    check_model(model)
    if not callable(how) and how not in PLANS:
        raise ValueError(f"how is {how!r}; it must be one of {', '.join(PLANS)}")
    if not (isinstance(confidence, float) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence is {confidence!r}; it must lie between 0 and 1")
    if reward is not None:
        task = replace(model.task, reward=reward, next_state_reward=None, reward_range=None)
        model = replace(model, task=task)
    model = for_ever(model, discount, average)
    if how == "greedy":  # the estimate alone: no ellipsoid, which may be large
        return cautious.optimum(model.task, model.prob)
    if how == "cautious":
        return cautious.cautious(model, start, confidence)
    if model.task.infinite_horizon:
        raise ValueError(
            f"how is {how!r}; without a last step it must be greedy or cautious, which believe one "
            "model for all steps"
        )
    beta = float(np.sqrt(special.chdtri(len(model.fitted.theta), 1.0 - confidence)))
    if how == "pessimistic":
        return pessimistic(model, beta)
    task, rule = model.task, how if callable(how) else optimism.exact_maximum
    return rule(task, ellipsoid(model), task.reward_rows, beta, np.uint64(0)).to_user_units(task)


PLANS = "greedy", "cautious", "pessimistic", "optimistic"


def ellipsoid(model: LogModel | ModelAt) -> Model:
    """What planning reads: the norms of the features in the covariance of the estimate.

    The features are centred at their mean, which the model does not see and which makes the
    norms, and so the bonuses, small.
    """
    task = model.task
    geometry = products(model)
    for p, out in zip(model.prob, geometry, strict=True):
        kernels.ellipsoid.center_products(task.indptr, task.square_start, p, out)
    sizes = np.repeat(task.sizes, task.sizes)
    place = np.arange(task.n_triples) - np.repeat(task.indptr[:-1], task.sizes)
    own = np.repeat(task.square_start[:-1], task.sizes) + place * (sizes + 1)
    norms = np.sqrt(np.maximum(geometry[:, own], 0.0))
    return Model(
        counts=model.counts[None],
        theta=model.fitted.theta[None],
        prob=model.prob,
        max_norm=task.by_pair(norms, np.maximum),
        inverse_products=geometry,
        logdet=np.zeros((1, 1)),
        regularization=model.fitted.regularization,
    )
