"""UCRL-MNL: upper-confidence model-based RL for the MNL transition model.

Hwang and Oh, "Model-Based Reinforcement Learning with Multinomial Logistic Function
Approximation", Algorithm 1. In each episode: estimate the transition core by regularised maximum
likelihood (3), keep the ellipsoid of the Gram matrix (5) with radius beta_k around it, plan
optimistically by (6) or another function of `upriver.planning.optimism`, play the greedy policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.checks import nonnegative_number, positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl.confidence import Evidence, Radius, scaled_radius
from upriver.planning import Plan, draw_word
from upriver.planning import optimism as optimistic


class UCRLMNLState(NamedTuple):
    k: int
    """Number of the next episode, from 1."""
    model: mnl.Model
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


@dataclass(frozen=True)
class UCRLMNL:
    """Algorithm 1. Inputs of the paper: varphi is `features`, {beta_k} `radius`, {lambda_k}
    `regularization`; the MDP is `task`, and K is not needed.

    Deviations: A_k is lambda_k I plus the sum of varphi varphi^T, as defined in (5), where line 8
    of the printed algorithm forgets the change of lambda_k. Ties are broken uniformly at random
    when the plan is made, so that the played policy is one deterministic policy.
    """

    task: Task
    features: Features
    radius: Radius | float = 1e-4
    """beta_k; a number c means scaled_radius(c), the practical form; 0 is the greedy learner."""
    regularization: float | Callable[[int], float] = 1.0
    """lambda_k: a number, or a function of k."""
    optimism: optimistic.Optimism = optimistic.closed_form
    """How the confidence set becomes a plan: (6) by default."""
    per_step: bool = False
    """One transition core for each step h instead of one for all."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        "regularization": (1e-3, 1e-2, 1e-1, 1.0),
    }

    def __post_init__(self) -> None:
        self.features.check_task(self.task)
        if not callable(self.radius):
            object.__setattr__(
                self, "radius", scaled_radius(nonnegative_number("radius", self.radius))
            )
        if not callable(self.regularization):
            number = positive_number("regularization", self.regularization)
            object.__setattr__(self, "regularization", number)
        nonnegative_number("reward_bonus", self.reward_bonus)
        if not callable(self.optimism):
            raise TypeError(
                f"optimism is {self.optimism!r}; it must be a function of upriver.optimism, "
                "such as closed_form"
            )

    def init(self) -> UCRLMNLState:
        """theta_1 = 0, A_1 = lambda_1 I."""
        with_geometry = self.optimism in optimistic.NEEDS_GEOMETRY
        n_cores = self.task.horizon if self.per_step else 1
        model = mnl.start(self.features, self.lam(1), n_cores, with_geometry)
        return UCRLMNLState(1, model, rewards.start(self.task))

    def plan(self, state: UCRLMNLState, rng: np.random.Generator) -> Plan:
        """Line 4: the optimistic values with theta_k and beta_k."""
        reward = rewards.optimistic_reward(self.task, state.rewards, self.reward_bonus)
        return self.optimism(self.task, state.model, reward, self.beta(state), draw_word(rng))

    def update(self, state: UCRLMNLState, plan: Plan, episode: Episode) -> UCRLMNLState:
        """Lines 8 and 9: A_{k+1} and theta_{k+1}."""
        model = mnl.absorb(self.features, state.model, episode, self.lam(state.k + 1))
        return UCRLMNLState(state.k + 1, model, rewards.observe(self.task, state.rewards, episode))

    def lam(self, k: int) -> float:
        """lambda_k."""
        rule: Any = self.regularization
        return positive_number("regularization", rule(k)) if callable(rule) else rule

    def beta(self, state: UCRLMNLState) -> float:
        """beta_k, the radius used to plan from `state`."""
        radius: Any = self.radius
        return radius(evidence(self.features, state.k, state.model, radius))


def evidence(
    features: Features, k: int, model: mnl.Model, radius: Radius | None = None
) -> Evidence:
    """What a radius may look at before episode k."""
    task = features.task
    reads = getattr(radius, "reads_information", True)
    assert features.formal_dimension is not None
    return Evidence(
        k, task.horizon, task.n_states, task.max_successors, features.formal_dimension,
        features.norm_bound, model.regularization,
        mnl.logdet_ratio(features, model) if reads else nan,
    )  # fmt: skip
