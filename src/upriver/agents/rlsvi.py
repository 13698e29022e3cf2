"""RLSVI: randomised value functions, value iteration with Gaussian noise in place of a bonus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar

import numpy as np

from upriver.agents.base import State, check_rule, number_or_function
from upriver.agents.counts import CountLearner, frequencies
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning import Plan, clip_v_remaining


def russo_noise(task: Task, k: int) -> Array:
    """Return sigma (H,) of Russo (2019), sigma^2 = H^3 S log(2 H S A k) / 2.

    With regularization 1 the drawn value exceeds the optimum with a probability bounded away from
    0, whatever was observed.
    """
    horizon, states = task.horizon, task.n_states
    size = log(2.0 * horizon * states * task.n_actions * k)
    per_step = task.units.max_value / horizon  # 1 without terminal values
    return np.full(horizon, per_step * sqrt(0.5 * horizon**3 * states * size))


@dataclass(frozen=True)
class RLSVI(OptimisticReward, CountLearner):
    """Value iteration with Gaussian noise in place of a bonus.

    Osband, Van Roy and Wen (2016), in the tabular form of Russo, "Worst-Case Regret Bounds for
    Exploration via Randomized Value Functions", 2019. The noise on Q(s, a) is what a draw from the
    posterior of a regression with targets r + V_{h+1} adds to its mean:

    Q_h = r + N(s, a, .) V_{h+1} / (N + lambda) + sigma_h z / sqrt(N + lambda), z ~ N(0, 1),
    drawn for each (h, s, a).

    Deviations: a pair with one successor in the task's support has nothing to learn, so neither
    ridge nor noise. V_h is clipped at the steps left. Rewards are not regressed: they are known, or
    optimistic where the task leaves them out.

    Parameters
    ----------
    noise : float or function of task and k
        sigma_h (H,). A number c stands for c (H - h), H - h the range of V_{h+1}, and 0 for the
        greedy learner; `russo_noise` is the theory's.
    regularization : float
        lambda, the ridge, which pulls the values of rarely visited pairs to their rewards.
    """

    noise: float | Callable[[Task, int], Array] = 0.01
    regularization: float = 0.01

    GRID: ClassVar = {
        "noise": (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
        "regularization": (1e-3, 1e-2, 1e-1, 1.0),
    }
    OWN_CHECKS: ClassVar = {"noise": number_or_function}

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the perturbed values."""
        task, visits = self.task, self.task.by_pair(state.model[0])
        precision, certain = visits + self.regularization, task.sizes == 1
        shrinkage = np.where(certain, 1.0, visits / precision)
        prob = frequencies(task, state.model[0]) * np.repeat(shrinkage, task.sizes)
        spread = np.where(certain, 0.0, 1.0 / np.sqrt(precision))
        noise = rng.standard_normal((task.horizon, len(spread))) * spread
        return self.induce(
            prob, self.reward(state), clip_v_remaining, rng, noise, self.sigma(state.k)
        )

    def sigma(self, k: int) -> Array:
        """Return sigma_h (H,) in episode k."""
        if callable(self.noise):
            return check_rule("noise", self.noise(self.task, k), (self.task.horizon,))
        return self.noise * self.task.units.next_value_range
