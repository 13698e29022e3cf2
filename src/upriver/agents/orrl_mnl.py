"""ORRL-MNL: randomised exploration with an online mirror descent estimate and local curvature.

Cho, Hwang, Lee and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic
Function Approximation" (2024), Algorithm 2. Time and memory per episode do not grow with k.
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
class ORRLMNL:
    """Algorithm 2. Inputs of the paper: beta_k is `radius` and sigma_k is H beta_k, M `n_samples`,
    eta `step_size`, lambda `regularization`, L_theta `theta_bound`.

    Q_h = min(r + P V_{h+1} + sum_s' P max_m (varphi - mean)^T xi_h^(m)
    + 3 H beta_k^2 max_s' ||varphi||^2_{B_h^-1}, H), xi_h^(m) ~ N(0, sigma_k^2 B_h^-1), mean the
    expected feature under P. The samples of a step are shared by all (s, a); the maximum is taken
    for each s' by itself.

    Deviations: the default radius is the practical form, with no ball; for the constants of the
    theory use `mnl.online.mirror_radius`, `theory_step` and `mirror_regularization` and a finite
    `theta_bound`. Ties are broken uniformly at random when the plan is made.
    """

    task: Task
    features: Features
    radius: Radius | float = 3e-5
    """beta_k; a number c stands for scaled_radius(c)."""
    step_size: float = 1.0
    """eta."""
    regularization: float = 1.0
    """lambda."""
    n_samples: int | None = None
    """M; None is the theory's, ceil(1 - log(H U) / log Phi(1))."""
    theta_bound: float | None = None
    """L_theta; None is no ball."""
    per_step: bool = True
    """One transition core for each step h, as published, instead of one for all."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.0, 1e-5, 1e-4, 1e-3),
        "step_size": (0.5, 1.0),
        "regularization": (0.1, 1.0, 10.0),
    }

    def __post_init__(self) -> None:
        theory = online.orrl_samples(self.task)
        validate_mnl_fields(self, n_samples=optional(theory, positive_integer))

    def init(self) -> State:
        """theta_1 = 0, B_1 = lambda I."""
        return family.begin(self, online.start)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Perturbed values with theta_k, sigma_k and beta_k."""
        assert self.n_samples is not None
        beta, horizon, model = self.beta(state), self.task.units.max_value, state.model
        reward = family.reward(self, state)
        noise = online.noise(self.features, model, self.n_samples, rng, centred=True)
        bonus = horizon * beta * noise + 3.0 * horizon * (beta * model.max_norm) ** 2
        return backward_induction(
            self.task, model.prob, reward, bonus, ones(self.task), clip_q_above(self.task),
            draw_tie_seed(rng),
        )  # fmt: skip

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """The mirror descent steps of the episode."""
        model = online.mirror_descent(
            self.features, state.model, episode, self.step_size, self.theta_bound
        )
        return family.advance(self, state, model, episode)

    def beta(self, state: State) -> float:
        """beta_k, the radius used to plan from `state`."""
        return family.beta(self, state)
