"""The least and the largest value of a policy among the models that a log does not reject.

A log leaves an ellipsoid of cores, (theta - theta_hat)^T C^-1 (theta - theta_hat) <= radius^2 with
C the covariance of the estimate. A value is far from linear in it: where few episodes reach what
pays, an estimate that is too low looks too sure as well, and "value ± z standard errors" misses on
one side. So the ends of an interval are the least and the largest value in the ellipsoid of radius
z, the values of two models. To first order they are value ± z standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array
from upriver.logs.decisions import ModelAt
from upriver.logs.fit import LogModel
from upriver.mdp import Task
from upriver.mdp.declaring import checked_discount
from upriver.mdp.formats import start_of
from upriver.planning import mixture_or_actions
from upriver.planning.tables import stationary_table
from upriver.planning.visits import solve_visits as visits_for_ever

ROUNDS = 12  # steps of a search
ENOUGH = 0.01  # of what was gained: a further step that promises less is not made


class Swept(NamedTuple):
    """See `kernels.value.ValueGradient`."""

    v: Array
    weight: Array
    occupancy: Array
    worth: Array
    value: float = 0.0
    """From the start; of the average reward the gain."""


class Found(NamedTuple):
    """A value, and how it moves: all at one point of the ellipsoid."""

    value: float
    slope: Array
    """(d + S*A,) the gradient in theta and in the log-odds of the behaviour's actions."""
    occupancy: Array
    """(S*A,) expected steps of an episode in each pair, of all policies together; with a discount
    discounted steps, of the average reward shares of time."""
    v: Array
    """(H + 1, S) values of the last policy; (2, S) without a last step."""


@dataclass(frozen=True, eq=False)
class Worth:
    """A signed sum of values of policies, as a function of the core and of the behaviour.

    A point is (d + S*A,): how far theta is from its estimate, and the log-odds of the actions from
    those of the log's own frequencies, which matter only where a policy is the log's behaviour.
    """

    model: LogModel | ModelAt
    terms: list[tuple[Array | None, float]]
    """Policies, whole numbers (H, S) or probabilities (1 | H, S*A), and signs; None: behaviour."""
    first: Array
    """(S,) chances of the states where episodes start."""
    behaviour: Array
    """(S*A,) the log's own frequencies of the actions in each state."""
    rows: Array
    """(S*A,) rows of the log of each pair's state."""

    @property
    def origin(self) -> Array:
        return np.zeros(len(self.model.fitted.theta) + len(self.behaviour))

    @cached_property
    def used(self) -> Array:
        """(S*A,) whether some policy may play each pair: the others do not matter."""
        task, used = self.model.task, np.zeros(len(self.behaviour), bool)
        for policy, _ in self.terms:
            used |= True if policy is None else pairs_of(task, policy)
        return used

    def at(self, point: Array) -> Found:
        task, d = self.model.task, len(self.model.fitted.theta)
        prob, did = self.model.prob, self.behaviour
        if point[:d].any():
            prob = moved(self.model, point[:d], self.used)
        if point[d:].any():
            did = np.empty_like(did)
            states = np.arange(task.n_states + 1) * task.n_actions
            rows, whole = point[d:, None], np.ones(task.n_states, bool)
            kernels.value.tilt_probabilities(states, self.behaviour, rows, np.ones(1), whole, did)
        value, v = 0.0, np.empty(0)
        weight, worth, occupancy = np.zeros_like(prob), np.zeros(len(did)), np.zeros(len(did))
        for policy, sign in self.terms:
            found = sweep(task, prob, did[None] if policy is None else policy, self.first)
            value, v = value + sign * found.value, found.v
            weight += sign * found.weight
            occupancy += found.occupancy
            if policy is None:
                worth += sign * found.worth
        mean = (did * worth).reshape(-1, task.n_actions).sum(axis=1)
        by_action = did * (worth - np.repeat(mean, task.n_actions))
        slope = np.zeros(d)
        for x, w in zip(self.model.steps, weight, strict=True):
            if sparse.issparse(x.matrix):
                slope += x.matrix.T @ w
            else:
                kernels.value.add_weighted_rows(x.matrix, w, slope)
        return Found(value, np.concatenate([slope, by_action]), occupancy, v)

    def image(self, slope: Array) -> Array:
        """The covariance of the estimates, times a gradient.

        In each state the log's actions are a multinomial sample, independent of the transitions.
        """
        d = len(self.model.fitted.theta)
        each = self.rows * self.behaviour
        by_action = np.divide(slope[d:], each, out=np.zeros_like(each), where=each > 0)
        return np.concatenate([self.model.fitted.covariance @ slope[:d], by_action])

    def extreme(self, centre: Found, radius: float, sign: float) -> tuple[Found, Array]:
        """The least (sign -1) or largest (+1) value in the ellipsoid, and its point.

        Steps towards the end of the ellipsoid that the gradient points to (Frank and Wolfe),
        halved while they overshoot: a direction without data is soon exhausted, and the others
        get their turn. `centre` is what was found at the estimate.
        """
        here, best = self.origin, centre
        for _ in range(ROUNDS):
            image = self.image(best.slope)
            length = float(np.sqrt(max(best.slope @ image, 0.0)))
            if length == 0.0:
                break
            aim = image * (sign * radius / length)
            hope, gained = sign * best.slope @ (aim - here), sign * (best.value - centre.value)
            if gained > 0.0 and hope <= ENOUGH * gained:
                break
            for share in (1.0, 0.5, 0.25, 0.125):
                there = (1.0 - share) * here + share * aim
                found = self.at(there)
                if sign * (found.value - best.value) > 0.0:
                    break
            else:
                break
            here, best = there, found
        return best, here


def worth_of(model: LogModel | ModelAt, policies: list[tuple[Any, float]], start: Any) -> Worth:
    """The signed sum of the policies' values, as a function of what the log leaves open."""
    check_model(model)
    task = model.task
    at, chance = start_of(task, start)
    rows = visits_of(task, model.counts).reshape(task.n_states, task.n_actions).sum(axis=1)
    return Worth(
        model=model,
        terms=[(played(task, policy), sign) for policy, sign in policies],
        first=np.bincount(at, chance, minlength=task.n_states),
        behaviour=behaviour(task, model.counts),
        rows=np.repeat(rows, task.n_actions),
    )


def played(task: Task, policy: Any) -> Array | None:
    """Whole numbers (H, S) or probabilities (1 | H, S*A); None for the behaviour."""
    if isinstance(policy, str):
        if policy != "behaviour":
            raise ValueError(f"policy is {policy!r}; the only word is 'behaviour'")
        return None
    if task.infinite_horizon:
        policy = stationary_table(task, policy)
    table = mixture_or_actions(task, policy)
    return table if table.ndim == 2 else table.reshape(-1, len(task.sizes))


def visits_of(task: Task, counts: Array) -> Array:
    """(S*A,) rows of the log of each pair."""
    return np.bincount(np.repeat(np.arange(len(task.sizes)), task.sizes), counts, len(task.sizes))


def behaviour(task: Task, counts: Array) -> Array:
    """(S*A,) how often the log took each action; all alike in states that it never saw."""
    table = visits_of(task, counts).reshape(task.n_states, task.n_actions)
    total = table.sum(axis=1, keepdims=True)
    even = task.available / task.available.sum(axis=1, keepdims=True)
    return np.where(total > 0, table / np.maximum(total, 1e-300), even).ravel()


def sweep(task: Task, prob: Array, policy: Array, first: Array) -> Swept:
    """policy: whole numbers (H, S), or probabilities (1 | H, S*A). In the user's units."""
    if task.infinite_horizon:
        return sweep_for_ever(task, prob, policy, first)
    groups, mixed = len(task.sizes), policy.dtype.kind == "f"
    found = Swept(
        v=np.zeros((task.horizon + 1, task.n_states)),
        weight=np.zeros_like(prob),
        occupancy=np.zeros(groups),
        worth=np.zeros(groups if mixed else 0),
    )
    if task.terminal is not None:
        found.v[-1] = task.terminal
    k = kernels.value
    (k.differentiate_random_policy if mixed else k.differentiate)(
        task.indptr, task.successors, prob, *task.user_rewards, policy, first,
        k.ValueGradient(*found[:4]),
    )  # fmt: skip
    return found._replace(value=float(first @ found.v[0]))


def sweep_for_ever(task: Task, prob: Array, policy: Array, first: Array) -> Swept:
    """The same without a last step: the visits are the adjoint of the values."""
    reward, pay = task.user_rewards
    table = policy.reshape(task.n_states, -1) if policy.dtype.kind == "f" else policy[0]
    mixture = table if table.ndim == 2 else np.eye(task.n_actions)[table]
    paid = reward[0] + task.by_pair(prob[0] * pay[0]) if pay.size else reward[0]
    value, v, visits = visits_for_ever(task, prob[0], paid, table, first)
    assert task.discount is not None
    ahead = task.discount * v[task.successors] + (pay[0] if pay.size else 0.0)
    mean = task.by_pair(prob[0] * ahead)
    occupancy = (visits[:, None] * mixture).ravel()
    weight = prob[0] * np.repeat(occupancy, task.sizes) * (ahead - np.repeat(mean, task.sizes))
    worth = np.repeat(visits, task.n_actions) * (reward[0] + mean)
    return Swept(np.stack([v, np.zeros_like(v)]), weight[None], occupancy, worth, value)


def for_ever(
    model: LogModel | ModelAt, discount: float | None, average: bool
) -> LogModel | ModelAt:
    """The model without a last step, where a discount or the average is asked for."""
    check_model(model)
    if discount is None and not average:
        return model
    if discount is not None and average:
        raise ValueError(f"discount is {discount!r} and average is True; it must be one of them")
    task = model.task
    steps = task.reward is not None and task.reward.ndim > 2
    if len(model.prob) > 1 or steps or task.terminal is not None:
        raise ValueError(
            "the model changes with the step; with a discount or for the average it needs one "
            "transition and one reward for all steps, and no terminal value"
        )
    return replace(model, task=replace(task, horizon=1, discount=checked_discount(None, discount)))


def pairs_of(task: Task, policy: Array) -> Array:
    """(S*A,) whether the policy may play each pair at some step."""
    if policy.dtype.kind == "f":
        return np.any(policy > 0, axis=0, keepdims=True)[0]
    played = np.zeros((task.n_states, task.n_actions), bool)
    for actions in policy:
        played[np.arange(task.n_states), actions] = True
    return played.ravel()


def moved(model: LogModel | ModelAt, shift: Array, used: Array | None = None) -> Array:
    """(1 | H, n) the fitted probabilities with theta moved, where they are used."""
    task, prob = model.task, np.empty_like(model.prob)
    if used is None:
        used = np.ones(len(task.sizes), bool)
    for x, before, after in zip(model.steps, model.prob, prob, strict=True):
        rows, by = x.matrix, shift
        if sparse.issparse(rows):
            rows, by = np.asarray(rows @ shift)[:, None], np.ones(1)
        kernels.value.tilt_probabilities(task.indptr, before, rows, by, used, after)
    return prob


def check_model(model: Any) -> None:
    if not isinstance(model, LogModel | ModelAt):
        raise TypeError(
            f"model is a {type(model).__name__}; it must come from fit_from_log, or from "
            "fit_transitions with .at(...)"
        )
