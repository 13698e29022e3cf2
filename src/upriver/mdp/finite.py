"""The true MDP: a task whose support is the true one, and the probabilities.

Only `simulate`, the exact optimum, evaluation and diagnostics see it; agents get a `Task`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from upriver.checks import (
    Array,
    Support,
    as_float,
    check_covers,
    check_initial,
    check_probabilities,
    checked_support,
    instance,
    owned,
    support_from_sets,
)
from upriver.display import Card, displayed
from upriver.mdp import building, files, formats, frames
from upriver.mdp.declaring import checked_discount
from upriver.mdp.task import Task
from upriver.mdp.units import expected_reward, realigned


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class FiniteMDP:
    """An MDP: a task whose support is the true one, and the probabilities."""

    true_task: Task
    """The task with the true reachable sets."""
    probability: Array
    """(1 or H, n) probability of every triple of `true_task`."""
    initial_states: Array
    """(m,) states where an episode may start."""
    initial_probability: Array
    """(m,) their probabilities."""
    local: Support | None = None
    """The reachable sets a person would write down, a superset of the true ones."""
    name: str = "mdp"

    from_arrays = staticmethod(building.from_arrays)
    from_sparse = staticmethod(building.from_sparse)
    from_rows = staticmethod(building.from_rows)
    from_functions = staticmethod(building.from_functions)
    from_outcomes = staticmethod(formats.from_outcomes)
    from_frame = staticmethod(frames.from_frame)
    from_quantecon = staticmethod(formats.from_quantecon)
    from_mdptoolbox = staticmethod(formats.from_mdptoolbox)
    to_frame = frames.mdp_frame
    load = staticmethod(files.load_mdp)
    save = files.save_mdp

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        task = instance("true_task", self.true_task, Task)
        probability = np.atleast_2d(as_float("probability", self.probability))
        if probability.shape not in {(1, task.n_triples), (task.horizon, task.n_triples)}:
            raise ValueError(
                f"probability has shape {probability.shape}; with {task.n_triples} triples and "
                f"horizon {task.horizon} it must be (1, {task.n_triples}) or "
                f"({task.horizon}, {task.n_triples})"
            )
        check_probabilities(probability, task)
        put("probability", owned(probability))
        states = owned(as_float("initial_states", self.initial_states), np.int64)
        weights = owned(as_float("initial_probability", self.initial_probability))
        check_initial(states, weights, task.n_states)
        put("initial_states", states)
        put("initial_probability", weights)
        if self.local is not None:
            local = checked_support(self.local, task.n_states, task.n_actions, task.pair)
            check_covers(local, task, "local")
            put("local", local)

    def card(self) -> Card:
        card = self.true_task.card()
        return card._replace(of=self.name, brief=self.name)

    def plot(self, state: Any, action: Any, step: int = 0) -> Any:
        """A figure of where (state, action), by their names, leads."""
        from upriver.display import figures

        rows, task = self.true_task.rows_of(state, action), self.true_task
        p = self.probability[min(step, len(self.probability) - 1), rows]
        return figures.probabilities(
            [{"next_state": task.state_names[s], "probability": x}
             for s, x in zip(task.successors[rows], p, strict=True)],
            state, action,
        )  # fmt: skip

    @property
    def n_states(self) -> int:
        return self.true_task.n_states

    @property
    def n_actions(self) -> int:
        return self.true_task.n_actions

    @property
    def horizon(self) -> Any:
        """Steps of an episode, or None where there is no last one."""
        return None if self.true_task.infinite_horizon else self.true_task.horizon

    @property
    def discount(self) -> float | None:
        """Of a problem without a last step; 1 stands for the average reward."""
        return self.true_task.discount

    def infinite_horizon(self, discount: float | None = None) -> FiniteMDP:
        """The same problem without a last step: with a discount, or for the average reward.

        It must not change with the step.
        """
        if len(self.probability) > 1 or self.reward.ndim > 2:
            raise ValueError(
                f"{self.name} changes with the step; without a last step it needs one transition "
                "and one reward for all steps"
            )
        task = replace(self.true_task, horizon=1, discount=checked_discount(None, discount))
        return replace(self, true_task=task)

    @cached_property
    def reward_rows(self) -> Array:
        """(1 or H, S*A) the expected reward of each pair, as the planning kernels read it."""
        return expected_reward(self.true_task, self.probability)

    @property
    def reward(self) -> Array:
        """(S, A) or (H, S, A) the expected reward."""
        if self.true_task.next_state_reward is None and self.true_task.reward is not None:
            return self.true_task.reward
        table = self.reward_rows.reshape(-1, self.n_states, self.n_actions)
        return table if len(table) > 1 else table[0]

    @property
    def terminal(self) -> Array:
        """(S,) what it is worth to be in each state after the last step."""
        return (
            np.zeros(self.n_states) if self.true_task.terminal is None else self.true_task.terminal
        )

    def task(self, support: str | Iterable[Iterable[int]] = "known") -> Task:
        """The learner's view, with no way to the probabilities.

        support: "known", the true reachable sets; "local", the superset that the environment
        declares; "full", all states; or explicit sets, one for each (s, a) in the order
        s * n_actions + a, each a superset of the true one, empty where there is no such action.
        """
        task = self.true_task
        if not isinstance(support, str):
            sets = support_from_sets(support, task.n_states, task.n_actions)
            check_covers(sets, task, "support")
            support = "explicit"
        elif support == "known":
            return task
        elif support == "full":
            every, exists = np.arange(task.n_states, dtype=np.int32), task.sizes > 0
            indptr = np.concatenate([[0], np.cumsum(exists * task.n_states)])
            sets = indptr, np.tile(every, int(exists.sum()))
        elif support != "local":
            raise ValueError(
                f"support {support!r} is unknown; it must be 'known', 'local', 'full' or "
                "explicit sets"
            )
        elif self.local is None:
            raise ValueError(
                f"{self.name} declares no local support; use 'known', 'full' or explicit sets"
            )
        else:
            sets = self.local
        return replace(
            task, indptr=sets[0], successors=sets[1], support=support,
            next_state_reward=realigned(task, sets),
        )  # fmt: skip
