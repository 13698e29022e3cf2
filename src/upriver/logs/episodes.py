"""The episodes of a log: its rows in order, their rewards, and the weight of each episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.logs.tables import open_table
from upriver.mdp import Task


class Episodes(NamedTuple):
    """The episodes of a log, all as long as the horizon."""

    states: Array  # (n, H)
    actions: Array  # (n, H)
    following: Array  # (n, H) next states
    rewards: Array  # (n, H)
    there: Array  # (n, H) whether the episode has this step
    last: Array  # (S,) the terminal value of each state, beside the rewards
    weights: Array  # (n,) how often each episode counts

    def starts(self, task: Task) -> dict[Any, float]:
        """Return {state: share of the episodes that start there}."""
        first = np.bincount(self.states[:, 0], self.weights) / self.weights.sum()
        return {task.state_names[s]: float(first[s]) for s in np.flatnonzero(first)}

    @property
    def earned(self) -> Array:
        """(n, H) the rewards, and at the last step the terminal value as well."""
        earned = self.rewards.copy()
        earned[:, -1] += np.where(self.there[:, -1], self.last[self.following[:, -1]], 0.0)
        return earned


def read_episodes(
    task: Task, log: Any, columns: Sequence[str], episode: str, step: str,
    reward: str | None = None, weights: str | None = None, missing: str = "refuse",
) -> Episodes:  # fmt: skip
    """Read the episodes of a log; the parameters are those of `check_policy_value`."""
    table = open_table(log, "the log")
    extra = [c for c in (reward, weights) if c is not None]
    rows = table.read([*columns, episode, step, *extra], weights, extra, missing, group=False)
    states = range(task.n_states) if task.states is None else list(task.states)
    actions = range(task.n_actions) if task.actions is None else list(task.actions)
    known = (states, "state"), (actions, "action"), (states, "next state")
    cells = [rows.numbers(c, *names) for c, names in zip(columns, known, strict=True)]
    of, labels = rows.codes(episode)
    order = np.lexsort((rows.values(step), of))
    of = of[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    keep = place < task.horizon
    at = of[keep], place[keep]
    shape = len(labels), task.horizon
    found = [np.zeros(shape, np.int64) for _ in range(3)]
    for out, values in zip(found, cells, strict=True):
        out[at] = values[order][keep]
    there = np.zeros(shape, bool)
    there[at] = True
    rewards, last = np.zeros(shape), np.zeros(task.n_states)
    if reward is not None:
        rewards[at] = np.asarray(rows.values(reward), np.float64)[order][keep]
    else:
        rewards[at] = task_rewards(task, at[1], *(x[at] for x in found))
        last = last if task.terminal is None else task.terminal
    given = np.ones(len(of)) if weights is None else rows.weight[order]
    times = np.zeros(len(labels))
    times[of] = given
    if (times[of] != given).any():
        i = int(np.argmax(times[of] != given))
        raise ValueError(f"weights {weights!r} are {given[i]:g} and {times[of[i]]:g} in "
                         f"episode {labels[of[i]]!r}; all rows of an episode must have "
                         "one weight")  # fmt: skip
    states_of, actions_of, following = found
    return Episodes(states_of, actions_of, following, rewards, there, last, times)


def task_rewards(task: Task, h: Array, s: Array, a: Array, s2: Array) -> Array:
    """Return (m,) the task's reward of each transition; of unknown next states the average."""
    reward, pay = task.user_rewards
    pair = s * task.n_actions + a
    paid = reward[np.minimum(h, len(reward) - 1), pair]
    if not pay.size:
        return paid
    declared = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    wanted = pair * task.n_states + s2
    at = np.minimum(np.searchsorted(declared, wanted), len(declared) - 1)
    mean = task.by_pair(pay) / np.maximum(task.sizes, 1)
    of_step = np.minimum(h, len(pay) - 1)
    return paid + np.where(declared[at] == wanted, pay[of_step, at], mean[of_step, pair])
