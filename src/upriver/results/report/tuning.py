"""The grids that `upriver tune` tried: its grid.csv to the curves of the page."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from upriver.results.tables import format_setting


def read_tuning(root: Path) -> dict[str, Any]:
    """Read {env: {agent: curves}} from the grid.csv of a folder; {} without one.

    The file lies in the folder, in its `tuning`, or above the `runs` of a tuning.
    """
    above = [root.resolve().parent / "grid.csv"] if root.resolve().name == "runs" else []
    candidates = [root / "grid.csv", root / "tuning" / "grid.csv", *above]
    path = next((p for p in candidates if p.exists()), None)
    if path is None:
        return {}
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
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
                groups.setdefault(row["env"], {}).setdefault(row["agent"], []).append(point)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a grid that upriver tune wrote: {error!r}") from error
    return {
        env: {agent: arrange_grid(points) for agent, points in agents.items()}
        for env, agents in groups.items()
    }


def arrange_grid(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Arrange grid points as lines: the axis is the parameter with the most values.

    Every combination of the other parameters is a line.
    """
    names = list(points[0]["numbers"])
    axis = max(names, key=lambda n: len({json.dumps(p["numbers"][n]) for p in points}), default="")
    lines: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        others = [f"{n} {format_setting(point['numbers'][n])}" for n in names if n != axis]
        lines.setdefault(", ".join(others), []).append(point)
    return {
        "axis": axis,
        "runs": points[0]["runs"],
        "lines": [
            {
                "name": name,
                "x": [p["numbers"].get(axis) for p in line],
                **{k: [float(f"{p[k]:.5g}") for p in line] for k in ("mean", "low", "high")},
                "chosen": [i for i, p in enumerate(line) if p["chosen"]],
            }
            for name, line in lines.items()
        ],
    }
