"""Rewards that must be learned: an extension, since the paper assumes them known.

Where a task has no reward, agents keep the sum of what they were paid at each (s, a), all steps h
together, and plan with the mean plus a Hoeffding width, at most 1, or with a posterior draw.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from upriver.checks import Array
from upriver.display import displayed
from upriver.mdp import Task


class Payments(Protocol):
    """The part of an episode that pays; the Episode of the agents is one."""

    @property
    def states(self) -> Array: ...
    @property
    def actions(self) -> Array: ...
    @property
    def rewards(self) -> Array: ...


@displayed
class RewardSums(NamedTuple):
    total: Array
    """(S*A,) reward received at each (s, a)."""
    visits: Array
    """(S*A,) how often."""
    squares: Array
    """(S*A,) sum of the squared rewards."""

    @classmethod
    def from_file(cls, total: Array, visits: Array, *squares: Array) -> RewardSums:
        """Version 0.1 kept no squares; rewards in [0, 1] have squares of at most their sum."""
        return cls(total, visits, *(squares or [total]))


def start(task: Task) -> RewardSums | None:
    """Nothing seen yet; None where the reward is known and nothing is to be kept."""
    if task.reward is not None:
        return None
    size = task.n_states * task.n_actions
    return RewardSums(np.zeros(size), np.zeros(size), np.zeros(size))


def observe(task: Task, sums: RewardSums | None, episode: Payments) -> RewardSums | None:
    if sums is None:
        return None
    group = episode.states[: len(episode.actions)] * task.n_actions + episode.actions
    total, visits, squares = (x.copy() for x in sums)
    np.add.at(total, group, episode.rewards)
    np.add.at(visits, group, 1.0)
    np.add.at(squares, group, np.square(episode.rewards))
    return RewardSums(total, visits, squares)


def optimistic_reward(task: Task, sums: RewardSums | None, scale: float) -> Array:
    """(1 | H, S*A) the known reward, or min(1, mean + scale / sqrt(n)), and 1 where never seen.

    With scale = sqrt(log(2 S A T / delta) / 2) it is at least the true mean everywhere, all the
    time, with probability 1 - delta (Hoeffding). scale = 0 still tries everything once.
    """
    if sums is None:
        return task.reward_rows
    seen = np.maximum(sums.visits, 1.0)
    upper = np.minimum(sums.total / seen + scale / np.sqrt(seen), 1.0)
    return np.where(sums.visits > 0, upper, 1.0)[None]


def reward_upper_bound(task: Task, sums: RewardSums | None, beta: float) -> Array:
    """(1 | H, S*A) the known reward, or the mean and beta standard errors of it, at most 1.

    The variance of a pair is estimated with one imagined observation of the pooled one, and the
    pooled one with one imagined observation of 1/4, the largest there is. 1 where never seen.
    """
    if sums is None:
        return task.reward_rows
    seen = np.maximum(sums.visits, 1.0)
    mean = sums.total / seen
    scatter = np.maximum(sums.squares - sums.total * mean, 0.0)
    pooled = (0.25 + scatter.sum()) / (1.0 + (seen - 1.0).sum())
    error = np.sqrt((pooled + scatter) / seen / seen)
    return np.where(sums.visits > 0, np.minimum(mean + beta * error, 1.0), 1.0)[None]


def posterior_reward(task: Task, sums: RewardSums | None, rng: np.random.Generator) -> Array:
    """(1 | H, S*A) the known reward, or a draw of each mean from Beta(1 + sum, 1 + n - sum).

    The posterior of a uniform prior for rewards of 0 or 1, and its usual stand-in for others.
    """
    if sums is None:
        return task.reward_rows
    return rng.beta(1.0 + sums.total, 1.0 + np.maximum(sums.visits - sums.total, 0.0))[None]
