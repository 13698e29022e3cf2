"""A policy to keep: what to do in each state at each step, by the user's own names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.mdp import Task
from upriver.mdp.archive import decode_from, encode, read_archive, write_archive
from upriver.planning import Plan


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy of H steps. States and actions go by their names where they have any."""

    actions: Array
    """(H, S) whole numbers, or (H, S, A) probabilities of a randomised policy."""
    n_actions: int
    state_names: Sequence[Hashable] | None = None
    action_names: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        table = np.ascontiguousarray(self.actions)
        if table.ndim == 2 and np.issubdtype(table.dtype, np.integer):
            bad = (table < 0) | (table >= self.n_actions)
            if bad.any():
                h, s = np.unravel_index(int(np.argmax(bad)), table.shape)
                raise ValueError(
                    f"actions[{h}, {s}] is {table[h, s]}; actions are 0 to {self.n_actions - 1}"
                )
        elif table.ndim == 3 and np.issubdtype(table.dtype, np.floating):
            if not ((table >= 0).all() and np.allclose(table.sum(axis=2), 1.0, atol=1e-8)):
                raise ValueError("actions must hold, for each (h, s), probabilities that sum to 1")
        else:
            raise ValueError(
                f"actions are {table.dtype} of shape {table.shape}; they must be whole numbers "
                "(H, S) or probabilities (H, S, A)"
            )
        object.__setattr__(self, "actions", table)
        expected = (("state_names", table.shape[1]), ("action_names", self.n_actions))
        for name, size in expected:
            given = getattr(self, name)
            if given is not None and len(given) != size:
                raise ValueError(f"{name} has {len(given)} names; there must be {size}")

    @staticmethod
    def from_plan(plan: Plan, task: Task | None = None) -> Policy:
        """The policy of a plan, with the names of its task."""
        if task is None:
            return Policy(plan.policy, int(plan.policy.max()) + 1)
        return Policy(plan.policy, task.n_actions, task.states, task.actions)

    @property
    def horizon(self) -> int:
        return len(self.actions)

    @cached_property
    def numbers(self) -> dict[Hashable, int]:
        """The number of each named state."""
        return {s: i for i, s in enumerate(self.state_names or ())}

    def act(self, state: Any, h: int, rng: np.random.Generator | None = None) -> Any:
        """The action in `state` at step h, counted from 0; a randomised policy draws from rng."""
        s, h = self.number_of(state), self.checked_step(h)
        chosen = self.actions[h, s]
        if self.actions.ndim == 3:
            if rng is None:
                raise ValueError("this policy is randomised; act needs a generator rng")
            chosen = rng.choice(self.n_actions, p=chosen)
        return int(chosen) if self.action_names is None else self.action_names[int(chosen)]

    def number_of(self, state: Any) -> int:
        if self.state_names is not None:
            try:
                return self.numbers[state]
            except (KeyError, TypeError):
                raise ValueError(
                    f"state {state!r} is unknown; the policy has {len(self.numbers)} named states, "
                    f"such as {self.state_names[0]!r}"
                ) from None
        try:
            s = index(state)
        except TypeError:
            s = -1
        if not 0 <= s < self.actions.shape[1]:
            raise ValueError(f"state is {state!r}; states are 0 to {self.actions.shape[1] - 1}")
        return s

    def checked_step(self, h: Any) -> int:
        try:
            step = index(h)
        except TypeError:
            step = -1
        if not 0 <= step < self.horizon:
            raise ValueError(f"h is {h!r}; steps are 0 to {self.horizon - 1}")
        return step

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

    def save(self, path: Any) -> None:
        """Write the policy to `path`, an .npz file that `load_policy` reads."""
        arrays: dict[str, Array] = {}
        write_archive(path, "policy", encode(self, arrays), arrays)


def load_policy(path: Any) -> Policy:
    """Read a policy that `Policy.save` wrote."""
    policy = decode_from(path, *read_archive(path, "policy"))
    if not isinstance(policy, Policy):
        raise ValueError(f"{path} holds no policy")
    return policy
