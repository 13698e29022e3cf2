"""Run benchmarks: `python -m benchmarks [FAMILY …] [--peers] [--quick] [--out FILE.json]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

FAMILIES = {
    "episodes": "agents:measure_episodes",
    "growth": "agents:measure_growth",
    "planning": "planning:measure_backward_induction",
    "exact": "planning:measure_exact_maximum",
    "threads": "planning:measure_threads",
    "infinite-horizon": "infinite_horizon:measure_infinite_horizon",
    "choices": "choices:measure_choice_fits",
    "frames": "frames:measure_frame_fits",
    "logs": "logs:measure_log_decisions",
    "memory": "memory:measure_memory",
    "pooled": "memory:measure_pooled_features",
    "dense": "memory:measure_dense_features",
    "sweep": "sweep:measure_sweep_overhead",
    "startup": "startup:measure_startup",
    "rlberry": "peers:measure_rlberry",
}
"""Each family is a function of (quick, with_peers) that yields figures."""


def measure(families: Collection[str], quick: bool, with_peers: bool) -> Iterator:
    """Yield the figures of some families as they are measured."""
    from benchmarks.timing import Measurement, time_yardstick

    for name in FAMILIES:
        if name in families:
            module, _, function = FAMILIES[name].partition(":")
            family: Callable = getattr(import_module(f"benchmarks.{module}"), function)
            for line in family(quick, with_peers):
                timed = isinstance(line, Measurement)
                yield line._replace(yardstick=time_yardstick()) if timed else line


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--peers", action="store_true", help="compare with QuantEcon and xlogit")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    page = "a Markdown file for the agents; all figures go beside it"
    parser.add_argument("--page", type=Path, help=page)
    given = parser.parse_args(arguments)
    for name in given.families:
        if name not in FAMILIES:
            parser.error(f"family {name!r} is unknown; it must be one of {', '.join(FAMILIES)}")
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # BLAS and numba read their number of threads when they are loaded.
        words = [sys.executable, "-m", "benchmarks", *(arguments or sys.argv[1:])]
        os.execve(sys.executable, words, os.environ | dict.fromkeys(ONE_THREAD, "1"))
    from benchmarks.report import format_agents, format_line, write_csv, write_json
    from benchmarks.timing import Measurement

    lines = []
    for line in measure(given.families or FAMILIES, given.quick, given.peers):
        print(format_line(line), flush=True)
        lines.append(line)
    if given.out:
        write_json(given.out, lines)
    if given.page:
        figures = [line for line in lines if isinstance(line, Measurement)]
        given.page.write_text(format_agents(figures), encoding="utf-8")
        write_csv(given.page.with_suffix(".csv"), figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
