"""MDPs of fitted models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, as_float
from upriver.mdp.task import Task

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP


def from_model(
    task: Task, probability: Array, reward: Any = None, horizon: int | None = None,
    start: Any = None,
) -> FiniteMDP:  # fmt: skip
    """Make the MDP of a task and estimated probabilities (1 or H, n) of its triples, with another
    reward or horizon where given. It starts in the first state, or as `start_of` says."""
    from upriver.mdp.finite import FiniteMDP

    if horizon is not None:
        task = replace(task, horizon=horizon)
    if reward is not None:
        task = replace(task, reward=reward)
    if task.reward is None:
        raise ValueError("the task has no known reward; give reward, (S, A) or (H, S, A)")
    return FiniteMDP(task, probability, *start_of(task, start), name="fitted")


def start_of(task: Task, start: Any) -> tuple[Array, Array]:
    """Return (states, probabilities) of a start given by name or as {name: probability}."""
    names = task.state_names
    chances = {names[0]: 1.0} if start is None else start
    if not isinstance(chances, Mapping):
        chances = {names[names.number(chances, "start")]: 1.0}
    weight = as_float("the probabilities of start", list(chances.values()))
    if not ((weight >= 0).all() and abs(weight.sum() - 1.0) <= 1e-8):
        raise ValueError(f"the probabilities of start sum to {weight.sum():g}; they must sum to 1")
    return np.array([names.number(state, "start") for state in chances]), weight
