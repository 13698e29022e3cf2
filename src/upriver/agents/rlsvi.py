"""RLSVI: randomised value functions, value iteration with Gaussian noise in place of a bonus.

Osband, Van Roy and Wen (2016); in the tabular form of Russo, "Worst-Case Regret Bounds for
Exploration via Randomized Value Functions", 2019. The noise on Q(s, a) is what a draw from the
posterior of a regression with targets r + V_{h+1} adds to its mean. A noise is a function of the
task and k that gives its scale at each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver.agents import rewards, tabular
from upriver.agents.fields import rule, settle
from upriver.agents.guard import guarded
from upriver.agents.protocol import Episode
from upriver.checks import Array, nonnegative_number, positive_number
from upriver.display import displayed
from upriver.mdp import Task
from upriver.planning import Plan, backward_induction, clip_v_remaining, draw_tie_seed


@dataclass(frozen=True)
class scaled_noise:
    """The practical form: sigma_h = c (H - h), H - h the range of V_{h+1}; c = 0 is greedy."""

    scale: float

    def __post_init__(self) -> None:
        settle(self, scale=nonnegative_number)

    def __call__(self, task: Task, k: int) -> Array:
        return self.scale * tabular.steps_left(task)


@dataclass(frozen=True)
class russo_noise:
    """sigma^2 = H^3 S log(2 H S A k) / 2 of Russo (2019): with regularization 1, the drawn value
    exceeds the optimum with a probability bounded away from 0, whatever was seen."""

    def __call__(self, task: Task, k: int) -> Array:
        horizon, states = task.horizon, task.n_states
        size = log(2.0 * horizon * states * task.n_actions * k)
        per_step = task.units.max_value / horizon  # 1 without terminal values
        return np.full(horizon, per_step * sqrt(0.5 * horizon**3 * states * size))


@displayed
class RLSVIState(NamedTuple):
    k: int
    """Number of the next episode, from 1."""
    counts: tabular.Counts
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True)
class RLSVI:
    """Q_h = r + N(s, a, .) V_{h+1} / (N + lambda) + sigma_h z / sqrt(N + lambda), z ~ N(0, 1),
    drawn for each (h, s, a).

    Deviations: a pair with one successor in the task's support has nothing to learn, so neither
    ridge nor noise. V_h is clipped at the steps left. Rewards are not regressed: they are known, or
    optimistic where the task leaves them out.
    """

    task: Task
    noise: Callable[[Task, int], Array] | float = 0.01
    """(H,) sigma_h as a function of the task and k; a number c stands for scaled_noise(c)."""
    regularization: float = 0.01
    """lambda: the ridge, which pulls the values of rarely seen pairs to their rewards."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "noise": (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
        "regularization": (1e-3, 1e-2, 1e-1, 1.0),
    }

    def __post_init__(self) -> None:
        settle(
            self, noise=rule(scaled_noise), regularization=positive_number,
            reward_bonus=nonnegative_number,
        )  # fmt: skip

    def init(self) -> RLSVIState:
        return RLSVIState(1, tabular.start(self.task), rewards.start(self.task))

    def plan(self, state: RLSVIState, rng: np.random.Generator) -> Plan:
        rule: Any = self.noise
        task, counts = self.task, state.counts
        precision = counts.visits + self.regularization
        sure = task.sizes == 1
        shrink = np.where(sure, 1.0, counts.visits / precision)
        prob = counts.prob * np.repeat(shrink, task.sizes)
        spread = np.where(sure, 0.0, 1.0 / np.sqrt(precision))
        draws = rng.standard_normal((task.horizon, len(spread))) * spread
        reward = rewards.optimistic_reward(task, state.rewards, self.reward_bonus)
        return backward_induction(
            task,
            prob,
            reward,
            draws,
            rule(task, state.k),
            clip_v_remaining(task),
            draw_tie_seed(rng),
        )

    def update(self, state: RLSVIState, plan: Plan, episode: Episode) -> RLSVIState:
        return RLSVIState(
            state.k + 1,
            tabular.absorb(self.task, state.counts, episode),
            rewards.observe(self.task, state.rewards, episode),
        )
