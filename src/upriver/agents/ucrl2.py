"""UCRL2: the best transition probabilities in an L1 ball around the observed frequencies.

Jaksch, Ortner and Auer, "Near-optimal Regret Bounds for Reinforcement Learning", JMLR 2010; for
episodes with extended value iteration over H steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np

from upriver import kernels
from upriver.agents import tabular
from upriver.agents.base import Validated, function_or_number, guarded
from upriver.agents.rewards import OptimisticReward
from upriver.agents.tabular import TabularLearner, TabularState
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning import Plan, clip_v_remaining, draw_tie_seed, run_backward_pass
from upriver.planning.infinite_horizon import plan_l1

WHOLE_SIMPLEX = 2.0
"""The L1 diameter of the simplex: a ball of this radius holds every distribution."""


@dataclass(frozen=True)
class scaled_l1(Validated):
    """The practical form: c sqrt(U / N), U the successors of (s, a); c = 0 is greedy."""

    scale: float

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        if self.scale == 0.0:
            return np.zeros(len(visits))
        return radius_by_successors(task, visits, self.scale**2)


@dataclass(frozen=True)
class jaksch_l1(Validated):
    """sqrt(14 U log(2 S A t / delta) / N) at time t, with the U successors of (s, a) for S.

    The ball holds the true probabilities at all times with probability 1 - delta. Published is
    sqrt(14 S log(2 A t / delta) / N), whose factor S also pays for the union over the states. With
    U in its place the logarithm must, so with full support the ball is a little larger.
    """

    delta: float = 0.05

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        time = max(1, (k - 1) * task.horizon)
        size = log(2.0 * task.n_states * task.n_actions * time / self.delta)
        return radius_by_successors(task, visits, 14.0 * size)


@dataclass(frozen=True)
class original_l1(Validated):
    """sqrt(14 S log(2 A t / delta) / max(1, N)) at time t, as published."""

    delta: float = 0.05

    def __call__(self, task: Task, visits: Array, k: int) -> Array:
        time = max(1, (k - 1) * task.horizon)
        size = 14.0 * task.n_states * log(2.0 * task.n_actions * time / self.delta)
        return np.sqrt(size / np.maximum(visits, 1.0))


def radius_by_successors(task: Task, visits: Array, factor: float) -> Array:
    """Return sqrt(factor U / N) (S*A,), and the whole simplex where N = 0."""
    radius = np.sqrt(factor * task.sizes / np.maximum(visits, 1.0))
    return np.where(visits > 0.0, radius, WHOLE_SIMPLEX)


@guarded
@dataclass(frozen=True)
class UCRL2(OptimisticReward, TabularLearner):
    """The best transition probabilities in an L1 ball around the observed frequencies.

    Q_h = r + max of p V_{h+1} over ||p - P||_1 <= radius, p on the task's support.

    The maximum moves half the radius of probability to the best successor, from the worst ones. A
    pair that was never visited may lead to the best of its successors with certainty. With an
    infinite horizon it is the original: a plan is kept until the visits of a pair have doubled, and
    extended value iteration is run to convergence.

    Deviations: with a horizon a plan is made in every episode, since each episode starts anew.
    Rewards are known unless the task leaves them out.

    Parameters
    ----------
    radius : function of task, visits (S*A,) and k, or float
        (S*A,). A number c stands for scaled_l1(c); `original_l1` is the published radius.
    """

    radius: Callable[[Task, Array, int], Array] | float = 0.3

    GRID: ClassVar = {"radius": (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)}
    OWN_CHECKS: ClassVar = {"radius": function_or_number(scaled_l1)}

    def plan(self, state: TabularState, rng: np.random.Generator) -> Plan:
        """Return the largest values over the L1 balls around the frequencies."""
        rule: Any = self.radius
        task, prob, tie_seed = self.task, state.counts.prob, draw_tie_seed(rng)
        reward, radius = self.reward(state), rule(task, state.counts.visits, state.k)[None]
        if task.discount is not None:
            return plan_l1(task, prob[0], reward[0], radius[0], tie_seed, task.discount)
        arrays, clip = (prob, reward, radius), clip_v_remaining(task)
        return run_backward_pass(task, kernels.tabular.backward_pass_l1, arrays, clip, tie_seed)

    steps_until_replan = tabular.steps_until_visits_double
