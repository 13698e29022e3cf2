"""The episodes of a log: its rows in order, what they paid, and how often each counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array, shown
from upriver.logs.reading import Log, checked_weights, numbers
from upriver.mdp import Task
from upriver.mdp.frames import column, column_names, read_table


class Episodes(NamedTuple):
    """The episodes of a log, all as long as the horizon; rows after an end have weight 0."""

    states: Array
    """(n, H)"""
    actions: Array
    """(n, H)"""
    following: Array
    """(n, H) next states."""
    rewards: Array
    """(n, H)"""
    there: Array
    """(n, H) whether the episode has this step."""
    last: Array
    """(S,) what it is worth to be in each state after the last step, beside the rewards."""
    times: Array
    """(n,) how often each episode counts."""

    def starts(self, task: Task) -> dict[Any, float]:
        """{state: share of the episodes that start there}."""
        first = np.bincount(self.states[:, 0], self.times) / self.times.sum()
        return {task.state_names[s]: float(first[s]) for s in np.flatnonzero(first)}

    @property
    def earned(self) -> Array:
        """(n, H) the rewards, and at the last step what comes after it."""
        earned = self.rewards.copy()
        earned[:, -1] += np.where(self.there[:, -1], self.last[self.following[:, -1]], 0.0)
        return earned


def read_episodes(
    task: Task, log: Any, columns: tuple[str, ...], episode: str, step: str, reward: str | None,
    weights: str | None,
) -> Episodes:  # fmt: skip
    source = str(log) if isinstance(log, str | Path) else None
    wanted = [*columns, episode, step, *(c for c in (reward, weights) if c is not None)]
    frame: Any = log
    present = column_names(log)
    if source is not None:
        frame, present = read_table(Path(source), wanted.__contains__)
    if present is None:
        raise TypeError(f"log is {shown(log)}; it must be a frame, a mapping of columns or a file")
    for name in wanted:
        if name not in present:
            raise ValueError(f"{source or 'log'} has no column {name!r}; it has {present}")
    cells = [column(frame[c]) for c in wanted]
    read = Log(cells, None if weights is None else cells[-1], source)
    s = numbers(read, 0, task.states, task.n_states, "state")
    a = numbers(read, 1, task.actions, task.n_actions, "action")
    s2 = numbers(read, 2, task.states, task.n_states, "next state")
    labels, of = np.unique(cells[3], return_inverse=True)
    times = episode_weights(weights, read, of, labels)
    order = np.lexsort((cells[4], of))
    of = of[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    keep = place < task.horizon
    at = of[keep], place[keep]
    shape = int(of.max()) + 1, task.horizon
    found = [np.zeros(shape, np.int64) for _ in range(3)]
    for out, values in zip(found, (s, a, s2), strict=True):
        out[at] = values[order][keep]
    there = np.zeros(shape, bool)
    there[at] = True
    paid, last = np.zeros(shape), np.zeros(task.n_states)
    if reward is not None:
        paid[at] = np.asarray(cells[5], np.float64)[order][keep]
    else:
        paid[at] = task_pays(task, at[1], *(x[at] for x in found))
        last = last if task.terminal is None else task.terminal
    states, actions, following = found
    return Episodes(states, actions, following, paid, there, last, times)


def episode_weights(name: str | None, read: Log, of: Array, labels: Array) -> Array:
    """(n,) how often each episode counts: what its rows say, all the same."""
    if name is None:
        return np.ones(len(labels))
    given = checked_weights(read, len(of))
    times = np.zeros(len(labels))
    times[of] = given
    if (times[of] != given).any():
        i = int(np.argmax(times[of] != given))
        raise ValueError(
            f"weights {name!r} are {given[i]:g} and {times[of[i]]:g} in episode {labels[of[i]]}; "
            "an episode counts as often in all of its rows"
        )
    return times


def task_pays(task: Task, h: Array, s: Array, a: Array, s2: Array) -> Array:
    """(m,) what the task pays for each transition; of a next state it does not have, on average."""
    reward, pay = task.user_rewards
    group = s * task.n_actions + a
    paid = reward[np.minimum(h, len(reward) - 1), group]
    if not pay.size:
        return paid
    declared = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    wanted = group * task.n_states + s2
    at = np.minimum(np.searchsorted(declared, wanted), len(declared) - 1)
    mean = task.by_pair(pay) / np.maximum(task.sizes, 1)
    of_step = np.minimum(h, len(pay) - 1)
    return paid + np.where(declared[at] == wanted, pay[of_step, at], mean[of_step, group])
