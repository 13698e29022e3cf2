"""Figures as a line on the terminal, as JSON, as CSV and as a table of a page."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.timing import Measurement, SkippedComparison

SIMULATE_ALONE = "simulate with an agent that does nothing"
GROWTH_FAMILY = "time against k"


def format_number(x: float | None) -> str:
    """Return three digits, or thousands with separators; nothing for None."""
    if x is None:
        return ""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def format_line(line: Measurement | SkippedComparison) -> str:
    """Return one row of the table that is printed while measuring."""
    if isinstance(line, SkippedComparison):
        return f"{line.family:<20} {line.case:<46} skipped: {line.reason}"
    figure = f"{line.family:<20} {line.case:<46} {format_number(line.figure):>9} {line.unit:<15}"
    ratio = f"{format_number(line.ratio):>7} x {line.reference}" if line.ratio is not None else ""
    return f"{figure}{ratio}  {line.note}".rstrip()


def describe_machine() -> dict[str, Any]:
    """Return what a reader needs to know about the machine; no names and no addresses."""
    packages = {name: version(name) for name in ("upriver", "numpy", "scipy", "numba")}
    return packages | {
        "python": platform.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
    }


def write_json(path: Path, lines: Iterable[Measurement | SkippedComparison]) -> None:
    """Write all figures with their ratios into one file."""
    rows = [
        line._asdict() | ({"ratio": line.ratio} if isinstance(line, Measurement) else {})
        for line in lines
    ]
    text = json.dumps({"machine": describe_machine(), "lines": rows}, indent=1) + "\n"
    path.write_text(text, encoding="utf-8")


def read_json(path: Path) -> tuple[dict[str, Any], list[Measurement]]:
    """Return (machine, figures) of a file that `write_json` wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            Measurement(**{name: row[name] for name in Measurement._fields})
            for row in data["lines"]
            if "figure" in row
        ]
        return dict(data["machine"]), rows
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a file of figures; `python -m benchmarks --out {path.name}` writes one"
        ) from error


def format_agents(lines: Iterable[Measurement]) -> str:
    """Return the table of the performance page: microseconds of an episode, a row an agent."""
    by_agent: dict[str, dict[str, str]] = {}
    growth = "after 5,000 episodes, relative to 200"
    for line in lines:
        agent, _, where = line.case.partition(", ")
        if line.family == GROWTH_FAMILY:
            by_agent.setdefault(agent, {})[growth] = format_number(line.ratio)
        elif line.reference == SIMULATE_ALONE:
            by_agent.setdefault(agent, {})[where] = format_number(line.figure)
    columns = list(dict.fromkeys(column for row in by_agent.values() for column in row))
    rows = [f"| agent | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    rows += [
        f"| {agent} | {' | '.join(row.get(column, '') for column in columns)} |"
        for agent, row in by_agent.items()
    ]
    return "\n".join(rows) + "\n"


def write_csv(path: Path, lines: Iterable[Measurement]) -> None:
    """Write all figures into a file that spreadsheets read."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["what", "case", "measured", "unit", "ratio", "to"])
        for line in lines:
            ratio = "" if line.ratio is None else f"{line.ratio:.3g}"
            figure = f"{line.figure:.4g}"
            table.writerow([line.family, line.case, figure, line.unit, ratio, line.reference])
