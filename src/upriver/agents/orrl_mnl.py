"""ORRL-MNL: randomised exploration with an online mirror descent estimate and local curvature.

Cho, Hwang, Lee and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic
Function Approximation" (2024), Algorithm 2. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from upriver.agents.fields import validate_fields, with_default
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import MirrorDescentLearner, State
from upriver.checks import positive_integer
from upriver.mnl import online
from upriver.planning import Plan, backward_induction, clip_q_above, draw_tie_seed
from upriver.planning.optimism import ones


@guarded
@dataclass(frozen=True)
class ORRLMNL(MirrorDescentLearner):
    """Algorithm 2 of Cho et al.

    Q_h = min(r + P V_{h+1} + sum_s' P max_m (varphi - mean)^T xi_h^(m)
    + 3 H beta_k^2 max_s' ||varphi||^2_{B_h^-1}, H), xi_h^(m) ~ N(0, sigma_k^2 B_h^-1), mean the
    expected feature under P. The samples of a step are shared by all (s, a); the maximum is taken
    for each s' separately.

    Deviations: as in UCRL-MNL+, with the same parameters.

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
