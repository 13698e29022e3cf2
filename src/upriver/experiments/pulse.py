"""A sign of life in the results folder: which runs are being played now, and since when."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from upriver.experiments.progress import Reporter, key_of
from upriver.experiments.runspec import RunSpec
from upriver.experiments.store import StorageFailed, Store

BEAT = 5.0
"""Seconds between two signs of life."""
DEAD = 6 * BEAT
"""Seconds without one after which nobody is there any more."""
SHOWN = 100
"""Runs under way that are listed, at most."""


class Pulse(Reporter):
    """Passes everything on, and tells the folder every few seconds what is under way."""

    def __init__(self, store: Store, told: Reporter) -> None:
        self.store, self.told = store, told
        self.path = store.root / "_running" / f"{uuid4().hex[:16]}.json"
        self.under_way: dict[Any, tuple[RunSpec, float]] = {}
        self.over = Event()
        self.thread = Thread(target=self.beat, daemon=True)

    def __enter__(self) -> Pulse:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def beat(self) -> None:
        while not self.over.wait(BEAT):
            runs = sorted(list(self.under_way.values()), key=lambda entry: entry[1])[:SHOWN]
            rows = [[run.env, run.label, run.seed, since] for run, since in runs]
            with suppress(StorageFailed):  # the sweep itself will meet it and say so
                self.store.write(self.path, json.dumps(rows).encode(), replace=True)

    def begin(self, pending: list[RunSpec], stored: int) -> None:
        self.told.begin(pending, stored)

    def running(self, run: RunSpec) -> None:
        self.under_way[key_of(run)] = run, time.time()
        self.told.running(run)

    def done(self, run: RunSpec) -> None:
        self.under_way.pop(key_of(run), None)
        self.told.done(run)

    def failed(self, run: RunSpec, error: str) -> None:
        self.under_way.pop(key_of(run), None)
        self.told.failed(run, error)

    def tick(self) -> None:
        self.told.tick()

    def end(self) -> None:
        self.told.end()


def under_way(root: Path) -> list[dict[str, Any]] | None:
    """The runs that living sweeps are at, the oldest first; None where nobody gives a sign."""
    found, alive = [], False
    for path in (root / "_running").glob("*.json"):
        try:
            if time.time() - path.stat().st_mtime > DEAD:
                continue
            alive = True
            for env, agent, seed, since in json.loads(path.read_text(encoding="utf-8")):
                row = {"env": str(env), "agent": str(agent), "seed": int(seed)}
                found.append({**row, "seconds": max(0.0, time.time() - float(since))})
        except (OSError, ValueError, TypeError):
            continue
    return sorted(found, key=lambda row: -row["seconds"])[:SHOWN] if alive else None
