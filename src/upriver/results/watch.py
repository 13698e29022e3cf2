"""A running or finished sweep, looked at from outside: files to numbers to a live view.

Nothing is asked of the processes that run it, and nothing that the folder names is imported: it
holds what is done, lists of what there is to do, and signs of life from whoever is at it, so a
sweep on another machine can be watched through a shared disk.
"""

from __future__ import annotations

import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

RECENT = 30.0  # seconds without a new run after which a sweep counts as not running
SLOW = 60.0  # seconds from which a run under way is worth a line
PACE = 60  # latest runs from which the time left is reckoned
ROWS = 200  # groups and failures that a view shows at most


class Finished(NamedTuple):
    """What a view needs of one stored run."""

    group: tuple[str, str]
    total: float
    lost: float
    stored: float
    """When, in seconds since the epoch."""


class Watcher:
    """Looks at a results folder again and again; every run file is read once."""

    def __init__(self, folder: str | Path) -> None:
        from upriver.results.runs import store_of

        self.root = store_of(folder)
        if not self.root.is_dir():
            raise ValueError(f"{folder} is not a folder of results")
        self.runs: dict[Path, Finished | None] = {}

    def look(self) -> dict[str, Any]:
        """The state of the sweep as plain dicts and lists."""
        from upriver.experiments.pulse import under_way
        from upriver.experiments.store import Store
        from upriver.results.analysis import natural
        from upriver.results.runs import failures_of

        hidden: list[str] = []
        there = Store(self.root).files(hidden)
        self.runs = {path: self.runs.get(path) or read_run(path) for path in there}
        todo = self.to_do()
        failures = failures_of(self.root)
        running = under_way(self.root)
        group = {path: g for path, g in todo.items()}
        group |= {path: run.group if run else group_of(path) for path, run in self.runs.items()}
        done = Counter(group[path] for path in self.runs)
        total = Counter(group.values())
        failed = Counter((f["env"], f["agent"]) for f in failures)
        samples: dict[tuple[str, str], list[Finished]] = {}
        for run in self.runs.values():
            if run is not None:
                samples.setdefault(run.group, []).append(run)
        rows = []
        for env, agent in sorted(total, key=lambda g: (natural(g[0]), g[1])):
            mine = samples.get((env, agent), [])
            rows.append(
                {
                    "env": env,
                    "agent": agent,
                    "done": done[env, agent],
                    "total": total[env, agent],
                    "failed": failed[env, agent],
                    "mean": mean_of([r.total for r in mine]),
                    "sd": float(np.std([r.total for r in mine], ddof=1)) if len(mine) > 1 else None,
                    "lost": mean_of([r.lost for r in mine]),
                    "best": False,
                }
            )
        mark_best(rows)
        n_done, n_total = sum(done.values()), sum(total.values())
        state, left = self.pace(n_total - n_done - len(failures), n_total, running is not None)
        return {
            "name": self.root.resolve().name,
            "state": state,
            "done": n_done,
            "total": n_total,
            "failed": len(failures),
            "left": left,
            "unreadable": sum(run is None for run in self.runs.values()) + len(hidden),
            "running": (running or [])[:ROWS],
            "groups": rows[:ROWS],
            "more": max(0, len(rows) - ROWS),
            "failures": failures[:ROWS],
        }

    def to_do(self) -> dict[Path, tuple[str, str]]:
        """{file: its group} of the runs that were asked for; no spec of the folder is read."""
        from upriver.experiments.check import asked_for
        from upriver.experiments.store import Store

        places, _ = asked_for(Store(self.root))
        return {self.root / place: group for place, group in places.items()}

    def pace(self, missing: int, total: int, alive: bool) -> tuple[str, float | None]:
        """(finished, running, waiting or gone; seconds left if that can be told)."""
        if not self.root.is_dir():
            return "gone", None
        if missing <= 0 and total:
            return "finished", None
        times = sorted(run.stored for run in self.runs.values() if run is not None)[-PACE:]
        if not alive and (not times or time.time() - times[-1] > RECENT):
            return "waiting", None
        span = max(time.time(), times[-1]) - times[0] if len(times) > 1 else 0.0
        return "running", missing * span / len(times) if len(times) > 1 else None


def group_of(path: Path) -> tuple[str, str]:
    return path.parent.parent.name.partition("=")[2], path.parent.name.partition("=")[2]


def mean_of(x: list[float]) -> float | None:
    return float(np.mean(x)) if x else None


def mark_best(rows: list[dict[str, Any]]) -> None:
    """The learner that has lost the least on each environment, among two or more."""
    for env in {row["env"] for row in rows}:
        own = [r for r in rows if r["env"] == env and r["lost"] is not None]
        learners = [r for r in own if r["agent"] != "optimal"]
        if len(learners) > 1:
            min(learners, key=lambda r: r["lost"])["best"] = True


def read_run(path: Path) -> Finished | None:
    """One run file, or None where it is damaged."""
    from upriver.experiments import runfile

    try:
        run, _, part = runfile.read_run(path, ["return", "value", "optimal_value"])
        returns, values, best = (part[c].to_numpy() for c in part.column_names)
        lost = float((best - values).sum() / best.mean()) if best.mean() else 0.0
        stored = path.stat().st_mtime
        return Finished((run.env, run.label), float(returns.sum()), lost, stored)
    except (OSError, ValueError):
        return None


def clock(seconds: float) -> str:
    """Seconds as a person says them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )


def terminal_view(found: dict[str, Any]) -> Any:
    """What rich shows of a look."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    left = f", about {clock(found['left'])} left" if found["left"] is not None else ""
    failed = f", {found['failed']} failed" if found["failed"] else ""
    head = Text(f"{found['name']}: {found['state']}, ", style="bold")
    head.append(f"{found['done']} of {found['total']} runs{failed}{left}", style="not bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("agent", "", "runs", "failed", "mean return", "lost"):
        table.add_column(name, justify="left" if name in ("agent", "") else "right", no_wrap=True)
    place = None
    for row in found["groups"]:
        if row["env"] != place:
            place = row["env"]
            table.add_row(Text(place, style="bold"))
        spread = "" if row["sd"] is None else f" ± {row['sd']:.2f}"
        table.add_row(
            Text(f"  {row['agent']}"),
            ProgressBar(row["total"], row["done"], width=10),
            f"{row['done']}/{row['total']}",
            Text(str(row["failed"] or ""), style="red"),
            "" if row["mean"] is None else f"{row['mean']:.2f}{spread}",
            "" if row["lost"] is None else f"{row['lost']:.1f}{' *' if row['best'] else '  '}",
            style="green" if row["best"] else "",
        )
    table.caption = (
        "lost: episodes of optimal play forgone; * the fewest so far" if found["groups"] else None
    )
    notes = [Text(f"and {found['more']} more", style="dim")] if found["more"] else []
    notes += [
        Text(f"failed: {f['env']}, {f['agent']}, seed {f['seed']}: {f['error']}", style="red")
        for f in found["failures"][:5]
    ]
    notes += [
        Text(f"for {clock(r['seconds'])}: {r['env']}, {r['agent']}, seed {r['seed']}", style="dim")
        for r in found["running"][:3]
        if r["seconds"] > SLOW
    ]
    if found["unreadable"]:
        notes.append(Text(f"{found['unreadable']} files cannot be read", style="red"))
    bar = ProgressBar(max(1, found["total"]), found["done"], width=60)
    return Group(head, bar, Text(""), table, *notes)


class LivePage(ThreadingHTTPServer):
    """The same view as a page, for this machine only; refreshed as runs arrive."""

    daemon_threads = True
    KEEP = 0.5
    """Seconds for which a look is good, so that many open pages cost no more than one."""

    def __init__(self, watcher: Watcher, port: int = 0) -> None:
        from upriver.results.report.page import live_page

        self.watcher = watcher
        self.page = live_page(watcher.root.resolve().name).encode()
        self.lock = Lock()
        self.last: tuple[float, bytes] = (-np.inf, b"")
        try:
            super().__init__(("127.0.0.1", port), Answer)
        except OSError as error:
            raise ValueError(f"port {port} cannot be used: {error.strerror}") from error

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def status(self) -> bytes:
        import json

        with self.lock:
            if time.monotonic() - self.last[0] > self.KEEP:
                text = json.dumps(self.watcher.look()).encode()
                self.last = time.monotonic(), text
            return self.last[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed in the middle of an answer is nobody's error."""


class Answer(BaseHTTPRequestHandler):
    timeout = 10
    server: LivePage

    def do_GET(self) -> None:
        # a page of another site may know our port but not pretend to be this host
        if self.headers.get("Host") not in self.own_names():
            return self.send_error(403)
        if self.path == "/":
            return self.reply(self.server.page, "text/html; charset=utf-8")
        if self.path == "/status.json":
            return self.reply(self.server.status(), "application/json")
        return self.send_error(404)

    def own_names(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.server.server_port}", f"localhost:{self.server.server_port}"

    def reply(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal belongs to the person who watches."""
