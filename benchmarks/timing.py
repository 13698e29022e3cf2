"""How everything here is timed: CPU time, interleaved repeats, medians; a figure is a ratio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One measurement beside what it is compared with."""

    family: str
    case: str
    figure: float
    unit: str
    against: str
    """What was timed in the same minute, in the same process where that is possible."""
    theirs: float
    """The figure of that, in the same unit."""
    least: float | None = None
    """The ratio that is asked for: at least this."""
    most: float | None = None
    """Or at most this."""
    note: str = ""
    yardstick: float = 0.0
    """Milliseconds of work that never changes, timed right after: how fast the machine was."""

    @property
    def ratio(self) -> float:
        """figure / theirs."""
        return self.figure / self.theirs

    @property
    def met(self) -> bool | None:
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.ratio >= self.least) and (
            self.most is None or self.ratio <= self.most
        )


class Skipped(NamedTuple):
    """A comparison that could not be made, and why."""

    family: str
    case: str
    reason: str


def cpu(work: Callable[[], Any], clock: Callable[[], float] = process_time) -> float:
    """CPU seconds of one call, all threads of this process; or seconds by another clock."""
    began = clock()
    work()
    return clock() - began


def interleaved(
    works: Mapping[str, Callable[[], Any]], repeats: int, clock: Callable[[], float] = process_time
) -> dict[str, float]:
    """Median CPU seconds of each, taking turns so that a busy minute hits all of them alike.

    Every work is called once before, so that nothing is compiled or loaded while it is timed. clock
    is another one for works in several threads.
    """
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(cpu(work, clock))
    return {name: median(seconds) for name, seconds in taken.items()}
