"""Plans from a fitted model: greedy, cautious, or for all parameters in an ellipsoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse, special

from upriver import kernels
from upriver.checks import Array, check_kinds
from upriver.logs.cautious import cautious_plan, optimal_plan
from upriver.logs.model import TransitionModel, check_model, with_reward
from upriver.logs.value_function import with_infinite_horizon
from upriver.mnl.choices import in_chunks
from upriver.mnl.model import Model, at_estimate
from upriver.planning import Plan, optimism

PLANS = "greedy", "cautious", "pessimistic", "optimistic"


@check_kinds
def plan_from_model(
    model: TransitionModel, how: str | Callable[..., Any] = "greedy", confidence: float = 0.95,
    reward: Any = None, start: Any = None, *, discount: float | None = None, average: bool = False,
) -> Any:  # fmt: skip
    """Plan with a fitted model.

    Parameters
    ----------
    model
        A fitted model, at fixed covariates.
    how
        "greedy" takes the estimate for the truth. "cautious" maximises a lower confidence bound of
        the plan's own value from `start`; `v[0]` there is the bound, adjusted for choosing the
        plan, see `logs.cautious`. "pessimistic" and "optimistic" take, for each pair by itself, the
        smallest and the largest expectation over the ellipsoid
        (theta - theta_hat)^T C^-1 (theta - theta_hat) <= chi-squared quantile, which is far too low
        and too high for a whole episode: if the ellipsoid holds the true parameter, the values of
        an optimistic plan are at least V*, those of a pessimistic plan at most what the plan
        earns, at every state and step. A function of `upriver.planning.optimism` is a plan too.
    confidence
        The probability with which the bound, or the ellipsoid, is to hold.
    reward
        (S, A) or (H, S, A), or as in `TransitionModel.at`; the task's own unless given.
    start
        The first state, or {state: probability}; the first state of the task unless given.
    discount, average
        An infinite horizon with a discount, or its average reward, instead of the task's horizon;
        greedy or cautious. The bound of a cautious plan is then its `v` at the start, or its
        `gain`.

    Returns
    -------
    Plan or StationaryPlan
    """
    check_model(model)
    if not callable(how) and how not in PLANS:
        raise ValueError(f"how is {how!r}; it must be one of {', '.join(PLANS)}")
    model.fitted.quantile(confidence)  # which refuses what is no probability
    if reward is not None:
        model = with_reward(model, reward)
    model = with_infinite_horizon(model, discount, average)
    if how == "greedy":  # the estimate alone: no ellipsoid, which may be large
        return optimal_plan(model.task, model.prob)
    if how == "cautious":
        return cautious_plan(model, start, confidence)
    if model.task.infinite_horizon:
        raise ValueError(f"how is {how!r}; with an infinite horizon it must be greedy or cautious")
    beta = float(np.sqrt(special.chdtri(len(model.fitted.theta), 1.0 - confidence)))
    if how == "pessimistic":
        return pessimistic(model, beta)
    task, rule = model.task, how if callable(how) else optimism.exact_maximum
    return rule(task, ellipsoid(model), task.reward_rows, beta, np.uint64(0)).to_user_units(task)


def pessimistic(model: TransitionModel, beta: float) -> Plan:
    """Return Q = r + min over the confidence set of P_theta V, for each pair by itself, as (4)."""
    task = model.task
    norms = np.empty((1, 0))  # which this plan does not read
    ellipsoid = kernels.optimism.Ellipsoid(model.prob, norms, products(model), task.square_start)
    plan = optimism.plan_in_ellipsoid(task, ellipsoid, task.reward_rows, -beta, np.uint64(0))
    return plan.to_user_units(task)


def products(model: TransitionModel) -> Array:
    """Return (1 | H, sum U^2) inner products of the features of each pair in the covariance."""
    fitted, task = model.fitted, model.steps[0].task
    found = np.empty((len(model.prob), int(model.task.square_start[-1])))
    for features, out in zip(model.steps, found, strict=True):
        matrix = features.matrix
        if features.spread:  # whose covariance is no matrix
            out[:] = at_estimate(*fitted.fit).inverse_products[0]
        elif sparse.issparse(matrix):
            image = matrix @ fitted.covariance
            for u in np.unique(task.sizes[task.sizes > 0]):  # pairs with as many successors at once
                pairs = np.flatnonzero(task.sizes == u)
                # in parts that need arrays of about a million numbers
                for part in np.array_split(pairs, -(-len(pairs) * u * u // 1_000_000)):
                    at = task.indptr[part][:, None] + np.arange(u)
                    square = task.square_start[part][:, None] + np.arange(u * u)
                    left, right = np.repeat(at, u, axis=1), np.tile(at, (1, u))
                    sums = image[left.ravel()].multiply(matrix[right.ravel()]).sum(axis=1)
                    out[square] = np.asarray(sums).reshape(square.shape)
        else:
            values, vectors = np.linalg.eigh(fitted.covariance)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            for first, last in in_chunks(task.indptr, 10_000):  # which stay in the cache
                ends, starts = task.indptr[first : last + 1], task.square_start[first:]
                rows = matrix[ends[0] : ends[-1]] @ root
                kernels.ellipsoid.compute_products(ends, starts, rows, out)
    return found


def ellipsoid(model: TransitionModel) -> Model:
    """Return what planning reads: norms of the features in the covariance of the estimate.

    The features are centred at their mean, which does not change the model and makes the norms,
    and so the bonuses, small.
    """
    task = model.task
    geometry = products(model)
    for p, out in zip(model.prob, geometry, strict=True):
        kernels.ellipsoid.center_products(task.indptr, task.square_start, p, out)
    sizes = np.repeat(task.sizes, task.sizes)
    place = np.arange(task.n_triples) - np.repeat(task.indptr[:-1], task.sizes)
    diagonal = np.repeat(task.square_start[:-1], task.sizes) + place * (sizes + 1)
    norms = np.sqrt(np.maximum(geometry[:, diagonal], 0.0))
    return Model(
        counts=model.counts[None], theta=model.fitted.theta[None], prob=model.prob,
        max_norm=task.by_pair(norms, np.maximum), inverse_products=geometry,
        logdet=np.zeros((1, 1)), regularization=model.fitted.regularization,
    )  # fmt: skip
