"""What a tabular learner keeps: visits, and the frequencies of the successors they led to."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.display import displayed
from upriver.mdp import Task
from upriver.mnl.model import Transitions


@displayed
class Counts(NamedTuple):
    """Counts over the task's support; all steps h count together."""

    triples: Array
    """(1, n) visits N(s, a, s') of each triple."""
    visits: Array
    """(S*A,) visits N(s, a) of each pair."""
    prob: Array
    """(1, n) N(s, a, s') / N(s, a), uniform over the support where N(s, a) = 0."""


def start(task: Task) -> Counts:
    """Nothing seen."""
    return Counts(
        np.zeros((1, task.n_triples)), np.zeros(len(task.sizes)), uniform(task)[None].copy()
    )


@lru_cache(maxsize=64)
def uniform(task: Task) -> Array:
    """(n,) the uniform distribution over the successors of each (s, a)."""
    return 1.0 / np.repeat(task.sizes, task.sizes)


@lru_cache(maxsize=64)
def steps_left(task: Task) -> Array:
    """(H,) H - h with h counted from 1: the steps after step h, and the range of V_{h+1}.

    More where there are terminal values or the reward depends on s'.
    """
    return task.units.next_value_range.copy()


def absorb(task: Task, counts: Counts, episode: Transitions) -> Counts:
    """The counts after one more episode."""
    new = Counts(counts.triples.copy(), counts.visits.copy(), counts.prob.copy())
    bad = kernels.tabular.update_frequencies(
        task.indptr, task.successors, task.n_actions, episode.states, episode.actions, *new,
        np.empty(len(episode.actions), np.int64),
    )  # fmt: skip
    check_inside(task, episode, bad)
    return new


def until_doubled(task: Task, counts: Counts, episode: Transitions) -> int:
    """Steps until a pair has been visited as often as in all episodes before, and at least once."""
    pairs = episode.states[: len(episode.actions)] * task.n_actions + episode.actions
    return kernels.tabular.steps_until_doubled(pairs, counts.visits)


def check_inside(task: Task, episode: Transitions, bad: int) -> None:
    """Refuse an episode whose step `bad` left the declared support; -1 is none."""
    if bad >= 0:
        s, s2 = (int(x) for x in episode.states[bad : bad + 2])
        task.refuse_step(bad, s, int(episode.actions[bad]), s2)
