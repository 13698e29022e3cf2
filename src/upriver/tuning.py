"""Tuning: every agent over its declared grid, on seeds that no evaluation uses.

The score of a grid point is its mean cumulative exact value, sum_k V^{pi_k}: what the policies are
worth, without the noise of the rewards that happened to be drawn. For one setting on all
environments, values are first divided by the optimal ones. A choice on the edge of its grid matters
where it is better than the point beside it; then `widen` walks on from it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.experiments import toml
from upriver.experiments.build import build
from upriver.experiments.entries import AgentSpec, combinations
from upriver.experiments.execute import Outcome, execute
from upriver.experiments.runspec import RunSpec
from upriver.experiments.spec import TUNING_SEEDS, Experiment, parse
from upriver.experiments.trust import keep_code
from upriver.mdp.writing import write_file
from upriver.results.runs import Sample, load_runs, to_samples
from upriver.results.statistics import bootstrap_interval

ALL = "all environments"


class Point(NamedTuple):
    """One grid point of one agent on one environment, or on all of them."""

    env: str
    agent: str
    numbers: dict[str, Any]
    """The numbers tuned, with their values here."""
    runs: int
    mean: float
    low: float
    high: float
    """95% interval of the mean."""
    chosen: bool
    tied: bool
    """Whether the runs do not tell it from the chosen one: the paired interval holds 0."""


class Tuned(NamedTuple):
    experiment: Experiment
    """The experiment with the chosen numbers, on its own evaluation seeds."""
    points: list[Point]
    warnings: list[str]
    outcome: Outcome


def grid_of(agent: AgentSpec) -> list[dict[str, Any]]:
    """Every combination of the agent's grid.

    The agent's class declares values for each number; the entry's `grid` replaces them, number by
    number; and a number that the entry fixes is not tuned.
    """
    declared: Mapping[str, Any] = {**getattr(agent.cls, "GRID", {}), **agent.grid}
    axes = {k: v for k, v in declared.items() if k not in agent.numbers or k in agent.grid}
    for key, values in axes.items():
        if not len(values):
            raise ValueError(f"grid of {agent.full_label!r}: {key} has no values")
    return combinations(axes)


def tunable(agent: AgentSpec) -> bool:
    return bool(grid_of(agent)[0])


def tune(
    experiment: Experiment,
    out: str | Path,
    runs: int = 10,
    shared: bool = False,
    widen: int = 0,
    **how: Any,
) -> Tuned:
    """Run the grids of an experiment's agents and choose; resumes like any sweep.

    out/runs holds the runs, out/grid.csv every grid point, out/tuned.toml the experiment with the
    chosen numbers, for `upriver run`. runs: tuning seeds for each grid point. shared: one choice
    for all environments instead of one for each. widen: steps beyond the edge of a grid, taken one
    at a time while they are better. how: as for `execute`.
    """
    if runs < 2:
        raise ValueError(f"runs is {runs}; tuning needs at least 2 for an interval")
    if widen < 0:
        raise ValueError(f"widen is {widen}; it must be 0 or more")
    if not any(tunable(agent) for agent in experiment.agents):
        raise ValueError(f"no agent of {experiment.name!r} has a grid with a number left to tune")
    seeds = range(TUNING_SEEDS, TUNING_SEEDS + runs)
    candidates = list_candidates(experiment, seeds, grids(experiment))
    folder = Path(out)
    ran = 0
    for left in range(widen, -1, -1):
        every = [run for c in candidates for run in c.runs]
        outcome = execute(every, folder / "runs", **how)
        ran += outcome.ran
        if not outcome.complete:
            return Tuned(experiment, [], ["some runs failed, so nothing was chosen"], outcome)
        points, warnings = choose(candidates, load_samples(folder / "runs", every), runs, shared)
        beyond = list_candidates(
            experiment, seeds, steps_beyond(points, experiment) if left else {}
        )
        beyond = list(filter(allowed, beyond))
        if not beyond:
            break
        candidates += beyond
    outcome = outcome._replace(ran=ran)
    tuned = with_choices(experiment, points)
    write_file(folder / "grid.csv", points_csv(points))
    text = header(experiment, runs, shared, warnings) + tuned.to_toml(folder)
    write_file(folder / "tuned.toml", text)
    keep_code(tuned.to_data(), folder)
    return Tuned(tuned, points, warnings, outcome)


class Candidate(NamedTuple):
    env: str
    agent: str
    numbers: dict[str, Any]
    runs: list[RunSpec]


Lists = dict[tuple[str, str], list[dict[str, Any]]]
"""Points to try, by environment and agent."""


def grids(experiment: Experiment) -> Lists:
    return {
        (environment.full_label, agent.full_label): grid_of(agent)
        for environment in experiment.environments
        for agent in filter(tunable, experiment.agents)
    }


def list_candidates(experiment: Experiment, seeds: range, lists: Lists) -> list[Candidate]:
    found = []
    for environment in experiment.environments:
        place = environment.full_label
        for agent in experiment.agents:
            for numbers in lists.get((place, agent.full_label), ()):
                at = {place: {**agent.at.get(place, {}), **numbers}}
                runs = experiment.runs_of(environment, agent.model_copy(update={"at": at}), seeds)
                found.append(Candidate(place, agent.full_label, numbers, runs))
    return found


def allowed(candidate: Candidate) -> bool:
    """Whether the agent takes these numbers: a probability ends at 1."""
    try:
        build(candidate.runs[0])
    except ValueError:
        return False
    return True


def load_samples(folder: Path, runs: list[RunSpec]) -> dict[Any, Sample]:
    settings = {run.setting for run in runs}
    found = (s for s in to_samples(load_runs(folder)) if s.setting in settings)
    return {(s.env, s.agent, s.setting): s for s in found}


def choose(
    candidates: list[Candidate], samples: dict[Any, Sample], runs: int, shared: bool
) -> tuple[list[Point], list[str]]:
    """The best point of each agent, per environment or over all, and what is doubtful about it."""
    groups: dict[tuple[str, str], list[tuple[dict[str, Any], list[Array]]]] = {}
    for c in candidates:
        sample = samples[c.env, c.agent, c.runs[0].setting]
        chosen = np.isin(sample.seeds, [r.seed for r in c.runs])
        scores = sample.totals("value")[chosen]
        if shared:
            scores = scores / sample.optimal_values[chosen].sum(axis=1)
        group = groups.setdefault((ALL if shared else c.env, c.agent), [])
        same = [scored for numbers, scored in group if numbers == c.numbers]
        if same:
            same[0].append(scores)
        else:
            group.append((c.numbers, [scores]))
    points, warnings = [], []
    for (env, agent), group in groups.items():
        means = [float(np.mean([s.mean() for s in scores])) for _, scores in group]
        best = int(np.argmax(means))
        for i, (numbers, scores) in enumerate(group):
            low, high = bootstrap_interval(scores)
            pairs = [b - s for b, s in zip(group[best][1], scores, strict=True)]
            tied = i != best and bootstrap_interval(pairs)[0] <= 0.0
            points.append(Point(env, agent, numbers, runs, means[i], low, high, i == best, tied))
    for (env, agent), group in grouped(points).items():
        warnings += doubts(env, agent, group)
    return points, warnings


class Edge(NamedTuple):
    """An end of the values of a number that were tried, where the choice lies on it."""

    key: str
    value: float
    beside: float
    """The next value inside."""
    matters: bool
    """Whether the runs tell the choice from the point beside it."""

    @property
    def beyond(self) -> float | None:
        """The value one step further out, in the proportion of the last step; none below 0."""
        if self.value == 0:
            return None
        step = self.value * (self.value / self.beside if self.beside else 2.0)
        whole = isinstance(self.value, int) and isinstance(self.beside, int)
        return max(round(step), 1) if whole else float(f"{step:.3g}")


def edges(points: list[Point]) -> list[Edge]:
    """The edges that the chosen one of these points lies on, along the lines through it."""
    best = next(p for p in points if p.chosen)
    found = []
    for key, value in best.numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        rest = best.numbers | {key: None}
        line = [p for p in points if p.numbers | {key: None} == rest]
        line.sort(key=lambda p: p.numbers[key])
        for ends in (line, line[::-1]):
            if ends[0].chosen and len(line) > 1:
                found.append(Edge(key, value, ends[1].numbers[key], not ends[1].tied))
    return found


def steps_beyond(points: list[Point], experiment: Experiment) -> Lists:
    """For each choice on an edge that matters, the point one step further out."""
    found: Lists = {}
    places = [environment.full_label for environment in experiment.environments]
    for (env, agent), group in grouped(points).items():
        best = next(p for p in group if p.chosen)
        for edge in edges(group):
            if edge.matters and edge.beyond not in (None, edge.value):
                for place in places if env == ALL else [env]:
                    further = best.numbers | {edge.key: edge.beyond}
                    found.setdefault((place, agent), []).append(further)
    return found


def grouped(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    found: dict[tuple[str, str], list[Point]] = {}
    for p in points:
        found.setdefault((p.env, p.agent), []).append(p)
    return found


def doubts(env: str, agent: str, points: list[Point]) -> list[str]:
    """Sentences about a choice on the edge of its grid, or one that the runs do not single out."""
    found = []
    for edge in edges(points):
        which = "lowest" if edge.value < edge.beside else "highest"
        end = ": extend the grid" if edge.matters else f", and ties with {edge.beside:g} beside it"
        if edge.value == 0:
            end = ", which cannot be lowered"
        found.append(f"{agent} on {env}: {edge.key} = {edge.value:g} is the {which} tried{end}")
    tied = sum(p.tied for p in points)
    if tied:
        found.append(
            f"{agent} on {env}: {tied} of the {len(points) - 1} other points tie with the best; "
            "the first with the highest mean was taken"
        )
    return found


def with_choices(experiment: Experiment, points: list[Point]) -> Experiment:
    """The experiment with the chosen numbers in its entries."""
    chosen = {(p.env, p.agent): p.numbers for p in points if p.chosen and p.numbers}
    data = experiment.to_data()
    data["agents"] = []
    for agent in experiment.agents:
        plain = agent.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        plain.pop("grid", None)
        everywhere = chosen.get((ALL, agent.full_label), {})
        plain.update(everywhere)
        at = {}
        for environment in experiment.environments:
            place = environment.full_label
            # a choice for all is not overruled by what the entry said for one
            own = {k: v for k, v in agent.at.get(place, {}).items() if k not in everywhere}
            own |= chosen.get((place, agent.full_label), {})
            at |= {place: own} if own else {}
        plain.pop("at", None)
        plain |= {"at": at} if at else {}
        data["agents"].append(plain)
    return parse(data, experiment.name)


def header(experiment: Experiment, runs: int, shared: bool, warnings: list[str]) -> str:
    """Comments that say where the numbers come from."""
    how = "one choice for all environments" if shared else "one choice for each environment"
    lines = [
        f"Chosen by `upriver tune`: {how}, by mean cumulative exact value over {runs} runs",
        f"with seeds {TUNING_SEEDS} to {TUNING_SEEDS + runs - 1}; every grid point is in grid.csv.",
        *(
            f"Grid of {agent.full_label}: "
            + (", ".join(f"{k} in {toml.scalar(sorted_axis(agent, k))}" for k in keys) or "none")
            for agent in experiment.agents
            for keys in [list(grid_of(agent)[0])]
        ),
        *(f"Warning: {w}." for w in warnings),
    ]
    return "".join(f"# {line}\n" for line in lines) + "\n"


def sorted_axis(agent: AgentSpec, key: str) -> list[Any]:
    return list(dict.fromkeys(point[key] for point in grid_of(agent)))


def points_csv(points: list[Point]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(
        ["env", "agent", "numbers", "runs", "mean", "ci_low", "ci_high", "chosen", "tied"]
    )
    for p in points:
        writer.writerow(
            [p.env, p.agent, json.dumps(p.numbers), p.runs, repr(p.mean), repr(p.low),
             repr(p.high), int(p.chosen), int(p.tied)]
        )  # fmt: skip
    return sink.getvalue()
