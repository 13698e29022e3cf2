"""Tuning: every agent over its declared grid, on seeds that no evaluation uses.

The score of a grid point is its mean cumulative exact value, sum_k V^{pi_k}: the value of the
policies, without the noise of the sampled rewards. On a stream it is minus the regret, since the
values of its steps belong to the states that the agent has reached. A choice on the edge of its
grid is reported, with whether it is better than the point beside it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import positive_integer
from upriver.experiments.build import RunSpec
from upriver.experiments.execute import SweepResult, execute
from upriver.experiments.spec import TUNING_SEEDS, AgentEntry, Experiment, combinations
from upriver.mdp.writing import write_file
from upriver.results.runs import Sample, read_results
from upriver.results.statistics import bootstrap_interval
from upriver.results.tables import to_csv


class Point(NamedTuple):
    """One grid point of one agent on one environment."""

    env: str
    agent: str
    settings: dict[str, Any]
    """The tuned settings, with their values here."""
    runs: int
    mean: float
    low: float
    high: float
    """95% interval of the mean."""
    chosen: bool
    tied: bool
    """Whether the paired interval of the difference to the chosen point contains 0."""


class Tuned(NamedTuple):
    """The result of `tune`."""

    experiment: Experiment
    """The experiment with the chosen settings, on its own evaluation seeds."""
    points: list[Point]
    warnings: list[str]
    outcome: SweepResult


class GridPoint(NamedTuple):
    """A grid point of one agent on one environment, and its runs."""

    env: str
    agent: str
    settings: dict[str, Any]
    runs: list[RunSpec]


def grid_points(agent: AgentEntry, fixed: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return every combination of the values of an agent's grid.

    The agent's class declares values for each setting; the entry's `grid` replaces them, setting by
    setting; a setting that the entry fixes is not tuned, and with an empty grid none is. Those of
    `fixed` are not tuned either.
    """
    if "grid" in agent.model_fields_set and not agent.grid:
        return [{}]
    declared: Mapping[str, Any] = {**getattr(agent.cls, "GRID", {}), **agent.grid}
    axes = {k: v for k, v in declared.items() if k not in agent.given or k in agent.grid}
    return combinations({k: v for k, v in axes.items() if k not in fixed})


def tune(experiment: Experiment, out: str | Path, runs: int = 10, **how: Any) -> Tuned:
    """Play the grids of an experiment's agents and choose; a stopped search continues.

    The results folder `out` has every grid point in grid.csv as well, and in tuned.toml the
    experiment with the chosen settings, for `upriver run`.

    Parameters
    ----------
    runs
        Tuning seeds for each grid point, at least 2; the experiment's own seeds are not used.
    how
        Arguments of `execute`.
    """
    positive_integer("runs", runs, least=2, most=TUNING_SEEDS)  # one has no interval
    seeds = range(TUNING_SEEDS, TUNING_SEEDS + runs)
    candidates = list_candidates(experiment, seeds)
    if not candidates:
        raise ValueError(f"no agent of {experiment.name!r} has a grid with a setting left to tune")
    folder = Path(out)
    wanted = {(run.env, run.label, run.key): run for c in candidates for run in c.runs}
    outcome = execute(list(wanted.values()), folder, **how)
    if not outcome.complete:
        return Tuned(experiment, [], ["some runs failed, so nothing was chosen"], outcome)
    samples = {s[:3]: s for s in read_results(folder).samples}
    points, warnings = choose(candidates, samples)
    tuned = with_choices(experiment, points)
    rows = [[*p[:2], json.dumps(p.settings), *p[3:7], int(p.chosen), int(p.tied)] for p in points]
    head = ["env", "agent", "settings", "runs", "mean", "ci_low", "ci_high", "chosen", "tied"]
    write_file(folder / "grid.csv", to_csv(head, rows))
    comments = [
        f"Chosen by `upriver tune` by mean exact value (regret of streams) of {runs} runs with",
        f"seeds {seeds.start} to {seeds.stop - 1}; every grid point is in grid.csv.",
        *(f"Warning: {warning}." for warning in warnings),
    ]
    header = "".join(f"# {line}\n" for line in comments)
    write_file(folder / "tuned.toml", f"{header}\n{tuned.to_toml()}")
    return Tuned(tuned, points, warnings, outcome)


def list_candidates(experiment: Experiment, seeds: range) -> list[GridPoint]:
    """Return every grid point of every agent on every environment, with its runs.

    What `at` fixes on an environment stays as it is there.
    """
    found = []
    for environment in experiment.environments:
        place = environment.full_label
        for agent in experiment.agents:
            fixed = agent.at.get(place, {})
            grid = grid_points(agent, fixed)
            for settings in grid if grid != [{}] else ():
                at = {place: {**settings, **fixed}}
                runs = experiment.runs_of(environment, agent.model_copy(update={"at": at}), seeds)
                found.append(GridPoint(place, agent.full_label, settings, runs))
    return found


def choose(
    candidates: list[GridPoint], samples: dict[Any, Sample]
) -> tuple[list[Point], list[str]]:
    """Return all points, the best of each agent marked, and what is doubtful about the choices.

    samples: {(environment, agent, setting): the runs}; a folder of an earlier search may hold more
    seeds and settings than the candidates have, which do not count.
    """
    points, doubts = [], []
    for place, group in groupby(candidates, key=lambda c: (c.env, c.agent)):
        tried, scores = list(group), []
        for c in tried:
            stored = samples[*place, c.runs[0].setting].select_seeds(r.seed for r in c.runs)
            stream = stored.unit == "step"
            scores.append(-stored.totals("regret") if stream else stored.totals("value"))
        means = [float(x.mean()) for x in scores]
        best, own = int(np.argmax(means)), []
        for i, (c, x) in enumerate(zip(tried, scores, strict=True)):
            tied = i != best and bootstrap_interval(scores[best] - x)[0] <= 0.0
            rest = *bootstrap_interval(x), i == best, tied
            own.append(Point(*place, c.settings, len(c.runs), means[i], *rest))
        points += own
        doubts += list_doubts(own)
    return points, doubts


def list_doubts(points: list[Point]) -> list[str]:
    """Return sentences about a choice on the edge of its grid, or one that ties with others."""
    which = f"{points[0].agent} on {points[0].env}"
    best, found = next(p for p in points if p.chosen), []
    for key, value in best.settings.items():
        line = [p for p in points if p.settings | {key: value} == best.settings]
        if not {type(p.settings[key]) for p in line} <= {int, float}:  # such as a rule
            continue
        line.sort(key=lambda p: p.settings[key])
        for extreme, ends in (("lowest", line), ("highest", line[::-1])):
            if ends[0].chosen and len(line) > 1:
                beside = f", and ties with {ends[1].settings[key]:g} beside it"
                end = beside if ends[1].tied else ": extend the grid"
                end = ", which cannot be lowered" if value == 0 else end
                found.append(f"{which}: {key} = {value:g} is the {extreme} value tried{end}")
    if tied := sum(p.tied for p in points):
        end = "tie with the best; the first with the highest mean was chosen"
        found.append(f"{which}: {tied} of the {len(points) - 1} other points {end}")
    return found


def with_choices(experiment: Experiment, points: list[Point]) -> Experiment:
    at = {agent.full_label: dict(agent.at) for agent in experiment.agents}
    for p in points:
        if p.chosen:
            at[p.agent][p.env] = at[p.agent].get(p.env, {}) | p.settings
    agents = tuple(
        agent.model_copy(update={"at": at[agent.full_label], "grid": None})
        for agent in experiment.agents
    )
    return experiment.model_copy(update={"agents": agents})
