"""The true MDP: a task whose support is the true one, with its transition probabilities.

Only `simulate`, the exact optimum, evaluation and diagnostics see it; agents get a `Task`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from upriver import checks
from upriver.checks import Array, Support, as_float, check_instance, check_kinds, read_only_copy
from upriver.display import Card, add_repr
from upriver.mdp import archive, building, frames, validation
from upriver.mdp.task import Task


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class FiniteMDP:
    """A finite MDP: a task whose support is the true one, and the probabilities of its triples.

    Build one with the static methods `from_...`; `mdp.task()` is what a learner may see.
    """

    true_task: Task
    """The task with the true reachable sets; what `mdp.task()` returns."""
    probability: Array
    """(1 or H, n) probability of every triple of `true_task`."""
    initial_states: Array
    """(m,) numbers of the states in which an episode may start."""
    initial_probability: Array
    """(m,) their probabilities."""
    local: Support | None = None
    """Reachable sets that a person would write down, a superset of the true ones."""
    name: str = "mdp"
    listed_steps: int | None = None
    """Steps for which `from_functions` listed the states; None where they hold for any number. A
    state that is first reached after them stays where it is."""

    from_arrays = staticmethod(building.from_arrays)
    from_functions = staticmethod(building.from_functions)
    from_frame = staticmethod(frames.from_frame)
    to_frame = frames.mdp_frame

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        task = check_instance("true_task", self.true_task, Task)
        n = task.n_triples
        shapes = (n,), (1, n), (task.horizon, n)
        probability = np.atleast_2d(as_float("probability", self.probability, shapes=shapes))
        put("probability", read_only_copy(validation.normalize_probabilities(probability, task)))
        states = read_only_copy(as_float("initial_states", self.initial_states), np.int64)
        weights = read_only_copy(as_float("initial_probability", self.initial_probability))
        inside = (states >= 0) & (states < task.n_states)
        if states.shape != weights.shape or states.ndim != 1 or not inside.all():
            wanted = f"it must have states from 0 to {task.n_states - 1}, each with its probability"
            raise ValueError(f"initial_states has shape {states.shape}; {wanted}")
        validation.check_distribution("initial probabilities", weights)
        put("initial_states", states)
        put("initial_probability", weights)
        if self.local is not None:
            local = validation.check_support(self.local, task)
            validation.check_covers(local, task, "local")
            put("local", local)

    def card(self) -> Card:
        return self.true_task.card()._replace(of=self.name, brief=self.name)

    @property
    def n_states(self) -> int:
        """The number of states."""
        return self.true_task.n_states

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.true_task.n_actions

    @property
    def horizon(self) -> Any:
        """Steps of an episode; None with an infinite horizon."""
        return None if self.true_task.infinite_horizon else self.true_task.horizon

    @property
    def discount(self) -> float | None:
        """The discount of an infinite horizon; 1 stands for the average reward."""
        return self.true_task.discount

    @check_kinds
    def infinite_horizon(self, discount: float | None = None) -> FiniteMDP:
        """Return the same MDP with an infinite horizon: a discount in [0, 1), or None for the
        average reward. Probabilities and rewards must not depend on the step."""
        self.check_steps_are_alike()
        discount = validation.check_discount(None, discount)
        return replace(self, true_task=replace(self.true_task, horizon=1, discount=discount))

    def check_steps_are_alike(self) -> None:
        """Refuse an infinite horizon where steps differ, or states were listed for some only."""
        if self.listed_steps is not None:
            raise ValueError(
                f"the states of {self.name} were listed for {self.listed_steps} steps, and an "
                "infinite horizon may reach others; list them with horizon=None"
            )
        if len(self.probability) > 1 or len(self.reward_rows) > 1 or self.terminal.any():
            raise ValueError(
                f"{self.name} changes with the step; an infinite horizon needs one transition and "
                "one reward for all steps, and no terminal value"
            )

    @cached_property
    def reward_rows(self) -> Array:
        """(1 or H, S*A) expected reward of each pair, in the user's units."""
        reward, next_state_reward = self.true_task.user_rewards
        if not next_state_reward.size:
            return reward
        return reward + self.true_task.by_pair(self.probability * next_state_reward)

    @property
    def reward(self) -> Array:
        """(S, A) or (H, S, A) expected reward, in the user's units."""
        if self.true_task.next_state_reward is None and self.true_task.reward is not None:
            return self.true_task.reward
        table = self.reward_rows.reshape(-1, self.n_states, self.n_actions)
        return table if len(table) > 1 else table[0]

    @property
    def terminal(self) -> Array:
        """(S,) value of being in each state after the last step."""
        task = self.true_task
        return np.zeros(self.n_states) if task.terminal is None else task.terminal

    @check_kinds
    def task(self, support: str = "known") -> Task:
        """Return the learner's view, which does not contain the probabilities.

        Parameters
        ----------
        support : {"known", "local", "full"}
            The true reachable sets; the superset that the environment declares; or all states.
        """
        task = self.true_task
        checks.check_choice("support", support, ("known", "local", "full"))
        if support == "known":
            return task
        if support == "full":
            counts = (task.sizes > 0) * task.n_states
            validation.check_size(task.n_states, int(counts.sum()))
            states = np.tile(np.arange(task.n_states, dtype=np.int32), int((task.sizes > 0).sum()))
            return task.with_support((np.concatenate([[0], np.cumsum(counts)]), states), "full")
        if self.local is None:
            raise ValueError(f"{self.name} declares no local support; use 'known' or 'full'")
        return task.with_support(self.local, "local")

    def plot(self) -> Any:
        """Return a figure of the transitions, one panel for each of the first actions.

        A diagram of few states; where states are pairs of whole numbers, the expected move of
        each; otherwise a heat map of states against next states. Where probabilities depend on
        the step, those of the first.

        Raises
        ------
        ValueError
            If there are more than 400 states, and they are no pairs of whole numbers.
        """
        from upriver.display import figures

        return figures.plot_transitions(self)

    @check_kinds
    def save(self, path: str | Path) -> None:
        """Write the MDP to an .npz file, completely or not at all."""
        archive.save_object(path, "mdp", self, plain=True)

    @staticmethod
    @check_kinds
    def load(path: str | Path) -> FiniteMDP:
        """Read the MDP of a file that `save` wrote; no code is run."""
        return archive.load_object(path, "mdp", FiniteMDP)
