"""`upriver diagnose`: the assumptions of the theory, measured on one problem, on one screen."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upriver.diagnostics import Coverage, Diagnosis
    from upriver.features import Features
    from upriver.mdp import FiniteMDP, Task


def diagnose(
    environment: str,
    *,
    features: str = "one-hot",
    support: str = "known",
    horizon: int | None = None,
    episodes: int = 100,
    delta: float = 0.05,
    theta_bound: float | None = None,
    runs: int = 0,
    figure: Path | None = None,
    json: bool = False,
) -> int:
    """Measure whether the assumptions hold, the constants, and what the bounds are worth.

    **Example:** `upriver diagnose riverswim-6 --support local`

    Parameters
    ----------
    environment
        A name of the catalogue such as riverswim-6, a saved MDP (.npz or .toml), or gym:ID.
    features
        one-hot, one-hot-indicator, or shared for the environment's own, pooled for those with an
        own effect of every triple.
    support
        What the learner is told: known, local or full reachable sets.
    horizon
        Steps of an episode; the environment's own if absent.
    episodes
        K of the regret bound, and of the runs.
    delta
        The bounds hold with probability 1 - delta.
    theta_bound
        L_theta; the norm of theta* if absent.
    runs
        Also play this many runs of UCRL-MNL and measure coverage, optimism, clips and ties.
    figure
        Draw what the runs measured into this file (.png or .pdf).
    json
        Print JSON instead of the screen.
    """
    from upriver import diagnostics

    if figure is not None and runs < 1:
        raise ValueError("--figure draws what runs measure; give --runs as well, such as --runs 50")
    mdp = find_mdp(environment, horizon)
    varphi = find_features(features, environment, mdp.task(support))
    found = diagnostics.diagnose(mdp, varphi, episodes, delta, theta_bound)
    measured = None
    if runs > 0:
        measured = diagnostics.coverage(mdp, varphi, n_episodes=episodes, n_runs=runs, delta=delta)
    if figure is not None and measured is not None:
        from upriver.diagnostics.figures import coverage_figure
        from upriver.mdp.writing import replacing

        with replacing(figure) as part:
            coverage_figure(measured).savefig(part)
    if json:
        answer = found.as_dict()
        answer["measured"] = measured.summary() if measured else None
        print(jsonlib.dumps(answer, indent=2, allow_nan=False))
    else:
        show(found, measured, features)
    return 0


def find_mdp(name: str, horizon: int | None) -> FiniteMDP:
    """An MDP from a saved file, from Gymnasium or from the catalogue."""
    from upriver import envs
    from upriver.mdp import FiniteMDP

    if name.endswith((".npz", ".toml")):
        if horizon is not None:
            raise ValueError("--horizon is for environments by name; a saved MDP has its own")
        return FiniteMDP.load(name)
    if name.startswith("gym:"):
        return envs.from_gymnasium(name.removeprefix("gym:"), horizon)
    return envs.make(name) if horizon is None else envs.make(name, horizon=horizon)


def find_features(name: str, environment: str, task: Task) -> Features:
    from upriver import envs
    from upriver.features import FEATURES, own_map

    if name in FEATURES:
        return FEATURES[name](task)
    own = own_map(name)
    if own is not None and not environment.startswith("gym:") and "." not in environment:
        return own(envs.find(environment).shared(task))
    known = ", ".join([*FEATURES, "shared or pooled (catalogue environments only)"])
    raise ValueError(f"features {name!r} are unknown for {environment}; use one of {known}")


def show(found: Diagnosis, measured: Coverage | None, features: str) -> None:
    """Print the sections, their columns aligned with each other."""
    from rich.console import Console
    from rich.table import Table

    from upriver.diagnostics.advice import number, sections

    console = Console(highlight=False)
    colours = {"good": "green", "warn": "yellow", "bad": "red", "": "default"}
    console.print(f"[bold]{found.name}[/]: {found.task.describe()}, features {features}")
    for title, lines in sections(found, measured).items():
        console.print(f"[bold]{title}[/]")
        table = Table.grid(padding=(0, 2))
        table.add_column(width=20, no_wrap=True)
        table.add_column(width=11, no_wrap=True, justify="right")
        table.add_column()
        for what, value, advice, mood in lines:
            table.add_row(f"  {what}", f"[{colours[mood]}]{number(value)}[/]", advice)
        console.print(table)
