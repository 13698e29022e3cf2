"""A results folder read: its runs as a table or as samples, and what went wrong in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.results.samples import Sample

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ["return", "value", "optimal_value"]


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

    columns = ["setting", "seed", "episode", *NUMBERS, *(["seconds"] if timing else [])]
    parts = [
        part.columns.set_column(0, "setting", part.columns["setting"].cast(pa.string()))
        .add_column(0, "agent", pa.repeat(part.agent, len(part.columns)))
        .add_column(0, "env", pa.repeat(part.env, len(part.columns)))
        for part in read_parts(folder, columns, problems)
    ]
    if not parts:
        raise ValueError(f"{folder} holds no runs")
    parts.sort(key=lambda p: [p[key][0].as_py() for key in ("env", "agent", "setting", "seed")])
    table = pa.concat_tables(parts)
    regret = pc.subtract(table["optimal_value"], table["value"])  # type: ignore[attr-defined]
    return table.add_column(table.column_names.index("optimal_value") + 1, "regret", regret)


class Part(NamedTuple):
    """One run file."""

    env: str
    agent: str
    setting: str
    about: dict[str, Any]
    detail: bytes | None
    columns: pa.Table


def read_parts(
    folder: str | Path, columns: Sequence[str], problems: list[str] | None
) -> Iterator[Part]:
    """Every run file; one that is damaged is a sentence in `problems`, or an error."""
    from upriver.experiments.runfile import read_run
    from upriver.experiments.store import Store

    for path in Store.open(folder).files(problems):
        try:
            run, said, table = read_run(path, list(columns))
        except ValueError as error:
            if problems is None:
                raise
            problems.append(str(error))
            continue
        detail = (table.schema.metadata or {}).get(b"detail")
        bare = table.replace_schema_metadata(None)
        yield Part(run.env, run.label, run.setting, said, detail, bare)


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
    groups: dict[tuple[str, str, str], list[tuple[int, list[Array], float]]] = {}
    results = Results([], {}, {}, {}, [])
    for part in read_parts(folder, ["seed", *NUMBERS], results.problems):
        key = part.env, part.agent, part.setting
        arrays = [part.columns[c].to_numpy() for c in NUMBERS]
        run = part.columns["seed"][0].as_py(), arrays, part.about["seconds"]
        groups.setdefault(key, []).append(run)
        results.about.setdefault(part.setting, part.about)
        if part.detail is not None:
            results.detail.setdefault(key, part.detail.decode())
    for key in sorted(groups):
        seeds, arrays, seconds = zip(*sorted(groups[key], key=lambda run: run[0]), strict=True)
        stacked = (np.stack(x) for x in zip(*arrays, strict=True))
        results.samples.append(Sample(*key, np.array(seeds), *stacked))
        results.seconds[key] = float(np.median(seconds))
    return results


def store_of(folder: str | Path) -> Path:
    """The folder with the runs: the one named, or the `runs` inside the folder of a tuning."""
    root = Path(folder)
    inner = root / "runs"
    return inner if not (root / "_upriver.json").exists() and inner.is_dir() else root


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


def told(failures: list[dict[str, Any]]) -> str:
    """How many runs failed, and the first of them."""
    first = failures[0]
    where = f"{first['env']}, {first['agent']}, seed {first['seed']}: {first['error']}"
    return f"{len(failures)} runs failed, first {where}"
