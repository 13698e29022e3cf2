"""A results folder read once: its runs in groups, in a reader's order, and what went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.results.analysis import Sample

SETTINGS = 6
"""Settings of one agent on one environment, at most: the best of a grid."""


class Results(NamedTuple):
    """A results folder, read once."""

    samples: list[Sample]
    about: dict[str, dict[str, Any]]
    """{setting: what the first file of the sample says about itself}."""
    seconds: dict[tuple[str, str, str], float]
    """{(env, agent, setting): median seconds of a run: the first of a process compiles}."""
    detail: dict[tuple[str, str, str], str]
    """{(env, agent, setting): JSON of the first run that kept it}."""
    problems: list[str]


def read(folder: str | Path) -> Results:
    """All runs, grouped; a damaged file is a sentence in `problems` and is left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from upriver.experiments.store import Store, about

    columns = ["seed", "return", "value", "optimal_value"]
    groups: dict[tuple[str, str, str], list[tuple[int, Array, Array, Array]]] = {}
    results = Results([], {}, {}, {}, [])
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for path in Store.open(folder).files():
        try:
            file = pq.ParquetFile(path)
            said = about(file.schema_arrow, path)
            part = file.read(columns=columns)
            seed, setting = part["seed"][0].as_py(), path.name.rpartition("-")[0]
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
            named = str(path) in str(error)
            results.problems.append(str(error) if named else f"{path} is damaged: {error}")
            continue
        env, agent = (p.name.partition("=")[2] for p in (path.parent.parent, path.parent))
        key = env, agent, setting
        arrays = (part[c].to_numpy() for c in columns[1:])
        groups.setdefault(key, []).append((seed, *arrays))
        seconds.setdefault(key, []).append(said["seconds"])
        results.about.setdefault(setting, said)
        kept = (file.schema_arrow.metadata or {}).get(b"detail")
        if kept is not None and key not in results.detail:
            results.detail[key] = kept.decode()
    for key in sorted(groups):
        runs = sorted(groups[key], key=lambda run: run[0])
        seeds, returns, values, optimal = zip(*runs, strict=True)
        stacked = (np.stack(x) for x in (returns, values, optimal))
        results.samples.append(Sample(*key, np.array(seeds), *stacked))
        results.seconds[key] = float(np.median(seconds[key]))
    return results


def store_of(folder: str | Path) -> Path:
    """The folder with the runs: the one named, or the `runs` inside the folder of a tuning."""
    root = Path(folder)
    inner = root / "runs"
    return inner if not (root / "_upriver.json").exists() and inner.is_dir() else root


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


def failures_of(root: Path) -> list[dict[str, Any]]:
    """Runs that raised and have not succeeded since."""
    found = []
    for path in sorted((root / "_failed").rglob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            run = record["run"]
            row = {"env": run["env"], "agent": run["label"], "seed": run["seed"]}
            found.append({**row, "error": record["error"]})
        except (OSError, ValueError, KeyError, TypeError):
            found.append({"env": "", "agent": "", "seed": "", "error": f"{path} is damaged"})
    return found
