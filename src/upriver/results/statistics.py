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


def interval(samples: Array, level: float = LEVEL) -> tuple[float, float]:
    """The middle `level` of bootstrap values."""
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return float(low), float(high)


def bootstrap(
    strata: Array | Sequence[Array],
    statistic: Statistic = mean,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Percentile interval of `statistic`; with several strata, of its mean over them.

    strata: (R,) numbers of one environment, or a list of such arrays, each resampled by itself.
    """
    parts = [strata] if isinstance(strata, np.ndarray) else [np.asarray(x) for x in strata]
    values = [statistic(x[draws(len(x), resamples, i)]) for i, x in enumerate(parts)]
    return interval(np.mean(values, axis=0), level)
