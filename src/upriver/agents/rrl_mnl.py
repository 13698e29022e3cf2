"""RRL-MNL: randomised exploration with an online Newton estimate.

Cho, Hwang, Lee and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic
Function Approximation" (2024), Algorithm 1. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents.fields import optional, validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.checks import positive_integer
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Plan, backward_induction, clip_q_above, draw_tie_seed
from upriver.planning.optimism import ones


@guarded
@dataclass(frozen=True)
class RRLMNL:
    """Algorithm 1. Inputs of the paper: sigma_k is H times `radius`, M `n_samples`, kappa `kappa`,
    lambda `regularization`, L_theta `theta_bound`.

    Q_h = min(r + P V_{h+1} + max_m varphi_hat^T xi_h^(m), H), xi_h^(m) ~ N(0, sigma_k^2 A_h^-1),
    varphi_hat the feature of (s, a) with the largest norm in A_h^-1. The samples of a step are
    shared by all (s, a).

    Deviations: the default radius is the practical form, with no ball; for the constants of the
    theory use `mnl.online.newton_radius`, lambda >= L_varphi^2 and a finite `theta_bound`. Ties are
    broken uniformly at random when the plan is made.
    """

    task: Task
    features: Features
    radius: Radius | float = 1e-5
    """alpha_k = sigma_k / H; a number c stands for scaled_radius(c)."""
    kappa: float = 0.1
    """Curvature of the loss that the Newton step counts on: smaller is bolder."""
    regularization: float = 1.0
    """lambda."""
    n_samples: int | None = None
    """M; None is the theory's, ceil(1 - log H / log Phi(1))."""
    theta_bound: float | None = None
    """L_theta; None is no ball."""
    per_step: bool = True
    """One transition core for each step h, as published, instead of one for all."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.0, 1e-6, 1e-5, 1e-4),
        "kappa": (0.03, 0.1, 0.3),
        "regularization": (0.1, 1.0),
    }

    def __post_init__(self) -> None:
        theory = online.rrl_samples(self.task)
        validate_mnl_fields(self, n_samples=optional(theory, positive_integer))

    def init(self) -> State:
        """theta_1 = 0, A_1 = lambda I."""
        return family.begin(self, online.start)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Perturbed values with theta_k and sigma_k."""
        assert self.n_samples is not None
        reward = family.reward(self, state)
        noise = online.noise(self.features, state.model, self.n_samples, rng, centred=False)
        return backward_induction(
            self.task, state.model.prob, reward, noise, self.sigma(state) * ones(self.task),
            clip_q_above(self.task), draw_tie_seed(rng),
        )  # fmt: skip

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """The online Newton steps of the episode."""
        model = online.newton_step(
            self.features, state.model, episode, self.kappa, self.theta_bound
        )
        return family.advance(self, state, model, episode)

    def sigma(self, state: State) -> float:
        """sigma_k = H alpha_k, the scale of the perturbation."""
        return self.task.units.max_value * family.beta(self, state)
