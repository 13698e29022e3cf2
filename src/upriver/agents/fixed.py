"""Reference policies that learn nothing: the optimum, uniform play, one action for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from upriver.agents.guard import guarded
from upriver.agents.protocol import Episode
from upriver.checks import Array
from upriver.mdp import FiniteMDP, Task
from upriver.planning import (
    Plan,
    check_available,
    empty_plan,
    mixture_or_actions,
    policy_type,
    random_actions,
    solve,
)
from upriver.planning.tables import stationary_table


@guarded
@dataclass(frozen=True)
class Optimal:
    """Plays the exact optimum. It is handed the MDP itself, which no learner is."""

    mdp: FiniteMDP

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {}
    IN_UNITS: ClassVar[bool] = True

    @property
    def task(self) -> Task:
        return self.mdp.true_task

    @cached_property
    def best(self) -> Plan:
        if not self.task.infinite_horizon:
            return solve(self.mdp)
        found: Any = solve(self.mdp)  # one table, for ever
        v = found.bias if self.mdp.discount == 1.0 else found.v
        table = found.policy.astype(policy_type(self.task))[None]
        return Plan(table, np.stack([v, np.zeros_like(v)]), None, self.task)

    def init(self) -> None:
        return None

    def plan(self, state: None, rng: np.random.Generator) -> Plan:
        return self.best

    def steps_until_replan(self, state: None, plan: Plan, episode: Episode) -> int:
        return len(episode.actions)

    def update(self, state: None, plan: Plan, episode: Episode) -> None:
        return None


@guarded
@dataclass(frozen=True)
class Random:
    """Uniform play: each episode draws one table of uniform actions, of those a state has.

    An episode visits each (h, s) at most once, so this is the uniformly randomised policy in
    distribution, and each played table still has an exact value.
    """

    task: Task

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {}
    IN_UNITS: ClassVar[bool] = True

    def init(self) -> None:
        return None

    def plan(self, state: None, rng: np.random.Generator) -> Plan:
        _, v, _ = empty_plan(self.task)
        if self.task.infinite_horizon:
            uniform = self.task.available / self.task.available.sum(axis=1, keepdims=True)
            return Plan(uniform[None], v)
        return Plan(random_actions(self.task, rng), v)

    def steps_until_replan(self, state: None, plan: Plan, episode: Episode) -> int:
        return len(episode.actions)

    def update(self, state: None, plan: Plan, episode: Episode) -> None:
        return None


@guarded
@dataclass(frozen=True, eq=False)
class Fixed:
    """One policy for ever: what `simulate` makes of a `Policy` or a `Plan`.

    A randomised one draws a table for each episode, which visits each (h, s) at most once; without
    a last step it is played as it is.
    """

    task: Task
    table: Array
    """(H, S) whole numbers, or probabilities (H, S, A)."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {}
    IN_UNITS: ClassVar[bool] = True

    def __post_init__(self) -> None:
        given = (
            stationary_table(self.task, self.table) if self.task.infinite_horizon else self.table
        )
        object.__setattr__(self, "table", mixture_or_actions(self.task, given))

    def init(self) -> None:
        return None

    def plan(self, state: None, rng: np.random.Generator) -> Plan:
        policy, v, _ = empty_plan(self.task)
        if self.table.ndim == 2 or self.task.infinite_horizon:
            return Plan(self.table.copy(), v)
        chances = np.cumsum(self.table, axis=2)
        policy[:] = (rng.random(policy.shape)[:, :, None] * chances[:, :, -1:] >= chances).sum(2)
        return Plan(policy, v)

    def steps_until_replan(self, state: None, plan: Plan, episode: Episode) -> int:
        return len(episode.actions)

    def update(self, state: None, plan: Plan, episode: Episode) -> None:
        return None


@guarded
@dataclass(frozen=True)
class Always:
    """One action, whatever happens."""

    task: Task
    action: int = 0

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {}
    IN_UNITS: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.action < self.task.n_actions:
            raise ValueError(
                f"action is {self.action!r}; actions are 0 to {self.task.n_actions - 1}"
            )
        check_available("action", np.full(self.task.n_states, self.action), self.task)

    def init(self) -> None:
        return None

    def plan(self, state: None, rng: np.random.Generator) -> Plan:
        policy, v, _ = empty_plan(self.task)
        return Plan(np.full_like(policy, self.action), v)

    def steps_until_replan(self, state: None, plan: Plan, episode: Episode) -> int:
        return len(episode.actions)

    def update(self, state: None, plan: Plan, episode: Episode) -> None:
        return None
