"""Runs of an experiment to one line of numbers for each agent and environment, and to tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.results.runs import NUMBERS, Key, Sample, stack_runs
from upriver.results.statistics import (
    bca_interval,
    bootstrap_interval,
    paired_difference,
    resample_positions,
    resampling_weights,
    share_stuck,
)
from upriver.results.tables import format_setting, to_markdown

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from upriver.experiments.build import RunSpec
    from upriver.experiments.spec import Experiment


class Cell(NamedTuple):
    """One agent on one environment: what it earned of the optimum, and what it lost."""

    env: str
    agent: str
    support: str
    features: str
    reward: str
    numbers: str
    """What was given or tuned."""
    runs: int
    episodes: int
    share: float
    """Value of the policies played / value of the optimum."""
    share_low: float
    share_high: float
    lost: float
    """Regret / V*: how many episodes of optimal play were forgone."""
    lost_low: float
    lost_high: float
    """95% intervals of the means."""
    stuck: float
    """Share of the runs that end clearly below the optimum and below the median run."""
    stuck_low: float
    stuck_high: float
    """Its exact 95% interval."""


class Measured(NamedTuple):
    """A sample and the first of its runs, whose numbers say where in a figure it belongs."""

    run: RunSpec
    sample: Sample
    cell: Cell
    seconds: float = float("nan")
    """Planning and learning, for 1,000 episodes; nan where the table has no times."""


class Found(NamedTuple):
    cells: list[Cell]
    table: str
    """Markdown."""
    figures: dict[str, Figure]
    """By the name of the file."""


Page = tuple[str, dict[str, "Figure"]]
"""The table and the figures of a finding."""


def list_runs(experiment: Experiment) -> list[RunSpec]:
    """The runs of an experiment; a tuned agent plays only where the file has numbers for it."""
    places = {a.full_label: a.at for a in experiment.agents if a.grid}
    runs = experiment.runs()
    return [run for run in runs if run.label not in places or run.env in places[run.label]]


def to_samples(table: pa.Table) -> list[Sample]:
    """Group a table of runs, as `load_runs` returns it, by environment, agent and setting."""
    keys = ["env", "agent", "setting", "seed"]
    order: Any = [(name, "ascending") for name in (*keys, "episode")]
    counts = table.group_by(keys).aggregate([("episode", "count")]).sort_by(order[:4])
    table = table.sort_by(order)
    numbers = [table[name].to_numpy() for name in NUMBERS]
    groups: dict[Key, list[Any]] = {}
    end = 0
    for row in counts.to_pylist():
        start, end = end, end + row["episode_count"]
        run = row["seed"], [x[start:end] for x in numbers]
        groups.setdefault((row["env"], row["agent"], row["setting"]), []).append(run)
    return [stack_runs(key, runs) for key, runs in groups.items()]


def measure(experiment: Experiment, table: pa.Table) -> list[Measured]:
    """The samples of an experiment in its own order; the table may hold more runs and seeds."""
    runs = list_runs(experiment)
    seeds = sorted({run.seed for run in runs})
    found = {(s.env, s.agent, s.setting): s for s in to_samples(table)}
    times = seconds_of(table)
    given = {
        agent.full_label: {*agent.given, *(k for at in agent.at.values() for k in at)}
        for agent in experiment.agents
    }
    measured = []
    for run in (r for r in runs if r.seed == seeds[0]):
        sample = found.get((run.env, run.label, run.setting))
        missing = set(seeds) - set(() if sample is None else sample.seeds.tolist())
        if sample is None or missing:
            raise ValueError(
                f"{run.label} on {run.env} lacks seed {min(missing)}; run the experiment first"
            )
        sample = sample.select_seeds(seeds)
        cell = cell_of(run, sample, given[run.label])
        seconds = times.get((run.env, run.label, run.setting), float("nan"))
        measured.append(Measured(run, sample, cell, seconds))
    return measured


def seconds_of(table: pa.Table) -> dict[tuple[str, str, str], float]:
    """{(env, agent, setting): seconds per 1,000 episodes}; empty for a table without times.

    Of the quickest run: whatever else the machine was doing only makes a run slower.
    """
    if "seconds" not in table.column_names:
        return {}
    keys = ["env", "agent", "setting"]
    runs = table.group_by([*keys, "seed"]).aggregate([("seconds", "mean")])
    best = runs.group_by(keys).aggregate([("seconds_mean", "min")])
    return {
        (r["env"], r["agent"], r["setting"]): 1000.0 * r["seconds_mean_min"]
        for r in best.to_pylist()
    }


def cell_of(run: RunSpec, sample: Sample, given: Iterable[str]) -> Cell:
    share, lost = sample.value_shares(), sample.totals("episodes lost")
    numbers = ", ".join(f"{k} = {format_setting(run.settings[k])}" for k in sorted(given))
    runs, episodes = sample.values.shape
    return Cell(
        run.env, run.label, run.support or "", run.features or "", run.reward or "", numbers,
        runs, episodes, float(share.mean()), *bootstrap_interval(share), float(lost.mean()),
        *bootstrap_interval(lost), *share_stuck(sample),
    )  # fmt: skip


def pivot(
    cells: Sequence[Cell],
    place: Callable[[Cell], tuple[str, str]],
    text: Callable[[Cell], str],
    rows_are: str = "agent",
) -> str:
    """A table with cells at (row, column) = place(cell), in the order in which they come."""
    at = {place(cell): text(cell) for cell in cells}
    rows, columns = (list(dict.fromkeys(key[i] for key in at)) for i in (0, 1))
    body = [[row, *(at.get((row, column), "") for column in columns)] for row in rows]
    return to_markdown([[rows_are, *columns], *body])


def lost_text(cell: Cell) -> str:
    """Episodes lost, and the share of stuck runs where there are any."""
    digits = 2 if cell.lost_high < 1 else 1
    low, high = (f"{x:.{digits}f}" for x in (cell.lost_low, cell.lost_high))
    text = f"{cell.lost:.{digits}f} [{low}, {high}]"
    if cell.stuck > 0.0:  # false for nan
        interval = f"[{100 * cell.stuck_low:.1f}, {100 * cell.stuck_high:.0f}]"
        text += f" ({100 * cell.stuck:.3g}% stuck {interval})"
    return text


def runs_text(cells: Sequence[Cell]) -> str:
    """A sentence that says over how many runs the numbers are."""
    counts = [c.runs for c in cells]
    least, most = min(counts), max(counts)
    many = f"{most}" if least == most else f"{least} to {most}"
    return f"Means with 95% intervals over {many} runs.\n"


def minus(a: Measured, b: Measured) -> str:
    """Episodes that a lost more than b, over common seeds, with the interval of the difference."""
    d = paired_difference(a.sample, b.sample, "episodes lost")
    return f"{d.mean:+.1f} [{d.low:+.1f}, {d.high:+.1f}]"


def share_text(cell: Cell) -> str:
    return f"{100 * cell.share:.1f}% [{100 * cell.share_low:.1f}, {100 * cell.share_high:.1f}]"


def log_spaced(first: int, last: int, count: int) -> Array:
    """Whole numbers from first to last, evenly spaced in their logarithm."""
    return np.unique(np.round(np.geomspace(first, last, count)).astype(np.int64))


def power(x: Array, totals: Array) -> tuple[float, float, float]:
    """(exponent, low, high) of the mean of totals (n, points) as a power of x (points,).

    Least squares of the logarithm of the mean on log x; the 95% interval resamples the n rows.
    """
    at = np.log(x) - np.log(x).mean()

    def slope(means: Array) -> Array:
        return np.log(means) @ at / (at @ at)

    n = len(totals)
    estimate = slope(totals.mean(axis=0))
    resampled = slope(resampling_weights(resample_positions(n, 1000)) @ totals)
    without = slope((totals.sum(axis=0) - totals) / (n - 1)) if n > 1 else np.array([estimate])
    low, high = bca_interval(resampled, estimate, (n - 1) * (without.mean() - without))
    return float(estimate), float(low), float(high)
