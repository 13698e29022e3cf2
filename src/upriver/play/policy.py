"""A policy to keep: what to do in each state at each step, by the user's own names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import (
    Array,
    check_instance,
    check_kinds,
    format_value,
    positive_integer,
    read_only_copy,
)
from upriver.display import Card, add_repr, to_frame
from upriver.display.card import MAX_ROWS
from upriver.mdp import Task
from upriver.mdp.archive import load_object, save_object
from upriver.mdp.names import Names, abbreviate, check_names
from upriver.planning import Plan, StationaryPlan, check_actions, mixture_or_actions
from upriver.planning.tables import policy_columns, reordered


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """A policy of H steps, or one for all steps of an infinite horizon.

    Parameters
    ----------
    actions : array
        (H, S) whole numbers below `n_actions`, or (H, S, A) probabilities of a randomised policy.
    state_names, action_names : sequence, optional
        The user's names; the default is numbers from 0.
    stationary : bool
        Whether the policy, of one step, is for every step of an infinite horizon.
    """

    actions: Array
    n_actions: int
    state_names: Sequence[Hashable] | None = None
    action_names: Sequence[Hashable] | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        put("n_actions", positive_integer("n_actions", self.n_actions))
        try:
            table = np.asarray(self.actions)
        except ValueError:
            raise ValueError("actions must be a table without gaps") from None
        if table.ndim == 2 and table.dtype.kind in "iu" and table.size:
            check_actions("actions", table, self.n_actions)
        elif table.ndim == 3 and table.dtype.kind == "f" and table.shape[2] == self.n_actions:
            if not ((table >= 0).all() and np.allclose(table.sum(axis=2), 1.0, atol=1e-8)):
                raise ValueError("actions must hold, for each (h, s), probabilities that sum to 1")
        else:
            raise ValueError(
                f"actions are {table.dtype} of shape {table.shape}; they must be whole numbers "
                f"(H, S) or probabilities (H, S, {self.n_actions})"
            )
        check_instance("stationary", self.stationary, bool)
        if self.stationary and len(table) != 1:
            raise ValueError(f"actions have {len(table)} steps; a stationary policy has 1")
        put("actions", read_only_copy(table))
        put("state_names", check_names("state_names", self.state_names, table.shape[1]))
        put("action_names", check_names("action_names", self.action_names, self.n_actions))

    @staticmethod
    @check_kinds
    def from_plan(plan: Plan | StationaryPlan, task: Task | None = None) -> Policy:
        """Return the policy of a plan with the names of its task, or of another `task`."""
        task = plan.task if task is None else task
        if task is None:
            return Policy(plan.policy, int(plan.policy.max()) + 1)
        table = mixture_or_actions(task, plan)
        return Policy(table, task.n_actions, task.states, task.actions, task.infinite_horizon)

    @check_kinds
    def on(self, task: Task) -> Array:
        """Return the table in the order of a task's states and actions, matched by name.

        A policy without names is for the states 0, 1, 2, ... of the task.
        """
        states = self.states if self.state_names is not None else task.state_names
        actions = Names("action", self.n_actions, self.action_names)
        if self.action_names is None and self.n_actions <= task.n_actions:
            actions = replace(task.action_names, size=self.n_actions)
        return reordered(self.actions, states, actions, task)

    @property
    def horizon(self) -> int:
        """H; 1 where the policy is stationary."""
        return len(self.actions)

    @cached_property
    def states(self) -> Names:
        """The names of the states."""
        return Names("state", self.actions.shape[1], self.state_names)

    @check_kinds
    def act(self, state: Any, h: int = 0, rng: np.random.Generator | None = None) -> Any:
        """Return the action in `state` at step h.

        Parameters
        ----------
        state : name
        h : int
            The step, from 0; a stationary policy is the same at every step.
        rng : Generator, optional
            Needed by a randomised policy.
        """
        last = None if self.stationary else self.horizon - 1
        if isinstance(h, bool) or h < 0 or (last is not None and h > last):
            allowed = "0 or more" if last is None else f"0 to {last}"
            raise ValueError(f"h is {format_value(h)}; steps are {allowed}")
        chosen = self.actions[
            0 if self.stationary else h, self.states.number(state, owner="the policy")
        ]
        if self.actions.ndim == 3:
            if rng is None:
                raise ValueError("this policy is randomised; act needs a generator rng")
            chosen = rng.choice(self.n_actions, p=chosen)
        return int(chosen) if self.action_names is None else self.action_names[int(chosen)]

    def card(self) -> Card:
        steps = {"horizon": "infinite"} if self.stationary else {"steps": self.horizon}
        facts: dict[str, Any] = steps | {"states": self.actions.shape[1], "actions": self.n_actions}
        if self.actions.ndim == 3:
            facts["kind"] = "randomised"
        for what, names in (("states", self.state_names), ("actions", self.action_names)):
            if names is not None:
                facts[f"{what} named"] = abbreviate(names)
        return Card(
            facts,
            rows=lambda: self.to_pandas(n_steps=1).head(MAX_ROWS).to_dict("records"),
            more="to_pandas() has every step and state, plot() draws them",
            brief="stationary" if self.stationary else f"{self.horizon} steps",
        )

    @check_kinds
    def to_pandas(self, n_steps: int | None = None) -> Any:
        """Return a data frame with a row per step, of the first `n_steps`, and state.

        Its columns are step, state and action, or P(action) of each action of a randomised policy.
        A stationary policy has no column step.
        """
        table = self.actions[:n_steps]
        steps = np.arange(len(table)).repeat(table.shape[1])
        columns = policy_columns(self.state_names, self.action_names, table)
        return to_frame(columns if self.stationary else {"step": steps, **columns})

    def plot(self) -> Any:
        """Return a figure of the actions by state and step, the likeliest where it randomises."""
        from upriver.display import figures

        table = self.actions if self.actions.ndim == 2 else self.actions.argmax(axis=2)
        return figures.plot_policy(table, self.state_names, self.action_names)

    @check_kinds
    def save(self, path: str | Path) -> None:
        """Write the policy to `path`, an .npz file that `load_policy` reads."""
        save_object(path, "policy", self, plain=True)


@check_kinds
def load_policy(path: str | Path) -> Policy:
    """Read the policy that `Policy.save` wrote to the file `path`."""
    return load_object(path, "policy", Policy)
