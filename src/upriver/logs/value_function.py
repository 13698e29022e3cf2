"""The value of policies as a function of theta, with its gradient and its extremes.

A log leaves an ellipsoid of parameters, (theta - theta_hat)^T C^-1 (theta - theta_hat) <= radius^2
with C the covariance of the estimate. A value is far from linear in it: where few episodes reach
the rewards, an estimate that is too low looks too certain as well, and "value ± z standard errors"
misses on one side. So the ends of an interval are the least and the largest value in the ellipsoid
of radius z, the values of two models. To first order they are value ± z standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array
from upriver.logs.model import TransitionModel, check_model
from upriver.mdp import Task
from upriver.mdp.formats import start_of
from upriver.mdp.validation import check_discount
from upriver.planning import mixture_or_actions
from upriver.planning.stationary import solve_visits as stationary_visits
from upriver.planning.tables import stationary_table

ROUNDS = 12  # steps of a search
ENOUGH = 0.01  # a further step that promises less than this share of the gain is not made


class Evaluation(NamedTuple):
    """The value of one policy under one model; see `kernels.value.ValueGradient`."""

    v: Array  # (H + 1, S) values; (2, S) with an infinite horizon
    weight: Array  # (1 | H, n) derivatives of the value in the logits of the triples
    occupancy: Array
    """(S*A,) expected steps in each pair; discounted steps, or shares of time for the average."""
    action_slope: Array
    """(S*A,) derivatives of the value in the probabilities of actions, of a random policy."""
    value: float = 0.0  # From the start; of the average reward the gain


class ValueGradient(NamedTuple):
    """A signed sum of values of policies and its gradient, at one point of the ellipsoid."""

    value: float
    slope: Array  # (d + S*A,) the gradient in theta and in the log-odds of the behaviour's actions
    occupancy: Array  # (S*A,) as in `Evaluation`, summed over the policies
    v: Array  # Values of the last policy, as in `Evaluation`


@dataclass(frozen=True, eq=False)
class PolicyValueFunction:
    """A signed sum of values of policies as a function of theta and of the behaviour policy.

    A point is (d + S*A,): the differences of theta from its estimate, and of the log-odds of the
    actions from those of the log's frequencies; the latter count only where a policy is the
    behaviour.
    """

    model: TransitionModel
    terms: list[tuple[Array | None, float]]
    """Policies, actions (H, S) or probabilities (1 | H, S*A), and signs; None: the behaviour."""
    start: Array  # (S,) probabilities of the first state
    behaviour: Array  # (S*A,) the log's frequencies of the actions in each state
    rows: Array  # (S*A,) the number of rows of the log of each pair's state

    @property
    def task(self) -> Task:
        return self.model.task

    @property
    def origin(self) -> Array:
        """The point of the estimates."""
        return np.zeros(len(self.model.theta) + len(self.behaviour))

    @cached_property
    def used(self) -> Array:
        """(S*A,) whether some policy may take each pair; the others do not matter."""
        used = np.zeros(len(self.behaviour), bool)
        for policy, _ in self.terms:
            used |= True if policy is None else pairs_used(self.task, policy)
        return used

    def at(self, point: Array) -> ValueGradient:
        """Return the value and its gradient at a point."""
        task, d = self.task, len(self.model.theta)
        prob, behaviour = self.model.prob, self.behaviour
        if point[:d].any():
            prob = shifted_probabilities(self.model, point[:d], self.used)
        if point[d:].any():
            behaviour = np.empty_like(behaviour)
            states = np.arange(task.n_states + 1) * task.n_actions
            rows, every = point[d:, None], np.ones(task.n_states, bool)
            kernels.value.tilt_probabilities(
                states, self.behaviour, rows, np.ones(1), every, behaviour
            )
        value, v = 0.0, np.empty(0)
        weight, by_action = np.zeros_like(prob), np.zeros(len(behaviour))
        occupancy = np.zeros(len(behaviour))
        for policy, sign in self.terms:
            table = behaviour[None] if policy is None else policy
            found = evaluate_policy(task, prob, table, self.start)
            value, v = value + sign * found.value, found.v
            weight += sign * found.weight
            occupancy += found.occupancy
            if policy is None:
                by_action += sign * found.action_slope
        mean = (behaviour * by_action).reshape(-1, task.n_actions).sum(axis=1)
        by_action = behaviour * (by_action - np.repeat(mean, task.n_actions))
        slope = np.zeros(d)
        for x, w in zip(self.model.steps, weight, strict=True):
            if sparse.issparse(x.matrix):
                slope += x.matrix.T @ w
            else:
                kernels.value.add_weighted_rows(x.matrix, w, slope)
        return ValueGradient(value, np.concatenate([slope, by_action]), occupancy, v)

    @cached_property
    def influence(self) -> Any:
        """(C, d + S*A) what each cluster adds to the errors of the estimates; None without them.

        Of theta it is the inverse information times the cluster's score. Of the log-odds of action
        a in state s it is (n_c(s, a) - n_c(s) pi(a | s)) / (n(s) pi(a | s)), where n_c counts rows
        of cluster c. Their outer products are the joint sandwich by cluster.
        """
        log, fitted = self.model.log, self.model.fitted
        if log is None or log.cluster is None or fitted.errors != "cluster":
            return None
        n_clusters, n_pairs = fitted.n_clusters, len(self.behaviour)
        pair = np.repeat(log.situations.pair, np.diff(log.situations.indptr))[log.chosen]
        entries = log.weights, (log.cluster, pair)
        counts = sparse.csr_array(entries, (n_clusters, n_pairs))
        states = np.arange(n_pairs) // self.task.n_actions
        of_state = sparse.csr_array((np.ones(n_pairs), states, np.arange(n_pairs + 1)))
        each = self.rows * self.behaviour
        scale = np.divide(1.0, each, out=np.zeros_like(each), where=each > 0)
        expected = (counts @ of_state) @ (of_state.T @ sparse.diags_array(self.behaviour))
        by_action = (counts - expected) @ sparse.diags_array(scale)
        by_theta = log.cluster_scores(fitted.theta) @ fitted.bread
        correction = np.sqrt(n_clusters / (n_clusters - 1.0))
        return sparse.hstack([sparse.csr_array(by_theta), by_action]).tocsr() * correction

    def image(self, slope: Array) -> Array:
        """Return the covariance of the estimates times a gradient.

        Without clusters the log's actions in each state are a multinomial sample, independent of
        the transitions.
        """
        if self.influence is not None:
            return self.influence.T @ (self.influence @ slope)
        d = len(self.model.theta)
        each = self.rows * self.behaviour
        by_action = np.divide(slope[d:], each, out=np.zeros_like(each), where=each > 0)
        return np.concatenate([self.model.fitted.covariance @ slope[:d], by_action])

    def optimize_in_ellipsoid(
        self, centre: ValueGradient, radius: float, sign: float
    ) -> ValueGradient:
        """Return the least (sign -1) or largest (+1) value in the ellipsoid.

        Each step goes towards the end of the ellipsoid that the gradient points to (Frank and
        Wolfe), and is halved while it overshoots: so a direction without data is soon exhausted,
        and the others follow. centre: the value at the estimate.
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
        return best


def build_value_function(
    model: TransitionModel, policies: list[tuple[Any, float]], start: Any
) -> PolicyValueFunction:
    """Return the signed sum of the policies' values as a function of what the log leaves open."""
    task = check_model(model).task
    at, chance = start_of(task, start)
    visits = task.by_pair(model.counts)
    by_state = visits.reshape(task.n_states, task.n_actions).sum(axis=1)
    return PolicyValueFunction(
        model=model, terms=[(policy_table(task, policy), sign) for policy, sign in policies],
        start=np.bincount(at, chance, minlength=task.n_states),
        behaviour=behaviour_policy(task, visits), rows=np.repeat(by_state, task.n_actions),
    )  # fmt: skip


def policy_table(task: Task, policy: Any) -> Array | None:
    """Return actions (H, S) or probabilities (1 | H, S*A); None for the behaviour."""
    if isinstance(policy, str):
        if policy != "behaviour":
            raise ValueError(f"policy is {policy!r}; the only word is 'behaviour'")
        return None
    if task.infinite_horizon:
        policy = stationary_table(task, policy)
    table = mixture_or_actions(task, policy)
    return table if table.ndim == 2 else table.reshape(-1, len(task.sizes))


def behaviour_policy(task: Task, visits: Array) -> Array:
    """Return (S*A,) how often the log took each action; uniform in states that it never saw."""
    table = visits.reshape(task.n_states, task.n_actions)
    total = table.sum(axis=1, keepdims=True)
    uniform = task.available / task.available.sum(axis=1, keepdims=True)
    return np.where(total > 0, table / np.maximum(total, 1e-300), uniform).ravel()


def evaluate_policy(task: Task, prob: Array, policy: Array, start: Array) -> Evaluation:
    """Return the value of a policy and its derivatives, in the user's units.

    policy: actions (H, S), or probabilities (1 | H, S*A).
    """
    if task.infinite_horizon:
        return evaluate_stationary(task, prob, policy, start)
    pairs, mixed = len(task.sizes), policy.dtype.kind == "f"
    found = Evaluation(
        v=np.zeros((task.horizon + 1, task.n_states)), weight=np.zeros_like(prob),
        occupancy=np.zeros(pairs), action_slope=np.zeros(pairs if mixed else 0),
    )  # fmt: skip
    if task.terminal is not None:
        found.v[-1] = task.terminal
    rows = task.indptr, task.successors, prob, *task.user_rewards
    out = kernels.value.ValueGradient(*found[:4])
    if mixed:
        kernels.value.differentiate_random_policy(*rows, policy, start, out)
    else:
        kernels.value.differentiate(*rows, policy, start, out)
    return found._replace(value=float(start @ found.v[0]))


def evaluate_stationary(task: Task, prob: Array, policy: Array, start: Array) -> Evaluation:
    """Return the same for an infinite horizon: the visits are the adjoint of the values."""
    reward, pay = task.user_rewards
    table = policy.reshape(task.n_states, -1) if policy.dtype.kind == "f" else policy[0]
    mixture = table if table.ndim == 2 else np.eye(task.n_actions)[table]
    paid = reward[0] + task.by_pair(prob[0] * pay[0]) if pay.size else reward[0]
    value, v, visits = stationary_visits(task, prob[0], paid, table, start)
    assert task.discount is not None
    ahead = task.discount * v[task.successors] + (pay[0] if pay.size else 0.0)
    mean = task.by_pair(prob[0] * ahead)
    occupancy = (visits[:, None] * mixture).ravel()
    weight = prob[0] * np.repeat(occupancy, task.sizes) * (ahead - np.repeat(mean, task.sizes))
    by_action = np.repeat(visits, task.n_actions) * (reward[0] + mean)
    return Evaluation(np.stack([v, np.zeros_like(v)]), weight[None], occupancy, by_action, value)


def with_infinite_horizon(
    model: TransitionModel, discount: float | None, average: bool
) -> TransitionModel:
    """Return the model with an infinite horizon, where a discount or the average is asked for."""
    task = check_model(model).task
    if discount is None and not average:
        return model
    if discount is not None and average:
        raise ValueError(f"discount is {discount!r} and average is True; it must be one of them")
    by_step = task.reward is not None and task.reward.ndim > 2
    if len(model.steps) > 1 or by_step or task.terminal is not None:
        raise ValueError("the model changes with the step; with a discount or for the average it "
                         "needs one transition and one reward for all steps, and no "
                         "terminal value")  # fmt: skip
    return replace(model, task=replace(task, horizon=1, discount=check_discount(None, discount)))


def pairs_used(task: Task, policy: Array) -> Array:
    """Return (S*A,) whether the policy may take each pair at some step."""
    if policy.dtype.kind == "f":
        return np.any(policy > 0, axis=0)
    used = np.zeros((task.n_states, task.n_actions), bool)
    for actions in policy:
        used[np.arange(task.n_states), actions] = True
    return used.ravel()


def shifted_probabilities(model: TransitionModel, shift: Array, used: Array | None = None) -> Array:
    """Return (1 | H, n) the probabilities at theta_hat + shift, of the pairs that are used."""
    task, prob = model.task, np.empty_like(model.prob)
    used = np.ones(len(task.sizes), bool) if used is None else used
    for x, before, after in zip(model.steps, model.prob, prob, strict=True):
        rows, by = x.matrix, shift
        if sparse.issparse(rows):
            rows, by = np.asarray(rows @ shift)[:, None], np.ones(1)
        kernels.value.tilt_probabilities(task.indptr, before, rows, by, used, after)
    return prob
