"""UCRL-MNL-SE: UCRL-MNL with a bonus in standard errors of the expected next value.

The estimate is that of UCRL-MNL. By the delta method the standard error of P_theta_hat V is the
norm of its gradient in theta, taken in the inverse of the Hessian of (2); a few of these are added
to it. What is a sensible number of standard errors does not depend on the problem, its units or its
features, so there is nothing to tune.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents import rewards
from upriver.agents.fields import rule, validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl.radii import Radius, constant_radius, standard_errors
from upriver.planning import Plan, draw_tie_seed
from upriver.planning.optimism import standard_error

A_FEW = standard_errors()


@guarded
@dataclass(frozen=True)
class UCRLMNLSE:
    """Q_h = r + P V_{h+1} + beta_k ||sum_s' P (V_{h+1} - P V_{h+1}) varphi||_{B^-1}, V_h at most
    the steps left; P at theta_hat, which minimises (2), and B its Hessian there, lambda I included.

    With one-hot features the bonus is close to beta_k sqrt(Var_P(V) / n), n the visits of (s, a).
    An unknown reward enters as its mean and beta_k standard errors of that mean, see
    `rewards.reward_upper_bound`.

    No regret bound is proved. It is `optimism.gradient` in the local norm without the remainder;
    P_theta_hat V is asymptotically normal, so the bonus of one (s, a, h) is optimistic with
    probability Phi(beta_k). Ties are broken uniformly at random when the plan is made.

    Without a last step k counts steps, a plan is played until det B has doubled or half as many
    steps as came before have passed, and the ridge after t steps is lambda / log t: what never
    happened in t steps then has a chance of about 1 / t, where a fixed ridge leaves log(t) / t.
    """

    task: Task
    features: Features
    radius: Radius | float = A_FEW
    """beta_k in standard errors; a number stays the same for all k, 0 is the greedy learner."""
    regularization: float = 1.0
    """lambda; without a last step that at first, see above."""
    per_step: bool = False
    """One transition core for each step h instead of one for all."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.5, 1.0, 2.0, 4.0),
        "regularization": (0.1, 1.0),
    }

    def __post_init__(self) -> None:
        validate_mnl_fields(self, radius=rule(constant_radius))

    def init(self) -> State:
        """theta_hat = 0, B = lambda I."""
        form = {"local": True, "factored": not self.task.infinite_horizon}
        return family.begin(self, mnl.start, with_products=True, **form)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """The values with theta_hat and beta_k standard errors."""
        beta = self.beta(state)
        reward = rewards.reward_upper_bound(self.task, state.rewards, beta)
        start = self.features.product_start
        return standard_error(self.task, state.model, reward, beta, draw_tie_seed(rng), start)

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """theta_hat and B with one more episode."""
        lam = self.regularization
        if self.task.infinite_horizon:
            lam /= max(1.0, log(state.model.counts.sum() + len(episode.actions)))
        model = mnl.absorb(self.features, state.model, episode, lam, local=True)
        return family.advance(self, state, model, episode)

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Until the determinant of B has doubled, for tasks without a last step."""
        return family.until_informed(self, state, episode)

    def beta(self, state: State) -> float:
        """beta_k, the number of standard errors used to plan from `state`."""
        return family.beta(self, state)
