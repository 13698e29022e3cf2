"""RRL-MNL and ORRL-MNL: randomised exploration with an online estimate.

Cho, Hwang, Lee and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic
Function Approximation" (2024): Algorithm 1 with an online Newton step, Algorithm 2 with online
mirror descent and local curvature. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from upriver.agents.base import Episode, State
from upriver.agents.mnl_family import MirrorDescentLearner, OnlineLearner
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Plan, clip_q_above


@dataclass(frozen=True)
class RRLMNL(OnlineLearner):
    """Randomised values with an online Newton step: Algorithm 1 of Cho et al.

    Q_h = min(r + P V_{h+1} + max_m varphi_hat^T xi_h^(m), H), xi_h^(m) ~ N(0, sigma_k^2 A_h^-1),
    varphi_hat the feature of (s, a) with the largest norm in A_h^-1. The samples of a step are
    shared by all (s, a).

    Deviations: the default radius is the practical form, without projection; for the constants of
    the theory use `mnl.online.newton_radius`, lambda >= L_varphi^2 and a finite `theta_bound`. Ties
    are broken uniformly at random when the plan is made. The other parameters are those of
    `OnlineLearner`.

    Parameters
    ----------
    radius : Radius or float
        alpha_k = sigma_k / H. A number c stands for scaled_radius(c).
    kappa : float
        The curvature of the loss that the Newton step assumes; a smaller one takes longer steps.
    n_samples : int, optional
        M; the default is the theory's, ceil(1 - log H / log Phi(1)).
    """

    radius: Radius | float = 1e-5
    _: KW_ONLY
    kappa: float = 0.1
    n_samples: int | None = None

    GRID: ClassVar = {
        "radius": (0.0, 1e-6, 1e-5, 1e-4), "kappa": (0.03, 0.1, 0.3), "regularization": (0.1, 1.0),
    }  # fmt: skip

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the perturbed values with theta_k and sigma_k."""
        n, model = self.n_samples or online.theory_samples(self.task.horizon), state.model
        noise = online.noise(self.features, model, n, rng, centred=False)
        return self.induce(
            model.prob, self.reward(state), clip_q_above, rng, noise, self.sigma(state)
        )

    def learn(self, state: State, plan: Plan, episode: Episode) -> online.Online:
        rate, bound = self.kappa / 2.0, self.theta_bound
        return online.learn(self.features, state.model, episode, rate, bound, mirror=False)

    def sigma(self, state: State) -> float:
        """Return sigma_k = H alpha_k, the scale of the perturbation."""
        return self.task.units.max_value * self.beta(state)


@dataclass(frozen=True)
class ORRLMNL(MirrorDescentLearner):
    """Randomised values with mirror descent and local curvature: Algorithm 2 of Cho et al.

    Q_h = min(r + P V_{h+1} + sum_s' P max_m (varphi - mean)^T xi_h^(m)
    + 3 H beta_k^2 max_s' ||varphi||^2_{B_h^-1}, H), xi_h^(m) ~ N(0, sigma_k^2 B_h^-1), mean the
    expected feature under P. The samples of a step are shared by all (s, a); the maximum is taken
    for each s' separately.

    Deviations: as in UCRL-MNL+, whose other parameters it has too.

    Parameters
    ----------
    radius : Radius or float
        beta_k; sigma_k is H beta_k. A number c stands for scaled_radius(c).
    n_samples : int, optional
        M; the default is the theory's, ceil(1 - log(H U) / log Phi(1)).
    """

    _: KW_ONLY
    n_samples: int | None = None

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the perturbed values with theta_k, sigma_k and beta_k."""
        task, model = self.task, state.model
        n = self.n_samples or online.theory_samples(task.horizon * task.max_successors)
        beta, horizon = self.beta(state), task.units.max_value
        noise = online.noise(self.features, model, n, rng, centred=True)
        bonus = horizon * beta * noise + 3.0 * horizon * (beta * model.max_norm) ** 2
        return self.induce(model.prob, self.reward(state), clip_q_above, rng, bonus)
