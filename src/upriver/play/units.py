"""Conversion between the user's units and the unit scale, on which every agent works.

This is the only module that converts: an episode before `update`, and the last plan of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from upriver.agents.base import Episode
from upriver.mdp import Task
from upriver.planning import Plan


def episode_converter(task: Task) -> Callable[[Episode], Episode]:
    """Return the function that puts the rewards of an episode on the unit scale."""
    units = task.units
    if units.is_identity:
        return lambda episode: episode
    return lambda episode: episode._replace(rewards=units.to_unit_scale(episode.rewards))


def final_plan(plan: Any, task: Task) -> Any:
    """Return an agent's plan in the user's units, with the names of its task."""
    if not isinstance(plan, Plan):
        return plan
    return plan.to_user_units(task)._replace(task=task)
