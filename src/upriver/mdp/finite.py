"""The true MDP: a task whose support is the true one, and the probabilities.

Only `simulate`, the exact optimum, evaluation and diagnostics see it; agents get a `Task`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    Array,
    Support,
    check_covers,
    check_initial,
    check_probabilities,
    checked_support,
    support_from_sets,
)
from upriver.mdp.task import Task


@dataclass(frozen=True, eq=False, repr=False)
class FiniteMDP:
    """A finite-horizon MDP: a task whose support is the true one, and the probabilities."""

    known: Task
    """The task with the true reachable sets."""
    probability: Array
    """(1 or H, n) probability of every triple of `known`."""
    initial_states: Array
    """(m,) states where an episode may start."""
    initial_probability: Array
    """(m,) their probabilities."""
    local: Support | None = None
    """The reachable sets a person would write down, a superset of the true ones."""
    name: str = "mdp"
    reward_range: tuple[float, float] = (0.0, 1.0)
    """What the rewards 0 and 1 are in the user's own units, see `in_units`."""

    def __post_init__(self) -> None:
        task = self.known
        probability = np.ascontiguousarray(np.atleast_2d(self.probability), dtype=np.float64)
        if probability.shape not in {(1, task.n_triples), (task.horizon, task.n_triples)}:
            raise ValueError(
                f"probability has shape {probability.shape}; with {task.n_triples} triples and "
                f"horizon {task.horizon} it must be (1, {task.n_triples}) or "
                f"({task.horizon}, {task.n_triples})"
            )
        check_probabilities(probability, task)
        object.__setattr__(self, "probability", probability)
        states = np.ascontiguousarray(self.initial_states, dtype=np.int64)
        weights = np.ascontiguousarray(self.initial_probability, dtype=np.float64)
        check_initial(states, weights, task.n_states)
        object.__setattr__(self, "initial_states", states)
        object.__setattr__(self, "initial_probability", weights)
        if self.local is not None:
            local = checked_support(self.local, task.n_states, task.n_actions)
            check_covers(local, task, "local")
            object.__setattr__(self, "local", local)
        low, high = map(float, self.reward_range)
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"reward_range is {self.reward_range!r}; it must be (low, high)")
        object.__setattr__(self, "reward_range", (low, high))

    def __repr__(self) -> str:
        return f"FiniteMDP({self.name}: {self.known.describe()})"

    @property
    def n_states(self) -> int:
        return self.known.n_states

    @property
    def n_actions(self) -> int:
        return self.known.n_actions

    @property
    def horizon(self) -> int:
        return self.known.horizon

    @property
    def reward(self) -> Array:
        """(S, A) or (H, S, A)."""
        assert self.known.reward is not None
        return self.known.reward

    def task(self, support: str | Iterable[Iterable[int]] = "known") -> Task:
        """The learner's view, with no way to the probabilities.

        support: "known", the true reachable sets; "local", the superset that the environment
        declares; "full", all states; or explicit sets, one for each (s, a) in the order
        s * n_actions + a, each a superset of the true one.
        """
        task = self.known
        if not isinstance(support, str):
            explicit = support_from_sets(support, task.n_states, task.n_actions)
            check_covers(explicit, task, "support")
            return replace(task, indptr=explicit[0], successors=explicit[1], support="explicit")
        if support == "known":
            return task
        if support == "full":
            groups = task.n_states * task.n_actions
            return replace(
                task,
                indptr=np.arange(groups + 1, dtype=np.int64) * task.n_states,
                successors=np.tile(np.arange(task.n_states, dtype=np.int32), groups),
                support="full",
            )
        if support == "local":
            if self.local is None:
                raise ValueError(
                    f"{self.name} declares no local support; use 'known', 'full' or explicit sets"
                )
            return replace(task, indptr=self.local[0], successors=self.local[1], support="local")
        raise ValueError(
            f"support {support!r} is unknown; it must be 'known', 'local', 'full' or explicit sets"
        )

    def in_units(self, total: ArrayLike) -> Any:
        """Sums of the H rewards of an episode, such as returns and values, in the user's units."""
        low, high = self.reward_range
        return self.horizon * low + (high - low) * np.asarray(total)

    def save(self, path: Any) -> None:
        """Write the MDP to a file: .npz, or .toml with a .csv of its transitions beside it."""
        from upriver.mdp.files import save_mdp

        save_mdp(self, path)

    @staticmethod
    def load(path: Any) -> FiniteMDP:
        """Read what `save` wrote, or what a person wrote in the same .toml and .csv form."""
        from upriver.mdp.files import load_mdp

        return load_mdp(path)

    @staticmethod
    def from_arrays(
        transition: ArrayLike,
        reward: ArrayLike,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From dense probabilities, (S, A, S) or (H, S, A, S); zeros are not reachable.

        initial_state is a state, or a distribution (S,). `names` are `local`, `name`, `states`,
        `actions` and `reward_range` of the fields.
        """
        from upriver.mdp import building

        return building.from_arrays(transition, reward, horizon, initial_state, **names)

    @staticmethod
    def from_sparse(
        transition: Any,
        reward: ArrayLike,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From a scipy.sparse matrix (S*A, S) whose row s*A + a is P(. | s, a)."""
        from upriver.mdp import building

        return building.from_sparse(transition, reward, horizon, initial_state, **names)

    @staticmethod
    def from_rows(
        rows: Mapping[tuple[int, int], Mapping[int, float]],
        reward: Any,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        **names: Any,
    ) -> FiniteMDP:
        """From {(s, a): {s2: p}}; reward is an array (S, A) or {(s, a): r}, absent meaning 0."""
        from upriver.mdp import building

        return building.from_rows(rows, reward, horizon, initial_state, **names)

    @staticmethod
    def from_functions(
        start: Hashable | Mapping[Any, float],
        actions: Sequence[Hashable],
        successors: Callable[[Any, Any], Iterable[Any]],
        probability: Callable[[Any, Any, Any], float],
        reward: Callable[[Any, Any], float],
        horizon: int,
        max_states: int = 1_000_000,
        name: str = "mdp",
    ) -> FiniteMDP:
        """From functions of the user's own states, any hashable values.

        Only the closure is listed: what can be reached from the start within `horizon` steps, so
        the state space itself may be far too large to list. A state first met after the last
        action never acts; its rows stay where they are and pay nothing. `start` is a state, or a
        mapping from states to probabilities.
        """
        from upriver.mdp import building

        return building.from_functions(
            start, actions, successors, probability, reward, horizon, max_states, name
        )
