"""An animation of agents that learn a problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from upriver.agents.base import Agent
from upriver.checks import check_kinds, positive_integer
from upriver.display import figures
from upriver.mdp import FiniteMDP
from upriver.play.simulate import simulate


@check_kinds
def animate(
    mdp: FiniteMDP, agents: Mapping[str, Agent], n_episodes: int, path: str | Path, seed: int = 0,
    seconds: float = 0.5,
) -> Path:  # fmt: skip
    """Write a GIF of agents that learn `mdp` side by side, a frame for each of `n_episodes`.

    A cell is a state: states that are pairs of whole numbers are rows and columns, other states
    lie in a row. The darker a cell, the more of the episode was spent there. Its arrow is the
    policy of the first step: the expected move, in a row beside that of all actions. All runs
    have the same `seed`.

    Parameters
    ----------
    agents : mapping
        By the name that the animation shows, such as {"greedy": ..., "default": ...}.
    path : path
        The .gif file to write.
    seconds : float
        Seconds of a frame.

    Raises
    ------
    ValueError
        If the horizon is infinite, or there are more than 400 states.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=1000)
    if mdp.horizon is None or mdp.n_states > figures.MAX_STATES:
        raise ValueError(
            f"{mdp.name} cannot be animated; it must have a horizon and at most "
            f"{figures.MAX_STATES} states"
        )
    moves, states = figures.expected_moves(mdp), np.arange(mdp.n_states)
    if figures.find_grid(mdp.true_task.states) is None:
        moves -= moves.mean(axis=0)  # at the end of a river even swimming right drifts to the left
    lines: dict[str, list[Any]] = {name: [] for name in agents}
    for name, agent in agents.items():
        run = None
        for k in range(n_episodes):
            resume = None if run is None else run.checkpoint
            run = simulate(mdp, agent, 1, seed if run is None else None, resume)
            visits: Any = run.visits
            share = visits.sum(axis=1) / visits.sum()
            text = f"episode {k + 1:3d}, value {run.values[0]:.3g} of {run.optimal_values[0]:.3g}"
            lines[name].append((share, moves[run.plan.policy[0], states], text))
    figures.animate_episodes(Path(path), mdp.true_task.states, lines, seconds)
    return Path(path)
