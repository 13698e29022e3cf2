"""Reference policies that learn nothing: the optimum, uniform play, a given policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from upriver.agents.base import CheckedAgent, Episode
from upriver.checks import NUMBER, Array, positive_integer
from upriver.mdp import FiniteMDP, Task
from upriver.planning import Plan, policy_type, random_actions, solve
from upriver.planning.tables import mixture_or_actions


class ReferencePolicy(CheckedAgent):
    """The base of agents without a state: they plan the same in every episode."""

    GRID: ClassVar = {}

    def init(self) -> None:
        """There is nothing to keep."""

    def advance(self, state: None, plan: Plan, episode: Episode) -> None:
        """There is nothing to learn."""

    def steps_until_replan(self, state: None, plan: Plan, episode: Episode) -> int:
        """Return all steps: the plan stays the same."""
        return len(episode.actions)

    def plan_without_values(self, policy: Array) -> Plan:
        """Return a plan of a policy that was chosen without values: v is 0, or terminal."""
        v = np.zeros((self.task.horizon + 1, self.task.n_states))
        if self.task.terminal is not None:
            v[-1] = self.task.terminal
        return Plan(policy, v, None, self.task, in_user_units=True)


@dataclass(frozen=True)
class Optimal(ReferencePolicy):
    """Plays the exact optimum of the MDP, which no learner is given, with exact values."""

    mdp: FiniteMDP

    @property
    def task(self) -> Task:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.mdp.true_task

    @cached_property
    def best(self) -> Plan:
        """The optimum; with an infinite horizon one table and its values, or bias."""
        found: Any = solve(self.mdp)
        if not self.task.infinite_horizon:
            return found
        v, table = found.v, found.policy.astype(policy_type(self.task))[None]
        return Plan(table, np.stack([v, np.zeros_like(v)]), None, self.task, in_user_units=True)

    def make_plan(self, state: None, rng: np.random.Generator) -> Plan:
        """Return the exact optimum."""
        return self.best


@dataclass(frozen=True)
class Random(ReferencePolicy):
    """Plays uniformly: each episode draws one table of uniform actions, of those a state has.

    An episode visits each (h, s) at most once, so this is the uniformly randomised policy in
    distribution, and each table still has an exact value.
    """

    task: Task

    def make_plan(self, state: None, rng: np.random.Generator) -> Plan:
        """Return a table of uniform actions; with an infinite horizon their probabilities."""
        if self.task.infinite_horizon:
            available = self.task.available
            return self.plan_without_values((available / available.sum(1, keepdims=True))[None])
        return self.plan_without_values(random_actions(self.task, rng))


@dataclass(frozen=True, eq=False)
class Always(ReferencePolicy):
    """Plays one action, or one policy, in all episodes, as `simulate` does with a `Policy`.

    A randomised policy draws one table for each episode, which visits each (h, s) at most once;
    with an infinite horizon it is played as it is.

    Parameters
    ----------
    action : int, Policy, Plan or array
        The number of an action that every state has, or (H, S) actions or (H, S, A) probabilities
        of actions; a `Policy` or `Plan` by name.
    """

    task: Task
    action: Any = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table  # noqa: B018  (raises an error where the action or the policy does not fit)

    @cached_property
    def table(self) -> Array:
        """Actions (H, S), or probabilities of actions (H, S, A)."""
        policy = self.action
        if isinstance(policy, NUMBER):
            most = self.task.n_actions - 1
            number = positive_integer("action", policy, least=0, most=most)
            policy = np.full(self.task.n_states, number)
        return mixture_or_actions(self.task, policy)

    def make_plan(self, state: None, rng: np.random.Generator) -> Plan:
        """Return the table, or one drawn from its probabilities."""
        if self.table.ndim == 2 or self.task.infinite_horizon:
            return self.plan_without_values(self.table.copy())
        below = np.cumsum(self.table, axis=2)
        uniform = rng.random(below.shape[:2])[:, :, None]
        drawn = (uniform * below[:, :, -1:] >= below).sum(2)
        return self.plan_without_values(drawn.astype(policy_type(self.task)))
