"""PSRL-MNL: draw a transition core from its posterior, play its optimum for an episode.

Posterior sampling (Strens 2000; Osband, Russo and Van Roy 2013) for the MNL model. The posterior of
the core, with the ridge of (2) as a normal prior, is taken as normal around its mode: the Laplace
approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents import rewards
from upriver.agents.fields import validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.checks import positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl.likelihood import probabilities
from upriver.mnl.model import sample
from upriver.planning import Plan, backward_induction, clip_nothing, draw_tie_seed


@guarded
@dataclass(frozen=True)
class PSRLMNL:
    """theta ~ N(theta_hat, inflation B^-1) once for an episode, B the Hessian of (2) at theta_hat,
    lambda I included; Q_h = r + P_theta V_{h+1}, without a bonus.

    Unknown rewards are drawn from their posterior as well, see `rewards.posterior_reward`. No bound
    is proved for the approximate posterior.
    """

    task: Task
    features: Features
    regularization: float = 1.0
    """lambda: the prior of each coordinate is N(0, 1 / lambda)."""
    inflation: float = 1.0
    """1 is the posterior; more spreads the draws."""
    per_step: bool = False
    """One transition core for each step h instead of one for all."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "regularization": (0.1, 1.0),
        "inflation": (0.1, 0.3, 1.0, 3.0),
    }

    def __post_init__(self) -> None:
        validate_mnl_fields(self, inflation=positive_number)

    def init(self) -> State:
        return family.begin(self, mnl.start, with_products=False)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        task, centre = self.task, state.model.theta
        theta = centre + self.inflation**0.5 * (sample(self.features, state.model, rng) - centre)
        prob = np.array([probabilities(self.features, core) for core in theta])
        reward = rewards.posterior_reward(task, state.rewards, rng)
        return backward_induction(
            task, prob, reward, np.zeros((1, len(task.sizes))), np.zeros(task.horizon),
            clip_nothing(task), draw_tie_seed(rng),
        )  # fmt: skip

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Until the determinant of B has doubled, for tasks without a last step."""
        return family.until_informed(self, state, episode)

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        model = mnl.absorb(self.features, state.model, episode, self.regularization)
        return family.advance(self, state, model, episode)
