"""The value of policies as a function of theta, with its gradient and its extremes.

A log leaves an ellipsoid of parameters, (theta - theta_hat)^T C^-1 (theta - theta_hat) <= radius^2
with C the covariance of the estimate. The ends of an interval are the least and the largest value
in the ellipsoid of radius z. To first order they are value ± z standard errors, which would miss on
one side where few episodes reach the rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array
from upriver.logs.model import TransitionModel
from upriver.logs.rewards import RewardEstimates
from upriver.logs.situations import find_distinct
from upriver.mdp import Task
from upriver.mnl.clusters import stack_influence
from upriver.planning import mixture_or_actions, steps_of
from upriver.planning.stationary import solve_visits as stationary_visits

ROUNDS = 12  # steps of a search
ENOUGH = 0.01  # a further step that promises less than this share of the gain is not made


class Evaluation(NamedTuple):
    """The value of one policy under one model; see `kernels.planning.differentiate`."""

    v: Array  # (H + 1, S) values; (2, S) with an infinite horizon
    weight: Array  # (1 | H, n) derivatives of the value in the logits of the triples
    occupancy: Array
    """(1 | H, S*A) expected steps in each pair; discounted steps, or shares of time for the
    average."""
    action_slope: Array
    """(1 | H, S*A) derivatives of the value in the probabilities of actions, of a random policy."""
    value: float = 0.0  # From the start; of the average reward the gain


class ValueGradient(NamedTuple):
    """A signed sum of values of policies and its gradient, at one point of the ellipsoid."""

    value: float
    slope: Array  # (d + B + R,) the gradient in all that was estimated
    occupancy: Array  # (S*A,) as in `Evaluation`, summed over steps and policies
    v: Array  # Values of the last policy, as in `Evaluation`


@dataclass(frozen=True, eq=False)
class PolicyValueFunction:
    """A signed sum of values of policies as a function of what was estimated from the log.

    A point is (d + B + R,): the differences from their estimates of theta, of the coefficients of
    the model of the actions (see `logs.behaviour`), and of the coefficients of rewards that came
    from columns. Those of the actions count only where a policy is the behaviour.
    """

    model: TransitionModel
    terms: list[tuple[Array | None, float]]
    """Policies, actions (H, S) or probabilities (1 | H, S*A), and signs; None: the behaviour."""
    start: Array  # (S,) probabilities of the first state

    @property
    def rewards(self) -> RewardEstimates | None:
        """The rewards that were estimated, where the task has some."""
        return None if self.model.reward_rows is None else self.model.log.rewards

    @property
    def origin(self) -> Array:
        """The point of the estimates."""
        n = 0 if self.rewards is None else len(self.rewards.coefficients)
        return np.zeros(len(self.model.theta) + self.model.behaviour.coefficients.size + n)

    def split(self, point: Array) -> list[Array]:
        """Return the parts of a point: theta, behaviour, rewards."""
        d = len(self.model.theta)
        return np.split(point, [d, d + self.model.behaviour.coefficients.size])

    def done(self, shift: Array | None = None) -> Array:
        """Return (1 | H, S*A) what was done; shift: what is added to its coefficients."""
        z = self.model.behaviour_columns
        steps = [self.model.behaviour.probabilities(x, shift).ravel() for x in z]
        return np.array(steps)

    def world(self, point: Array) -> tuple[Array, tuple[Array, Array]]:
        """Return probabilities (1 | H, n) and rewards at a point."""
        theta, _, paid = self.split(point)
        prob, (reward, pay) = self.model.prob, self.model.task.user_rewards
        if theta.any():
            prob = shifted_probabilities(self.model, theta)
        if paid.any():
            assert self.model.reward_rows is not None
            more = self.model.reward_rows.change(paid)
            pay = np.ascontiguousarray(pay + more if pay.size else more)
        return prob, (reward, pay)

    def at(self, point: Array) -> ValueGradient:
        """Return the value and its gradient at a point."""
        task, (_, shift, more) = self.model.task, self.split(point)
        prob, rewards = self.world(point)
        value, v, n_pairs, columns = 0.0, np.empty(0), len(task.sizes), self.model.reward_rows
        weight, occupancy, paid = np.zeros_like(prob), np.zeros(n_pairs), np.zeros(len(more))
        by_action = np.zeros_like(self.model.behaviour.coefficients)
        by_step = columns is not None and max(map(len, (*columns, prob))) > 1
        for policy, sign in self.terms:
            table = self.done(shift if shift.any() else None) if policy is None else policy
            found = evaluate_policy(
                task, prob, table, self.start, rewards, by_step, by_action=policy is None
            )
            value, v = value + sign * found.value, found.v
            weight += sign * found.weight
            occupancy += found.occupancy.sum(axis=0)
            if policy is None:
                by_action += sign * self.action_gradient(table, found.action_slope)
            if columns is not None:
                paid += sign * columns.gradient(prob, found.occupancy, task.sizes)
        slope = sum(x.matrix.T @ w for x, w in zip(self.model.steps, weight, strict=True))
        return ValueGradient(value, np.concatenate([slope, by_action.ravel(), paid]), occupancy, v)

    def action_gradient(self, table: Array, slope: Array) -> Array:
        """Return (S, A, k) the gradient in the coefficients of the actions.

        table, slope (1 | H, S*A): their probabilities, and the gradient in these.
        """
        z, n_actions = self.model.behaviour_columns, self.model.task.n_actions
        shape = len(slope), z.shape[1], -1, n_actions  # steps, segments, states, actions
        p, slope = table.reshape(shape), slope.reshape(shape)
        each = p * (slope - (p * slope).sum(axis=3, keepdims=True))
        return np.einsum("hnsa,hnk->sak", each, z)

    @cached_property
    def influence(self) -> Any:
        """(C, d + B + R) what each cluster adds to the errors of all estimates; None without.

        Of theta it is the inverse information times the cluster's score, and likewise of the
        actions. Their outer products are the joint sandwich by cluster. Each part is adjusted for
        few clusters, see `mnl.clusters`.
        """
        log, fitted = self.model.log, self.model.fitted
        if log.cluster is None or fitted.errors != "cluster":
            return None
        of = np.searchsorted(log.situations.indptr, log.chosen, side="right") - 1
        pair = log.situations.pair
        first, which = find_distinct([*log.situations.covariates.values(), np.zeros(len(pair))])
        cells = {c: x[first] for c, x in log.situations.covariates.items()}
        z = self.model.behaviour.columns(cells, int(which.max()) + 1)
        actions = self.model.behaviour.cluster_influence(
            z, which[of], pair[of], log.weights, log.cluster, fitted.n_clusters
        )
        parts = [sparse.csr_array(fitted.cluster_influence), actions]
        if self.rewards is not None:
            parts.append(self.rewards.cluster_influence)
        return stack_influence(parts, fitted.n_clusters)

    @cached_property
    def reward_errors(self) -> tuple[Any, Array, Array]:
        """(M, B, K) of the errors of theta, bread u, and of the rewards, B^T u + e.

        u (d,) has the variance M: the information, or the scatter of the scores for robust errors.
        B is the regression of the errors of rewards on the scores, since the same rows give both,
        and e is independent of u, with the variance of the errors of rewards minus K^T B.
        """
        fitted, rewards, log = self.model.fitted, self.rewards, self.model.log
        assert rewards is not None
        scatter, cross = fitted.scatter, rewards.cross(log.data, fitted.theta)
        onto = np.linalg.pinv(scatter, hermitian=True) @ cross
        return fitted.information if fitted.errors == "classical" else scatter, onto, cross

    def image(self, slope: Array) -> Array:
        """Return the covariance of the estimates times a gradient.

        Without clusters the actions are independent of the transitions and the rewards, given the
        state and the covariates.
        """
        theta, actions, paid = self.split(slope)
        fitted = self.model.fitted
        if self.influence is not None:
            found = self.influence.T @ (self.influence @ slope)
            if fitted.regularization > 0:
                found[: len(theta)] += fitted.ridge_part @ theta
            return found
        by_action = self.model.behaviour.root @ (self.model.behaviour.root.T @ actions)
        if self.rewards is None:
            return np.concatenate([fitted.covariance @ theta, by_action])
        variance, onto, cross = self.reward_errors
        scores = variance @ (fitted.bread @ theta + onto @ paid)
        by_reward = onto.T @ scores + self.rewards.covariance @ paid - cross.T @ (onto @ paid)
        by_theta = fitted.bread @ scores
        if fitted.errors == "robust":
            by_theta += fitted.ridge_part @ theta
        return np.concatenate([by_theta, by_action, by_reward])

    def degrees(self, centre: ValueGradient) -> float:
        """Return the degrees of freedom of the error at the estimates, for t quantiles."""
        fitted = self.model.fitted
        if self.rewards is None or fitted.errors == "cluster":
            return fitted.degrees
        variance = float(centre.slope @ self.image(centre.slope))
        return self.rewards.degrees(self.split(centre.slope)[2], variance)

    def draw(self, rng: np.random.Generator) -> Array:
        """Return (d + B + R,) a random error of the estimates, to first order."""
        fitted, normal = self.model.fitted, rng.standard_normal
        d, root = len(self.model.theta), self.model.behaviour.root
        lam = fitted.regularization
        held = fitted.bread @ (np.sqrt(lam) * normal(d)) if lam > 0 else 0.0
        if self.influence is not None:
            found = self.influence.T @ normal(self.influence.shape[0])
            found[:d] += held
            return found
        by_action = root @ normal(root.shape[1])
        if self.rewards is None:
            return np.concatenate([self.roots[0] @ normal(d), by_action])
        onto, u = self.reward_errors[1], self.roots[0] @ normal(d)
        theta = fitted.bread @ u + (held if fitted.errors == "robust" else 0.0)
        paid = onto.T @ u + self.roots[1] @ normal(onto.shape[1])
        return np.concatenate([theta, by_action, paid])

    @cached_property
    def roots(self) -> list[Array]:
        """Roots of the covariance of theta; with rewards of that of u and of e, `reward_errors`."""
        if self.rewards is None:
            return [matrix_root(self.model.fitted.covariance)]
        variance, onto, cross = self.reward_errors
        rest = self.rewards.covariance.toarray() - cross.T @ onto
        return [matrix_root(variance), matrix_root(rest)]

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


def matrix_root(matrix: Array) -> Array:
    """Return R with R R^T equal to a symmetric matrix, whose negative eigenvalues count as 0."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def build_value_function(
    model: TransitionModel, policies: list[tuple[Any, float]]
) -> PolicyValueFunction:
    """Return the signed sum of the policies' values as a function of what the log leaves open."""
    if model.task.reward is None:
        raise ValueError("the model has no reward; name one: model.at(..., reward=...)")
    terms = [(segment_table(model, policy), sign) for policy, sign in policies]
    return PolicyValueFunction(model, terms, model.start)


def action_values(model: TransitionModel, policy: Any) -> tuple[Array, Array]:
    """Return (H, S*A) what each action is worth, followed by the policy, and its values (H + 1, S).

    With an infinite horizon there is one step.
    """
    function = build_value_function(model, [(policy, 1.0)])
    task, v, (reward, pay) = model.task, function.at(function.origin).v, model.task.user_rewards
    q = np.empty((1 if task.infinite_horizon else task.horizon, len(task.sizes)))
    for h in range(len(q)):
        following = task.discount * v[0] if task.discount is not None else v[h + 1]
        ahead = following[task.successors][None] + (steps_of(pay, h) if pay.size else 0.0)
        q[h] = (steps_of(reward, h) + task.by_pair(steps_of(model.prob, h) * ahead))[0]
    return q, v


def segment_table(model: TransitionModel, policy: Any) -> Array | None:
    """Return the table of a policy; one for the states of one segment is used in all segments."""
    try:
        return policy_table(model.task, policy)
    except ValueError:
        if not model.segments:
            raise
    return np.tile(np.asarray(policy_table(model.segment_task, policy)), (1, len(model.segments)))


def policy_table(task: Task, policy: Any) -> Array | None:
    """Return actions (H, S) or probabilities (1 | H, S*A); None for the behaviour."""
    if isinstance(policy, str) and policy == "behaviour":
        return None
    table = mixture_or_actions(task, policy)
    return table if table.ndim == 2 else table.reshape(-1, len(task.sizes))


def as_probabilities(task: Task, table: Array) -> Array:
    """Return (1 | H, S, A) the probabilities of the actions of a table."""
    if table.dtype.kind != "f":
        return np.eye(task.n_actions)[table]
    return table.reshape(-1, task.n_states, task.n_actions)


def evaluate_policy(
    task: Task, prob: Array, policy: Array, start: Array,
    rewards: tuple[Array, Array] | None = None, by_step: bool = False, by_action: bool = False,
) -> Evaluation:  # fmt: skip
    """Return the value of a `policy_table` and its derivatives, in the user's units.

    rewards: instead of `task.user_rewards`; by_step: whether the occupancy is that of each step;
    by_action: whether derivatives in the probabilities of actions are needed.
    """
    rewards = task.user_rewards if rewards is None else rewards
    if task.infinite_horizon:
        return evaluate_stationary(task, prob, policy, start, rewards)
    pairs = len(task.sizes)
    found = Evaluation(
        v=np.zeros((task.horizon + 1, task.n_states)), weight=np.zeros_like(prob),
        occupancy=np.zeros((task.horizon if by_step else 1, pairs)),
        action_slope=np.zeros((len(policy), pairs if by_action else 0)),
    )  # fmt: skip
    if task.terminal is not None:
        found.v[-1] = task.terminal
    kernels.planning.differentiate(
        task.indptr, task.successors, prob, *rewards, policy, policy.dtype.kind == "f", start,
        *found[:4],
    )  # fmt: skip
    return found._replace(value=float(start @ found.v[0]))


def evaluate_stationary(
    task: Task, prob: Array, policy: Array, start: Array, rewards: tuple[Array, Array]
) -> Evaluation:
    """Return the same for an infinite horizon: the visits are the adjoint of the values."""
    reward, pay = rewards
    (mixture,) = as_probabilities(task, policy)
    paid = reward[0] + task.by_pair(prob[0] * pay[0]) if pay.size else reward[0]
    value, v, visits = stationary_visits(task, prob[0], paid, mixture, start)
    assert task.discount is not None
    ahead = task.discount * v[task.successors] + (pay[0] if pay.size else 0.0)
    mean = task.by_pair(prob[0] * ahead)
    occupancy = (visits[:, None] * mixture).ravel()
    weight = prob[0] * np.repeat(occupancy, task.sizes) * (ahead - np.repeat(mean, task.sizes))
    by_action = np.repeat(visits, task.n_actions) * (reward[0] + mean)
    v = np.stack([v, np.zeros_like(v)])
    return Evaluation(v, weight[None], occupancy[None], by_action[None], value)


def shifted_probabilities(model: TransitionModel, shift: Array) -> Array:
    """Return (1 | H, n) the probabilities at theta_hat + shift."""
    sizes, by_pair = model.task.sizes, model.task.by_pair
    logits = np.array([x.matrix @ shift for x in model.steps])
    prob = model.prob * np.exp(logits - by_pair(logits, np.maximum).repeat(sizes, axis=1))
    return prob / by_pair(prob).repeat(sizes, axis=1)
