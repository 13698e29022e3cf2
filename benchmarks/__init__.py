"""How fast this is: every figure a ratio to something timed in the same minute, on one thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from benchmarks import (
    agents,
    fits,
    frames,
    infinite_horizon,
    logs,
    memory,
    peers,
    planning,
    startup,
    steps,
)
from benchmarks.against import Change, yardstick
from benchmarks.agents import ALONE
from benchmarks.timing import Line, Skipped

FAMILIES: dict[str, Callable[[bool, bool], Iterator[Line | Skipped]]] = {
    "episodes": agents.episodes,
    "growth": agents.against_k,
    "planning": planning.backward,
    "infinite_horizon": infinite_horizon.infinite_horizon,
    "fits": fits.fits,
    "frames": frames.frames,
    "logs": logs.logs,
    "steps": steps.steps,
    "memory": memory.memory,
    "pooled": memory.pooled,
    "dense": memory.dense,
    "threads": planning.threads,
    "startup": startup.startup,
}
"""Each is called with (quick, with_peers)."""
GROWTH = "after 5,000 episodes, times as much as after 200"


def measure(
    families: Collection[str] = tuple(FAMILIES),
    quick: bool = False,
    with_peers: bool = False,
    rlberry_python: Path | None = None,
) -> Iterator[Line | Skipped]:
    """The lines of the asked families, as they are measured.

    quick: small sizes and few repeats, to see that everything runs; the figures mean little.
    """
    if "episodes" in families and with_peers:
        yield from peers.rlberry(rlberry_python, quick)
    for name, function in FAMILIES.items():
        for line in function(quick, with_peers) if name in families else ():
            yield line if isinstance(line, Skipped) else line._replace(yardstick=yardstick())


def as_text(line: Line | Skipped) -> str:
    """One row of the printed table."""
    if isinstance(line, Skipped):
        return f"{line.family:<22} {line.case:<46} skipped: {line.reason}"
    return (
        f"{line.family:<22} {line.case:<46} {number(line.figure):>9} {line.unit:<15}"
        f"{number(line.ratio):>7} x {line.against:<30} {verdict(line):<22} {line.note}"
    ).rstrip()


def verdict(line: Line) -> str:
    """Whether the ratio is what was asked for, or nothing where nothing was."""
    words = {"at least": line.least, "at most": line.most}
    asked = ", ".join(f"{word} {x:g}" for word, x in words.items() if x is not None)
    return "" if line.met is None else f"{'ok' if line.met else 'NOT MET'}, {asked}"


def number(x: float) -> str:
    """Three digits, or thousands with separators."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def side_by_side(changed: list[Change], version: str) -> str:
    """The same cases then and now, as a table that reads well on a screen and on a page."""
    rows = [["what", "case", version, "now", "times", ""], [*("---", "---"), *["---:"] * 3, "---"]]
    for x in changed:
        then, now = f"{number(x.then)} {x.unit}", f"{number(x.now)} {x.unit}"
        rows.append([x.family, x.case, then, now, f"{x.times:.2f}", x.verdict])
    wide = [max(len(row[i]) for row in rows) for i in range(6)]
    return "".join(
        "| " + " | ".join(f"{x:<{n}}" for x, n in zip(row, wide, strict=True)) + " |\n"
        for row in rows
    )


def as_markdown(lines: list[Line | Skipped]) -> str:
    """The same table for a page, and a row for each agent below; what was skipped is left out."""
    rows = ["| what | case | measured | ratio | to | asked for |", "|---|---|---:|---:|---|---|"]
    by_agent: dict[str, dict[str, str]] = {}
    for line in (x for x in lines if isinstance(x, Line)):
        agent, _, where = line.case.partition(", ")
        if line.family == "time against k":
            by_agent.setdefault(agent, {})[GROWTH] = number(line.ratio)
        elif line.against == ALONE:
            by_agent.setdefault(agent, {})[where] = number(line.figure)
        else:
            rows.append(
                f"| {line.family} | {line.case} | {number(line.figure)} {line.unit} "
                f"| {number(line.ratio)} | {line.against} | {verdict(line)} |"
            )
    columns = list(dict.fromkeys(column for row in by_agent.values() for column in row))
    if by_agent:
        rows += ["", "Microseconds an episode, everything included:", ""]
        rows += [f"| agent | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    rows += [
        f"| {agent} | {' | '.join(row.get(c, '') for c in columns)} |"
        for agent, row in by_agent.items()
    ]
    return "\n".join(rows) + "\n"


def as_json(lines: list[Line | Skipped], machine: dict[str, Any]) -> str:
    """Everything measured, with the derived ratio and whether what was asked for is met."""
    rows = [
        line._asdict() | ({"ratio": line.ratio, "met": line.met} if isinstance(line, Line) else {})
        for line in lines
    ]
    return json.dumps({"machine": machine, "lines": rows}, indent=1) + "\n"


def machine() -> dict[str, Any]:
    """What a reader needs to know about where this was measured; no names or addresses."""
    import os
    import platform

    import numba  # pyright: ignore
    import numpy
    import scipy

    from upriver import __version__

    return {
        "upriver": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "system": platform.system(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }
