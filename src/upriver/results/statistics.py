"""Numbers of runs and their uncertainty: tables, comparisons, curves, bootstrap intervals.

    samples = read_results("results/quick").samples   # arrays (R, K) per environment and agent
    rows = summarize(samples)                          # mean, sd, se, 95% interval
    curve = compute_curve(samples[0], "regret")        # cumulative regret with a band

Every interval comes from a bootstrap with fixed random streams, so that a table is the same table
every time. Runs are resampled within one environment, never across environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array, positive_integer
from upriver.results.runs import ROUNDING, Sample

LEVEL = 0.95
RESAMPLES = 2000
CURVE_RESAMPLES = 1000
FEWEST = 5
"""Runs below which nothing is resampled for the interval of a mean."""


def sd(x: Array) -> float:
    """Return the standard deviation of numbers (n,) with n - 1; 0 for a single number."""
    return float(np.std(x, ddof=1)) if len(x) > 1 else 0.0


@lru_cache(maxsize=64)
def resample_positions(size: int, resamples: int) -> Array:
    """Draw positions with replacement, (resamples, size)."""
    rng = np.random.default_rng([0, size])
    return rng.integers(size, size=(resamples, size), dtype=np.int32)


def resampling_weights(positions: Array) -> Array:
    """Return the share of each of R positions in each of B resamples, (B, R)."""
    size = positions.shape[1]
    return np.stack([np.bincount(drawn, minlength=size) for drawn in positions]) / size


def bca_interval(resampled: Array, estimate: Any, influence: Array) -> tuple[Any, Any]:
    """Compute limits from bootstrap values: bias-corrected, accelerated, widened for few runs.

    Efron's BCa levels correct for bias and skewness. As Hesterberg advises, the normal quantile in
    them is replaced by Student's times sqrt(n / (n - 1)), without which intervals of 10 or 20 runs
    are too short. A limit never lies beyond the resampled values.

    resampled is (B, ...), the statistic of each resample, estimate (...) that of the runs;
    influence is (n, ...), for a mean the distances of the runs from it.
    """
    from scipy.special import ndtr, ndtri, stdtrit

    n = len(influence)
    per_run = influence / n
    square = (per_run**2).sum(axis=0)
    skewness = (per_run**3).sum(axis=0) / np.where(square > 0.0, square**1.5, 1.0)
    gaps = resampled - estimate
    tie = 1e-10 * np.abs(gaps).max(axis=0)  # the same runs summed in another order
    below = 0.5 * (gaps < -tie).mean(axis=0) + 0.5 * (gaps <= tie).mean(axis=0)
    edge = 0.5 / len(resampled)
    bias = ndtri(np.clip(below, edge, 1.0 - edge))
    z = stdtrit(n - 1, (1.0 + LEVEL) / 2) * np.sqrt(n / (n - 1))
    ordered = np.sort(resampled, axis=0)
    low, high = (
        ndtr(bias + w / np.maximum(1.0 - skewness / 6.0 * w, 0.1)) for w in (bias - z, bias + z)
    )
    return quantile(ordered, low), quantile(ordered, high)


def quantile(ordered: Array, level: Any) -> Any:
    """Return the quantile of each column of sorted numbers (B, ...) at its own level (...)."""
    position = np.asarray(level * (len(ordered) - 1))
    left = np.floor(position).astype(np.int64)
    ends = (np.minimum(left + i, len(ordered) - 1)[None] for i in (0, 1))
    low, high = (np.take_along_axis(ordered, at, axis=0)[0] for at in ends)
    return low + (position - left) * (high - low)


def bootstrap_interval(x: Array, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Compute the BCa interval of the mean of R numbers, one for each run.

    With a number that is nan, both limits are. With fewer than FEWEST runs it is `t_interval`.
    """
    if np.isnan(x).any():
        return np.nan, np.nan
    if len(x) < FEWEST:
        low, high = t_interval(x)
    else:
        resampled = x[resample_positions(len(x), resamples)].mean(axis=1)
        low, high = bca_interval(resampled, x.mean(), x - x.mean())
    return float(low), float(high)


def t_interval(x: Array) -> tuple[Any, Any]:
    """Compute Student's interval of the mean over n of numbers (n, ...).

    So few runs resample to so few values that a bootstrap interval would be too short. Both limits
    (...) are nan where a run is alone.
    """
    from scipy.special import stdtrit

    mean, n = x.mean(axis=0), len(x)
    if n < 2:
        return np.nan * mean, np.nan * mean
    reach = stdtrit(n - 1, (1.0 + LEVEL) / 2) * np.sqrt(x.var(axis=0, ddof=1) / n)
    return mean - reach, mean + reach


def binomial_interval(count: int, of: int) -> tuple[float, float]:
    """Compute Clopper and Pearson's exact interval of a probability after `count` of `of` hits."""
    from scipy.special import betaincinv

    tail = (1.0 - LEVEL) / 2
    low = betaincinv(count, of - count + 1, tail) if count > 0 else 0.0
    high = betaincinv(count + 1, of - count, 1.0 - tail) if count < of else 1.0
    return float(low), float(high)


def share_stuck(sample: Sample) -> tuple[float, float, float]:
    """Return the share of stuck runs and its exact 95% interval.

    They are nan where uniform play is optimal, so that no run can be stuck.
    """
    if np.isnan(sample.gap):
        return np.nan, np.nan, np.nan
    stuck = sample.stuck()
    return float(stuck.mean()), *binomial_interval(int(stuck.sum()), len(stuck))


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
    low: float
    high: float
    """95% interval of the mean."""
    episodes_lost: float
    """Mean regret in episodes of optimal play; nan where `Sample.scale` is."""
    stuck: float
    """Share of the runs that are stuck, see `Sample.stuck`; nan where uniform play is optimal."""
    stuck_low: float
    stuck_high: float
    """Exact 95% interval of that share."""


def summarize(samples: Sequence[Sample], quantity: str = "return") -> list[Row]:
    """Compute a row for each sample, of its total `quantity`; see `Sample.totals`."""
    rows = []
    for sample in samples:
        x = sample.totals(quantity)
        runs, episodes = sample.returns.shape
        numbers = x.mean(), sd(x), sd(x) / len(x) ** 0.5, *bootstrap_interval(x)
        lost = sample.totals("episodes lost").mean()
        shares = share_stuck(sample)
        rows.append(Row(*sample[:3], runs, episodes, *map(float, (*numbers, lost, *shares))))
    return rows


class Difference(NamedTuple):
    """The mean difference a - b over the seeds that both have."""

    mean: float
    low: float
    high: float
    """95% interval."""
    pairs: int


def paired_difference(a: Sample, b: Sample, quantity: str = "return") -> Difference:
    """Compute the mean difference of totals over common seeds, with its 95% interval.

    Runs with one seed on one environment share the environment's random numbers.
    """
    if a.problem != b.problem:
        where = (f"{s.values.shape[1]} {s.unit}s on {s.env}" for s in (a, b))
        raise ValueError(f"runs of {' and of '.join(where)} are no pairs")
    seeds, i, j = np.intersect1d(a.seeds, b.seeds, return_indices=True)
    if not len(seeds):
        raise ValueError(f"{a.agent} and {b.agent} on {a.env} have no seed in common")
    first, second = a.totals(quantity)[i], b.totals(quantity)[j]
    x = first - second
    x[abs(x) <= ROUNDING * np.maximum(abs(first), abs(second))] = 0.0
    return Difference(float(x.mean()), *bootstrap_interval(x), len(seeds))


class Band(NamedTuple):
    """A line and the band around it; all arrays have one length."""

    x: Any
    mean: Any
    low: Any
    high: Any

    def at(self, positions: Array) -> Band:
        """Return the band at some of its positions."""
        return Band(*(np.asarray(y)[positions] for y in self))


def compute_curve(
    sample: Sample, quantity: str = "regret", cumulative: bool = True, window: int = 1
) -> Band:
    """Compute the mean over runs and the pointwise 95% band of a quantity at each episode, 1 to K.

    The quantity is "return", "value" or "regret"; `cumulative` sums it up to each episode, and
    `window` averages over the last episodes, over all there are at the beginning.
    """
    positive_integer("window", window)
    x = sample.per_episode(quantity)
    x = trailing_mean(np.cumsum(x, axis=1) if cumulative else x, window)
    return Band(np.arange(1, x.shape[1] + 1), *mean_and_band(x))


def mean_and_band(x: Array) -> tuple[Array, Array, Array]:
    """Compute the mean over R rows of (R, K) and the pointwise 95% band: mean, low, high (K,).

    The band of one row has no width.
    """
    middle = x.mean(axis=0)
    if len(x) == 1:
        return middle, middle, middle
    if len(x) < FEWEST:
        return middle, *t_interval(x)
    weights = resampling_weights(resample_positions(len(x), CURVE_RESAMPLES))
    return middle, *bca_interval(weights @ x, middle, x - middle)


def trailing_mean(x: Array, window: int) -> Array:
    """Average (R, K) over the last `window` columns, over all there are at the beginning."""
    if window == 1:
        return x
    total = np.cumsum(x, axis=1)
    total[:, window:] -= total[:, :-window].copy()
    return total / np.minimum(np.arange(1, x.shape[1] + 1), window)
