"""The grids that `upriver tune` tried, as curves: its grid.csv to plain dicts and lists."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from upriver.results.tables import plain


def tuning_curves(root: Path) -> dict[str, Any]:
    """{env: {agent: {axis, runs, lines, chosen}}} of the grid.csv of a folder; {} without one.

    The axis is the number with the most values; every combination of the others is a line.
    """
    path = next((p for p in places(root) if p.exists()), None)
    if path is None:
        return {}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        try:
            for row in csv.DictReader(file):
                point = {
                    "numbers": json.loads(row["numbers"]),
                    "runs": int(row["runs"]),
                    "mean": float(row["mean"]),
                    "low": float(row["ci_low"]),
                    "high": float(row["ci_high"]),
                    "chosen": row["chosen"] == "1",
                }
                groups.setdefault((row["env"], row["agent"]), []).append(point)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a grid that upriver tune wrote: {error!r}") from error
    found: dict[str, Any] = {}
    for (env, agent), points in groups.items():
        found.setdefault(env, {})[agent] = curve_of(points)
    return found


def places(root: Path) -> list[Path]:
    """Where a grid may lie: in the folder, in its tuning, or above the runs of a tuning."""
    above = [root.resolve().parent / "grid.csv"] if root.resolve().name == "runs" else []
    return [root / "grid.csv", root / "tuning" / "grid.csv", *above]


def curve_of(points: list[dict[str, Any]]) -> dict[str, Any]:
    """One line for each combination of the numbers that are not on the axis."""
    names = list(points[0]["numbers"])
    axis = max(names, key=lambda n: len({json.dumps(p["numbers"][n]) for p in points}), default="")
    lines: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        others = [f"{n} {plain(point['numbers'][n])}" for n in names if n != axis]
        lines.setdefault(", ".join(others), []).append(point)
    keys = ("mean", "low", "high")
    return {
        "axis": axis,
        "runs": points[0]["runs"],
        "lines": [
            {
                "name": name,
                "x": [p["numbers"].get(axis) for p in line],
                **{k: [float(f"{p[k]:.5g}") for p in line] for k in keys},
                "chosen": [i for i, p in enumerate(line) if p["chosen"]],
            }
            for name, line in lines.items()
        ],
    }
