"""Two files of figures side by side: `python -m benchmarks.compare OLD.json NEW.json`.

Costs are compared in units of the yardstick of their minute, so that a busier machine does not look
like a change. What remains is noise of about 15%.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import format_number, read_json
from benchmarks.timing import Measurement

SLOWER, FASTER = 1.15, 0.87


class Change(NamedTuple):
    """The cost of one case in two versions."""

    family: str
    case: str
    unit: str
    old: float
    new: float
    ratio: float
    """New cost over old cost, each in units of its yardstick; below 1 is better."""

    @property
    def verdict(self) -> str:
        return "slower" if self.ratio > SLOWER else "faster" if self.ratio < FASTER else ""


def compare(old: Iterable[Measurement], new: Iterable[Measurement]) -> list[Change]:
    """Return the cases that both lists have, each once, in the order of the new one."""
    before = {(line.family, line.case, line.unit): line for line in old}
    found: dict[tuple[str, str, str], Change] = {}
    for line in new:
        key = line.family, line.case, line.unit
        if key not in before or key in found:
            continue
        then = before[key]
        ratio = line.figure / then.figure
        if line.unit.endswith("/s"):  # a rate: more is better
            ratio = 1.0 / ratio
        if line.unit not in ("MiB", "GB"):  # memory does not depend on the speed of the machine
            ratio *= then.yardstick / line.yardstick
        found[key] = Change(*key, then.figure, line.figure, ratio)
    return list(found.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    given = parser.parse_args(arguments)
    (machine, old), (_, new) = read_json(given.old), read_json(given.new)
    print(f"{'case':<70} {machine['upriver']:>12} {'new':>12} {'ratio':>6}")
    changes = compare(old, new)
    for change in changes:
        figures = f"{format_number(change.old):>12} {format_number(change.new):>12}"
        case = f"{change.family}: {change.case}"
        print(f"{case:<70.70} {figures} {change.ratio:6.2f} {change.unit:<15} {change.verdict}")
    slower = sum(change.verdict == "slower" for change in changes)
    print(f"{slower} of {len(changes)} figures are slower by more than {SLOWER - 1:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
