"""Agents for tests: any agent of the table on any problem, and an agent that wraps another."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

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
