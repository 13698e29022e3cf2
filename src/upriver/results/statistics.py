"""Numbers and their uncertainty: location, spread and bootstrap intervals with fixed streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import Array

LEVEL = 0.95
RESAMPLES = 2000
Statistic = Callable[[Array], Any]
"""A number for each row of an array (..., R), taken along the last axis."""


class Band(NamedTuple):
    """A line and the band around it; all of one length."""

    x: ArrayLike
    mean: ArrayLike
    low: ArrayLike
    high: ArrayLike


def sd(x: Array) -> Any:
    """Standard deviation along the last axis, with n - 1; 0 for a single number."""
    return np.std(x, axis=-1, ddof=1) if x.shape[-1] > 1 else np.zeros(x.shape[:-1])[()]


def standard_error(x: Array) -> Any:
    return sd(x) / np.sqrt(x.shape[-1])


def mean(x: Array) -> Any:
    return np.mean(x, axis=-1)


def iqm(x: Array) -> Any:
    """Interquartile mean along the last axis: the lowest and the highest n // 4 are left out."""
    cut = x.shape[-1] // 4
    ordered = np.sort(x, axis=-1)
    return np.mean(ordered[..., cut : x.shape[-1] - cut], axis=-1)


@lru_cache(maxsize=64)
def draws(size: int, resamples: int, stream: int) -> Array:
    """(resamples, size) positions drawn with replacement; a fixed stream for each stratum."""
    rng = np.random.default_rng([stream, size])
    return rng.integers(size, size=(resamples, size), dtype=np.int32)


def counts_of(positions: Array) -> Array:
    """(B, R) share of each position in each resample."""
    n_resamples, size = positions.shape
    flat = positions + size * np.arange(n_resamples)[:, None]
    counts = np.bincount(flat.ravel(), minlength=size * n_resamples)
    return counts.reshape(n_resamples, size) / size


def interval(
    resampled: Array, estimate: Any, influences: Sequence[Array], level: float = LEVEL
) -> tuple[Any, Any]:
    """Limits from bootstrap values: bias-corrected, accelerated (BCa), widened for few runs.

    resampled: (B, ...). estimate: (...). influences: for each stratum (n, ...), how far each run
    pulls the estimate, times n; for a mean the distance from it. Efron's BCa levels correct for
    bias and skewness; as Hesterberg advises, the normal quantile in them is replaced by Student's
    times sqrt(n / (n - 1)), without which intervals of 10 or 20 runs are too short. A limit is
    never beyond what resampled runs can show, also where one run in twenty is far from the others.
    """
    from scipy.special import ndtr, ndtri, stdtrit

    sizes = np.array([len(u) for u in influences])
    degrees = int((sizes - 1).sum())
    if degrees == 0:
        return estimate, estimate
    pulls = np.concatenate([u / len(u) for u in influences])
    square = (pulls**2).sum(axis=0)
    skew = (pulls**3).sum(axis=0) / np.where(square > 0.0, 6.0 * square**1.5, 1.0)
    gaps = resampled - estimate
    tie = 1e-10 * np.abs(gaps).max(axis=0)  # the same runs summed in another order
    below = 0.5 * (gaps < -tie).mean(axis=0) + 0.5 * (gaps <= tie).mean(axis=0)
    edge = 0.5 / len(resampled)
    bias = ndtri(np.clip(below, edge, 1.0 - edge))
    wide = stdtrit(degrees, (1.0 + level) / 2) * np.sqrt(np.mean(sizes / np.maximum(sizes - 1, 1)))
    ordered = np.sort(resampled, axis=0)
    ends = (bias + z for z in (-wide, wide))
    low, high = (ndtr(bias + w / np.maximum(1.0 - skew * w, 0.1)) for w in ends)
    return quantile(ordered, low), quantile(ordered, high)


def quantile(ordered: Array, level: Any) -> Any:
    """The quantile of each column of sorted numbers (B, ...) at a level of its own (...)."""
    place = np.asarray(level * (len(ordered) - 1))
    left = np.floor(place).astype(np.int64)
    ends = (np.minimum(left + i, len(ordered) - 1)[None] for i in (0, 1))
    low, high = (np.take_along_axis(ordered, at, axis=0)[0] for at in ends)
    return low + (place - left) * (high - low)


def bootstrap(
    strata: Array | Sequence[Array],
    statistic: Statistic = mean,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Interval of `statistic`; with several strata, of its mean over them.

    strata: (R,) numbers of one environment, or a list of such arrays, each resampled by itself.
    """
    parts = [strata] if isinstance(strata, np.ndarray) else [np.asarray(x) for x in strata]
    resampled = [statistic(x[draws(len(x), resamples, i)]) for i, x in enumerate(parts)]
    estimate = np.mean([statistic(x) for x in parts])
    pulls = [influence(x, statistic) for x in parts]
    low, high = interval(np.mean(resampled, axis=0), estimate, pulls, level)
    return float(low), float(high)


def influence(x: Array, statistic: Statistic) -> Array:
    """(R,) how far each number pulls the statistic, by leaving it out."""
    if len(x) < 2:
        return np.zeros(len(x))
    others = np.array([np.delete(x, i) for i in range(len(x))])
    without = np.asarray(statistic(others))
    return (len(x) - 1) * (without.mean() - without)


def share_interval(count: int, of: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's exact interval of a probability after `count` hits in `of` trials."""
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2
    low = betaincinv(count, of - count + 1, tail) if count > 0 else 0.0
    high = betaincinv(count + 1, of - count, 1.0 - tail) if count < of else 1.0
    return float(low), float(high)
