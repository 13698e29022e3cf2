"""UCRL-MNL, the algorithm of the paper.

Hwang and Oh, "Model-Based Reinforcement Learning with Multinomial Logistic Function
Approximation", Algorithm 1. In each episode: estimate the parameter theta, which the paper calls
the transition core, by regularised maximum likelihood (3); take the ellipsoid of the Gram matrix
(5) with radius beta_k around it; plan optimistically by (6) or another function of
`upriver.planning.optimism`; play the greedy policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver.agents.base import Episode, State
from upriver.agents.mnl_family import ConfidenceSetLearner
from upriver.agents.rewards import OptimisticReward
from upriver.checks import format_value, positive_number
from upriver.mnl import model as mnl
from upriver.planning import Plan, draw_tie_seed
from upriver.planning import optimism as optimistic


@dataclass(frozen=True)
class UCRLMNL(OptimisticReward, ConfidenceSetLearner):
    """Algorithm 1: Q_h = r + max of P_theta V_{h+1} over the confidence set, bounded by (6).

    Deviations: A_k is lambda_k I plus the sum of varphi varphi^T, as defined in (5), where line 8
    of the printed algorithm omits the change of lambda_k. Ties are broken uniformly at random when
    the plan is made, so that the policy of an episode is one deterministic policy.

    Parameters
    ----------
    radius : Radius or float
        beta_k, see `ConfidenceSetLearner`.
    regularization : float or function of k
        lambda_k.
    optimism : function of `upriver.optimism`
        How the confidence set becomes a plan; the default is (6).
    """

    regularization: float | Callable[[int], float] = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]
    optimism: optimistic.Optimism = optimistic.closed_form

    GRID: ClassVar = {
        "radius": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1), "regularization": (1e-3, 1e-2, 1e-1, 1.0),
    }  # fmt: skip
    OWN_CHECKS: ClassVar = ConfidenceSetLearner.OWN_CHECKS | {
        "regularization": lambda name, x: x if callable(x) else positive_number(name, x)
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.optimism):
            raise TypeError(
                f"optimism is {format_value(self.optimism)}; it must be a function of "
                "upriver.optimism, such as closed_form"
            )

    def start(self) -> mnl.Model:
        """Return theta_1 = 0 and A_1 = lambda_1 I."""
        needed = self.optimism in optimistic.NEEDS_GEOMETRY
        return mnl.start(self.features, self.lam(1), self.n_models, with_products=needed)

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Line 4: return the optimistic values with theta_k and beta_k."""
        reward, beta = self.reward(state), self.beta(state)
        return self.optimism(self.task, state.model, reward, beta, draw_tie_seed(rng))

    def learn(self, state: State, plan: Plan, episode: Episode) -> mnl.Model:
        """Lines 8 and 9: return A_{k+1} and theta_{k+1}."""
        return mnl.absorb(self.features, state.model, episode, self.lam(state.k + 1))

    def lam(self, k: int) -> float:
        """Return lambda_k."""
        rule = self.regularization
        return positive_number("regularization", rule(k)) if callable(rule) else rule
