"""UCRL2 for a finite horizon: the best transition probabilities in an L1 ball around frequencies.

Jaksch, Ortner and Auer, "Near-optimal Regret Bounds for Reinforcement Learning", JMLR 2010, with
extended value iteration over H steps. A radius is a function of the task, the visits and k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import rewards, tabular
from upriver.agents.fields import fraction, rule, settle
from upriver.agents.guard import guarded
from upriver.agents.protocol import Episode
from upriver.checks import Array, nonnegative_number
from upriver.display import displayed
from upriver.mdp import Task
from upriver.planning import Plan, clip_v_remaining, draw_tie_seed, run_backward_pass
from upriver.planning.infinite_horizon import plan_l1

EVERYTHING = 2.0  # the L1 diameter of the simplex


@dataclass(frozen=True)
class scaled_l1:
    """The practical form: c sqrt(U / N), U the successors of (s, a); c = 0 is greedy."""

    scale: float

    def __post_init__(self) -> None:
        settle(self, scale=nonnegative_number)

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        if self.scale == 0.0:
            return np.zeros(len(visits))
        return shrink(task, visits, self.scale**2)


@dataclass(frozen=True)
class jaksch_l1:
    """sqrt(14 U log(2 S A t / delta) / N) at time t, with the U successors of (s, a) for S.

    The ball holds the true probabilities at all times with probability 1 - delta. Published is
    sqrt(14 S log(2 A t / delta) / N), whose factor S also pays for the union over the states; where
    U stands in its place the logarithm must, so with full support the ball is a little larger.
    """

    delta: float = 0.05

    def __post_init__(self) -> None:
        settle(self, delta=fraction)

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        time = max(1, (k - 1) * task.horizon)
        size = log(2.0 * task.n_states * task.n_actions * time / self.delta)
        return shrink(task, visits, 14.0 * size)


@dataclass(frozen=True)
class original_l1:
    """sqrt(14 S log(2 A t / delta) / max(1, N)) at time t, as published."""

    delta: float = 0.05

    def __post_init__(self) -> None:
        settle(self, delta=fraction)

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        time = max(1, (k - 1) * task.horizon)
        size = 14.0 * task.n_states * log(2.0 * task.n_actions * time / self.delta)
        return np.sqrt(size / np.maximum(visits, 1.0))


def shrink(task: Task, visits: Array, factor: float) -> Array:
    """(S*A,) sqrt(factor U / N), and everything where N = 0."""
    radius = np.sqrt(factor * task.sizes / np.maximum(visits, 1.0))
    return np.where(visits > 0.0, radius, EVERYTHING)


@displayed
class UCRL2State(NamedTuple):
    k: int
    """Number of the next episode, from 1; of the next step where there is no last one."""
    counts: tabular.Counts
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True)
class UCRL2:
    """Q_h = r + max of p V_{h+1} over ||p - P||_1 <= radius, p on the task's support.

    The maximum moves half the radius of probability to the best successor, from the worst ones.
    A pair never seen may lead to the best of its successors with certainty.

    Without a last step it is the original: a plan is played until the visits of a pair have
    doubled, and extended value iteration goes to its end; `original_l1` is the published radius.

    Deviations: with a horizon a plan is made in every episode, since an episode starts anew anyway.
    Rewards are known unless the task says otherwise.
    """

    task: Task
    radius: Callable[[Task, Array, int], Array] | float = 0.3
    """(S*A,) as a function of the task, the visits (S*A,) and k; a number c stands for
    scaled_l1(c)."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0),
    }

    def __post_init__(self) -> None:
        settle(self, radius=rule(scaled_l1), reward_bonus=nonnegative_number)

    def init(self) -> UCRL2State:
        return UCRL2State(1, tabular.start(self.task), rewards.start(self.task))

    def plan(self, state: UCRL2State, rng: np.random.Generator) -> Plan:
        rule: Any = self.radius
        task, prob, tie_seed = self.task, state.counts.prob, draw_tie_seed(rng)
        reward = rewards.optimistic_reward(task, state.rewards, self.reward_bonus)
        radius = rule(task, state.counts.visits, state.k)[None]
        if task.discount is not None:
            return plan_l1(task, prob[0], reward[0], radius[0], tie_seed, task.discount)
        return run_backward_pass(
            task, kernels.tabular.backward_pass_l1, (prob, reward, radius), clip_v_remaining(task),
            tie_seed,
        )  # fmt: skip

    def steps_until_replan(self, state: UCRL2State, plan: Plan, episode: Episode) -> int:
        """Until the visits of a pair have doubled, for tasks without a last step."""
        return tabular.until_doubled(self.task, state.counts, episode)

    def update(self, state: UCRL2State, plan: Plan, episode: Episode) -> UCRL2State:
        return UCRL2State(
            state.k + (len(episode.actions) if self.task.infinite_horizon else 1),
            tabular.absorb(self.task, state.counts, episode),
            rewards.observe(self.task, state.rewards, episode),
        )
