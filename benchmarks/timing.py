"""How everything in this folder is timed: CPU time, interleaved repeats, medians.

Seconds say little about another machine, so each figure stands beside a reference that was timed in
the same minute. Each figure also carries the time of a yardstick, some Python and NumPy code that
never changes, so that two files of figures can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np


class Measurement(NamedTuple):
    """One figure, beside the figure of a reference where there is one."""

    family: str
    case: str
    figure: float
    unit: str
    reference: str = ""
    """What was timed in the same minute; "" if the figure stands alone."""
    reference_figure: float | None = None
    """The figure of the reference, in the same unit."""
    note: str = ""
    yardstick: float = 0.0
    """Milliseconds of CPU time of `time_yardstick`, taken right after the figure."""

    @property
    def ratio(self) -> float | None:
        """The figure divided by that of the reference."""
        return None if self.reference_figure is None else self.figure / self.reference_figure


class SkippedComparison(NamedTuple):
    """A comparison that could not be made, and why."""

    family: str
    case: str
    reason: str


def measure_cpu(work: Callable[[], Any], clock: Callable[[], float] = process_time) -> float:
    """Return the CPU seconds of one call, or its seconds by another clock."""
    start = clock()
    work()
    return clock() - start


def measure_interleaved(
    works: Mapping[str, Callable[[], Any]], repeats: int, clock: Callable[[], float] = process_time
) -> dict[str, float]:
    """Return the median CPU seconds of each work.

    The works take turns, so that a busy minute affects all of them. Each is called once before
    anything is timed, so that nothing is compiled or loaded while the clock runs. Pass a wall clock
    for works that use several threads.
    """
    for work in works.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(measure_cpu(work, clock))
    return {name: median(values) for name, values in seconds.items()}


def time_yardstick() -> float:
    """Return the CPU milliseconds of work that never changes: the present speed of the machine."""

    def work() -> None:
        x = np.linspace(0.0, 1.0, 500)
        for i in range(1500):
            x = np.sqrt(x * x + i % 7)

    return 1e3 * min(measure_cpu(work) for _ in range(3))
