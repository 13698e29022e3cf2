"""Plans from a fitted log: greedy, cautious, or for every core in a confidence ellipsoid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse, special

from upriver import kernels
from upriver.checks import Array
from upriver.features import Features
from upriver.logs import cautious
from upriver.logs.decisions import ModelAt
from upriver.logs.extremes import check_model, for_ever
from upriver.logs.fit import LogModel, centred
from upriver.mdp import Task
from upriver.mnl.fitted import FittedMNL
from upriver.mnl.model import Model, at_estimate
from upriver.planning import Plan, empty_plan, optimism, steps_of
from upriver.planning.induction import whole


def plan_with(
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
    or cautious, and a `DiscountedPlan` or an `AveragePlan` as `solve` makes them. The promise of a
    cautious one is then its `v` at the start, or its `gain`.
    """
    check_model(model)
    if not callable(how) and how not in PLANS:
        raise ValueError(f"how is {how!r}; it must be one of {', '.join(PLANS)}")
    if not (isinstance(confidence, float) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence is {confidence!r}; it must lie between 0 and 1")
    if reward is not None:
        task = replace(model.task, reward=reward, arrival=None, reward_range=None)
        model = replace(model, task=task)
    model = for_ever(model, discount, average)
    if how == "greedy":  # the estimate alone: no ellipsoid, which may be large
        return cautious.optimum(model.task, model.prob)
    if how == "cautious":
        return cautious.cautious(model, start, confidence)
    if model.task.endless:
        raise ValueError(
            f"how is {how!r}; without a last step it must be greedy or cautious, which believe one "
            "model for all steps"
        )
    task, rule = model.task, how if callable(how) else PLANS[how]
    beta = float(np.sqrt(special.chdtri(len(model.fitted.theta), 1.0 - confidence)))
    return rule(task, ellipsoid(model), task.reward_rows, beta, np.uint64(0)).in_units(task)


def exact_minimum(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """Q = r + min over the confidence set of P_theta V: eq. (4) with a minus.

    The minimum is c - max P_theta (c - V), with c the largest V, so the exact maximum gives it.
    """
    policy, v, _ = empty_plan(task)
    free, nothing = np.full(1, np.inf), np.zeros((1, len(task.sizes)))

    def backup(h: int) -> Array:
        ahead = v[h + 1][task.successors][None]
        if task.arrival_rows.size:
            ahead = ahead + steps_of(task.arrival_rows, h)
        top, most = ahead.max(), np.empty(len(task.sizes))
        kernels.optimism.sweep_exact(
            task.indptr, task.successors, top - ahead, steps_of(model.prob, h), nothing,
            steps_of(model.geometry, h), task.square_start, beta, -np.inf, free, free, word,
            np.zeros((2, task.n_states)), np.empty_like(policy[:1]), most, whole(1, task.n_states),
        )  # fmt: skip
        q = (steps_of(reward, h)[0] + top - most).reshape(task.n_states, task.n_actions)
        return np.where(task.available, q, -np.inf)

    for h in reversed(range(task.horizon)):
        q = backup(h)
        policy[h], v[h] = q.argmax(axis=1), q.max(axis=1)
    return Plan(policy, v, backup, task)


PLANS: dict[str, Any] = {
    "greedy": None,
    "cautious": None,
    "pessimistic": exact_minimum,
    "optimistic": optimism.exact_maximum,
}


def ellipsoid(model: LogModel | ModelAt) -> Model:
    """What planning reads: the norms of the features in the covariance of the estimate.

    The features are centred at their mean, which the model does not see and which makes the
    norms, and so the bonuses, small.
    """
    task = model.task
    geometry = np.array([
        products(features, p, model.fitted)
        for features, p in zip(model.steps, model.prob, strict=True)
    ])  # fmt: skip
    sizes = np.repeat(task.sizes, task.sizes)
    place = np.arange(task.n_triples) - np.repeat(task.indptr[:-1], task.sizes)
    own = np.repeat(task.square_start[:-1], task.sizes) + place * (sizes + 1)
    norms = np.sqrt(np.maximum(geometry[:, own], 0.0))
    return Model(
        counts=model.counts[None],
        theta=model.fitted.theta[None],
        prob=model.prob,
        width=task.by_pair(norms, np.maximum),
        geometry=geometry,
        logdet=np.zeros((1, 1)),
        regularization=model.fitted.regularization,
    )


def products(features: Features, prob: Array, fitted: FittedMNL) -> Array:
    """(sum U^2,) inner products of the centred features of each (s, a)."""
    task = features.task
    pooled = bool(features.spread)  # whose covariance is no matrix
    rows = centred(features, prob)
    image: Any = None if pooled else rows @ fitted.covariance
    whole = at_estimate(*fitted.fit).geometry[0] if pooled else np.empty(0)
    geometry = np.empty(int(task.square_start[-1]))
    for u in np.unique(task.sizes[task.sizes > 0]):  # pairs with equally many successors at once
        for part in in_parts(np.flatnonzero(task.sizes == u), u * max(u, features.dimension)):
            at = task.indptr[part][:, None] + np.arange(u)
            square = task.square_start[part][:, None] + np.arange(u * u)
            if pooled:
                centre = np.eye(u) - prob[at][:, None, :]
                inner = whole[square].reshape(-1, u, u)
                found = centre @ inner @ np.swapaxes(centre, 1, 2)
            elif sparse.issparse(rows):
                left, right = np.repeat(at, u, axis=1), np.tile(at, (1, u))
                found = image[left.ravel()].multiply(rows[right.ravel()]).sum(axis=1)
            else:
                found = image[at] @ np.swapaxes(rows[at], 1, 2)
            geometry[square] = np.asarray(found).reshape(square.shape)
    return geometry


def in_parts(groups: Array, numbers: int) -> list[Array]:
    """The groups in parts that need arrays of about a million numbers, with `numbers` for each."""
    return np.array_split(groups, -(-len(groups) * numbers // 1_000_000))
