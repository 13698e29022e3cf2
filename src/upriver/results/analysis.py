"""Runs to numbers: means and their uncertainty, comparisons, curves. Plays nothing, draws nothing.

    table = load_runs("results/quick")      # pyarrow.Table, one row per episode
    samples = samples_of(table)             # one per (environment, agent, setting), arrays (R, K)
    rows = summary(samples)                 # mean, sd, se, IQM, 95% interval
    curve = regret_curve(samples[0])        # cumulative regret with a band

Intervals are percentile bootstrap intervals with a fixed seed, so that a table is the same table
every time. `stratified` means: runs are resampled within each environment, never across.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array

if TYPE_CHECKING:
    import pyarrow as pa

LEVEL = 0.95
RESAMPLES = 2000
Statistic = Callable[[Array], Any]
"""A number for each row of an array (..., R), taken along the last axis."""


def load_runs(
    folder: str | Path, timing: bool = False, problems: list[str] | None = None
) -> pa.Table:
    """Every run of a results folder, one row per episode, in one order whatever wrote it.

    Columns: env, agent, setting (hash of everything but the seed), seed, episode (from 1), return,
    value, optimal_value, regret; with timing=True also seconds, which no two runs share. A file
    that is damaged or not of this package is an error that names it, or, where `problems` is a
    list, one more sentence there, and is left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from upriver.experiments.store import Store, about

    columns = ["setting", "seed", "episode", "return", "value", "optimal_value"]
    columns += ["seconds"] if timing else []
    parts = []
    for path in Store.open(folder).files():
        try:
            schema = pq.read_schema(path)
            about(schema, path)
            part = pq.ParquetFile(path).read(columns=columns).replace_schema_metadata(None)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            named = isinstance(error, ValueError) and str(path) in str(error)
            sentence = str(error) if named else f"{path} is damaged or not a run file: {error}"
            if problems is None:
                raise ValueError(sentence) from error
            problems.append(sentence)
            continue
        env, agent = (p.name.partition("=")[2] for p in (path.parent.parent, path.parent))
        parts.append((env, agent, part))
    if not parts:
        raise ValueError(f"{folder} holds no runs")
    parts.sort(key=lambda p: (p[0], p[1], p[2]["setting"][0].as_py(), p[2]["seed"][0].as_py()))
    table = pa.concat_tables(
        [
            part.set_column(0, "setting", part["setting"].cast(pa.string()))
            .add_column(0, "agent", constant(agent, len(part)))
            .add_column(0, "env", constant(env, len(part)))
            for env, agent, part in parts
        ]
    )
    regret = pc.subtract(table["optimal_value"], table["value"])  # type: ignore[attr-defined]
    return table.add_column(table.column_names.index("optimal_value") + 1, "regret", regret)


def constant(word: str, length: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(word, length)


class Sample(NamedTuple):
    """Runs of one agent on one environment with one setting: R seeds, K episodes."""

    env: str
    agent: str
    setting: str
    seeds: Array
    """(R,) ascending."""
    returns: Array
    """(R, K)"""
    values: Array
    """(R, K)"""
    optimal_values: Array
    """(R, K)"""

    @property
    def regret(self) -> Array:
        """(R, K) exact regret of each episode."""
        return self.optimal_values - self.values

    def totals(self, quantity: str) -> Array:
        """(R,) sum over the episodes of "return", "value" or "regret"; or "episodes lost".

        Episodes lost is regret divided by the mean optimal value: how many episodes of optimal
        play were forgone.
        """
        if quantity == "return":
            return self.returns.sum(axis=1)
        if quantity == "value":
            return self.values.sum(axis=1)
        if quantity == "regret":
            return self.regret.sum(axis=1)
        if quantity == "episodes lost":
            return self.regret.sum(axis=1) / self.optimal_values.mean(axis=1)
        raise ValueError(
            f"quantity {quantity!r} is unknown; it must be return, value, regret or episodes lost"
        )


def samples_of(table: pa.Table) -> list[Sample]:
    """The samples of a table of runs, ordered by environment, agent and setting."""
    names = table.select(["env", "agent", "setting"])
    codes = [np.unique(np.asarray(c.to_pylist(), dtype=object), return_inverse=True) for c in names]
    seed, episode = table["seed"].to_numpy(), table["episode"].to_numpy()
    order = np.lexsort((episode, seed, codes[2][1], codes[1][1], codes[0][1]))
    key = np.stack([codes[0][1], codes[1][1], codes[2][1]])[:, order]
    starts = np.flatnonzero(np.any(np.diff(key, axis=1, prepend=-1), axis=0))
    numbers = {c: table[c].to_numpy()[order] for c in ("return", "value", "optimal_value")}
    samples = []
    for first, end in zip(starts, [*starts[1:], len(order)], strict=True):
        part = slice(first, end)
        seeds, counts = np.unique(seed[order][part], return_counts=True)
        env, agent, setting = (str(c[0][k]) for c, k in zip(codes, key[:, first], strict=True))
        if counts.min() != counts.max():
            raise ValueError(f"{agent} on {env}: seed {seeds[np.argmin(counts)]} is incomplete")
        shape = len(seeds), counts[0]
        arrays = (numbers[c][part].reshape(shape) for c in numbers)
        samples.append(Sample(env, agent, setting, seeds, *arrays))
    return samples


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which river-6 comes before river-10."""
    parts = name.replace("-", " ").split()
    return [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


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
    points, resampled = [], []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        p, q = sign * x.totals(quantity), sign * y.totals(quantity)
        wins = (p[:, None] > q) + 0.5 * (p[:, None] == q)
        points.append(wins.mean())
        rows, columns = draws(len(p), RESAMPLES, 2 * i), draws(len(q), RESAMPLES, 2 * i + 1)
        # count how often each run was drawn: the mean over drawn pairs is then a bilinear form
        resampled.append(
            np.einsum("br,rc,bc->b", counts_of(rows), wins, counts_of(columns), optimize=True)
        )
    low, high = interval(np.mean(resampled, axis=0))
    return Improvement(float(np.mean(points)), low, high)


def counts_of(positions: Array) -> Array:
    """(B, R) share of each position in each resample."""
    n_resamples, size = positions.shape
    flat = positions + size * np.arange(n_resamples)[:, None]
    counts = np.bincount(flat.ravel(), minlength=size * n_resamples)
    return counts.reshape(n_resamples, size) / size


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


def curve_of(
    sample: Sample, quantity: str = "regret", cumulative: bool = True, window: int = 1
) -> Curve:
    """Mean over runs and pointwise 95% band of "return", "value" or "regret" at each episode.

    cumulative: summed up to each episode. window: instead of single episodes, the mean over the
    last `window` episodes (over those there are, at the start).
    """
    by_name = {"return": sample.returns, "value": sample.values, "regret": sample.regret}
    if quantity not in by_name:
        raise ValueError(f"quantity {quantity!r} is unknown; it must be {', '.join(by_name)}")
    if window < 1:
        raise ValueError(f"window is {window}; it must be at least 1")
    x = np.cumsum(by_name[quantity], axis=1) if cumulative else by_name[quantity]
    if window > 1:
        total = np.cumsum(x, axis=1)
        total[:, window:] -= total[:, :-window].copy()
        x = total / np.minimum(np.arange(1, x.shape[1] + 1), window)
    weights = counts_of(draws(len(x), 1000, 0))
    low, high = np.quantile(weights @ x, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    episodes = np.arange(1, x.shape[1] + 1)
    return Curve(
        sample.env, sample.agent, sample.setting, quantity, len(x), episodes, x.mean(axis=0),
        low, high,
    )  # fmt: skip


def regret_curve(sample: Sample) -> Curve:
    """Cumulative exact regret with its 95% band."""
    return curve_of(sample, "regret")


def curves(table: pa.Table, quantity: str = "regret", **options: Any) -> list[Curve]:
    """One curve for each sample of a table of runs; options as for `curve_of`."""
    return [curve_of(sample, quantity, **options) for sample in samples_of(table)]


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
    """95% bootstrap interval of the mean."""
    episodes_lost: float
    """Mean regret in episodes of optimal play."""


def summary(samples: Sequence[Sample], quantity: str = "return") -> list[Row]:
    """A row for each sample, of its total `quantity`."""
    rows = []
    for s in samples:
        x = s.totals(quantity)
        low, high = bootstrap(x)
        lost = float(s.totals("episodes lost").mean())
        runs, episodes = s.returns.shape
        center, spread, error, middle = (float(f(x)) for f in (mean, sd, standard_error, iqm))
        rows.append(
            Row(
                s.env, s.agent, s.setting, runs, episodes, center, spread, error, middle, low, high,
                lost,
            )
        )  # fmt: skip
    return rows
