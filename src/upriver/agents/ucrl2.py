"""UCRL2: the best transition probabilities in an L1 ball around the observed frequencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np

from upriver import kernels
from upriver.agents.base import State, Validated, check_rule, number_or_function
from upriver.agents.counts import TabularLearner, frequencies
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning import Plan, clip_v_remaining, draw_tie_seed
from upriver.planning.infinite_horizon import plan_l1

WHOLE_SIMPLEX = 2.0
"""The L1 diameter of the simplex: a ball of this radius holds every distribution."""


@dataclass(frozen=True)
class original_l1(Validated):
    """sqrt(14 S log(2 A t / delta) / max(1, N)), t = (k - 1) H + 1 the first step of episode k, as
    published: the ball holds the true probabilities at all times with probability 1 - delta."""

    delta: float = 0.05

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        time = (k - 1) * task.horizon + 1
        size = 14.0 * task.n_states * log(2.0 * task.n_actions * time / self.delta)
        return np.sqrt(size / np.maximum(visits, 1.0))


@dataclass(frozen=True)
class UCRL2(OptimisticReward, TabularLearner):
    """The best transition probabilities in an L1 ball around the observed frequencies.

    Jaksch, Ortner and Auer, "Near-optimal Regret Bounds for Reinforcement Learning", JMLR 2010; for
    episodes with extended value iteration over H steps.

    Q_h = r + max of p V_{h+1} over ||p - P||_1 <= radius, p on the task's support.

    The maximum moves half the radius of probability to the best successor, from the worst ones. A
    pair that was never visited may lead to the best of its successors with certainty. With an
    infinite horizon it is the original: a plan is kept until the visits of a pair have doubled, and
    extended value iteration is run to convergence.

    Deviations: with a horizon a plan is made in every episode, since each episode starts anew.
    Rewards are known unless the task leaves them out.

    Parameters
    ----------
    radius : float or function of task, visits (S*A,) and k
        (S*A,). A number c stands for the practical form c sqrt(U / N), U the successors of (s, a),
        and 0 for the greedy learner; `original_l1` is the published radius.
    """

    radius: float | Callable[[Task, Array, int], Array] = 0.3

    GRID: ClassVar = {"radius": (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)}
    OWN_CHECKS: ClassVar = {"radius": number_or_function}

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the largest values over the L1 balls around the frequencies."""
        task, reward, radius = self.task, self.reward(state), self.ball_radius(state)
        prob = frequencies(task, state.model[0])
        if task.discount is not None:
            return plan_l1(task, prob[0], reward[0], radius, draw_tie_seed(rng), task.discount)
        data = prob, reward, radius[None], task.max_successors, True
        return self.run_pass(kernels.tabular.ball_rule, data, clip_v_remaining, rng)

    def ball_radius(self, state: State) -> Array:
        """Return the radius of each pair (S*A,)."""
        visits, c = self.task.by_pair(state.model[0]), self.radius
        if callable(c):
            return check_rule("radius", c(self.task, visits, state.k), visits.shape)
        unseen = WHOLE_SIMPLEX if c > 0.0 else 0.0
        radius = np.sqrt(c**2 * self.task.sizes / np.maximum(visits, 1.0))
        return np.where(visits > 0.0, radius, unseen)
