"""UCRL-MNL-SE: UCRL-MNL with a bonus in standard errors of the expected next value.

The estimate is that of UCRL-MNL. By the delta method the standard error of P_theta_hat V is the
norm of its gradient in theta, taken in the inverse of the Hessian of (2); a few of these are added
to it. What is a sensible number of standard errors does not depend on the problem, its units or its
features, so there is nothing to tune.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.agents.ucrl_mnl import UCRLMNLState, evidence
from upriver.checks import nonnegative_number, positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl import online
from upriver.mnl.confidence import Radius, constant_radius, standard_errors
from upriver.planning import Plan, draw_word
from upriver.planning.optimism import standard_error

A_FEW = standard_errors()


@dataclass(frozen=True)
class UCRLMNLSE:
    """Q_h = r + P V_{h+1} + beta_k ||sum_s' P (V_{h+1} - P V_{h+1}) varphi||_{B^-1}, V_h at most
    the steps left; P at theta_hat, which minimises (2), and B its Hessian there, lambda I included.

    With one-hot features the bonus is close to beta_k sqrt(Var_P(V) / n), n the visits of (s, a).
    An unknown reward enters as its mean and beta_k standard errors of that mean, see
    `rewards.posterior_bound`.

    No regret bound is proved. It is `optimism.gradient` in the local norm without the remainder;
    P_theta_hat V is asymptotically normal, so the bonus of one (s, a, h) is optimistic with
    probability Phi(beta_k). Ties are broken uniformly at random when the plan is made.
    """

    task: Task
    features: Features
    radius: Radius | float = A_FEW
    """beta_k in standard errors; a number stays the same for all k, 0 is the greedy learner."""
    regularization: float = 1.0
    """lambda."""
    per_step: bool = False
    """One transition core for each step h instead of one for all."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.5, 1.0, 2.0, 4.0),
        "regularization": (0.1, 1.0),
    }

    def __post_init__(self) -> None:
        online.settle(self, radius=errors, regularization=positive_number)

    def init(self) -> UCRLMNLState:
        """theta_hat = 0, B = lambda I."""
        n_cores = self.task.horizon if self.per_step else 1
        model = mnl.start(
            self.features, self.regularization, n_cores, with_geometry=True, local=True
        )
        return UCRLMNLState(1, model, rewards.start(self.task))

    def plan(self, state: UCRLMNLState, rng: np.random.Generator) -> Plan:
        """The values with theta_hat and beta_k standard errors."""
        beta = self.beta(state)
        reward = rewards.posterior_bound(self.task, state.rewards, beta)
        return standard_error(self.task, state.model, reward, beta, draw_word(rng))

    def update(self, state: UCRLMNLState, plan: Plan, episode: Episode) -> UCRLMNLState:
        """theta_hat and B with one more episode."""
        model = mnl.absorb(self.features, state.model, episode, self.regularization, local=True)
        return UCRLMNLState(state.k + 1, model, rewards.observe(self.task, state.rewards, episode))

    def beta(self, state: UCRLMNLState) -> float:
        """beta_k, the number of standard errors used to plan from `state`."""
        radius: Any = self.radius
        return radius(evidence(self.features, state.k, state.model, radius))


def errors(name: str, value: Any) -> Any:
    """A radius as it is; a number is that many standard errors at all times."""
    return value if callable(value) else constant_radius(nonnegative_number(name, value))
