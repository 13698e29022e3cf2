"""RRL-MNL and ORRL-MNL: randomised exploration with an online estimate.

Cho, Hwang, Lee and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic
Function Approximation" (2024): Algorithm 1 with an online Newton step, Algorithm 2 with online
mirror descent and local curvature. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from upriver.agents.base import Episode, guarded, validate_fields, with_default
from upriver.agents.mnl_family import MirrorDescentLearner, OnlineLearner, State
from upriver.checks import positive_integer
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Plan, backward_induction, clip_q_above, draw_tie_seed
from upriver.planning.optimism import ones


@guarded
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

    def __post_init__(self) -> None:
        validate_fields(self)
        samples = with_default(online.rrl_samples(self.task), positive_integer)
        validate_fields(self, n_samples=samples)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the perturbed values with theta_k and sigma_k."""
        assert self.n_samples is not None
        task, prob, reward = self.task, state.model.prob, self.reward(state)
        noise = online.noise(self.features, state.model, self.n_samples, rng, centred=False)
        scale, clip = self.sigma(state) * ones(task), clip_q_above(task)
        return backward_induction(task, prob, reward, noise, scale, clip, draw_tie_seed(rng))

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """Return the state after the online Newton steps of the episode."""
        kappa, bound = self.kappa, self.theta_bound
        model = online.newton_step(self.features, state.model, episode, kappa, bound)
        return self.advance(state, model, episode)

    def sigma(self, state: State) -> float:
        """Return sigma_k = H alpha_k, the scale of the perturbation."""
        return self.task.units.max_value * self.beta(state)


@guarded
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

    def __post_init__(self) -> None:
        validate_fields(self)
        samples = with_default(online.orrl_samples(self.task), positive_integer)
        validate_fields(self, n_samples=samples)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the perturbed values with theta_k, sigma_k and beta_k."""
        assert self.n_samples is not None
        beta, horizon, model = self.beta(state), self.task.units.max_value, state.model
        noise = online.noise(self.features, model, self.n_samples, rng, centred=True)
        bonus = horizon * beta * noise + 3.0 * horizon * (beta * model.max_norm) ** 2
        return backward_induction(
            self.task, model.prob, self.reward(state), bonus, ones(self.task),
            clip_q_above(self.task), draw_tie_seed(rng),
        )  # fmt: skip
