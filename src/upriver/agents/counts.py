"""What learners share that keep counts of transitions: the tabular and the linear ones.

Counts are (C, n), N(s, a, s') of each triple, with C = 1 for all steps together or C = H. Features
of pairs are phi (S*A, d), row s * n_actions + a; None stands for one-hot features, for which no
d x d matrix is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from upriver.agents.base import Episode, Learner, State, add_counts
from upriver.checks import Array, as_float
from upriver.mdp import Task
from upriver.planning import Plan


@dataclass(frozen=True)
class CountLearner(Learner):
    """The base of learners whose model is the counts of transitions."""

    def start(self) -> Array:
        return np.zeros((self.n_models, self.task.n_triples))

    def learn(self, state: State, plan: Plan, episode: Episode) -> Array:
        counts = state.model.copy()
        add_counts(self.task, counts, episode)
        return counts


class TabularLearner(CountLearner):
    """The base of learners that plan with frequencies, also for an infinite horizon."""

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Return the steps until a pair has been visited as often as before, and at least once.

        The rule is that of Jaksch, Ortner and Auer (2010).
        """
        pairs = episode.states[: len(episode.actions)] * self.task.n_actions + episode.actions
        return count_steps_until_doubled(pairs, self.task.by_pair(state.model[0]))


def count_steps_until_doubled(pairs: Array, visits: Array) -> int:
    """Return the first k such that pairs[:k] has a pair max(1, visits) times, or all steps."""
    goal, new = np.maximum(visits, 1.0), np.bincount(pairs, minlength=len(visits))
    reached = new >= goal
    # In the order of pairs and then of steps, those of a pair end where the sum of all ends.
    last = (np.cumsum(new) - new + goal - 1.0)[reached].astype(int)
    steps = np.argsort(pairs, kind="stable")[last]
    return int(steps.min(initial=len(pairs) - 1)) + 1


def frequencies(task: Task, weights: Array) -> Array:
    """Return weights (n,) over their sum in each pair, (1, n); uniform where the sum is 0."""
    total, n = task.by_pair(weights).repeat(task.sizes), task.sizes.repeat(task.sizes)
    return np.divide(weights, total, out=1.0 / n, where=total > 0.0)[None]


def one_hot_ridge(task: Task, counts: Array, lam: float) -> tuple[Array, Array]:
    """Return N(s,a,s') / (N(s,a) + lam) (C, n) and 1 / (N(s,a) + lam) (C, S*A)."""
    weight = 1.0 / (task.by_pair(counts) + lam)
    return counts * weight.repeat(task.sizes, axis=1), weight


def checked_table(name: str, values: Any, rows: int) -> Array | None:
    """Return features (rows, d), finite, of pairs or states; None stays None."""
    if values is None:
        return None
    table = as_float(name, values)
    if table.ndim != 2 or len(table) != rows or not table.size or not np.isfinite(table).all():
        raise ValueError(
            f"{name} has shape {table.shape}; it must be finite numbers of shape ({rows}, d)"
        )
    return table
