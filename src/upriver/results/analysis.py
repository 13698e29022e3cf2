"""Samples to numbers: tables, comparisons, curves. Plays nothing, draws nothing.

    table = load_runs("results/quick")      # pyarrow.Table, one row per episode
    samples = samples_of(table)             # one per (environment, agent, setting), arrays (R, K)
    rows = summary(samples)                 # mean, sd, se, IQM, 95% interval
    curve = regret_curve(samples[0])        # cumulative regret with a band

Intervals are those of `statistics.interval`, by a bootstrap with fixed streams, so that a table is
the same table every time; runs are resampled within each environment, never across.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.results.runs import load_runs
from upriver.results.samples import Sample, natural, samples_of
from upriver.results.statistics import (
    LEVEL,
    RESAMPLES,
    Band,
    bootstrap,
    counts_of,
    draws,
    interval,
    iqm,
    mean,
    sd,
    share_interval,
    standard_error,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "LEVEL", "RESAMPLES", "Curve", "Difference", "Improvement", "Row", "Sample", "bootstrap",
    "counts_of", "curve_of", "curves", "draws", "interval", "iqm", "load_runs", "mean", "natural",
    "paired_difference", "probability_of_improvement", "regret_curve", "samples_of", "sd",
    "share_interval", "standard_error", "summary", "trailing_mean",
]  # fmt: skip


class Row(NamedTuple):
    """One line of a table: totals over all episodes, over R runs."""

    env: str
    agent: str
    setting: str
    runs: int
    episodes: int
    mean: float
    sd: float
    se: float
    iqm: float
    low: float
    high: float
    """95% interval of the mean."""
    episodes_lost: float
    """Mean regret in episodes of optimal play."""
    locked_in: float
    """Share of the runs whose last tenth is worth under half of the optimum."""
    locked_low: float
    locked_high: float
    """Exact 95% interval of that share."""


def summary(samples: Sequence[Sample], quantity: str = "return") -> list[Row]:
    """A row for each sample, of its total `quantity`."""
    rows = []
    for s in samples:
        x = s.totals(quantity)
        numbers = {f.__name__: float(f(x)) for f in (mean, sd, iqm)}
        low, high = bootstrap(x)
        runs, episodes = s.returns.shape
        lost = float(s.totals("episodes lost").mean())
        locked = int(s.locked_in().sum())
        ends = share_interval(locked, runs)
        row = Row(*s[:3], runs, episodes, **numbers, se=float(standard_error(x)), low=low,
                  high=high, episodes_lost=lost, locked_in=locked / runs, locked_low=ends[0],
                  locked_high=ends[1])  # fmt: skip
        rows.append(row)
    return rows


class Difference(NamedTuple):
    """a minus b on the same seeds."""

    mean: float
    se: float
    low: float
    high: float
    pairs: int


def paired_difference(a: Sample, b: Sample, quantity: str = "return") -> Difference:
    """Mean difference of totals over the seeds both have, which met the same environment stream."""
    if a.env != b.env:
        raise ValueError(f"runs on {a.env} and on {b.env} are not pairs")
    seeds, i, j = np.intersect1d(a.seeds, b.seeds, return_indices=True)
    if not len(seeds):
        raise ValueError(f"{a.agent} and {b.agent} on {a.env} have no seed in common")
    x = a.totals(quantity)[i] - b.totals(quantity)[j]
    low, high = bootstrap(x)
    return Difference(float(x.mean()), float(standard_error(x)), low, high, len(seeds))


class Improvement(NamedTuple):
    """P(a run of a beats one of b), ties counting half, averaged over environments."""

    probability: float
    low: float
    high: float


def probability_of_improvement(
    a: Sequence[Sample], b: Sequence[Sample], quantity: str = "return"
) -> Improvement:
    """P(X > Y) + P(X = Y) / 2 for independent runs X of a and Y of b on the same environment.

    a and b hold one sample for each environment, in the same order. Less regret is better, more
    return or value is.
    """
    if [x.env for x in a] != [x.env for x in b] or not a:
        raise ValueError("both sides need one sample for each of the same environments")
    sign = -1.0 if quantity in ("regret", "episodes lost") else 1.0
    points, resampled, pulls = [], [], []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        p, q = sign * x.totals(quantity), sign * y.totals(quantity)
        wins = (p[:, None] > q) + 0.5 * (p[:, None] == q)
        points.append(wins.mean())
        pulls += [wins.mean(axis=1) - points[-1], wins.mean(axis=0) - points[-1]]
        rows, columns = draws(len(p), RESAMPLES, 2 * i), draws(len(q), RESAMPLES, 2 * i + 1)
        # count how often each run was drawn: the mean over drawn pairs is then a bilinear form
        resampled.append(
            np.einsum("br,rc,bc->b", counts_of(rows), wins, counts_of(columns), optimize=True)
        )
    probability = np.mean(points)
    low, high = interval(np.mean(resampled, axis=0), probability, pulls)
    return Improvement(float(probability), float(low), float(high))


class Curve(NamedTuple):
    """A line with a band. All arrays have length K."""

    env: str
    agent: str
    setting: str
    quantity: str
    runs: int
    episodes: Array
    mean: Array
    low: Array
    high: Array

    @property
    def x(self) -> Array:
        """What figures call it: a curve is a band."""
        return self.episodes

    def band(self, at: Array) -> Band:
        """The curve at some of its positions."""
        return Band(*(array[at] for array in (self.x, self.mean, self.low, self.high)))


def curve_of(
    sample: Sample, quantity: str = "regret", cumulative: bool = True, window: int = 1
) -> Curve:
    """Mean over runs and pointwise 95% band of "return", "value" or "regret" at each episode.

    cumulative: summed up to each episode. window: instead of single episodes, the mean over the
    last `window` episodes (over those there are, at the start).
    """
    if window < 1:
        raise ValueError(f"window is {window}; it must be at least 1")
    x = sample.each(quantity)
    x = trailing_mean(np.cumsum(x, axis=1) if cumulative else x, window)
    middle = x.mean(axis=0)
    low, high = interval(counts_of(draws(len(x), 1000, 0)) @ x, middle, [x - middle])
    return Curve(*sample[:3], quantity, len(x), np.arange(1, x.shape[1] + 1), middle,
                 low, high)  # fmt: skip


def trailing_mean(x: Array, window: int) -> Array:
    """(R, K) the mean over the last `window` columns, over those there are at the start."""
    if window == 1:
        return x
    total = np.cumsum(x, axis=1)
    total[:, window:] -= total[:, :-window].copy()
    return total / np.minimum(np.arange(1, x.shape[1] + 1), window)


def regret_curve(sample: Sample) -> Curve:
    """Cumulative exact regret with its 95% band."""
    return curve_of(sample, "regret")


def curves(table: pa.Table, quantity: str = "regret", **options: Any) -> list[Curve]:
    """One curve for each sample of a table of runs; options as for `curve_of`."""
    return [curve_of(sample, quantity, **options) for sample in samples_of(table)]
