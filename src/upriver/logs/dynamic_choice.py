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

where D2 holds gamma E[X dV'] for theta with w. The Hessian needs d2V only in a sum over the log, so
one adjoint equation, with weights a(s) that solve a = gamma P'(N + a pi) - N(s), takes the place of
a solution for each pair of coefficients:

    d2L = sum_(s, a) a pi Cov-terms + (N + a pi) D2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import soft
from upriver.planning.policy_iteration import transition_matrix

DECREMENT = 1e-12  # of Newton's method, below which the likelihood has its maximum


@add_repr
class Evaluation(NamedTuple):
    """The log-likelihood at one beta of k coefficients, m of them those of rewards."""

    value: float
    gradient: Array  # (m,)
    hessian: Array  # (m, k) the derivatives of the gradient
    outer: Array  # (m, m) the outer products of the scores of choices, which are positive definite
    v: Array  # (S,) soft values
    probability: Array  # (S*A,) choice probabilities
    scores: Array  # (S*A, k) d log pi / d beta


@dataclass(frozen=True, eq=False)
class DynamicLogit:
    """What the likelihood of choices depends on, apart from the reward coefficients."""

    task: Task
    prob: Array  # (n,) transition probabilities of the task's triples
    features: Array  # (S*A, m) psi(s, a)
    counts: Array  # (S*A,) how often each pair was chosen, weights included
    discount: float
    phi: Array | None = None
    """(n, d) the features of the transition model; None where derivatives in theta are not needed.
    """

    def evaluate(self, w: Array, start: Array | None = None) -> Evaluation:
        """Return the log-likelihood and its exact derivatives at w.

        start: (S,) values to begin the solution from.
        """
        task, prob, gamma, counts = self.task, self.prob, self.discount, self.counts
        following, m = task.successors, len(w)
        found = soft.solve_soft_discounted(task, prob, self.features @ w, gamma, 1.0, 1e-10, start)
        v, chance = found.v, found.probability.ravel()
        direct, centred = self.features, np.empty((len(prob), 0))
        if self.phi is not None:
            mean = task.by_pair(prob * self.phi.T).T
            centred = self.phi - np.repeat(mean, task.sizes, axis=0)
            change = centred * (prob * v[following])[:, None]
            direct = np.hstack([direct, gamma * task.by_pair(change.T).T])
        matrix = transition_matrix(task, prob)
        solve = soft.factorize_discounted(task, prob, found.probability, gamma)
        dv = solve((chance[:, None] * direct).reshape(*found.probability.shape, -1).sum(axis=1))
        scores = direct + gamma * (matrix @ dv) - np.repeat(dv, task.n_actions, axis=0)
        visits = counts.reshape(task.n_states, -1).sum(axis=1)
        adjoint = solve(gamma * (matrix.T @ counts) - visits, True)
        weight = np.repeat(adjoint, task.n_actions) * chance
        hessian = scores[:, :m].T @ (weight[:, None] * scores)
        times = gamma * np.repeat(counts + weight, task.sizes) * prob
        hessian[:, m:] += dv[following, :m].T @ (times[:, None] * centred)
        with np.errstate(divide="ignore"):
            value = float(np.sum(counts * np.where(counts > 0, np.log(chance), 0.0)))
        own = scores[:, :m]
        outer = own.T @ (counts[:, None] * own)
        return Evaluation(value, counts @ own, hessian, outer, v, chance, scores)


def maximize_likelihood(problem: DynamicLogit, start: Array) -> tuple[Array, Evaluation, bool]:
    """Maximize a likelihood by Newton's method with step halving.

    It need not be concave away from its maximum, so where the negative Hessian is not positive
    definite the outer product of the scores (BHHH) takes its place.

    Returns
    -------
    (w, evaluation, converged)
        Converged means that the Newton decrement, twice the expected gain of one more step, is
        below `DECREMENT`, up to rounding.
    """
    w, found = start, problem.evaluate(start)
    for _ in range(200):
        scale = 1.0 / np.sqrt(np.maximum(np.diag(found.outer), 1e-300))
        information = -found.hessian * np.outer(scale, scale)
        values = np.linalg.eigvalsh(information)
        is_newton = values[0] > 1e-10 * values[-1]
        if not is_newton:
            information = found.outer * np.outer(scale, scale) + 1e-8 * np.eye(len(w))
        direction = scale * np.linalg.solve(information, scale * found.gradient)
        gain = float(found.gradient @ direction)
        if gain <= DECREMENT:
            return w, found, bool(is_newton)
        step = 1.0
        while step > 1e-10:
            new = problem.evaluate(w + step * direction, found.v)
            if np.isfinite(new.value) and new.value >= found.value + 1e-4 * step * gain:
                break
            step *= 0.5
        else:  # rounding: no step improves
            return w, found, bool(is_newton) and gain <= 1e-6
        w, found = w + step * direction, new
    return w, found, False
