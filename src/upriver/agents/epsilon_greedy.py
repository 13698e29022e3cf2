"""Epsilon-greedy on the MNL model: the plan of the estimate, with some actions at random.

What exploration without a confidence set costs: the model is that of UCRL-MNL, eq. (3), and each
action is replaced by a uniform one with probability epsilon_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents.fields import validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.checks import nonnegative_number
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.planning import Plan, backward_induction, clip_nothing, draw_tie_seed, random_actions


@guarded
@dataclass(frozen=True)
class EpsilonGreedy:
    """epsilon_k = min(1, epsilon k^-decay); theta_hat is (3) with ridge `regularization`.

    Each episode draws a table of random actions over the greedy plan. An episode visits each (h, s)
    at most once, so this is the randomised policy in distribution, and each table has an exact
    value. Without a last step the policy itself is randomised, and k counts the steps. The plan's
    values are those of the greedy policy in the model.
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
        validate_mnl_fields(self, decay=nonnegative_number)
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon is {self.epsilon!r}; it must lie between 0 and 1")

    def init(self) -> State:
        return family.begin(self, mnl.start, with_products=False)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        task = self.task
        greedy = backward_induction(
            task, state.model.prob, family.reward(self, state), np.zeros((1, len(task.sizes))),
            np.zeros(task.horizon), clip_nothing(task), draw_tie_seed(rng),
        )  # fmt: skip
        chance = self.epsilon * state.k**-self.decay
        if task.infinite_horizon:
            uniform = task.available / task.available.sum(axis=1, keepdims=True)
            taken = np.eye(task.n_actions)[greedy.policy]
            return greedy._replace(policy=(1.0 - chance) * taken + chance * uniform)
        explore = rng.random(greedy.policy.shape) < chance
        table = random_actions(task, rng)
        return greedy._replace(policy=np.where(explore, table, greedy.policy))

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Until the determinant of the information has doubled, for tasks without a last step."""
        return family.until_informed(self, state, episode)

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        model = mnl.absorb(self.features, state.model, episode, self.regularization)
        return family.advance(self, state, model, episode)
