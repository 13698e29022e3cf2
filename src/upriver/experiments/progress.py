"""How a sweep is going: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from upriver.experiments.build import RunSpec

MAX_REPORTED = 5  # failures that are reported one by one; the rest are counted


class Reporter:
    """Counts what becomes of the runs of a sweep, and says so.

    It prints a line at the start, every `interval` seconds, for each of the first failures, and at
    the end. Without a stream it says nothing; with `bar` it draws a bar on standard error instead.
    """

    def __init__(
        self, stream: TextIO | None = None, interval: float = 10.0, bar: bool = False
    ) -> None:
        self.stream, self.interval, self.bar = stream, interval, None
        if bar:
            from rich import progress as rich
            from rich.console import Console

            columns = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn()
            columns = "{task.description}", *columns, rich.TimeRemainingColumn()
            self.bar = rich.Progress(*columns, console=Console(stderr=True))

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        self.total, self.finished, self.failures = len(pending), 0, 0
        self.began = self.last_line = time.monotonic()
        if self.bar is None:
            self.say(f"{len(pending)} runs to do, {stored} already stored")
            return
        for line in self.bar.task_ids:  # of an earlier sweep
            self.bar.remove_task(line)
        before = f", {stored} stored before" if stored else ""
        self.line = self.bar.add_task(f"runs{before}", total=len(pending))
        self.bar.start()

    def done(self, run: RunSpec, error: str | None = None) -> None:
        """Count a run, which failed if there is an error."""
        self.finished += 1
        if error is not None:
            self.failures += 1
            if self.failures <= MAX_REPORTED:
                self.say(f"failed: {run.env}, {run.label}, seed {run.seed}: {error}")
        self.tick()

    def tick(self) -> None:
        """Show what was counted, if it is time to."""
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.line, completed=self.finished)
            if self.failures:
                said = f"runs, [red]{self.failures} failed[/red]"
                self.bar.update(self.line, description=said)
        elif now - self.last_line >= self.interval:
            self.last_line, left = now, ""
            if self.finished:
                seconds = (now - self.began) / self.finished * (self.total - self.finished)
                left = f", about {seconds:.0f} s left"
            self.say(f"{self.finished}/{self.total} runs, {self.failures} failed{left}")

    def end(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        elif self.total:
            failed = f", {self.failures} failed" if self.failures else ""
            seconds = time.monotonic() - self.began
            self.say(f"{self.finished}/{self.total} runs{failed}, {seconds:.1f} s")

    def say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, markup=False, style="red")
        elif self.stream is not None:
            print(text, file=self.stream, flush=True)


def make_reporter(quiet: bool = False) -> Reporter:
    """Return a bar if a person is watching, else lines."""
    return Reporter(sys.stderr, bar=not quiet and sys.stderr.isatty())
