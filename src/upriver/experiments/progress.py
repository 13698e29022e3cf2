"""How a sweep is going: one line that changes on a terminal, lines from time to time elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from upriver.experiments.build import RunSpec

MAX_REPORTED = 5  # failures that are reported one by one; the rest are counted


class Reporter:
    """Counts what becomes of the runs of a sweep, and says so.

    It prints a line at the start, every `interval` seconds, for each of the first failures, and at
    the end. With `live` the line of now replaces the one before. Without a stream it says nothing.
    """

    def __init__(
        self, stream: TextIO | None = None, interval: float = 10.0, live: bool = False
    ) -> None:
        self.stream, self.interval, self.live = stream, interval, live

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        self.total, self.finished, self.failures = len(pending), 0, 0
        self.began = self.last_line = time.monotonic()
        self.say(f"{len(pending)} runs to do, {stored} already stored")

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
        if now - self.last_line >= (0.2 if self.live else self.interval):
            self.last_line, left = now, ""
            if self.finished:
                seconds = (now - self.began) / self.finished * (self.total - self.finished)
                left = f", about {seconds:.0f} s left"
            text = f"{self.finished}/{self.total} runs, {self.failures} failed{left}"
            self.say(text, end="" if self.live else "\n")

    def end(self) -> None:
        if self.total:
            failed = f", {self.failures} failed" if self.failures else ""
            seconds = time.monotonic() - self.began
            self.say(f"{self.finished}/{self.total} runs{failed}, {seconds:.1f} s")

    def say(self, text: str, end: str = "\n") -> None:
        if self.stream is not None:
            clear = "\r\x1b[K" if self.live else ""
            print(f"{clear}{text}", file=self.stream, end=end, flush=True)


def make_reporter(quiet: bool = False) -> Reporter:
    return Reporter(sys.stderr, live=not quiet and sys.stderr.isatty())
