"""Agents and MDPs for tests: any agent of the table, one that wraps another, MDPs from rows."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from scipy import sparse

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


class Paid:
    """A reward of triples, as a function that can be pickled."""

    def __init__(self, table: dict[Any, float]) -> None:
        self.table = table

    def __call__(self, s: Any, a: Any, s2: Any) -> float:
        return self.table[s, a, s2]


def fit_features(features: Any, log: Any, *, task: Any = None, **options: Any) -> Any:
    """Return the model of a formula with one attribute of moves for each feature.

    It has the horizon and the rewards of the task of the features, unless another is given.
    """
    task = features.task if task is None else task
    names, matrix = (task.state_names, task.action_names), features.matrix
    matrix = matrix.toarray() if sparse.issparse(matrix) else matrix
    s, a, s2 = task.triples
    cells = [names[0][i] for i in s], [names[1][i] for i in a], [names[0][i] for i in s2]
    columns = options.get("columns", ("state", "action", "next_state"))
    attributes = {f"x{i}": x for i, x in enumerate(matrix.T)}
    moves = {**dict(zip(columns, cells, strict=True)), **attributes}
    reached: dict[Any, list[Any]] = {}
    for state, action, following in zip(*cells, strict=True):
        reached.setdefault((state, action), []).append(following)
    paid: Any = task.reward
    if task.next_state_reward is not None:
        reward, pay = task.user_rewards
        each = reward[0, s * task.n_actions + a] + pay[0]
        paid = Paid(dict(zip(zip(*cells, strict=True), each.tolist(), strict=True)))
    return up.fit_transitions(
        " + ".join(attributes), log, states=[{columns[0]: list(names[0])}, moves],
        successors=lambda s, a: reached.get((s, a), ()),
        **({"horizon": None if task.infinite_horizon else task.horizon,
            "discount": task.discount, "reward": paid} | options),
    )  # fmt: skip


def fit_counts(features: Any, counts: Any, regularization: float = 0.0, task: Any = None) -> Any:
    """Return the model of `fit_features` for (n,) counts of the triples of a task."""
    task = features.task if task is None else task
    s, a, s2 = task.triples
    log = {
        "state": [task.state_names[i] for i in s], "action": [task.action_names[i] for i in a],
        "next_state": [task.state_names[i] for i in s2],
    }  # fmt: skip
    return fit_features(
        features, log, task=task, weights=np.asarray(counts), regularization=regularization
    )
