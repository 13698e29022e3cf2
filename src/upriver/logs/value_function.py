"""The value of policies as a function of theta, with its gradient and its extremes.

A log leaves an ellipsoid of parameters, (theta - theta_hat)^T C^-1 (theta - theta_hat) <= radius^2
with C the covariance of the estimate. A value is far from linear in it: where few episodes reach
the rewards, an estimate that is too low looks too certain as well, and "value ± z standard errors"
misses on one side. So the ends of an interval are the least and the largest value in the ellipsoid
of radius z, the values of two models. To first order they are value ± z standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array
from upriver.logs.model import TransitionModel, check_model
from upriver.logs.rewards import RewardEstimates
from upriver.mdp import Task
from upriver.mdp.building import start_of
from upriver.mnl.clusters import adjust_means
from upriver.planning import mixture_or_actions
from upriver.planning.stationary import solve_visits as stationary_visits
from upriver.planning.tables import stationary_table

ROUNDS = 12  # steps of a search
ENOUGH = 0.01  # a further step that promises less than this share of the gain is not made


class Evaluation(NamedTuple):
    """The value of one policy under one model; see `kernels.value.differentiate`."""

    v: Array  # (H + 1, S) values; (2, S) with an infinite horizon
    weight: Array  # (1 | H, n) derivatives of the value in the logits of the triples
    occupancy: Array
    """(1 | H, S*A) expected steps in each pair; discounted steps, or shares of time for the
    average."""
    action_slope: Array
    """(S*A,) derivatives of the value in the probabilities of actions, of a random policy."""
    value: float = 0.0  # From the start; of the average reward the gain


class ValueGradient(NamedTuple):
    """A signed sum of values of policies and its gradient, at one point of the ellipsoid."""

    value: float
    slope: Array  # (d + S*A + R,) the gradient in all that was estimated
    occupancy: Array  # (S*A,) as in `Evaluation`, summed over steps and policies
    v: Array  # Values of the last policy, as in `Evaluation`


@dataclass(frozen=True, eq=False)
class PolicyValueFunction:
    """A signed sum of values of policies as a function of what was estimated from the log.

    A point is (d + S*A + R,): the differences of theta from its estimate, of the log-odds of the
    actions from those of the log's frequencies, and of the coefficients of rewards that came from
    columns. The log-odds count only where a policy is the behaviour. Where the model averages over
    segments, S counts the states of one segment: all have the behaviour of the log.
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
    def rewards(self) -> RewardEstimates | None:
        """The rewards that were estimated, where the task has some."""
        log = self.model.log
        return None if log is None or self.model.reward_rows is None else log.rewards

    @property
    def origin(self) -> Array:
        """The point of the estimates."""
        n = 0 if self.rewards is None else len(self.rewards.coefficients)
        return np.zeros(len(self.model.theta) + len(self.behaviour) + n)

    def split(self, point: Array) -> list[Array]:
        """Return the parts of a point: theta, behaviour, rewards."""
        d = len(self.model.theta)
        return np.split(point, [d, d + len(self.behaviour)])

    def world(self, point: Array) -> tuple[Array, tuple[Array, Array]]:
        """Return probabilities (1 | H, n) and rewards at a point."""
        theta, _, paid = self.split(point)
        prob, (reward, pay) = self.model.prob, self.task.user_rewards
        if theta.any():
            prob = shifted_probabilities(self.model, theta)
        if paid.any():
            assert self.model.reward_rows is not None
            more = self.model.reward_rows.change(paid)
            pay = np.ascontiguousarray(pay + more if pay.size else more)
        return prob, (reward, pay)

    def at(self, point: Array) -> ValueGradient:
        """Return the value and its gradient at a point."""
        task, log_odds = self.task, self.split(point)[1]
        prob, rewards = self.world(point)
        behaviour = self.behaviour
        if log_odds.any():
            behaviour = np.empty_like(behaviour)
            states = np.arange(0, len(behaviour) + 1, task.n_actions)
            kernels.value.tilt_probabilities(states, self.behaviour, log_odds, behaviour)
        value, v, n_pairs, columns = 0.0, np.empty(0), len(task.sizes), self.model.reward_rows
        weight, by_action, occupancy = np.zeros_like(prob), np.zeros(n_pairs), np.zeros(n_pairs)
        by_step = columns is not None and max(map(len, (*columns, prob))) > 1
        paid = np.zeros(len(point) - len(self.model.theta) - len(behaviour))
        for policy, sign in self.terms:
            table = np.resize(behaviour, (1, n_pairs)) if policy is None else policy
            found = evaluate_policy(
                task, prob, table, self.start, rewards, by_step, by_action=policy is None
            )
            value, v = value + sign * found.value, found.v
            weight += sign * found.weight
            occupancy += found.occupancy.sum(axis=0)
            if policy is None:
                by_action += sign * found.action_slope
            if columns is not None:
                paid += sign * columns.gradient(prob, found.occupancy, task.sizes)
        by_action = by_action.reshape(-1, len(behaviour)).sum(axis=0)  # over segments
        mean = (behaviour * by_action).reshape(-1, task.n_actions).sum(axis=1)
        by_action = behaviour * (by_action - np.repeat(mean, task.n_actions))
        slope = sum(x.matrix.T @ w for x, w in zip(self.model.steps, weight, strict=True))
        return ValueGradient(value, np.concatenate([slope, by_action, paid]), occupancy, v)

    @cached_property
    def action_variance(self) -> Array:
        """(S*A,) 1 / rows of each pair, the scale of errors of log-odds; 0 without rows."""
        each = self.rows * self.behaviour
        return np.divide(1.0, each, out=np.zeros_like(each), where=each > 0)

    @cached_property
    def influence(self) -> Any:
        """(C, d + S*A + R) what each cluster adds to the errors of all estimates; None without.

        Of theta it is the inverse information times the cluster's score. Of the log-odds of action
        a in state s it is (n_c(s, a) - n_c(s) pi(a | s)) / (n(s) pi(a | s)), where n_c counts rows
        of cluster c. Their outer products are the joint sandwich by cluster. Each part is adjusted
        for few clusters, see `mnl.clusters`; in a state the leverage of a cluster is n_c(s) / n(s).
        """
        log, fitted = self.model.log, self.model.fitted
        if log is None or log.cluster is None or fitted.errors != "cluster":
            return None
        n_pairs = len(self.behaviour)
        pair = np.repeat(log.situations.pair, np.diff(log.situations.indptr))[log.chosen]
        entries = log.weights, (log.cluster, pair)
        counts = sparse.csr_array(entries, (fitted.n_clusters, n_pairs))
        states = np.arange(n_pairs) // self.task.n_actions
        of_state = sparse.csr_array((np.ones(n_pairs), states, np.arange(n_pairs + 1)))
        in_state = counts @ of_state @ of_state.T
        by_action = (counts - in_state @ sparse.diags_array(self.behaviour)).tocsr()
        share = (in_state @ sparse.diags_array(1.0 / np.maximum(self.rows, 1e-300))).tocsr()
        share.data = adjust_means(share.data)
        by_action = (by_action @ sparse.diags_array(self.action_variance)).multiply(share)
        parts = [sparse.csr_array(fitted.cluster_influence), by_action]
        if self.rewards is not None:
            parts.append(self.rewards.cluster_influence)
        return sparse.csr_array(sparse.hstack(parts))

    @cached_property
    def reward_errors(self) -> tuple[Any, Array, Array]:
        """(M, B, K) of the errors of theta, bread u, and of the rewards, B^T u + e.

        u (d,) has the variance M: the information, or the scatter of the scores for robust errors.
        B is the regression of the errors of rewards on the scores, since the same rows give both,
        and e is independent of u, with the variance of the errors of rewards minus K^T B.
        """
        fitted, rewards, log = self.model.fitted, self.rewards, self.model.log
        assert rewards is not None and log is not None and fitted.scatter is not None
        scatter, cross = fitted.scatter(), rewards.cross(log.data, fitted.theta)
        onto = np.linalg.pinv(scatter, hermitian=True) @ cross
        return fitted.information if fitted.errors == "classical" else scatter, onto, cross

    def image(self, slope: Array) -> Array:
        """Return the covariance of the estimates times a gradient.

        Without clusters the log's actions in each state are a multinomial sample, independent of
        the transitions and the rewards.
        """
        theta, log_odds, paid = self.split(slope)
        fitted = self.model.fitted
        if self.influence is not None:
            found = self.influence.T @ (self.influence @ slope)
            if fitted.regularization > 0:
                found[: len(theta)] += fitted.ridge_part @ theta
            return found
        by_action = self.action_variance * log_odds
        if self.rewards is None:
            return np.concatenate([fitted.covariance @ theta, by_action])
        variance, onto, cross = self.reward_errors
        scores = variance @ (fitted.bread @ theta + onto @ paid)
        by_reward = onto.T @ scores + self.rewards.covariance @ paid - cross.T @ (onto @ paid)
        by_theta = fitted.bread @ scores
        if fitted.errors == "robust":
            by_theta += fitted.ridge_part @ theta
        return np.concatenate([by_theta, by_action, by_reward])

    def draw(self, rng: np.random.Generator) -> Array:
        """Return (d + S*A + R,) a random error of the estimates, to first order.

        For transition counts it is the inverse information times a score of multinomial counts:
        directions without rows do not move, since there the ridge holds the estimate.
        """
        model, fitted, normal = self.model, self.model.fitted, rng.standard_normal
        d, scale = len(model.theta), np.sqrt(self.action_variance)
        if model.log is None:
            task, p = model.features.task, model.prob[0]
            rows = np.repeat(task.by_pair(model.counts), task.sizes)
            score = np.sqrt(rows * p) * normal(len(p))
            score -= p * np.repeat(task.by_pair(score), task.sizes)
            theta = fitted.covariance @ (model.features.matrix.T @ score)
            return np.concatenate([theta, scale * normal(len(scale))])
        lam = fitted.regularization
        held = fitted.bread @ (np.sqrt(lam) * normal(d)) if lam > 0 else 0.0
        if self.influence is not None:
            found = self.influence.T @ normal(self.influence.shape[0])
            found[:d] += held
            return found
        by_action = scale * normal(len(scale))
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
    model: TransitionModel, policies: list[tuple[Any, float]], start: Any, rewarded: bool = True
) -> PolicyValueFunction:
    """Return the signed sum of the policies' values as a function of what the log leaves open."""
    task, base = check_model(model).task, model.segment_task
    if rewarded and task.reward is None:
        raise ValueError("the model has no reward; name one: model.at(..., reward=...)")
    at, chance = start_of(base.state_names, start)
    visits = base.by_pair(model.counts[: base.n_triples])
    by_state = visits.reshape(base.n_states, base.n_actions).sum(axis=1)
    first = np.bincount(at, chance, minlength=base.n_states)
    shares = [share for _, share in model.segments] or [1.0]
    return PolicyValueFunction(
        model=model, terms=[(segment_table(model, policy), sign) for policy, sign in policies],
        start=np.outer(shares, first).ravel(), behaviour=behaviour_policy(base, visits),
        rows=np.repeat(by_state, base.n_actions),
    )  # fmt: skip


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
    if task.infinite_horizon:
        policy = stationary_table(task, policy)
    table = mixture_or_actions(task, policy)
    return table if table.ndim == 2 else table.reshape(-1, len(task.sizes))


def as_probabilities(task: Task, table: Array) -> Array:
    """Return (1 | H, S, A) the probabilities of the actions of a table."""
    if table.dtype.kind != "f":
        return np.eye(task.n_actions)[table]
    return table.reshape(-1, task.n_states, task.n_actions)


def behaviour_policy(task: Task, visits: Array) -> Array:
    """Return (S*A,) how often the log took each action; uniform in states that it never saw."""
    table = visits.reshape(task.n_states, task.n_actions)
    total = table.sum(axis=1, keepdims=True)
    uniform = task.available / task.available.sum(axis=1, keepdims=True)
    return np.where(total > 0, table / np.maximum(total, 1e-300), uniform).ravel()


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
        action_slope=np.zeros(pairs if by_action else 0),
    )  # fmt: skip
    if task.terminal is not None:
        found.v[-1] = task.terminal
    kernels.value.differentiate(
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
    return Evaluation(v, weight[None], occupancy[None], by_action, value)


def shifted_probabilities(model: TransitionModel, shift: Array) -> Array:
    """Return (1 | H, n) the probabilities at theta_hat + shift."""
    prob = np.empty_like(model.prob)
    for x, before, after in zip(model.steps, model.prob, prob, strict=True):
        logits = np.asarray(x.matrix @ shift)
        kernels.value.tilt_probabilities(model.task.indptr, before, logits, after)
    return prob
