"""How a sweep is going: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from upriver.experiments.build import RunSpec

MAX_REPORTED = 5  # failures that are reported one by one; the rest are counted


class Reporter:
    """Counts what becomes of the runs of a sweep. This one says nothing about it."""

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        self.total, self.finished, self.failures = len(pending), 0, 0

    def done(self, run: RunSpec) -> None:
        self.finished += 1
        self.tick()

    def failed(self, run: RunSpec, error: str) -> None:
        self.failures += 1
        if self.failures <= MAX_REPORTED:
            self.say(f"failed: {run.env}, {run.label}, seed {run.seed}: {error}")
        self.done(run)

    def tick(self) -> None: ...
    def say(self, text: str) -> None: ...
    def end(self) -> None: ...


def make_reporter(quiet: bool = False) -> Reporter:
    """Return a bar if a person is watching, else lines."""
    return PlainLines(sys.stderr) if quiet or not sys.stderr.isatty() else Bar()


class PlainLines(Reporter):
    """Prints a line at the start, every `interval` seconds, for each failure, and at the end."""

    def __init__(self, stream: TextIO, interval: float = 10.0) -> None:
        self.stream, self.interval = stream, interval

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        super().begin(pending, stored)
        self.began = self.last_line = time.monotonic()
        self.say(f"{len(pending)} runs to do, {stored} already stored")

    def tick(self) -> None:
        now = time.monotonic()
        if now - self.last_line >= self.interval:
            self.last_line, left = now, ""
            if self.finished:
                seconds = (now - self.began) / self.finished * (self.total - self.finished)
                left = f", about {seconds:.0f} s left"
            self.say(f"{self.finished}/{self.total} runs, {self.failures} failed{left}")

    def end(self) -> None:
        if self.total:
            failed = f", {self.failures} failed" if self.failures else ""
            seconds = time.monotonic() - self.began
            self.say(f"{self.finished}/{self.total} runs{failed}, {seconds:.1f} s")

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class Bar(Reporter):
    """Draws a bar on the terminal, and prints a line for each of the first failures."""

    def __init__(self) -> None:
        from rich import progress as rich
        from rich.console import Console

        columns = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn()
        columns = "{task.description}", *columns, rich.TimeRemainingColumn()
        self.progress = rich.Progress(*columns, console=Console(stderr=True))

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        super().begin(pending, stored)
        for line in self.progress.task_ids:  # of an earlier sweep
            self.progress.remove_task(line)
        before = f", {stored} stored before" if stored else ""
        self.line = self.progress.add_task(f"runs{before}", total=len(pending))
        self.progress.start()

    def tick(self) -> None:
        self.progress.update(self.line, completed=self.finished)
        if self.failures:
            said = f"runs, [red]{self.failures} failed[/red]"
            self.progress.update(self.line, description=said)

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False, style="red")

    def end(self) -> None:
        self.progress.stop()
