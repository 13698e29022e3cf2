"""Runs to the numbers of the page: plain dicts and lists, rounded and thinned. Plays nothing."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.results.analysis import curve_of, summary, trailing_mean
from upriver.results.plots import unit_of
from upriver.results.report.tuning import tuning_curves
from upriver.results.runs import Results, failures_of, read, store_of
from upriver.results.samples import Sample, labels_of, natural, order_of, without_crowds
from upriver.results.styles import styles
from upriver.results.tables import plain

POINTS = 300
"""Points of a curve, at most; fewer where there are very many curves."""
SEED_POINTS = 80
SEED_LINES = 20
"""Single runs shown of one agent on one environment, at most."""
BUDGET = {"points": 60_000, "seed_points": 80_000, "detail": 3_000_000}
"""What all curves, all single runs (points) and all details (characters) may take together."""


def collect(folder: str | Path) -> dict[str, Any]:
    """Everything that the page shows of a results folder."""
    from upriver import __version__

    results = read(store_of(folder))
    if not results.samples:
        more = f"; {results.problems[0]}" if results.problems else ""
        raise ValueError(f"{folder} holds no runs to report{more}")
    kept, notes = without_crowds(results.samples)
    results = results._replace(samples=kept)
    labels = labels_of(results.samples)
    look = styles(order_of(results.samples, labels))
    root = Path(folder)
    return {
        "title": root.resolve().name,
        "folder": str(folder),
        "version": __version__,
        "runs": int(sum(len(s.seeds) for s in results.samples)),
        "platforms": sorted({said["platform"] for said in results.about.values()}),
        "agents": [{"name": name, **style._asdict()} for name, style in look.items()],
        "environments": environments_of(results.samples),
        "curves": curves_of(results.samples, labels),
        "table": rows_of(results, labels),
        "paper": paper_rows(root / "table1.csv"),
        "detail": details_of(results, labels),
        "tuning": tuning_curves(root),
        "specs": [
            {"file": f.name, "text": f.read_text(encoding="utf-8")}
            for f in sorted((store_of(folder) / "_specs").glob("*.toml"))
        ],
        "commands": commands_of(folder),
        "failures": failures_of(store_of(folder)),
        "problems": results.problems,
        "notes": notes,
    }


def environments_of(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Name, V* and longest number of episodes, in the order of size."""
    found: dict[str, dict[str, Any]] = {}
    for s in samples:
        unit = unit_of([s.env])
        entry = found.setdefault(s.env, {"name": s.env, "episodes": 0, "unit": unit})
        entry["episodes"] = max(entry["episodes"], s.returns.shape[1])
        entry["optimal"] = number(s.optimal_values.mean())
    return sorted(found.values(), key=lambda e: natural(e["name"]))


def curves_of(samples: Sequence[Sample], labels: Sequence[str]) -> dict[str, Any]:
    """{env: {label: the three curves with bands, and single runs}}."""
    points = int(np.clip(BUDGET["points"] // len(samples), 40, POINTS))
    shown = [min(len(s.seeds), SEED_LINES) for s in samples]
    seed_points = int(np.clip(BUDGET["seed_points"] // sum(shown), 10, SEED_POINTS))
    found: dict[str, Any] = {}
    for sample, label, lines in zip(samples, labels, shown, strict=True):
        k = sample.returns.shape[1]
        window = smoothing_of(k)
        series = {
            "value": sample.values,
            "return": trailing_mean(sample.returns, window),
            "regret": np.cumsum(sample.regret, axis=1),
        }
        at, at_seed = positions(k, points), positions(k, seed_points)
        entry: dict[str, Any] = {
            "runs": len(sample.seeds),
            "window": window,
            "x": (at + 1).tolist(),
            "seeds": {"x": (at_seed + 1).tolist(), "names": sample.seeds[:lines].tolist()},
        }
        for name, array in series.items():
            thin = sample._replace(values=array[:, at], optimal_values=sample.optimal_values[:, at])
            curve = curve_of(thin, "value", cumulative=False)
            entry[name] = {b: numbers(getattr(curve, b)) for b in ("mean", "low", "high")}
            entry["seeds"][name] = [numbers(row) for row in array[:lines, at_seed]]
        found.setdefault(sample.env, {})[label] = entry
    return found


def smoothing_of(n_episodes: int) -> int:
    """Over how many episodes returns are averaged: a twentieth, in round numbers."""
    for window in (500, 200, 100, 50, 20, 10, 5):
        if window * 20 <= n_episodes:
            return window
    return 1


def positions(length: int, points: int) -> Array:
    """At most `points` places, half of them evenly spread and half by ratio, both ends included."""
    if length <= points:
        return np.arange(length)
    even = np.linspace(0, length - 1, points // 2)
    ratio = np.geomspace(1, length, points // 2) - 1
    return np.unique(np.round(np.concatenate([even, ratio])).astype(int))


def rows_of(results: Results, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The table: totals over all episodes, the share of the optimum, time, the agent's numbers."""
    rows = []
    for sample, label, row in zip(results.samples, labels, summary(results.samples), strict=True):
        spec = results.about[sample.setting]["run"]
        best = sample.optimal_values.sum(axis=1).mean()
        share = sample.values.sum(axis=1).mean() / best if best else float("nan")
        seconds = results.seconds[sample.env, sample.agent, sample.setting]
        rows.append(
            {
                "env": sample.env,
                "agent": label,
                "runs": row.runs,
                "episodes": row.episodes,
                **{k: number(getattr(row, k), 6) for k in ("mean", "sd", "iqm", "low", "high")},
                "share": number(share, 5),
                "lost": number(row.episodes_lost),
                "seconds": number(1000 * seconds / row.episodes, 3),
                "settings": settings_of(spec),
            }
        )
    order = {name: i for i, name in enumerate(order_of(results.samples, labels))}
    return sorted(rows, key=lambda r: (natural(r["env"]), order[r["agent"]]))


def settings_of(spec: dict[str, Any]) -> str:
    """The agent's numbers on one line."""
    given = {k: spec.get(k) for k in ("support", "features", "reward")}
    shown = [f"{k} {v}" for k, v in given.items() if v and (k, v) != ("reward", "known")]
    for key, value in spec["numbers"].items():
        if isinstance(value, dict):
            ((rule, constants),) = value.items()
            inside = ", ".join(f"{k} {plain(v)}" for k, v in constants.items())
            value = f"{rule}({inside})"
        shown.append(f"{key} {plain(value)}")
    return " · ".join(shown)


def details_of(results: Results, labels: Sequence[str]) -> dict[str, Any]:
    """{env: {label: detail}}, as many as fit."""
    found: dict[str, Any] = {}
    left = BUDGET["detail"]
    for sample, label in zip(results.samples, labels, strict=True):
        text = results.detail.get((sample.env, sample.agent, sample.setting))
        if text is not None and len(text) <= left:
            left -= len(text)
            found.setdefault(sample.env, {})[label] = json.loads(text)
    return found


def paper_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table1.csv beside the runs: ours and the printed values."""
    if not path.exists():
        return []
    texts = ("method", "hyperparameters")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return [
            {k: v if k in texts else float(v) if v else None for k, v in row.items() if k}
            for row in rows
        ]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from error


def commands_of(folder: str | Path) -> list[str]:
    """What makes the runs, the table and this page again."""
    store, here = store_of(folder), str(folder)
    specs = sorted(str(f) for f in (store / "_specs").glob("*.toml"))
    runs = [["upriver", "run", spec, "--out", str(store)] for spec in specs]
    return [shlex.join(c) for c in [*runs, ["upriver", "table", here], ["upriver", "report", here]]]


def number(x: Any, digits: int = 4) -> float | None:
    """A number to so many significant digits; None, which JSON has, for those it has not."""
    return float(f"{float(x):.{digits}g}") if np.isfinite(x) else None


def numbers(x: Array, digits: int = 4) -> list[float | None]:
    """`number` of each entry; powers of ten stay whole, so that few digits are few characters."""
    finite = np.isfinite(x) & (x != 0)
    places = digits - 1 - np.floor(np.log10(np.abs(x, where=finite, out=np.ones_like(x))))
    up, down = 10.0 ** np.clip(places, 0, 22), 10.0 ** np.clip(-places, 0, 22)
    rounded = np.where(places > 22, 0.0, np.round(x * up / down) * down / up).tolist()
    if np.isfinite(x).all():
        return rounded
    return [v if np.isfinite(v) else None for v in rounded]
