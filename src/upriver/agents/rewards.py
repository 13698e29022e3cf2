"""Rewards that must be learned: an extension, since the paper assumes them known.

Where a task has no reward, agents keep the sum of what each (s, a) paid, all steps h together, and
plan with the mean plus a confidence width, at most 1, or with a draw from the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task


@add_repr
class RewardSums(NamedTuple):
    """Rewards on the unit scale, summed over the visits of each pair (s, a)."""

    total: Array
    """(S*A,) sum of the rewards."""
    visits: Array
    """(S*A,) number of visits."""
    squares: Array
    """(S*A,) sum of the squared rewards."""


@dataclass(frozen=True, kw_only=True)
class OptimisticReward:
    """The field of agents that plan with an upper bound of unknown rewards."""

    reward_bonus: float = 1.0
    """Width of unknown rewards, see `optimistic_reward`; known rewards have none."""

    def reward(self, state: Any) -> Array:
        """Return the reward to plan with from `state`, (1 | H, S*A)."""
        agent: Any = self
        return optimistic_reward(agent.task, state.rewards, self.reward_bonus)


def start(task: Task) -> RewardSums | None:
    """Return sums of nothing, or None where the reward is known."""
    if task.reward is not None:
        return None
    size = task.n_states * task.n_actions
    return RewardSums(np.zeros(size), np.zeros(size), np.zeros(size))


def observe(task: Task, sums: RewardSums | None, episode: Any) -> RewardSums | None:
    """Return the sums after one more episode."""
    if sums is None:
        return None
    pair = episode.states[: len(episode.actions)] * task.n_actions + episode.actions
    total, visits, squares = (x.copy() for x in sums)
    np.add.at(total, pair, episode.rewards)
    np.add.at(visits, pair, 1.0)
    np.add.at(squares, pair, np.square(episode.rewards))
    return RewardSums(total, visits, squares)


def optimistic_reward(task: Task, sums: RewardSums | None, scale: float) -> Array:
    """Return the known reward, or min(1, mean + scale / sqrt(n)), shape (1 | H, S*A).

    A pair that was never visited has 1. With scale = sqrt(log(2 S A T / delta) / 2) the result is
    at least the true mean everywhere and always with probability 1 - delta (Hoeffding); scale = 0
    still tries every pair once.
    """
    if sums is None:
        return task.reward_rows
    n = np.maximum(sums.visits, 1.0)
    upper = np.minimum(sums.total / n + scale / np.sqrt(n), 1.0)
    return np.where(sums.visits > 0, upper, 1.0)[None]


def reward_upper_bound(task: Task, sums: RewardSums | None, beta: float) -> Array:
    """Return the known reward, or the mean plus beta standard errors, at most 1, (1 | H, S*A).

    The variance of a pair is estimated with one imaginary observation of the pooled variance, and
    the pooled one with one of 1/4, the largest possible. A pair that was never visited has 1.
    """
    if sums is None:
        return task.reward_rows
    n = np.maximum(sums.visits, 1.0)
    mean = sums.total / n
    scatter = np.maximum(sums.squares - sums.total * mean, 0.0)
    pooled = (0.25 + scatter.sum()) / (1.0 + (n - 1.0).sum())
    error = np.sqrt((pooled + scatter) / n / n)
    return np.where(sums.visits > 0, np.minimum(mean + beta * error, 1.0), 1.0)[None]


def posterior_reward(task: Task, sums: RewardSums | None, rng: np.random.Generator) -> Array:
    """Return the known reward, or draws from Beta(1 + sum, 1 + n - sum), shape (1 | H, S*A).

    It is the posterior of a uniform prior for rewards of 0 or 1, or its usual substitute in [0, 1].
    """
    if sums is None:
        return task.reward_rows
    return rng.beta(1.0 + sums.total, 1.0 + np.maximum(sums.visits - sums.total, 0.0))[None]
