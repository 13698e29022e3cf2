"""What an agent is: a frozen dataclass of the paper's inputs, with three functions of its state."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from upriver.checks import Array
from upriver.display import displayed
from upriver.mdp import Task
from upriver.planning import Plan


@displayed
class Episode(NamedTuple):
    """What happened: T steps, T = H unless the environment ended early."""

    states: Array
    """(T + 1,)"""
    actions: Array
    """(T,)"""
    rewards: Array
    """(T,)"""


class Agent(Protocol):
    """A learner. No method changes the agent, the state or the plan it is given.

    `plan` goes back to `update` because some learners regress on the values they planned with.
    Randomness comes only from `rng`.
    """

    @property
    def task(self) -> Task: ...

    def init(self) -> Any:
        """The state before the first episode."""
        ...

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        """The policy of the next episode."""
        ...

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        """The state after an episode."""
        ...


class Streaming(Agent, Protocol):
    """A learner for tasks without a last step: an episode is what is played of one plan."""

    def steps_until_replan(self, state: Any, plan: Plan, episode: Episode) -> int:
        """How many steps of `episode`, a stretch of a stream, the plan is played for; all of them
        where no reason to plan again is met in it.
        """
        ...
