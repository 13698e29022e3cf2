"""How a sweep is going: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, TextIO

from upriver.experiments.runspec import RunSpec

SPOKEN = 5  # failures told one by one; the rest are counted


class Reporter:
    """Who is told how it goes. This one says nothing."""

    def begin(self, pending: list[RunSpec], stored: int) -> None: ...
    def running(self, run: RunSpec) -> None: ...
    def done(self, run: RunSpec) -> None: ...
    def failed(self, run: RunSpec, error: str) -> None: ...
    def tick(self) -> None: ...
    def end(self) -> None: ...


def reporter(quiet: bool = False) -> Reporter:
    """Bars where a person is watching, else lines."""
    return PlainLines(sys.stderr) if quiet or not sys.stderr.isatty() else Bars()


def failure(run: RunSpec, error: str) -> str:
    return f"failed: {run.env}, {run.label}, seed {run.seed}: {error}"


def key_of(run: RunSpec) -> tuple[str, str, str]:
    return run.env, run.label, run.key


class PlainLines(Reporter):
    """One line when it starts, every `interval` seconds, for each failure, and at the end."""

    def __init__(self, stream: TextIO, interval: float = 10.0) -> None:
        self.stream = stream
        self.interval = interval
        self.total = self.finished = self.failures = 0
        self.under_way: set[tuple[str, str, str]] = set()
        self.began = self.spoke = time.monotonic()

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        self.total = len(pending)
        self.finished = self.failures = 0  # one reporter may tell of several sweeps
        self.began = self.spoke = time.monotonic()
        self.say(f"{len(pending)} runs to do, {stored} already stored")

    def running(self, run: RunSpec) -> None:
        self.under_way.add(key_of(run))

    def done(self, run: RunSpec) -> None:
        self.finished += 1
        self.under_way.discard(key_of(run))
        self.tick()

    def failed(self, run: RunSpec, error: str) -> None:
        self.finished += 1
        self.failures += 1
        self.under_way.discard(key_of(run))
        if self.failures <= SPOKEN:
            self.say(failure(run, error))
        self.tick()

    def tick(self) -> None:
        now = time.monotonic()
        if now - self.spoke >= self.interval:
            self.spoke = now
            left = ""
            if self.finished:
                seconds = (now - self.began) / self.finished * (self.total - self.finished)
                left = f", about {seconds:.0f} s left"
            self.say(
                f"{self.finished}/{self.total} runs, {len(self.under_way)} running, "
                f"{self.failures} failed{left}"
            )

    def end(self) -> None:
        seconds = time.monotonic() - self.began
        if self.total:
            failed = f", {self.failures} failed" if self.failures else ""
            self.say(f"{self.finished}/{self.total} runs{failed}, {seconds:.1f} s")

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class Bars(Reporter):
    """A bar for everything and one for each (environment, agent) that is under way."""

    VISIBLE = 20  # lines; finished groups make room where there are more

    def __init__(self) -> None:
        from rich import progress as rich
        from rich.console import Console

        self.progress = rich.Progress(
            "{task.description}",
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            "{task.fields[note]}",
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.all: Any = None
        self.lines: dict[tuple[str, str], Any] = {}
        self.left: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[Any] = Counter()
        self.under_way: dict[tuple[str, str, str], Any] = {}
        self.before = ""
        self.crowded = False

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        for line in self.progress.task_ids:  # of a sweep before
            self.progress.remove_task(line)
        self.left = Counter((r.env, r.label) for r in pending)
        self.crowded = len(self.left) > self.VISIBLE
        self.before = f"{stored} stored before" if stored else ""
        self.all = self.progress.add_task("all runs", total=len(pending), note=self.before)
        for group, count in self.left.items():
            self.lines[group] = self.progress.add_task(
                f"{group[0]} · {group[1]}", total=count, note="", start=False,
                visible=not self.crowded,
            )  # fmt: skip
        self.progress.start()

    def running(self, run: RunSpec) -> None:
        line = self.lines[run.env, run.label]
        self.under_way[key_of(run)] = line
        self.progress.start_task(line)
        self.progress.update(line, visible=True)
        self.annotate(line)

    def done(self, run: RunSpec) -> None:
        group = run.env, run.label
        self.left[group] -= 1
        self.under_way.pop(key_of(run), None)
        self.progress.advance(self.lines[group])
        self.progress.advance(self.all)
        self.annotate(self.lines[group])
        if self.crowded and not self.left[group]:
            self.progress.update(self.lines[group], visible=False)

    def failed(self, run: RunSpec, error: str) -> None:
        for line in (self.lines[run.env, run.label], self.all):
            self.failures[line] += 1
        if self.failures[self.all] <= SPOKEN:
            self.progress.console.print(failure(run, error), markup=False, style="red")
        self.done(run)

    def annotate(self, line: Any) -> None:
        """Say on a line, and on that of all runs, how many run and how many failed."""
        at = list(self.under_way.values())
        for each, running in ((line, at.count(line)), (self.all, len(at))):
            failed = self.failures[each]
            notes = [
                f"{running} running" if running else "",
                f"[red]{failed} failed[/red]" if failed else "",
                self.before if each == self.all else "",
            ]
            self.progress.update(each, note=", ".join(filter(None, notes)))

    def end(self) -> None:
        self.progress.stop()
