"""The likelihood of dynamic discrete choice: which rewards explain a log of choices.

The decision maker of `planning.soft` has the reward r(s, a) = psi(s, a)'w and temperature 1 (a
temperature sigma only divides w by sigma). Its choice probabilities pi depend on w, and on the
parameters theta of an MNL transition model, through the soft Bellman equation. With beta = (w,
theta), the log-likelihood of pair counts N(s, a) is

    L(beta) = sum_(s, a) N(s, a) log pi(a|s),    log pi = Q - V.

Derivatives follow from the implicit function theorem. With M = (I - gamma P_pi)^-1 and X the
features of the transitions minus their mean under P,

    dV  = M D_pi,    dQ  = D + gamma P dV,          D = (Psi, gamma E[X V]),     d log pi = dQ - dV,
    d2V = M (E_pi[D2] + Cov_pi(dQ)),                d2Q = D2 + gamma P d2V,

where D2 holds gamma E[X dV'] for theta with everything, twice, and gamma E[X X' (V - PV)]. The
Hessian needs d2V only in a sum over the log, so one adjoint equation, with weights a(s) that solve
a = gamma P'(N + a pi) - N(s), takes the place of a solution for each pair of coefficients:

    d2L = sum_(s, a) a pi Cov-terms + (N + a pi) D2.

With a finite horizon the same recursions run backwards, and the one of the weights forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import soft


class Evaluation(NamedTuple):
    """The log-likelihood at one beta and its derivatives; k coefficients."""

    value: float
    gradient: Array  # (k,)
    hessian: Array  # (k, k)
    outer: Array  # (k, k) the outer products of the scores of choices, which are positive definite
    v: Array  # (S,) or (H + 1, S) soft values
    probability: Array  # (steps, S*A) choice probabilities; one step where the horizon is infinite
    scores: Array  # (steps, S*A, k) d log pi / d beta


@dataclass(frozen=True, eq=False)
class DynamicLogit:
    """What the likelihood of choices depends on, apart from the reward coefficients.

    With an infinite horizon all arrays have one step; with a finite one, one or `horizon` steps.
    """

    task: Task
    prob: Array  # (1 | H, n) transition probabilities of the task's triples
    features: Array  # (1 | H, S*A, m) psi(s, a)
    counts: Array  # (steps, S*A) how often each pair was chosen, weights included
    discount: float
    horizon: int | None = None
    phi: tuple[Array, ...] = ()
    """(n, d) the features of the transition model, of all steps or of each; none where it is known.
    """

    @cached_property
    def matrices(self) -> list[sparse.csr_array]:
        """(S*A, S) the transition probabilities of each step."""
        return [soft.transition_matrix(self.task, prob) for prob in self.prob]

    @cached_property
    def centred(self) -> list[Array]:
        """(n, d) each: the features of the transitions minus their mean, for each step."""
        sizes, by_pair = self.task.sizes, self.task.by_pair
        return [
            x - np.repeat(by_pair(p * x.T).T, sizes, axis=0)
            for x, p in zip(self.phi, self.prob, strict=True)
        ]

    def shift_transitions(self, shift: Array) -> DynamicLogit:
        """Return the problem with the parameters of the transition model changed by shift (d,)."""
        prob = np.empty_like(self.prob)
        for x, before, after in zip(self.phi, self.prob, prob, strict=True):
            kernels.value.tilt_probabilities(self.task.indptr, before, x @ shift, after)
        return replace(self, prob=prob)

    def mix(self, chance: Array, x: Array) -> Array:
        """Return sum_a pi(a|s) x(s, a) for x (S*A, k)."""
        return (chance[:, None] * x).reshape(self.task.n_states, -1, x.shape[1]).sum(axis=1)

    def spread(self, x: Array) -> Array:
        """Return x(s) for each pair (s, a)."""
        return np.repeat(x, self.task.n_actions, axis=0)

    def differentiate_directly(self, h: int, following: Array) -> Array:
        """Return (S*A, k) the derivatives of Q where the values (S,) that follow are fixed."""
        psi = self.features[min(h, len(self.features) - 1)]
        if not self.phi:
            return psi
        h = min(h, len(self.prob) - 1)
        change = self.centred[h] * (self.prob[h] * following[self.task.successors])[:, None]
        return np.hstack([psi, self.discount * self.task.by_pair(change.T).T])

    def contract_second(
        self, h: int, weight: Array, scores: Array, following: Array, slope: Array
    ) -> Array:
        """Return (k, k) what a step adds to the Hessian.

        weight: (S*A,) a pi; scores: (S*A, k) dQ - dV; following, slope: V (S,) and dV (S, k) of the
        next step.
        """
        total = scores.T @ (weight[:, None] * scores)
        if self.phi:
            m, at, task = self.features.shape[2], min(h, len(self.prob) - 1), self.task
            x, matrix = self.centred[at], self.matrices[at]
            times = self.discount * np.repeat(self.counts[h] + weight, task.sizes) * self.prob[at]
            cross = (times[:, None] * x).T @ slope[task.successors]
            total[m:] += cross
            total[:, m:] += cross.T
            around = following[task.successors] - np.repeat(matrix @ following, task.sizes)
            total[m:, m:] += x.T @ ((times * around)[:, None] * x)
        return total

    def evaluate(self, w: Array, start: Array | None = None) -> Evaluation:
        """Return the log-likelihood, its gradient and its exact Hessian at w.

        start: (S,) values to begin the solution from.
        """
        task, gamma, counts = self.task, self.discount, self.counts
        reward = self.features @ w
        visits = counts.reshape(len(counts), task.n_states, -1).sum(axis=2)
        if self.horizon is None:
            matrix = self.matrices[0]
            found = soft.solve_soft_discounted(
                task, self.prob[0], reward[0], gamma, 1.0, 1e-10, start
            )
            v, chance = found.v, found.probability.ravel()
            solve = soft.factorize_discounted(task, self.prob[0], found.probability, gamma)
            direct = self.differentiate_directly(0, v)
            dv = solve(self.mix(chance, direct))
            scores = direct + gamma * (matrix @ dv) - self.spread(dv)
            adjoint = solve(gamma * (matrix.T @ counts[0]) - visits[0], True)
            weight = self.spread(adjoint) * chance
            hessian = self.contract_second(0, weight, scores, v, dv)
            return self.collect(v, chance[None], scores[None], hessian)
        steps, pairs = self.horizon, len(task.sizes)
        v, chances = np.zeros((steps + 1, task.n_states)), np.zeros((steps, pairs))
        k = self.features.shape[2] + sum(x.shape[1] for x in self.phi[:1])
        slopes, scores = np.zeros((steps + 1, task.n_states, k)), np.zeros((steps, pairs, k))
        for h in reversed(range(steps)):
            matrix = self.matrices[min(h, len(self.matrices) - 1)]
            q = reward[min(h, len(reward) - 1)] + gamma * (matrix @ v[h + 1])
            v[h], probability = soft.soft_maximum(soft.mask_missing(task, q), 1.0)
            chances[h] = probability.ravel()
            dq = self.differentiate_directly(h, v[h + 1]) + gamma * (matrix @ slopes[h + 1])
            slopes[h] = self.mix(chances[h], dq)
            scores[h] = dq - self.spread(slopes[h])
        hessian, adjoint = np.zeros((k, k)), -visits[0]
        for h in range(steps):
            weight = self.spread(adjoint) * chances[h]
            hessian += self.contract_second(h, weight, scores[h], v[h + 1], slopes[h + 1])
            if h + 1 < steps:
                matrix = self.matrices[min(h, len(self.matrices) - 1)]
                adjoint = gamma * (matrix.T @ (counts[h] + weight)) - visits[h + 1]
        return self.collect(v, chances, scores, hessian)

    def collect(self, v: Array, chance: Array, scores: Array, hessian: Array) -> Evaluation:
        with np.errstate(divide="ignore"):
            logs = np.where(self.counts > 0, np.log(chance), 0.0)
        gradient = np.einsum("hg,hgi->i", self.counts, scores)
        outer = np.einsum("hg,hgi,hgj->ij", self.counts, scores, scores, optimize=True)
        value = float(np.sum(self.counts * logs))
        return Evaluation(value, gradient, hessian, outer, v, chance, scores)


@add_repr
class Objective(NamedTuple):
    """The sums of log-likelihoods and derivatives, and their parts, from which the next begin."""

    value: float
    gradient: Array
    hessian: Array
    outer: Array
    parts: list[Evaluation]


def sum_parts(
    problems: Sequence[DynamicLogit], w: Array, starts: Sequence[Evaluation] | None = None
) -> Objective:
    """Return the log-likelihood of several problems that share their coefficients."""
    begin = [x.v for x in starts] if starts else [None] * len(problems)
    parts = [p.evaluate(w, v) for p, v in zip(problems, begin, strict=True)]
    sums: list[Any] = [sum(x) for x in zip(*(part[:4] for part in parts), strict=True)]
    return Objective(sums[0], sums[1], sums[2], sums[3], parts)


def maximize_likelihood(
    evaluate: Callable[[Array, Any], Objective], start: Array, tolerance: float = 1e-12
) -> tuple[Array, Objective, bool]:
    """Maximize a likelihood by Newton's method with step halving.

    It need not be concave away from its maximum, so where the negative Hessian is not positive
    definite the outer product of the scores (BHHH) takes its place.

    Returns
    -------
    (beta, objective, converged)
        Converged means that the Newton decrement, twice the expected gain of one more step, is
        below the tolerance, up to rounding.
    """
    beta = np.array(start, float)
    found = evaluate(beta, None)
    for _ in range(200):
        scale = 1.0 / np.sqrt(np.maximum(np.diag(found.outer), 1e-300))
        information = -found.hessian * np.outer(scale, scale)
        values = np.linalg.eigvalsh(information)
        is_newton = values[0] > 1e-10 * values[-1]
        if not is_newton:
            information = found.outer * np.outer(scale, scale) + 1e-8 * np.eye(len(beta))
        direction = scale * np.linalg.solve(information, scale * found.gradient)
        gain = float(found.gradient @ direction)
        if gain <= tolerance:
            return beta, found, bool(is_newton)
        step = 1.0
        while step > 1e-10:
            new = evaluate(beta + step * direction, found)
            if np.isfinite(new.value) and new.value >= found.value + 1e-4 * step * gain:
                break
            step *= 0.5
        else:  # rounding: no step improves
            return beta, found, bool(is_newton) and gain <= 1e-6
        beta, found = beta + step * direction, new
    return beta, found, False
