"""UCRL-MNL-L1: plans over distributions near the estimate in the L1 norm.

The confidence set of Park, Kwon and Lee, "Infinite-Horizon Reinforcement Learning with Multinomial
Logistic Function Approximation" (2024), and their online mirror descent estimate, for episodes.
Each optimistic model is a distribution over the reachable states, so values need no clipping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver import kernels
from upriver.agents import mnl_family as family
from upriver.agents.fields import validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.checks import Array
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Plan, clip_nothing, draw_tie_seed, run_backward_pass


@guarded
@dataclass(frozen=True)
class UCRLMNLL1:
    """Q_h = r + max of p V_{h+1} over distributions p on the successors of (s, a) with
    ||p - P_theta||_1 <= min(2, beta_k max_s' ||varphi||_{B^-1}), and V_h = max_a Q_h.

    Fields: beta_k is `radius`, eta `step_size`, lambda `regularization`, L_theta `theta_bound`.
    Where ||theta - theta*||_B <= beta_k the true distribution is in the set, because
    ||P_theta - P_theta*||_1 <= max_s' |varphi^T (theta - theta*)|; so Q is at least Q*.

    Deviations: the authors' set has twice this size, which is not needed; they plan for the
    discounted or average reward of one endless stream, here each episode is planned by itself. The
    default radius is the practical form, with no ball.
    """

    task: Task
    features: Features
    radius: Radius | float = 3e-3
    """beta_k; a number c stands for scaled_radius(c); 0 is the greedy learner."""
    step_size: float = 1.0
    """eta."""
    regularization: float = 1.0
    """lambda."""
    theta_bound: float | None = None
    """L_theta; None is no ball."""
    per_step: bool = False
    """One transition core for each step h instead of one for all."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.0, 1e-4, 1e-3, 1e-2),
        "step_size": (0.5, 1.0),
        "regularization": (0.1, 1.0, 10.0),
    }

    def __post_init__(self) -> None:
        validate_mnl_fields(self)

    def init(self) -> State:
        """theta_1 = 0, B_1 = lambda I."""
        return family.begin(self, online.start)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """The largest values over the polytope around theta_k."""
        reward = family.reward(self, state)
        size = np.minimum(self.beta(state) * state.model.max_norm, 2.0)
        return polytope_plan(self.task, state.model.prob, reward, size, draw_tie_seed(rng))

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """The mirror descent steps of the episode."""
        model = online.mirror_descent(
            self.features, state.model, episode, self.step_size, self.theta_bound
        )
        return family.advance(self, state, model, episode)

    def beta(self, state: State) -> float:
        """beta_k, the radius used to plan from `state`."""
        return family.beta(self, state)


def polytope_plan(task: Task, prob: Array, reward: Array, size: Array, tie_seed: np.uint64) -> Plan:
    """Backward induction with the largest expectation within L1 distance `size` (1 | H, S*A)."""
    kernel, arguments = kernels.tabular.backward_pass_l1, (prob, reward, size)
    return run_backward_pass(task, kernel, arguments, clip_nothing(task), tie_seed)
