"""The likelihood of dynamic discrete choice: which rewards explain a log of choices.

The decision maker of `planning.soft` has the reward r(s, a) = psi(s, a)'w and temperature 1 (a
temperature sigma only divides w by sigma). Its choice probabilities pi depend on w through the soft
Bellman equation, and the log-likelihood of pair counts N(s, a) is

    L(w) = sum_(s, a) N(s, a) log pi(a|s),    log pi = Q - V.

Derivatives follow from the implicit function theorem. With M = (I - gamma P_pi)^-1,

    dV  = M Psi_pi,                         dQ  = Psi + gamma P dV,        dlog pi  = dQ - dV,
    d2V = M Cov_pi(dQ, dQ),                 d2Q = gamma P d2V,             d2log pi = d2Q - d2V,

so one factorization of I - gamma P_pi serves all columns of both orders. With a finite horizon the
same recursions run backwards from the last step. Shifts of the transition parameters theta enter
through dQ/dtheta = gamma (dP V + P dV/dtheta), with dP V the gradient of the expected next value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning import soft


class Evaluation(NamedTuple):
    """The log-likelihood at one w and its derivatives."""

    value: float
    gradient: Array
    """(m,)"""
    hessian: Array
    """(m, m)"""
    v: Array
    """(S,) or (H + 1, S) soft values, to start the next solution from."""
    probability: Array
    """(steps, S*A) choice probabilities; one step where the horizon is infinite."""
    scores: Array
    """(steps, S*A, m) d log pi / dw."""


@dataclass(frozen=True)
class DynamicLogit:
    """What the likelihood of choices depends on, apart from the reward coefficients.

    With an infinite horizon all arrays have one step; with a finite one, `horizon` steps.
    """

    task: Task
    prob: Array
    """(1 | H, n) transition probabilities of the task's triples."""
    features: Array
    """(1 | H, S*A, m) psi(s, a)."""
    counts: Array
    """(steps, S*A) how often each pair was chosen, weights included."""
    discount: float
    horizon: int | None = None
    offset: Array | None = None
    """(1 | H, S*A) a part of the reward that is known."""
    terminal: Array | None = None
    """(S,) values after the last step of a finite horizon."""

    @cached_property
    def available(self) -> Array:
        return self.task.available.ravel()

    def reward(self, w: Array) -> Array:
        """(1 | H, S*A) rewards at w."""
        reward = self.features @ w
        return reward if self.offset is None else reward + self.offset

    def multiply(self, step: int, x: Array) -> Array:
        """Return sum_s' P(s'|s, a) x(s') for x (S,) or (S, m)."""
        prob = self.prob[min(step, len(self.prob) - 1)]
        return soft.transition_matrix(self.task, prob) @ x

    def mix(self, probability: Array, x: Array) -> Array:
        """Return sum_a pi(a|s) x(s, a) for x (S*A, ...)."""
        weighted = probability.reshape(probability.shape + (1,) * (x.ndim - 1)) * x
        shape = self.task.n_states, self.task.n_actions, *x.shape[1:]
        return weighted.reshape(shape).sum(axis=1)

    def spread(self, x: Array) -> Array:
        """Return x(s) for each pair (s, a)."""
        return np.repeat(x, self.task.n_actions, axis=0)

    def evaluate(self, w: Array, start: Array | None = None) -> Evaluation:
        """Return the log-likelihood, its gradient and its exact Hessian at w."""
        if self.horizon is None:
            return self.evaluate_stationary(w, start)
        return self.evaluate_horizon(w)

    def evaluate_stationary(self, w: Array, start: Array | None) -> Evaluation:
        task, psi, gamma = self.task, self.features[0], self.discount
        solution = soft.solve_soft_discounted(
            task, self.prob[0], self.reward(w)[0], gamma, 1.0, 1e-10, start
        )
        chance = solution.probability.ravel()
        solve = soft.factorize_discounted(task, self.prob[0], solution.probability, gamma)
        dv = solve(self.mix(chance, psi))
        dq = psi + gamma * self.multiply(0, dv)
        curvature = self.choice_covariance(chance, dq, dv)
        m = len(w)
        d2v = solve(curvature.reshape(task.n_states, m * m))
        d2q = gamma * self.multiply(0, d2v)
        scores = dq - self.spread(dv)
        second = (d2q - self.spread(d2v)).reshape(-1, m, m)
        return self.collect(
            solution.v, chance[None], scores[None], np.einsum("g,gij->ij", self.counts[0], second)
        )

    def evaluate_horizon(self, w: Array) -> Evaluation:
        task, m, steps = self.task, len(w), self.horizon or 0
        reward = self.reward(w)
        v = np.zeros((steps + 1, task.n_states))
        if self.terminal is not None:
            v[steps] = self.terminal
        dv, d2v = np.zeros((task.n_states, m)), np.zeros((task.n_states, m * m))
        chances = np.zeros((steps, len(task.sizes)))
        scores, hessian = np.zeros((steps, len(task.sizes), m)), np.zeros((m, m))
        for h in reversed(range(steps)):
            psi = self.features[min(h, len(self.features) - 1)]
            q = reward[min(h, len(reward) - 1)] + self.discount * self.multiply(h, v[h + 1])
            v[h], probability = soft.soft_maximum(soft.mask_missing(task, q), 1.0)
            chances[h] = chance = probability.ravel()
            dq = psi + self.discount * self.multiply(h, dv)
            d2q = self.discount * self.multiply(h, d2v)
            dv = self.mix(chance, dq)
            d2v = self.mix(chance, d2q) + self.choice_covariance(chance, dq, dv).reshape(-1, m * m)
            scores[h] = dq - self.spread(dv)
            second = (d2q - self.spread(d2v)).reshape(-1, m, m)
            hessian += np.einsum("g,gij->ij", self.counts[h], second)
        return self.collect(v, chances, scores, hessian)

    def choice_covariance(self, chance: Array, dq: Array, dv: Array) -> Array:
        """(S, m, m) Cov_pi(dQ, dQ) of each state; dv is the mean of dQ."""
        centred = dq - self.spread(dv)
        return self.mix(chance, centred[:, :, None] * centred[:, None, :])

    def collect(self, v: Array, chance: Array, scores: Array, hessian: Array) -> Evaluation:
        with np.errstate(divide="ignore"):
            logs = np.log(chance)
        value = float(np.sum(self.counts * np.where(self.counts > 0, logs, 0.0)))
        gradient = np.einsum("hg,hgi->i", self.counts, scores)
        return Evaluation(value, gradient, 0.5 * (hessian + hessian.T), v, chance, scores)

    def transition_scores(self, found: Evaluation, slopes: Any) -> Array:
        """(steps, S*A, d) d log pi / dtheta, theta the transition parameters.

        slopes: a function (step, V) -> (S*A, d), the gradient of sum_s' P(s'|s, a) V(s') in theta.
        """
        gamma = self.discount
        if self.horizon is None:
            direct = gamma * slopes(0, found.v)
            probability = found.probability[0].reshape(self.task.n_states, -1)
            solve = soft.factorize_discounted(self.task, self.prob[0], probability, gamma)
            dv = solve(self.mix(found.probability[0], direct))
            return (direct + gamma * self.multiply(0, dv) - self.spread(dv))[None]
        scores, dv = [], None
        for h in reversed(range(self.horizon)):
            dq = gamma * slopes(h, found.v[h + 1])
            if dv is not None:
                dq = dq + gamma * self.multiply(h, dv)
            dv = self.mix(found.probability[h], dq)
            scores.append(dq - self.spread(dv))
        return np.stack(scores[::-1])


def maximize_likelihood(
    model: DynamicLogit, start: Array, tolerance: float = 1e-10, max_iterations: int = 200
) -> tuple[Array, Evaluation, int, bool]:
    """Maximize the likelihood by Newton's method with step halving.

    The likelihood need not be concave away from its maximum, so where the negative Hessian is not
    positive definite the outer product of the scores (BHHH) takes its place.

    Returns
    -------
    (w, evaluation, iterations, converged)
        Converged means that the Newton decrement, twice the expected gain of one more step, is
        below the tolerance.
    """
    w, found = np.array(start, float), model.evaluate(np.array(start, float))
    for iteration in range(1, max_iterations + 1):
        direction = newton_direction(model, found)
        gain = float(found.gradient @ direction)
        if gain <= tolerance:
            return w, found, iteration, True
        step = 1.0
        while step > 1e-12:
            new = model.evaluate(w + step * direction, found.v)
            if np.isfinite(new.value) and new.value >= found.value + 1e-4 * step * gain:
                break
            step *= 0.5
        else:  # rounding: no step improves
            return w, found, iteration, gain <= 1e-6
        w, found = w + step * direction, new
    return w, found, max_iterations, False


def newton_direction(model: DynamicLogit, found: Evaluation) -> Array:
    """Return the Newton step, or the BHHH step where the negative Hessian is not definite."""
    information = -found.hessian
    values = np.linalg.eigvalsh(information)
    if not values[0] > 1e-12 * max(values[-1], 1e-300):
        scores = found.scores
        information = np.einsum("hg,hgi,hgj->ij", model.counts, scores, scores)
        information += 1e-10 * np.trace(information) / len(information) * np.eye(len(information))
    return np.linalg.solve(information, found.gradient)
