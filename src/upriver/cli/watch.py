"""`upriver watch`: how a sweep is going."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def watch(folder: Path, *, web: bool = False, port: int = 0, interval: float = 1.0) -> int:
    """Show a running or finished sweep: progress, time left, the best so far, failures.

    It reads the folder and nothing else, so it may start and stop at any time. The terminal view
    ends when the sweep does; Ctrl-C ends either view and never touches the sweep.

    **Example:** `upriver watch results/quick --web`

    Parameters
    ----------
    folder
        The results folder of the sweep.
    web
        A live page for a browser on this machine instead of the terminal view.
    port
        Port of the page; a free one if absent.
    interval
        Seconds between looks in the terminal.
    """
    from upriver.results.watch import LivePage, Watcher

    if not 0 <= port <= 65535:
        raise ValueError(f"port is {port}; it must be between 0 and 65535")
    if not interval > 0:
        raise ValueError(f"interval is {interval:g}; it must be positive")
    watcher = Watcher(folder)
    if not web:
        return in_terminal(watcher, interval)
    with LivePage(watcher, port) as server:
        print(f"{server.address} shows {folder}; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    return 0


def in_terminal(watcher, interval: float) -> int:
    from rich.console import Console
    from rich.live import Live

    from upriver.results.watch import terminal_view

    console = Console()
    found = watcher.look()
    if not console.is_terminal or found["state"] == "finished":
        console.print(terminal_view(found))
        return 0
    try:
        with Live(terminal_view(found), console=console, auto_refresh=False) as live:
            while found["state"] not in ("finished", "gone"):
                time.sleep(interval)
                found = watcher.look()
                live.update(terminal_view(found), refresh=True)
    except KeyboardInterrupt:
        return 0
    return 0
