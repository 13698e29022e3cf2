"""UCRL-MNL-SE: UCRL-MNL with a bonus in standard errors of the expected next value.

The estimate is that of UCRL-MNL. By the delta method the standard error of P_theta_hat V is the
norm of its gradient in theta, taken in the inverse of the Hessian of (2). The bonus is a few of
these standard errors, a number that needs no tuning to the scale of rewards or to the horizon.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np

from upriver.agents import rewards
from upriver.agents.fields import function_or_number, validate_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import ConfidenceSetLearner, MaximumLikelihoodLearner, State
from upriver.agents.protocol import Episode
from upriver.mnl import model as mnl
from upriver.mnl.radii import Radius, constant_radius, standard_errors
from upriver.planning import Plan, draw_tie_seed
from upriver.planning.optimism import standard_error

DEFAULT_RADIUS = standard_errors()


@guarded
@dataclass(frozen=True)
class UCRLMNLSE(MaximumLikelihoodLearner, ConfidenceSetLearner):
    """Q_h = r + P V_{h+1} + beta_k ||sum_s' P (V_{h+1} - P V_{h+1}) varphi||_{B^-1}.

    V_h is at most the number of steps left. P is the distribution at theta_hat, which minimises
    (2), and B the Hessian there, lambda I included. With one-hot features the bonus is close to
    beta_k sqrt(Var_P(V) / n), n the visits of (s, a). An unknown reward enters as its mean plus
    beta_k standard errors of that mean, see `rewards.reward_upper_bound`.

    No regret bound is proved. The bonus is `optimism.gradient` in the local norm without the
    remainder. Ties are broken uniformly at random when the plan is made.

    With an infinite horizon k counts steps, and a plan is kept until det B has doubled or half as
    many steps as before have passed. The ridge after t steps is lambda / log t: a next state that
    never occurred in t steps then has a probability of about 1 / t, where a fixed ridge would leave
    log(t) / t.

    Parameters
    ----------
    radius : Radius or float
        beta_k, in standard errors; a number is used for all k, and 0 is the greedy learner.
    regularization : float
        lambda, in the units of the features; with an infinite horizon lambda before the first step.
    """

    radius: Radius | float = DEFAULT_RADIUS

    GRID: ClassVar = {"radius": (0.5, 1.0, 2.0, 4.0), "regularization": (0.1, 1.0)}

    def __post_init__(self) -> None:
        validate_fields(self, radius=function_or_number(constant_radius))

    def init(self) -> State:
        """Return theta_hat = 0 and B = lambda I."""
        model = mnl.start(
            self.features, self.regularization, self.n_models, with_products=True, local=True,
            factored=not self.task.infinite_horizon,
        )  # fmt: skip
        return self.first_state(model)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the values with theta_hat and beta_k standard errors."""
        beta = self.beta(state)
        reward = rewards.reward_upper_bound(self.task, state.rewards, beta)
        start = self.features.product_start
        return standard_error(self.task, state.model, reward, beta, draw_tie_seed(rng), start)

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """Return theta_hat and B with one more episode."""
        lam = self.regularization
        if self.task.infinite_horizon:
            lam /= max(1.0, log(state.model.counts.sum() + len(episode.actions)))
        model = mnl.absorb(self.features, state.model, episode, lam, local=True)
        return self.advance(state, model, episode)
