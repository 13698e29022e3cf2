"""Epsilon-greedy on the MNL model: the plan of the estimate, with some actions at random.

What exploration without a confidence set costs: the model is that of UCRL-MNL, eq. (3), and each
action is replaced by a uniform one with probability epsilon_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.checks import nonnegative_number, positive_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.planning import Plan, backward_induction, clip_nothing, draw_word


class EpsilonGreedyState(NamedTuple):
    k: int
    """Number of the next episode, from 1."""
    model: mnl.Model
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


@dataclass(frozen=True)
class EpsilonGreedy:
    """epsilon_k = min(1, epsilon k^-decay); theta_hat is (3) with ridge `regularization`.

    Each episode draws a table of random actions over the greedy plan. An episode visits each (h, s)
    at most once, so this is the randomised policy in distribution, and each table has an exact
    value. The plan's values are those of the greedy policy in the model.
    """

    task: Task
    features: Features
    epsilon: float = 0.03
    decay: float = 0.5
    """0 keeps epsilon for ever."""
    regularization: float = 1.0
    reward_bonus: float = 0.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "epsilon": (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
        "decay": (0.0, 0.5),
        "regularization": (1e-2, 1.0),
    }

    def __post_init__(self) -> None:
        self.features.check_task(self.task)
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon is {self.epsilon!r}; it must lie between 0 and 1")
        for name in ("decay", "reward_bonus"):
            object.__setattr__(self, name, nonnegative_number(name, getattr(self, name)))
        number = positive_number("regularization", self.regularization)
        object.__setattr__(self, "regularization", number)

    def init(self) -> EpsilonGreedyState:
        model = mnl.start(self.features, self.regularization, 1, with_geometry=False)
        return EpsilonGreedyState(1, model, rewards.start(self.task))

    def plan(self, state: EpsilonGreedyState, rng: np.random.Generator) -> Plan:
        task = self.task
        reward = rewards.optimistic_reward(task, state.rewards, self.reward_bonus)
        greedy = backward_induction(
            task, state.model.prob, reward, np.zeros((1, len(task.sizes))),
            np.zeros(task.horizon), clip_nothing(task), draw_word(rng),
        )  # fmt: skip
        shape = greedy.policy.shape
        explore = rng.random(shape) < self.epsilon * state.k**-self.decay
        table = rng.integers(task.n_actions, size=shape, dtype=greedy.policy.dtype)
        return greedy._replace(policy=np.where(explore, table, greedy.policy))

    def update(self, state: EpsilonGreedyState, plan: Plan, episode: Episode) -> EpsilonGreedyState:
        return EpsilonGreedyState(
            state.k + 1,
            mnl.absorb(self.features, state.model, episode, self.regularization),
            rewards.observe(self.task, state.rewards, episode),
        )
