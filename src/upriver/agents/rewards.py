"""Rewards that must be learned: an extension, since the paper assumes them known.

Where a task has no reward, agents keep the sum of what each triple (s, a, s') paid, all steps h
together, and plan with an upper bound, at most 1, or with a draw from the posterior.
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
    """Rewards on the unit scale, summed over the visits of each triple (s, a, s')."""

    total: Array
    """(n,) sum of the rewards."""
    visits: Array
    """(n,) number of visits."""
    squares: Array
    """(n,) sum of the squared rewards."""


@dataclass(frozen=True, kw_only=True)
class OptimisticReward:
    """The field of agents that plan with an upper bound of unknown rewards."""

    reward_bonus: float = 1.0
    """Width of unknown rewards, see `reward`; known rewards have none."""

    def reward(self: Any, state: Any) -> Array:
        """Return the known reward, or min(1, mean + reward_bonus / sqrt(n)), shape (1 | H, S*A).

        The mean is that of a pair, over n visits. A pair that was never visited has 1. With
        reward_bonus = sqrt(log(2 S A T / delta) / 2) the result is at least the true mean
        everywhere and always with probability 1 - delta (Hoeffding); 0 still tries every pair once.
        """
        task, sums = self.task, state.rewards
        if sums is None:
            return task.reward_rows
        total, visits = task.by_pair(sums.total), task.by_pair(sums.visits)
        n = np.maximum(visits, 1.0)
        upper = np.minimum(total / n + self.reward_bonus / np.sqrt(n), 1.0)
        return np.where(visits > 0, upper, 1.0)[None]


def start(task: Task) -> RewardSums | None:
    """Return sums of nothing, or None where the reward is known."""
    return RewardSums(*np.zeros((3, task.n_triples))) if task.reward is None else None


def observe(task: Task, sums: RewardSums | None, episode: Any) -> RewardSums | None:
    """Return the sums after one more episode."""
    if sums is None:
        return None
    states, actions, paid = episode
    keys = (states[: len(actions)] * task.n_actions + actions) * task.n_states + states[1:]
    rows = np.searchsorted(task.triple_keys, keys)
    total, visits, squares = (x.copy() for x in sums)
    np.add.at(total, rows, paid)
    np.add.at(visits, rows, 1.0)
    np.add.at(squares, rows, np.square(paid))
    return RewardSums(total, visits, squares)


def count_errors(task: Task, visits: Array, least: float) -> Array:
    """Return (S*A,) the number of standard errors that the doubt about a pair counts.

    It is `least`, or sqrt(2 log(N(s) / N(s, a))) where that is more, so that an action that was
    unlucky, and was neglected since, is tried again.
    """
    of_state = np.repeat(visits.reshape(task.n_states, -1).sum(axis=1), task.n_actions)
    ratio = np.maximum(of_state, 1.0) / np.maximum(visits, 1.0)
    return np.maximum(least, np.sqrt(2.0 * np.log(ratio)))


IMAGINARY = 4.0
"""Imaginary observations of a pooled variance in the variance of each triple."""


def triple_upper_bound(task: Task, sums: RewardSums, errors: float) -> Array:
    """Return an upper bound of the reward of each triple, at most 1, (1, n).

    Where a pair was tried and led to s', it is the mean that the triple has paid and as many
    standard errors of it as `count_errors` says. The variance of a triple counts IMAGINARY
    observations of that of all that led to s', and these one of that of all rewards, which begins
    with one of 1/4, the largest possible. Where a tried pair has not led to s' yet, see
    `predict_rewards`. A pair that was never tried has 1. A reward that the task knows is as it is.
    """
    n = np.maximum(sums.visits, 1.0)
    mean = sums.total / n
    scatter, repeats = np.maximum(sums.squares - sums.total * mean, 0.0), n - 1.0
    pooled = (0.25 + scatter.sum()) / (1.0 + repeats.sum())
    by_arrival = (np.bincount(task.successors, x, task.n_states) for x in (scatter, repeats))
    scatter_of, repeats_of = (x[task.successors] for x in by_arrival)
    arrival = (pooled + scatter_of) / (1.0 + repeats_of)
    variance = (IMAGINARY * arrival + scatter) / (IMAGINARY + repeats)
    visits = task.by_pair(sums.visits)
    number = np.repeat(count_errors(task, visits, errors), task.sizes)
    bound = mean + number * np.sqrt(variance / n)
    bound = np.where(sums.visits > 0, bound, predict_rewards(task, sums, visits))
    bound = np.where(np.repeat(visits > 0, task.sizes), np.minimum(bound, 1.0), 1.0)
    return known_or(task, bound)[None]


def known_or(task: Task, learned: Array) -> Array:
    """Return the rewards of triples (n,) that the task knows, and the learned ones of others."""
    if task.partial_reward is None:
        return learned
    known = task.units.to_unit_scale(task.partial_reward)
    return np.where(np.isnan(known), learned, known)


def mean_rewards(task: Task, sums: RewardSums) -> Array:
    """Return the mean of what each triple paid (1, n), without optimism.

    What a tried pair has not led to yet pays what other triples say, see `predict_rewards`, or the
    mean of the pair where nobody arrived in s'. A pair that was never tried pays the least.
    """
    total, visits = task.by_pair(sums.total), task.by_pair(sums.visits)
    arrivals = np.bincount(task.successors, sums.visits, task.n_states)[task.successors]
    predicted = np.clip(predict_rewards(task, sums, visits), 0.0, 1.0)
    of_pair = np.repeat(total / np.maximum(visits, 1.0), task.sizes)
    is_told = (arrivals > 0) & np.repeat(visits > 0, task.sizes)
    unseen = np.where(is_told, predicted, of_pair)
    mean = sums.total / np.maximum(sums.visits, 1.0)
    return known_or(task, np.where(sums.visits > 0, mean, unseen))[None]


ROUNDS = 4
"""How often the two parts of a reward are computed in turn."""


def predict_rewards(task: Task, sums: RewardSums, visits: Array) -> Array:
    """Return what the rewards of other triples say about each triple (n,); visits (S*A,) of pairs.

    It is a sum of two parts, one of the pair and one of arriving in s' from another state, each the
    mean of what the other leaves of the rewards seen. What arrivals can explain they explain: where
    one pair has led to a goal, the goal has paid. Where nobody has arrived it is 1.
    """
    came = sums.visits * (task.triples[0] != task.successors)
    arrivals = np.bincount(task.successors, came, task.n_states)
    mean = sums.total / np.maximum(sums.visits, 1.0)
    of_pair, of_arrival = np.zeros(len(task.sizes)), np.zeros(task.n_states)
    for _ in range(ROUNDS):
        rest = came * (mean - np.repeat(of_pair, task.sizes))
        of_arrival = np.bincount(task.successors, rest, task.n_states) / np.maximum(arrivals, 1.0)
        rest = sums.visits * (mean - of_arrival[task.successors])
        of_pair = task.by_pair(rest) / np.maximum(visits, 1.0)
    found = np.repeat(of_pair, task.sizes) + of_arrival[task.successors]
    return np.where(arrivals[task.successors] > 0, found, 1.0)


def posterior_reward(task: Task, sums: RewardSums | None, rng: np.random.Generator) -> Array:
    """Return the known reward, or draws from Beta(1 + sum, 1 + n - sum), shape (1 | H, S*A).

    It is the posterior of a uniform prior for rewards of 0 or 1, or its usual substitute in [0, 1].
    """
    if sums is None:
        return task.reward_rows
    total, visits = task.by_pair(sums.total), task.by_pair(sums.visits)
    total = np.maximum(total, 0.0)  # rounding may leave less
    return rng.beta(1.0 + total, 1.0 + np.maximum(visits - total, 0.0))[None]
