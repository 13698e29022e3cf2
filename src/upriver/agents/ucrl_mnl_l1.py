"""UCRL-MNL-L1: plans over distributions near the estimate in the L1 norm.

The confidence set of Park, Kwon and Lee, "Infinite-Horizon Reinforcement Learning with Multinomial
Logistic Function Approximation" (2024), and their online mirror descent estimate, for episodes.
Each optimistic model is a distribution over the reachable states, so values need no clipping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.agents.ucrl_mnl import evidence
from upriver.checks import Array, nonnegative_number, positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import online
from upriver.mnl.confidence import Radius
from upriver.planning import Clip, Plan, clip_nothing, draw_word, empty_plan, steps_of


class UCRLMNLL1State(NamedTuple):
    k: int
    """Number of the next episode, from 1."""
    model: online.Online
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


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
        online.settle(
            self, radius=online.radius, step_size=positive_number, regularization=positive_number,
            theta_bound=online.bound, reward_bonus=nonnegative_number,
        )  # fmt: skip

    def init(self) -> UCRLMNLL1State:
        """theta_1 = 0, B_1 = lambda I."""
        n_cores = self.task.horizon if self.per_step else 1
        model = online.start(self.features, self.regularization, n_cores)
        return UCRLMNLL1State(1, model, rewards.start(self.task))

    def plan(self, state: UCRLMNLL1State, rng: np.random.Generator) -> Plan:
        """The largest values over the polytope around theta_k."""
        reward = rewards.optimistic_reward(self.task, state.rewards, self.reward_bonus)
        size = np.minimum(self.beta(state) * state.model.width, 2.0)
        return polytope_plan(self.task, state.model.prob, reward, size, draw_word(rng))

    def update(self, state: UCRLMNLL1State, plan: Plan, episode: Episode) -> UCRLMNLL1State:
        """The mirror descent steps of the episode."""
        model = online.mirror_descent(
            self.features, state.model, episode, self.step_size, self.theta_bound
        )
        return UCRLMNLL1State(
            state.k + 1, model, rewards.observe(self.task, state.rewards, episode)
        )

    def beta(self, state: UCRLMNLL1State) -> float:
        """beta_k, the radius used to plan from `state`."""
        radius: Any = self.radius
        model: Any = state.model
        return radius(evidence(self.features, state.k, model, radius))


def polytope_plan(task: Task, prob: Array, reward: Array, size: Array, word: np.uint64) -> Plan:
    """Backward induction with the largest expectation within L1 distance `size` (1 | H, S*A)."""
    clip = clip_nothing(task)
    policy, v, q = empty_plan(task)

    def run(prob: Array, reward: Array, size: Array, clip: Clip, v: Array, policy: Array, q: Array):
        kernels.tabular.sweep_l1(
            task.indptr, task.successors, prob, reward, size, clip.low, clip.q_cap, clip.v_cap,
            word, v, policy, q,
        )  # fmt: skip

    run(prob, reward, size, clip, v, policy, q)

    def backup(h: int) -> Array:
        step, q = slice(h, h + 1), np.empty(size.shape[1])
        cut = Clip(clip.low, clip.q_cap[step], clip.v_cap[step])
        run(
            steps_of(prob, h), steps_of(reward, h), steps_of(size, h), cut,
            v[h : h + 2].copy(), policy[step].copy(), q,
        )  # fmt: skip
        return q.reshape(task.n_states, task.n_actions)

    return Plan(policy, v, backup)
