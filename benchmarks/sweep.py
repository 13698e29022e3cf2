"""What a sweep costs beyond its runs: many runs of one episode, in workers and in a plain loop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks.timing import Measurement
from upriver.experiments import Experiment, Store, execute, run_one
from upriver.experiments.spec import parse
from upriver.experiments.store import to_bytes

JOBS = 2


def make_experiment(n_runs: int) -> Experiment:
    return parse(
        {
            "name": "overhead",
            "episodes": 1,
            "seeds": {"count": n_runs},
            "environments": [{"name": "riverswim-6"}],
            "agents": [{"agent": "ucrl-mnl"}],
        }
    )


def time_in_new_folder(work: Callable[[Path], object]) -> float:
    """Return the seconds of work(folder) with an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        work(Path(folder))
        return time.perf_counter() - start


def run_in_plain_loop(n_runs: int, folder: Path) -> None:
    store = Store.create(folder)
    for run in make_experiment(n_runs).runs():
        store.save(run, to_bytes(run, run_one(run)))


def measure_sweep_overhead(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """Time a sweep without its start-up beside the plain loop divided by the number of workers."""
    n_runs, rounds = (4, 1) if quick else (1000, 3)
    loops, sweeps, starts = [], [], []
    time_in_new_folder(lambda folder: run_in_plain_loop(2, folder))  # compile first
    for _round in range(rounds):
        loops.append(time_in_new_folder(lambda folder: run_in_plain_loop(n_runs, folder)))
        starts.append(time_in_new_folder(lambda f: execute(make_experiment(JOBS), f, JOBS)))
        sweeps.append(time_in_new_folder(lambda f: execute(make_experiment(n_runs), f, JOBS)))
    loop, start, sweep = map(median, (loops, starts, sweeps))
    case = f"{n_runs} runs of one episode, {JOBS} workers"
    cost, ideal = max(sweep - start, 1e-9), loop / JOBS
    yield Measurement("sweep", case, cost, "s", "a plain loop over the workers", ideal)
    yield Measurement("sweep", f"start-up of {JOBS} workers", start, "s")
