"""Two versions side by side: what each figure costs now, as a multiple of what it cost then."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.timing import Line, Skipped, cpu

SLOWER, FASTER = 1.15, 0.87  # what repeats of one version on a busy machine stay within


class Change(NamedTuple):
    family: str
    case: str
    unit: str
    then: float
    now: float
    times: float
    """Cost now over cost then, each in units of the yardstick of its minute; below 1 is better."""

    @property
    def verdict(self) -> str:
        return "slower" if self.times > SLOWER else "faster" if self.times < FASTER else ""


def yardstick() -> float:
    """CPU milliseconds of some Python and NumPy that does not change: the pace of the machine."""
    import numpy as np

    def work() -> None:
        x = np.linspace(0.0, 1.0, 500)
        for i in range(1500):
            x = np.sqrt(x * x + i % 7)

    return 1e3 * min(cpu(work) for _ in range(3))


def earlier(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """(version, rows) of what `--out FILE.json` wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = [row for row in data["lines"] if "figure" in row]
        assert all({"family", "case", "unit"} <= row.keys() for row in rows)
        return str(data["machine"]["upriver"]), rows
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(
            f"--against {path} is not what `upriver bench --out {path.name}` writes"
        ) from error


def changes(lines: Iterable[Line | Skipped], rows: list[dict[str, Any]]) -> list[Change]:
    """The cases that both have, in the order of now, each once."""
    before: dict[tuple[str, ...], Any] = {
        (row["family"], row["case"], row["unit"]): row for row in rows
    }
    found: dict[Any, Change] = {}
    for line in lines:
        key = line[:2] + line[3:4]  # family, case, unit
        if isinstance(line, Skipped) or key not in before:
            continue
        then = before[key]
        pace = line.yardstick / then["yardstick"] if then.get("yardstick") else 1.0
        times = line.figure / then["figure"]
        if line.unit.endswith("/s"):  # a rate: more is better
            times = 1.0 / times
        cost = times if line.unit == "MiB" else times / pace
        change = Change(line.family, line.case, line.unit, then["figure"], line.figure, cost)
        found.setdefault(key, change)
    return list(found.values())
