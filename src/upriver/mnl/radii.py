"""Radii beta_k of the confidence set {theta : ||theta - theta_hat_k||_{A_k} <= beta_k}.

A radius is a function of `Evidence`; each one here is a small frozen class whose fields are its
constants. The Gram matrix (5) is here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, ClassVar, NamedTuple

from upriver.checks import (
    Array,
    nonnegative_number,
    open_fraction,
    positive_integer,
    positive_number,
)
from upriver.display import add_repr
from upriver.features import Features
from upriver.mnl.likelihood import check_counts, second_moment, visits


@add_repr
class Evidence(NamedTuple):
    """What a radius may depend on, before episode k is played."""

    k: int
    """Number of the episode, from 1."""
    horizon: int
    n_states: int
    max_successors: int
    """U."""
    dimension: int
    """d, the formal dimension of the features."""
    norm_bound: float
    """L_varphi."""
    regularization: float
    """lambda_k."""
    logdet_ratio: float
    """log(det A_k / lambda_k^d), the information gathered; nan for a radius with
    `reads_information = False`, since it takes a while to sum."""
    n_parameters: int = 1
    """Parameters for which the radius must hold at once: H with one parameter per step."""


Radius = Callable[[Evidence], float]
"""beta_k as a function of what has been seen."""


class PracticalRadius:
    """The base of radii that are tuned: their fields are numbers of at least 0."""

    reads_information: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, nonnegative_number(name, value))


class TheoryRadius:
    """The base of radii of a theorem: kappa and delta in (0, 1), L_theta > 0, rounds >= 1."""

    reads_information: ClassVar[bool] = False
    theta_bound: float
    beta: Callable[[Evidence], float]
    """beta_k where a feature is nonzero."""

    def __post_init__(self) -> None:
        for name in ("kappa", "delta"):
            open_fraction(name, getattr(self, name, 0.5))
        positive_number("theta_bound", self.theta_bound)
        positive_integer("rounds", getattr(self, "rounds", 1))

    def __call__(self, e: Evidence) -> float:
        """Return beta_k; it is 0 where no feature is nonzero, for then the model is known."""
        return self.beta(e) if e.norm_bound > 0.0 else 0.0


@dataclass(frozen=True)
class scaled_radius(PracticalRadius):
    """The practical form, beta_k = c sqrt(d log(1 + k H S / (d lambda_k))), with c = `scale`.

    No inequality is claimed: c is tuned, or calibrated from simulated coverage. With c = 0 the
    learner is greedy.
    """

    scale: float

    def __call__(self, e: Evidence) -> float:
        d_lam = e.dimension * e.regularization
        return self.scale * sqrt(e.dimension * log(1.0 + e.k * e.horizon * e.n_states / d_lam))


@dataclass(frozen=True)
class constant_radius(PracticalRadius):
    """beta_k = beta."""

    beta: float

    def __call__(self, e: Evidence) -> float:
        return self.beta


@dataclass(frozen=True)
class lemma1_radius(TheoryRadius):
    """Lemma 1 (concentration of the estimate), as printed.

    beta_k = kappa^-1 { (L_varphi/4 + L_theta) sqrt(lambda_k) + 4 / (L_varphi sqrt(lambda_k))
    [ d log(2/L_varphi^2) + (d/2) log(1 + k H U L_varphi^2 / (d lambda_k)) + log(1/delta) ] }.
    Its claim, ||theta_hat_k - theta*||_{A_k} <= beta_k for all k with probability 1 - delta,
    is derived for L_varphi = 1 only; see `corrected_radius`.
    """

    kappa: float
    theta_bound: float
    """L_theta."""
    delta: float = 0.05

    def beta(self, e: Evidence) -> float:
        lam, big, d = e.regularization, e.norm_bound, e.dimension
        spread = d * log(2.0 / big**2) + 0.5 * d * log(
            1.0 + e.k * e.horizon * e.max_successors * big**2 / (d * lam)
        )
        first = (big / 4.0 + self.theta_bound) * sqrt(lam)
        return (first + 4.0 / (big * sqrt(lam)) * (spread - log(self.delta))) / self.kappa


@dataclass(frozen=True)
class corrected_radius(TheoryRadius):
    """Lemma 1 with the correct rescaling by L_varphi, and with the determinant itself.

    beta_k = kappa^-1 { (1/(4 L_varphi) + L_theta) sqrt(lambda_k) + (4 L_varphi / sqrt(lambda_k))
    [ d log 2 + (1/2) log(det A_k / lambda_k^d) + log(n/delta) ] }, n the number of parameters.
    With probability 1 - delta, ||theta_hat_k - theta*||_{A_k} <= beta_k for all k and all n, where
    lambda_k >= L_varphi^2 and kappa is a lower bound of P(s')P(s'') for all theta between
    theta_hat_k and theta*. A bound over the ball of radius L_theta is one only while theta_hat_k
    stays in that ball: (3) does not keep it there.
    """

    reads_information: ClassVar[bool] = True

    kappa: float
    theta_bound: float
    """L_theta."""
    delta: float = 0.05

    def beta(self, e: Evidence) -> float:
        lam, big = e.regularization, e.norm_bound
        spread = e.dimension * log(2.0) + 0.5 * e.logdet_ratio + log(e.n_parameters / self.delta)
        first = (1.0 / (4.0 * big) + self.theta_bound) * sqrt(lam)
        return (first + 4.0 * big / sqrt(lam) * spread) / self.kappa


@dataclass(frozen=True)
class theory_regularization:
    """lambda_k = max(L^2, C L^2 d log(k H U L^2)) of Theorem 1, L = L_varphi."""

    features: Features
    constant: float = 1.0

    def __call__(self, k: int) -> float:
        task, big = self.features.task, self.features.norm_bound**2
        if big == 0.0:  # no feature is nonzero: any lambda will do
            return 1.0
        growth = log(max(k * task.horizon * task.max_successors * big, 1.0))
        d = self.features.formal_dimension
        return max(big, self.constant * big * d * growth)


def gram_matrix(features: Features, counts: Array, regularization: float) -> Any:
    """Return (d, d) A = lambda I + sum over visits and reachable s' of varphi varphi^T, eq. (5).

    It is dense for dense features, otherwise scipy.sparse: block diagonal, and bordered where
    there are triple effects.
    """
    lam = positive_number("regularization", regularization)
    return second_moment(features.matrix, visits(features, check_counts(features, counts)), lam)
