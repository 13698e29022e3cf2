"""A policy to keep: what to do in each state at each step, by the user's own names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from upriver.checks import Array, instance, owned, positive_integer, shown
from upriver.display import Card, displayed, to_frame
from upriver.display.card import MOST_ROWS
from upriver.mdp import Task
from upriver.mdp.archive import load_object, save_object
from upriver.mdp.names import Names, check_names, few
from upriver.planning import Plan, action_table, check_actions
from upriver.planning.tables import reordered


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """A policy of H steps. States and actions go by their names where they have any."""

    actions: Array
    """(H, S) whole numbers, or (H, S, A) probabilities of a randomised policy."""
    n_actions: int
    state_names: Sequence[Hashable] | None = None
    action_names: Sequence[Hashable] | None = None

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
        put("actions", owned(table))
        put("state_names", check_names("state_names", self.state_names, table.shape[1]))
        put("action_names", check_names("action_names", self.action_names, self.n_actions))

    @staticmethod
    def from_plan(plan: Plan, task: Task | None = None) -> Policy:
        """The policy of a plan, with the names of its task; of another task, matched by name."""
        task = plan.task if task is None else instance("task", task, Task)
        if task is None:
            return Policy(plan.policy, int(plan.policy.max()) + 1)
        table = action_table(task, plan)
        return Policy(table, task.n_actions, task.states, task.actions)

    def on(self, task: Task) -> Array:
        """The table in the order of a task's states and actions, matched by name.

        A policy without names is as good as a table: it is for the states 0, 1, 2, ... of the task.
        """
        states = self.states if self.state_names is not None else task.state_names
        actions = Names("action", self.n_actions, self.action_names)
        if self.action_names is None and self.n_actions <= task.n_actions:
            actions = replace(task.action_names, size=self.n_actions)
        return reordered(self.actions, states, actions, task)

    @property
    def horizon(self) -> int:
        return len(self.actions)

    @cached_property
    def states(self) -> Names:
        return Names("state", self.actions.shape[1], self.state_names)

    def act(self, state: Any, h: int, rng: np.random.Generator | None = None) -> Any:
        """The action in `state` at step h, counted from 0; a randomised policy draws from rng.

        state: one by its name, or a list or array of them, for as many actions.
        """
        if not (isinstance(h, int | np.integer) and 0 <= h < self.horizon):
            raise ValueError(f"h is {shown(h)}; steps are 0 to {self.horizon - 1}")
        several = self.states.as_names(state)
        at = np.array([self.states.number(s) for s in ([state] if several is None else several)])
        chosen = self.actions[h, at.astype(np.int64)]
        if self.actions.ndim == 3:
            if rng is None:
                raise ValueError("this policy is randomised; act needs a generator rng")
            chosen = [rng.choice(self.n_actions, p=chances) for chances in chosen]
        names = self.action_names
        played = [int(a) if names is None else names[int(a)] for a in chosen]
        if several is None:
            return played[0]
        return np.array(played) if names is None else played

    def table(self) -> list[dict[str, Any]]:
        """Rows of state, action, and the first and last step between which it is taken.

        Of a randomised policy: one row for each step, state and action of positive probability.
        """
        states = self.state_names or range(self.actions.shape[1])
        names = self.action_names or range(self.n_actions)
        if self.actions.ndim == 3:
            return [
                {"state": states[s], "first step": int(h), "last step": int(h), "action": names[a],
                 "probability": float(self.actions[h, s, a])}
                for s, h, a in np.argwhere(self.actions.transpose(1, 0, 2) > 0)
            ]  # fmt: skip
        rows = []
        for s, column in enumerate(self.actions.T):
            starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
            stops = np.r_[starts[1:], self.horizon] - 1
            rows += [
                {"state": states[s], "first step": int(i), "last step": int(j),
                 "action": names[int(column[i])]}
                for i, j in zip(starts, stops, strict=True)
            ]  # fmt: skip
        return rows

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "steps": self.horizon,
            "states": self.actions.shape[1],
            "actions": self.n_actions,
        }
        if self.actions.ndim == 3:
            facts["kind"] = "randomised"
        for what, names in (("states", self.state_names), ("actions", self.action_names)):
            if names is not None:
                facts[f"{what} named"] = few(names)
        some = self.actions[:, :MOST_ROWS]
        first = Policy(
            some, self.n_actions, self.state_names and self.state_names[:MOST_ROWS],
            self.action_names,
        )  # fmt: skip
        more = "table() and to_pandas() have every state, plot() draws them"
        return Card(facts, rows=first.table, more=more, brief=f"{self.horizon} steps")

    def to_pandas(self) -> Any:
        """The `table` as a data frame."""
        return to_frame(self.table())

    def plot(self, step: int | None = None) -> Any:
        """A figure of the actions by state and step, or at one step.

        At one step the states lie on a line, or on a grid where they are pairs of numbers. Of a
        randomised policy the likeliest action is drawn.
        """
        from upriver.display import figures

        table = self.actions if self.actions.ndim == 2 else self.actions.argmax(axis=2)
        return figures.policy(table, self.state_names, self.action_names, step)

    def save(self, path: Any) -> None:
        """Write the policy to `path`, an .npz file that `load_policy` reads."""
        save_object(path, "policy", self)


def load_policy(path: Any) -> Policy:
    """Read a policy that `Policy.save` wrote."""
    return load_object(path, "policy", Policy)
