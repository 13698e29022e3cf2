"""What a sweep costs beyond its runs: 1,000 runs of one episode, swept and in a plain loop.

    python benchmarks/overhead.py [--runs 1000] [--jobs 2] [--rounds 3]

The plain loop does the same work, playing each run and writing its file, and nothing else. The
sweep should take at most 1.5 times the loop divided by the number of workers, plus start-up, which
is the time of a sweep of one run for each worker. Loop and sweep take turns, and the medians are
compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from upriver.experiments import Store, execute, run_one
from upriver.experiments.spec import Experiment, parse

ALLOWED = 1.5


def experiment(runs: int) -> Experiment:
    return parse(
        {
            "name": "overhead",
            "episodes": 1,
            "seeds": {"count": runs},
            "environments": [{"name": "riverswim-6"}],
            "agents": [{"agent": "ucrl-mnl"}],
        }
    )


def timed(work) -> float:
    """Seconds of work(folder) with a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        work(Path(folder))
        return time.perf_counter() - began


def plain_loop(runs: int, folder: Path) -> None:
    store = Store.create(folder)
    for run in experiment(runs).runs():
        store.save(run, run_one(run))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--runs", type=int, default=1000)
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    runs, jobs = given.runs, given.jobs
    timed(lambda folder: plain_loop(2, folder))  # compile before anything is measured
    loops, sweeps, starts = [], [], []
    for _ in range(given.rounds):
        loops.append(timed(lambda folder: plain_loop(runs, folder)))
        starts.append(timed(lambda folder: execute(experiment(jobs), folder, jobs)))
        sweeps.append(timed(lambda folder: execute(experiment(runs), folder, jobs)))
    loop, start, sweep = map(statistics.median, (loops, starts, sweeps))
    ratio = (sweep - start) / (loop / jobs)
    print(f"plain loop      {loop:8.2f} s   {1e3 * loop / runs:.2f} ms a run")
    print(f"start-up        {start:8.2f} s   {jobs} workers, one run each")
    print(f"sweep           {sweep:8.2f} s   {jobs} workers, {runs} runs")
    print(
        f"overhead ratio  {ratio:8.2f}     (sweep - start-up) / (loop / {jobs}); at most {ALLOWED}"
    )
    return 0 if ratio <= ALLOWED else 1


if __name__ == "__main__":
    raise SystemExit(main())
