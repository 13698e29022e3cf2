"""Runs of one agent on one environment as arrays (R, K), and how readers name and order them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from upriver.checks import Array

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS = 6
"""Settings of one agent on one environment that a page shows, at most: the best of a grid."""


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

    def each(self, quantity: str) -> Array:
        """(R, K) "return", "value" or "regret" of each episode."""
        by_name = {"return": self.returns, "value": self.values, "regret": self.regret}
        if quantity not in by_name:
            raise ValueError(f"quantity {quantity!r} is unknown; it must be {', '.join(by_name)}")
        return by_name[quantity]

    def totals(self, quantity: str) -> Array:
        """(R,) sum over the episodes of "return", "value" or "regret"; or "episodes lost".

        Episodes lost is regret divided by the mean optimal value: how many episodes of optimal
        play were forgone.
        """
        if quantity == "episodes lost":
            return self.regret.sum(axis=1) / self.optimal_values.mean(axis=1)
        return self.each(quantity).sum(axis=1)

    def shares(self) -> Array:
        """(R,) value of the policies played / value of the optimum."""
        return self.values.sum(axis=1) / self.optimal_values.sum(axis=1)

    def locked_in(self) -> Array:
        """(R,) whether a run is lost: its last tenth is worth under half of the optimum.

        Such a run has settled for something poor, or is still wandering. It asks for an optimum
        above zero; where that is not so, no run counts.
        """
        last = slice(-max(1, self.values.shape[1] // 10), None)
        best = self.optimal_values[:, last].mean(axis=1)
        return (self.values[:, last].mean(axis=1) < 0.5 * best) & (best > 0.0)

    def only(self, seeds: Iterable[int]) -> Sample:
        """The runs of some seeds; a folder may hold more."""
        keep = np.isin(self.seeds, list(seeds))
        return Sample(*self[:3], *(array[keep] for array in self[3:]))


def samples_of(table: pa.Table) -> list[Sample]:
    """The samples of a table of runs, ordered by environment, agent and setting."""
    codes = [coded(c) for c in table.select(["env", "agent", "setting"])]
    seed, episode = table["seed"].to_numpy(), table["episode"].to_numpy()
    order = np.lexsort((episode, seed, codes[2][1], codes[1][1], codes[0][1]))
    key = np.stack([codes[0][1], codes[1][1], codes[2][1]])[:, order]
    starts = np.flatnonzero(np.any(np.diff(key, axis=1, prepend=-1), axis=0))
    seed = seed[order]
    numbers = {c: table[c].to_numpy()[order] for c in ("return", "value", "optimal_value")}
    samples = []
    for first, end in zip(starts, [*starts[1:], len(order)], strict=True):
        part = slice(first, end)
        seeds, counts = np.unique(seed[part], return_counts=True)
        env, agent, setting = (str(c[0][k]) for c, k in zip(codes, key[:, first], strict=True))
        if counts.min() != counts.max():
            raise ValueError(f"{agent} on {env}: seed {seeds[np.argmin(counts)]} is incomplete")
        shape = len(seeds), counts[0]
        arrays = (numbers[c][part].reshape(shape) for c in numbers)
        samples.append(Sample(env, agent, setting, seeds, *arrays))
    return samples


def coded(words: pa.ChunkedArray) -> tuple[Array, Array]:
    """The distinct words in order, and the place of each among them; streams have millions."""
    found = words.combine_chunks().dictionary_encode()
    names = np.asarray(found.dictionary.to_pylist(), dtype=object)
    place = np.argsort(np.argsort(names)).astype(np.int32)
    return np.sort(names), place[found.indices.to_numpy()]


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which river-6 comes before river-10."""
    parts = name.replace("-", " ").split()
    return [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


def without_crowds(samples: list[Sample]) -> tuple[list[Sample], list[str]]:
    """At most SETTINGS settings of an agent on an environment, the best ones; what was left out."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for s in samples:
        groups.setdefault((s.env, s.agent), []).append(s)
    kept, left = [], 0
    for group in groups.values():
        best = sorted(group, key=lambda s: -float(s.values.mean()))[:SETTINGS]
        kept += sorted(best, key=lambda s: s.setting)
        left += len(group) - len(best)
    note = f"Only the {SETTINGS} best settings of an agent are shown; {left} others are left out."
    return kept, [note] if left else []


def labels_of(samples: Sequence[Sample]) -> list[str]:
    """The agent of each sample, with its setting where that is needed to tell two apart."""
    seen = Counter((s.env, s.agent) for s in samples)
    doubtful = {agent for (_, agent), n in seen.items() if n > 1}
    return [f"{s.agent} [{s.setting[:6]}]" if s.agent in doubtful else s.agent for s in samples]


def order_of(samples: Sequence[Sample], labels: Sequence[str]) -> list[str]:
    """Agents from the least regret to the most, averaged over environments; the optimum first."""
    lost: dict[str, list[float]] = {}
    for sample, label in zip(samples, labels, strict=True):
        share = sample.regret.sum(axis=1) / sample.optimal_values.sum(axis=1)
        lost.setdefault(label, []).append(float(share.mean()))
    worth = {name: round(float(np.mean(shares)), 9) for name, shares in lost.items()}
    return sorted(lost, key=lambda name: (name.lower() != "optimal", worth[name], name))
