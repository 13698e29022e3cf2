"""Epsilon-greedy on the MNL model: it shows what exploration without a confidence set costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from upriver.agents.base import State
from upriver.agents.mnl_family import MaximumLikelihoodLearner
from upriver.agents.rewards import OptimisticReward
from upriver.planning import Plan, clip_nothing, random_actions


@dataclass(frozen=True)
class EpsilonGreedy(OptimisticReward, MaximumLikelihoodLearner):
    """The greedy plan of theta_hat with random actions, epsilon_k = min(1, epsilon k^-decay).

    The model is that of UCRL-MNL, eq. (3). Each episode draws a table of random actions over the
    greedy plan. An episode visits each (h, s) at most once, so this is the randomised policy in
    distribution, and each table has an exact value. With an infinite horizon the policy itself is
    randomised, and k counts the steps. The plan's values are those of the greedy policy in the
    model.

    Parameters
    ----------
    epsilon, decay : float
        The rate of random actions in the first episode, and how it falls; decay 0 keeps it.
    regularization : float
        lambda of (2).
    """

    epsilon: float = 0.03
    decay: float = 0.5
    regularization: float = 1.0
    reward_bonus: float = field(default=0.0, kw_only=True)

    GRID: ClassVar = {
        "epsilon": (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0), "decay": (0.0, 0.5),
        "regularization": (1e-2, 1.0),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon > 1.0:
            raise ValueError(f"epsilon is {self.epsilon!r}; it must lie between 0 and 1")

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the greedy plan with random actions over it."""
        task = self.task
        greedy = self.induce(state.model.prob, self.reward(state), clip_nothing, rng)
        rate = self.epsilon * state.k**-self.decay
        if task.infinite_horizon:
            uniform = task.available / task.available.sum(axis=1, keepdims=True)
            taken = np.eye(task.n_actions)[greedy.policy]
            return greedy._replace(policy=(1.0 - rate) * taken + rate * uniform)
        explore = rng.random(greedy.policy.shape) < rate
        return greedy._replace(policy=np.where(explore, random_actions(task, rng), greedy.policy))
