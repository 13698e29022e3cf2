"""UCRL-MNL: upper-confidence model-based RL for the MNL transition model.

Hwang and Oh, "Model-Based Reinforcement Learning with Multinomial Logistic Function
Approximation", Algorithm 1. In each episode: estimate the transition core by regularised maximum
likelihood (3), keep the ellipsoid of the Gram matrix (5) with radius beta_k around it, plan
optimistically by (6) or another function of `upriver.planning.optimism`, play the greedy policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents.fields import rule, validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.checks import positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl.radii import Radius
from upriver.planning import Plan, draw_tie_seed
from upriver.planning import optimism as optimistic


@guarded
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
        validate_mnl_fields(self, regularization=rule(float, positive_number))
        if not callable(self.optimism):
            raise TypeError(
                f"optimism is {self.optimism!r}; it must be a function of upriver.optimism, "
                "such as closed_form"
            )

    def init(self) -> State:
        """theta_1 = 0, A_1 = lambda_1 I."""
        with_products = self.optimism in optimistic.NEEDS_GEOMETRY
        return family.begin(self, mnl.start, with_products=with_products)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Line 4: the optimistic values with theta_k and beta_k."""
        reward, beta = family.reward(self, state), family.beta(self, state)
        return self.optimism(self.task, state.model, reward, beta, draw_tie_seed(rng))

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """Lines 8 and 9: A_{k+1} and theta_{k+1}."""
        model = mnl.absorb(self.features, state.model, episode, family.lam(self, state.k + 1))
        return family.advance(self, state, model, episode)

    def lam(self, k: int) -> float:
        """lambda_k."""
        return family.lam(self, k)

    def beta(self, state: State) -> float:
        """beta_k, the radius used to plan from `state`."""
        return family.beta(self, state)
