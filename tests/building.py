"""Agents and MDPs for tests: any agent of the table, one that wraps another, MDPs from rows."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

import upriver as up
from upriver.agents.table import AGENTS


def build_agent(kind: Any, mdp: Any, support: Any = "local", **fields: Any) -> Any:
    """Return an agent with the inputs that it cannot do without, and `fields`.

    kind: the name in the table, or a class. support: that of the task, or the task itself.
    """
    kind = AGENTS[kind] if isinstance(kind, str) else kind
    task = support if isinstance(support, up.Task) else mdp.task(support)
    given = {"task": task, "mdp": mdp}
    required = [p.name for p in signature(kind).parameters.values() if p.default is p.empty]
    if "features" in required:
        given["features"] = up.features.one_hot(task)
    return kind(**({name: given[name] for name in required if name in given} | fields))


@dataclass(frozen=True)
class Wrapper:
    """An agent that holds another one and passes everything on: it knows nothing of units."""

    inner: Any

    @property
    def task(self):
        return self.inner.task

    def init(self):
        return self.inner.init()

    def plan(self, state, rng):
        return self.inner.plan(state, rng)

    def update(self, state, plan, episode):
        return self.inner.update(state, plan, episode)

    def steps_until_replan(self, state, plan, episode):
        return self.inner.steps_until_replan(state, plan, episode)


def from_rows(rows: Any, reward: Any, horizon: Any, initial_state: Any = 0, **names: Any) -> Any:
    """Return the MDP of {(s, a): {s2: p}}; rewards are (S, A), {(s, a): r} or {(s, a): {s2: r}}."""
    shape = 1 + max(max(s, *row) for (s, _), row in rows.items()), 1 + max(a for _, a in rows)
    transition = np.zeros((*shape, shape[0]))
    for pair, row in rows.items():
        transition[pair][list(row)] = list(row.values())
    if isinstance(reward, dict):
        paid, reward = reward, np.zeros((*shape, shape[0]))
        for pair, r in paid.items():
            row = r if isinstance(r, dict) else dict.fromkeys(range(shape[0]), r)
            reward[pair][list(row)] = list(row.values())
        if not any(isinstance(r, dict) for r in paid.values()):
            reward = reward[:, :, 0]
    return up.FiniteMDP.from_arrays(transition, reward, horizon, initial_state, **names)
