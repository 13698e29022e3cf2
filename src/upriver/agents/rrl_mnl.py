"""RRL-MNL: randomised exploration with an online Newton estimate.

Cho, Hwang, Lee and Oh, "Randomized Exploration for Reinforcement Learning with Multinomial Logistic
Function Approximation" (2024), Algorithm 1. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.agents.ucrl_mnl import evidence
from upriver.checks import nonnegative_number, positive_integer, positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import online
from upriver.mnl.confidence import Radius
from upriver.planning import Clip, Plan, backward_induction, draw_word
from upriver.planning.optimism import ones


class RRLMNLState(NamedTuple):
    k: int
    """Number of the next episode, from 1."""
    model: online.Online
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


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
        online.settle(
            self, radius=online.radius, kappa=positive_number, regularization=positive_number,
            theta_bound=online.bound, reward_bonus=nonnegative_number,
        )  # fmt: skip
        n_samples = online.rrl_samples(self.task) if self.n_samples is None else self.n_samples
        object.__setattr__(self, "n_samples", positive_integer("n_samples", n_samples))

    def init(self) -> RRLMNLState:
        """theta_1 = 0, A_1 = lambda I."""
        n_cores = self.task.horizon if self.per_step else 1
        model = online.start(self.features, self.regularization, n_cores)
        return RRLMNLState(1, model, rewards.start(self.task))

    def plan(self, state: RRLMNLState, rng: np.random.Generator) -> Plan:
        """Perturbed values with theta_k and sigma_k."""
        assert self.n_samples is not None
        reward = rewards.optimistic_reward(self.task, state.rewards, self.reward_bonus)
        noise = online.peak_noise(self.features, state.model, self.n_samples, rng)
        return backward_induction(
            self.task, state.model.prob, reward, noise, self.sigma(state) * ones(self.task),
            clip_q_above(self.task), draw_word(rng),
        )  # fmt: skip

    def update(self, state: RRLMNLState, plan: Plan, episode: Episode) -> RRLMNLState:
        """The online Newton steps of the episode."""
        model = online.newton_step(
            self.features, state.model, episode, self.kappa, self.theta_bound
        )
        return RRLMNLState(state.k + 1, model, rewards.observe(self.task, state.rewards, episode))

    def sigma(self, state: RRLMNLState) -> float:
        """sigma_k = H alpha_k, the scale of the perturbation."""
        radius: Any = self.radius
        model: Any = state.model
        return self.task.horizon * radius(evidence(self.features, state.k, model, radius))


@lru_cache(maxsize=64)
def clip_q_above(task: Task) -> Clip:
    """Q_h is at most H before the argmax and may be negative."""
    cap = np.full(task.horizon, float(task.horizon))
    return Clip(-np.inf, cap, cap)
