"""Dynamics that change with the step: one theta for all, one for each, or one for each that is
shrunk to a common one.

All three are features of the same problem once the step is part of the state: x, x for each step by
itself, and both. So every learner of this package can be asked, with the algebra that it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from studies.environments import tidal_river, tidal_river_features
from studies.figures import LOST, dots_figure
from studies.measured import (
    Cell,
    Measured,
    Page,
    lost_text,
    minus,
    pivot,
    runs_text,
)
from upriver.features import Features, pooled
from upriver.mdp import FiniteMDP, Task
from upriver.results.tables import to_markdown

KINDS = "one theta", "each step", "pooled"
"""What the label of a learner ends with."""


def clocked_river(n_states: int = 6, horizon: int = 12, current: float = 1.5) -> FiniteMDP:
    """`tidal_river` with the step in the state: place s at step h is state h * n_states + s.

    Its names are (step, place). After the last step the clock starts again, which nobody plays.
    """
    river = tidal_river(n_states, horizon, current)
    known, hours = river.true_task, np.arange(horizon)
    after = (np.repeat(hours, known.n_triples) + 1) % horizon
    task = Task(
        horizon * n_states,
        known.n_actions,
        horizon,
        indptr=np.append(0, np.cumsum(np.tile(known.sizes, horizon))),
        successors=after * n_states + np.tile(known.successors, horizon),
        reward=np.tile(river.reward.reshape(n_states, -1), (horizon, 1)),
        support="known",
        states=[(h, s) for h in range(horizon) for s in range(n_states)],
        actions=known.actions,
    )
    name = f"clocked-river-{n_states}"
    return FiniteMDP(
        task, river.probability.reshape(1, -1), np.zeros(1, int), np.ones(1), name=name
    )


def one_theta(task: Task) -> Features:
    """The features of the river, whatever the step: d = 4."""
    return Features(task, sparse.vstack([river_rows(task)] * task.horizon))


def theta_of_each_step(task: Task) -> Features:
    """The features of the river for each step by itself: d = 4 H, in H blocks."""
    return Features(task, sparse.block_diag([river_rows(task)] * task.horizon))


def pooled_steps(task: Task) -> Features:
    """Both, d = 4 (H + 1): one ridge on all shrinks those of a step to the common one."""
    both = [one_theta(task).matrix, theta_of_each_step(task).matrix]
    return Features(task, sparse.hstack(both))


def pooled_triples(task: Task) -> Features:
    """The common theta, and an effect for each triple of each step."""
    return pooled(one_theta(task))


def river_rows(task: Task) -> sparse.csr_array:
    """(n / H, 4) the features of the river without its clock."""
    n_states = task.n_states // task.horizon
    return sparse.csr_array(
        tidal_river_features(tidal_river(n_states, task.horizon).true_task).matrix
    )


def changing(measured: Sequence[Measured]) -> Page:
    """Episodes lost with each kind of theta, and how many more than with the pooled one."""
    cells = [m.cell for m in measured]
    lost = pivot(cells, lambda c: (c.agent, c.env), lost_text)
    by = {(m.cell.agent, m.cell.env): m for m in measured}
    more = [["more than pooled", *(env for env in dict.fromkeys(c.env for c in cells))]]
    panels: dict[str, dict[str, dict[str, Cell]]] = {}
    for agent in dict.fromkeys(c.agent for c in cells):
        kind = next((kind for kind in KINDS if agent.endswith(kind)), "")
        name = agent.removesuffix(f" {kind}")
        for env in more[0][1:] if kind else ():
            panels.setdefault(env, {}).setdefault(kind, {})[name] = by[agent, env].cell
        if kind in KINDS[:2]:
            rivals = [by[f"{name} {KINDS[2]}", env] for env in more[0][1:]]
            mine = [by[agent, env] for env in more[0][1:]]
            more.append([agent, *map(minus, mine, rivals)])
    figure = dots_figure(panels, "lost", LOST, log=True)
    text = f"Episodes lost\n\n{lost}\n{to_markdown(more)}\n{runs_text(cells)}"
    return text, {"changing": figure}
