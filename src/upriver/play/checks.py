"""Checks of an agent against the MDP it plays on, and of the policies that it returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from upriver.mdp import Task
from upriver.mdp.validation import reward_bounds


def check_same_problem(task: Task, true_task: Task) -> None:
    """Refuse an agent of another problem: sizes and names must agree, in the same order."""
    for what in ("n_states", "n_actions", "horizon", "discount"):
        if getattr(task, what) != getattr(true_task, what):
            raise ValueError(
                f"the agent's task has {task.describe()}, the MDP has {true_task.describe()}; "
                "build the agent from a task of this MDP"
            )
    for what in ("state_names", "action_names"):
        mine, true = getattr(task, what), getattr(true_task, what)
        if mine.numbers_in(true, "the MDP") is not None:
            i = next(i for i in range(mine.size) if mine[i] != true[i])
            raise ValueError(
                f"{mine.what} {i} is {mine[i]!r} in the agent's task and {true[i]!r} in the MDP; "
                "build the agent from a task of this MDP, with the same order of names"
            )
    if task.reward is None and true_task.reward is not None and task.reward_range is not None:
        (least, most), (low, high) = task.reward_range, reward_bounds(true_task)
        slack = 1e-9 * (most - least)
        if low < least - slack or high > most + slack:
            raise ValueError(
                f"the agent's task has unknown rewards in reward_range ({least:g}, {most:g}), and "
                f"those of the MDP lie between {low:g} and {high:g}; give the task their bounds"
            )
    extra = task.available & ~true_task.available
    if extra.any():
        raise ValueError(
            f"the agent's task has the pair {task.describe_pair(int(np.argmax(extra)))}, which the "
            "MDP does not have; build the agent from a task of this MDP"
        )


def check_table(policy: Any, task: Task) -> None:
    """Refuse a table of another shape or kind: the kernels would read past its end."""
    shape = task.horizon, task.n_states
    is_table = isinstance(policy, np.ndarray) and policy.shape == shape
    if not is_table or policy.dtype.kind not in "iu" or not policy.dtype.isnative:
        kind = policy.dtype if isinstance(policy, np.ndarray) else type(policy).__name__
        raise ValueError(
            f"the agent's policy is {kind} of shape {np.shape(policy)}; "
            f"it must be whole numbers of shape {shape}"
        )
