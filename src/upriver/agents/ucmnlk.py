"""UCMNLK: optimistic plans of one endless stream over distributions near an online estimate.

Park, Kwon and Lee, "Infinite-Horizon Reinforcement Learning with Multinomial Logit Function
Approximation" (2024), for discounted and for average reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents.fields import rule, validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.agents.ucrl_mnl_l1 import polytope_plan
from upriver.checks import positive_integer, positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl import online
from upriver.mnl.radii import Evidence, Radius
from upriver.planning import Plan, draw_tie_seed
from upriver.planning.infinite_horizon import plan_l1


@dataclass(frozen=True)
class park_radius:
    """beta = c sqrt(d) log(S t / (1 - gamma))^2, the authors' practical form at time t."""

    scale: float
    discount: float

    reads_information: ClassVar[bool] = False

    def __call__(self, e: Evidence) -> float:
        return self.scale * sqrt(e.dimension) * log(e.n_states * e.k / (1.0 - self.discount)) ** 2


@guarded
@dataclass(frozen=True)
class UCMNLK:
    """V = max_a (r + gamma max of p V over distributions p on the successors of (s, a) with
    ||p - P_theta||_1 <= min(2, 2 beta max_s' ||varphi||_{B^-1})), theta and B by mirror descent.

    A plan is played until det B has doubled. With a discount gamma is the task's. For the average
    reward it is 1 - sqrt(d / (D T)), with the diameter D and the number of steps T of the run.
    Fields: beta is `radius`, eta `step_size`, lambda `regularization`, L_theta `theta_bound`.
    Where ||theta - theta*||_B <= beta the true distribution is in the set even at half its size,
    because ||P_theta - P_theta*||_1 <= max_s' |varphi^T (theta - theta*)|; so V is at least V*.

    Deviations: V solves its equation to rounding, where the authors make N sweeps from 1/(1-gamma).
    The inner maximum moves probability from the worst successors to the best, which is exact; the
    authors' code calls a solver for each pair. The default radius is the practical form, no ball.
    Episodes of a task that has a horizon are planned one by one, as UCRL-MNL-L1 does.
    """

    task: Task
    features: Features
    radius: Radius | float = 1e-3
    """beta; a number c stands for park_radius(c, gamma); 0 is the greedy learner."""
    step_size: float = 0.5 * log(2.0) + 2.0
    """eta."""
    regularization: float = 1.0
    """lambda."""
    theta_bound: float | None = None
    """L_theta; None is no ball."""
    n_steps: int = 10_000
    """T, for the average reward."""
    diameter: float = 10.0
    """D, for the average reward."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.0, 1e-4, 1e-3, 1e-2, 1e-1),
        "regularization": (0.1, 1.0, 10.0),
    }

    def __post_init__(self) -> None:
        positive_integer("n_steps", self.n_steps)
        positive_number("diameter", self.diameter)
        validate_mnl_fields(self, radius=rule(partial(park_radius, discount=self.gamma)))

    @property
    def gamma(self) -> float:
        """The discount that is planned with."""
        discount = self.task.discount
        if discount is None:
            return 1.0 - 1.0 / (1.0 + self.task.horizon)
        if discount < 1.0:
            return discount
        assert self.features.formal_dimension is not None
        return max(1.0 - sqrt(self.features.formal_dimension / self.diameter / self.n_steps), 0.0)

    def init(self) -> State:
        """theta_1 = 0, B_1 = lambda I."""
        return family.begin(self, online.start)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """The largest values over the polytope around theta."""
        reward = family.reward(self, state)
        size = np.minimum(2.0 * self.beta(state) * state.model.max_norm, 2.0)
        if not self.task.infinite_horizon:
            return polytope_plan(self.task, state.model.prob, reward, size, draw_tie_seed(rng))
        return plan_l1(
            self.task, state.model.prob[0], reward[0], size[0], draw_tie_seed(rng), self.gamma
        )

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Until det B has doubled."""
        return family.until_doubled(
            state.model, self.learn, lambda model: mnl.logdet_ratio(self.features, model), episode
        )

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """The mirror descent steps of what was played."""
        after = family.advance(self, state, self.learn(state.model, episode), episode)
        return after._replace(k=state.k + len(episode.actions))  # its radius goes by the step

    def learn(self, model: online.Online, episode: Episode) -> online.Online:
        return online.mirror_descent(
            self.features, model, episode, self.step_size, self.theta_bound
        )

    def beta(self, state: State) -> float:
        """The radius used to plan from `state`."""
        return family.beta(self, state)
