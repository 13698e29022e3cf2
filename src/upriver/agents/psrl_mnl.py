"""PSRL-MNL: posterior sampling of the MNL model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver.agents import rewards
from upriver.agents.base import State
from upriver.agents.mnl_family import MaximumLikelihoodLearner
from upriver.mnl import model as mnl
from upriver.mnl.likelihood import probabilities
from upriver.planning import Plan, clip_nothing


@dataclass(frozen=True)
class PSRLMNL(MaximumLikelihoodLearner):
    """Draws a parameter from its posterior, and plays its optimum for an episode.

    Posterior sampling (Strens 2000; Osband, Russo and Van Roy 2013) with the ridge of (2) as a
    normal prior, and the Laplace approximation of the posterior:

    theta ~ N(theta_hat, inflation B^-1) once per episode; Q_h = r + P_theta V_{h+1}, no bonus.

    B is the Hessian of (2) at theta_hat, lambda I included. Unknown rewards are drawn from their
    posterior as well, see `rewards.posterior_reward`. No regret bound is proved for the approximate
    posterior.

    Parameters
    ----------
    regularization : float
        lambda; the prior of each coordinate is N(0, 1 / lambda).
    inflation : float
        1 is the posterior; more spreads the draws.
    """

    regularization: float = 1.0
    inflation: float = 1.0

    GRID: ClassVar = {"regularization": (0.1, 1.0), "inflation": (0.1, 0.3, 1.0, 3.0)}

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimum of a parameter drawn from the posterior."""
        centre = state.model.theta
        drawn = mnl.sample(self.features, state.model, rng)
        theta = centre + self.inflation**0.5 * (drawn - centre)
        prob = np.array([probabilities(self.features, row) for row in theta])
        reward = rewards.posterior_reward(self.task, state.rewards, rng)
        return self.induce(prob, reward, clip_nothing, rng)
