"""Runs to the numbers of the page: plain dicts and lists, rounded and thinned."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.experiments.store import BadFile, read_named
from upriver.results import runs as reader
from upriver.results.runs import Sample, natural_key, read_results
from upriver.results.statistics import mean_and_band, summarize, trailing_mean
from upriver.results.styles import assign_styles
from upriver.results.tables import format_setting

POINTS = 300
"""The largest number of points of a curve; fewer where there are very many curves."""
SEED_POINTS = 80
SEED_LINES = 20
"""The largest number of single runs of one agent on one environment."""
BUDGET = {"points": 60_000, "seed_points": 80_000}
"""Limits of the points of all curves and of all single runs."""


def collect(folder: str | Path) -> dict[str, Any]:
    """Collect everything that the page shows of a results folder, complete or not."""
    from upriver import __version__

    results = read_results(folder)
    samples = results.samples
    labels = reader.label_samples(samples)
    order = reader.order_agents(samples, labels)
    root = Path(folder)
    made = sorted((root / "_commands").glob("*.txt"), key=lambda path: path.stat().st_mtime)
    texts = {}
    for path in [*sorted((root / "_specs").glob("*.toml")), *made]:
        try:
            texts[path] = read_named(path).decode(errors="replace")
        except BadFile as error:
            results.problems.append(str(error))
    specs = {path: text for path, text in texts.items() if path.suffix == ".toml"}
    again = [["upriver", "run", str(path), "--out", str(folder)] for path in specs]
    again += [["upriver", "table", str(folder)], ["upriver", "report", str(folder)]]
    return {
        "title": root.resolve().name,
        "version": __version__,
        "runs": sum(len(s.seeds) for s in samples),
        "platforms": sorted({str(s.about.get("platform")) for s in samples}),
        "agents": [{"name": n, **style._asdict()} for n, style in assign_styles(order).items()],
        "environments": list_environments(samples),
        "curves": make_curves(samples, labels),
        "table": make_rows(samples, labels, order),
        "specs": [{"file": path.name, "text": text} for path, text in specs.items()],
        "made": [text for path, text in texts.items() if path not in specs],
        "commands": [shlex.join(words) for words in again],
        "failures": reader.read_failures(root),
        "problems": results.problems,
    }


def list_environments(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """List name, V* if there is one, unit and largest number of episodes, ordered by size."""
    optimal = reader.find_optimal_values(samples)
    found: dict[str, Any] = {}
    for s in sorted(samples, key=lambda s: (natural_key(s.env), s.values.shape[1])):
        found[s.env] = {"name": s.env, "episodes": s.values.shape[1], "unit": s.unit}
        found[s.env]["optimal"] = round_number(optimal.get(s.env, np.nan))
    return list(found.values())


def make_curves(samples: Sequence[Sample], labels: Sequence[str]) -> dict[str, Any]:
    """Compute {env: {label: value, return and regret with bands, and single runs}}."""
    points = int(np.clip(BUDGET["points"] // len(samples), 40, POINTS))
    n_lines = [min(len(s.seeds), SEED_LINES) for s in samples]
    seed_points = int(np.clip(BUDGET["seed_points"] // sum(n_lines), 10, SEED_POINTS))
    found: dict[str, Any] = {}
    for sample, label, lines in zip(samples, labels, n_lines, strict=True):
        k = sample.returns.shape[1]
        # returns are averaged over about a twentieth of the episodes
        window = next((w for w in (500, 200, 100, 50, 20, 10, 5) if w * 20 <= k), 1)
        series = {"value": sample.values, "return": trailing_mean(sample.returns, window)}
        series["regret"] = np.cumsum(sample.regret, axis=1)
        at, at_seed = choose_positions(k, points), choose_positions(k, seed_points)
        entry: dict[str, Any] = {"runs": len(sample.seeds), "window": window}
        entry |= {"x": (at + 1).tolist(), "seeds": {"x": (at_seed + 1).tolist()}}
        for name, array in series.items():
            bands = mean_and_band(array[:, at])
            entry[name] = dict(zip(("mean", "low", "high"), map(round_digits, bands), strict=True))
            entry["seeds"][name] = round_digits(array[:lines, at_seed])
        found.setdefault(sample.env, {})[label] = entry
    return found


def choose_positions(length: int, points: int) -> Array:
    """Choose at most `points` positions, half evenly spaced and half by ratio, with both ends."""
    if length <= points:
        return np.arange(length)
    even = np.linspace(0, length - 1, points // 2)
    ratio = np.geomspace(1, length, points // 2) - 1
    return np.unique(np.round(np.concatenate([even, ratio])).astype(int))


def make_rows(samples: Sequence[Sample], labels: Sequence[str], order: Sequence[str]) -> list[Any]:
    """Compute the table: totals over all episodes, share of the optimum and settings."""
    rows = []
    for sample, label, row in zip(samples, labels, summarize(samples), strict=True):
        share = 1.0 - sample.regret.mean() / sample.scale.mean()
        names = ("mean", "sd", "low", "high")
        run = sample.about["run"]  # what no agent has is shown as it is
        given = {key: run.get(key) for key in ("support", "features", "reward")}
        shown = [f"{k} {v}" for k, v in given.items() if v and (k, v) != ("reward", "known")]
        shown += [f"{key} {format_setting(value)}" for key, value in run["settings"].items()]
        rows.append({
            "env": sample.env, "agent": label, "runs": row.runs, "episodes": row.episodes,
            **{name: round_number(getattr(row, name), 6) for name in names},
            "share": round_number(share, 5), "lost": round_number(row.episodes_lost),
            "stuck": [round_number(x) for x in row[-3:]],
            "settings": " · ".join(shown),
        })  # fmt: skip

    # by what is shown: the optimum, then from the least regret on this environment to the most
    def place(row: dict[str, Any]) -> Any:
        lost = np.inf if row["lost"] is None else row["lost"]
        best = row["agent"].lower() == "optimal"
        return natural_key(row["env"]), not best, lost, order.index(row["agent"])

    return sorted(rows, key=place)


def round_number(x: Any, digits: int = 4) -> float | None:
    """Round to significant digits; JSON has no infinite numbers, they become None."""
    return float(f"{x:.{digits}g}") if isfinite(x) else None


def round_digits(x: Array) -> list[Any]:
    """Round an array (n,) or (m, n) to lists of four significant digits, or None."""
    return [round_number(v) for v in x.tolist()] if x.ndim == 1 else [*map(round_digits, x)]
