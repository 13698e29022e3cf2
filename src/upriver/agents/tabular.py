"""What the tabular learners share: counts of transitions, their frequencies, and their state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import rewards
from upriver.agents.base import Episode, Validated
from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import Plan


@add_repr
class Counts(NamedTuple):
    """Counts over the task's support; all steps h count together."""

    triples: Array
    """(1, n) visits N(s, a, s') of each triple."""
    visits: Array
    """(S*A,) visits N(s, a) of each pair."""
    prob: Array
    """(1, n) N(s, a, s') / N(s, a), uniform over the support where N(s, a) = 0."""


@add_repr
class TabularState(NamedTuple):
    """What a tabular learner keeps between episodes."""

    k: int
    """Number of the next episode, from 1; of the next step where the horizon is infinite."""
    counts: Counts
    rewards: rewards.RewardSums | None
    """Sums of rewards, only where the task's reward is unknown."""


@dataclass(frozen=True)
class TabularLearner(Validated):
    """The base of learners that plan with frequencies of transitions."""

    task: Task

    def init(self) -> Any:
        """Return counts of 0."""
        return TabularState(1, start(self.task), rewards.start(self.task))

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        """Return the counts with one more episode."""
        return TabularState(
            state.k + (len(episode.actions) if self.task.infinite_horizon else 1),
            absorb(self.task, state.counts, episode),
            rewards.observe(self.task, state.rewards, episode),
        )


def start(task: Task) -> Counts:
    """Return counts of 0."""
    visits = np.zeros(len(task.sizes))
    return Counts(np.zeros((1, task.n_triples)), visits, uniform(task)[None].copy())


@lru_cache(maxsize=64)
def uniform(task: Task) -> Array:
    """Return the uniform distribution over the successors of each (s, a), (n,)."""
    return 1.0 / np.repeat(task.sizes, task.sizes)


@lru_cache(maxsize=64)
def steps_left(task: Task) -> Array:
    """Return H - h (H,), h from 1: the number of steps after step h, and the range of V_{h+1},
    which is larger where there are terminal values or the reward depends on s'."""
    return task.units.next_value_range.copy()


def absorb(task: Task, counts: Counts, episode: Episode) -> Counts:
    """Return the counts after one more episode."""
    new = Counts(counts.triples.copy(), counts.visits.copy(), counts.prob.copy())
    first_fault = kernels.tabular.update_frequencies(
        task.indptr, task.successors, task.n_actions, episode.states, episode.actions, *new,
        np.empty(len(episode.actions), np.int64),
    )  # fmt: skip
    check_support(task, episode, first_fault)
    return new


def steps_until_visits_double(agent: Any, state: TabularState, plan: Plan, episode: Episode) -> int:
    """Return the steps until a pair has been visited as often as before, and at least once.

    It is `steps_until_replan` of the tabular learners (Jaksch, Ortner and Auer 2010).
    """
    pairs = episode.states[: len(episode.actions)] * agent.task.n_actions + episode.actions
    return kernels.tabular.steps_until_doubled(pairs, state.counts.visits)


def check_support(task: Task, episode: Episode, first_fault: int) -> None:
    """Refuse an episode whose step `first_fault` left the declared support; -1 is none."""
    if first_fault >= 0:
        s, s2 = (int(x) for x in episode.states[first_fault : first_fault + 2])
        task.refuse_step(first_fault, s, int(episode.actions[first_fault]), s2)
