"""PSRL-MNL: draw a parameter from its posterior, play its optimum for an episode.

Posterior sampling (Strens 2000; Osband, Russo and Van Roy 2013) for the MNL model. The posterior of
theta, with the ridge of (2) as a normal prior, is approximated by a normal distribution around its
mode: the Laplace approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver.agents import rewards
from upriver.agents.base import guarded
from upriver.agents.mnl_family import MaximumLikelihoodLearner, State, no_bonus
from upriver.mnl import model as mnl
from upriver.mnl.likelihood import probabilities
from upriver.planning import Plan, backward_induction, clip_nothing, draw_tie_seed


@guarded
@dataclass(frozen=True)
class PSRLMNL(MaximumLikelihoodLearner):
    """Draws a parameter from its posterior, and plays its optimum for an episode.

    theta ~ N(theta_hat, inflation B^-1) once per episode; Q_h = r + P_theta V_{h+1}, no bonus.

    B is the Hessian of (2) at theta_hat, lambda I included. Unknown rewards are drawn from their
    posterior as well, see `rewards.posterior_reward`.

    No regret bound is proved for the approximate posterior.

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

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimum of a parameter drawn from the posterior."""
        task, centre = self.task, state.model.theta
        drawn = mnl.sample(self.features, state.model, rng)
        theta = centre + self.inflation**0.5 * (drawn - centre)
        prob = np.array([probabilities(self.features, row) for row in theta])
        reward = rewards.posterior_reward(task, state.rewards, rng)
        added, clip = no_bonus(task), clip_nothing(task)
        return backward_induction(task, prob, reward, *added, clip, draw_tie_seed(rng))
