"""Evaluate lambda_k, beta_k and the regret bound of Theorem 1 with every constant written out.

The proof bounds the regret by c_Q H beta_K sqrt(T Sigma) + H sqrt(2 T log(2/delta)), where T = K H
and Sigma bounds the sum of max ||varphi||^2_{A_k^-1} over all steps. The first H of each term is
the range of the values, which is more where there are terminal values. As printed: c_Q = 2, beta_K
of Lemma 1 at level delta/(2K), Sigma = 2 H d log(1 + K H U L_varphi^2). Corrected, closed form
(6): c_Q = 3 (Lemma 3 was proved for the exact maximum), the radius with the rescaling by L_varphi
done right and at level delta/2, since Lemma 1 already holds for all k at once, and
Sigma = 2 H d log(1 + K H U L_varphi^2 / (d lambda_1)).
"""

from __future__ import annotations

from math import ceil, log, sqrt
from typing import NamedTuple

from upriver.display import add_repr
from upriver.features import Features
from upriver.mnl.radii import Evidence, corrected_radius, lemma1_radius, theory_regularization

EVERY, STEP = 1_000, 1.01  # beta_k is evaluated for each k up to EVERY, and then in such steps


@add_repr
class Bounds(NamedTuple):
    """Lemma 1 and Theorem 1 for K episodes and one value of kappa."""

    kappa: float
    regularization: float
    """lambda_K."""
    radius_printed: float
    """beta_K(delta) of Lemma 1."""
    radius_corrected: float
    """The same with the rescaling by L_varphi done right."""
    regret_printed: float
    """Like the others of a regret, in the user's units."""
    regret_corrected: float
    trivial: float
    """K times the range of the values, K H with rewards in [0, 1]; no regret exceeds it."""
    vacuous: bool
    """Whether the corrected bound says no more than the trivial one."""


def clip_kappa(kappa: float) -> float:
    """Clip kappa to the open interval (0, 1), which a radius needs."""
    return min(max(kappa, 1e-300), 1.0 - 1e-12)


def theorem1(
    features: Features, kappa: float, theta_bound: float, n_episodes: int, delta: float
) -> Bounds:
    """Evaluate lambda_K, beta_K (Lemma 1) and the regret bound (Theorem 1) at K = n_episodes.

    The features give H, U, d and L_varphi, kappa is that of Assumption 3, theta_bound is L_theta;
    the bounds hold with probability 1 - delta.
    """
    kappa, k, units = clip_kappa(kappa), n_episodes, features.task.units
    evidence, given = worst_evidence(features, k), (kappa, theta_bound, delta)
    radii = lemma1_radius(*given)(evidence), corrected_radius(*given)(evidence)
    beta = lemma1_radius(kappa, theta_bound, delta / (2.0 * k))(evidence)
    printed = units.unit * sum_terms(features, k, 2.0 * beta, evidence.dimension, 1.0, delta)
    bound = units.unit * corrected_regret(features, kappa, theta_bound, k, delta)
    trivial = units.unit * k * units.max_value
    return Bounds(kappa, evidence.regularization, *radii, printed, bound, trivial, bound >= trivial)


def worst_evidence(features: Features, k: int) -> Evidence:
    """Return the largest evidence that a radius can meet before episode k, with lambda_k."""
    task, d, big = features.task, features.formal_dimension, features.norm_bound
    lam = theory_regularization(features)(k)
    ratio = d * log(1.0 + (k - 1.0) * task.horizon * task.max_successors * big**2 / (d * lam))
    return Evidence(k, task.horizon, task.n_states, task.max_successors, d, big, lam, ratio)


def corrected_regret(features: Features, kappa: float, bound: float, k: int, delta: float) -> float:
    """Return the corrected bound with the largest beta_k of all episodes, on the unit scale."""
    radius = corrected_radius(kappa, bound, delta / 2.0)
    # beta_k need not grow with k while lambda_k does, so its maximum is taken along the way; that
    # of the steps beyond EVERY is within 0.2% of it
    steps = (int(STEP**i) for i in range(ceil(log(k) / log(STEP))))
    along = {k, *range(1, min(k, EVERY) + 1), *steps}
    beta, d = max(radius(worst_evidence(features, i)) for i in along), features.dimension
    return sum_terms(features, k, 3.0 * beta, d, d * theory_regularization(features)(1), delta)


def sum_terms(
    features: Features, k: int, width: float, d: int, prior: float, delta: float
) -> float:
    """Return R width sqrt(T Sigma) + R sqrt(2 T log(2/delta)), R the range of the values and
    Sigma = 2 H d log(1 + T U L_varphi^2 / prior)."""
    task, steps = features.task, float(k) * features.task.horizon
    total = steps * task.max_successors * features.norm_bound**2
    potential = 2.0 * task.horizon * d * log(1.0 + total / prior)
    noise = sqrt(2.0 * steps * log(2.0 / delta))
    return task.units.max_value * (width * sqrt(steps * potential) + noise)
