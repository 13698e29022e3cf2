"""What an agent is: a frozen dataclass of the paper's inputs, with three functions of its state."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import Plan


@add_repr
class Episode(NamedTuple):
    """What happened in T steps; T = H unless the environment ended early."""

    states: Array
    """(T + 1,)"""
    actions: Array
    """(T,)"""
    rewards: Array
    """(T,) on the unit scale where an agent learns from them."""


class Agent(Protocol):
    """A learner. No method changes the agent, the state or the plan it is given.

    An agent works on the unit scale throughout: `update` receives rewards in [0, 1], and `plan`
    returns values on that scale. `simulate` and `learn` convert from and to the user's units
    (`Task.units`), so an agent that wraps another one passes everything on as it is. A plan whose
    values are already in the user's units says so: `Plan.in_user_units`.

    `plan` goes back to `update` because some learners regress on the values they planned with.
    Randomness comes only from `rng`.

    For an infinite horizon an agent also has `steps_until_replan(state, plan, episode)`, which says
    for how many steps of an episode, a stretch of the stream, the plan is kept; at most all.
    """

    @property
    def task(self) -> Task:
        """What the agent knows of the problem."""
        ...

    def init(self) -> Any:
        """Return the state before the first episode."""
        ...

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        """Return the policy of the next episode."""
        ...

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        """Return the state after an episode."""
        ...
