"""Two versions of the sources side by side: `python -m benchmarks.versions OLD_SOURCES [CASE …]`.

Each version works in a process of its own, and the two take turns, so that a busy minute affects
both. A ratio is the median CPU time of these sources over that of the old ones; 1.1 is 10% slower.
`--first-run` times whole processes that run an example, with an empty and a full kernel cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
HERE = Path(__file__).resolve().parents[1]
SECONDS = 0.1  # about as long as one turn takes

EXAMPLE = """
import upriver as up

mdp = up.envs.riverswim(n_states=20)
task = mdp.task(support="local")
phi = up.features.shared(task)
agent = up.agents.UCRLMNLSE(task, phi)
run = up.simulate(mdp, agent, n_episodes=100, seed=0)
up.solve(mdp)
up.fit_mnl(phi, run.state.model.counts[0]).summary()
"""


def prepare_episodes(name: str, n_states: int, kind: str) -> Callable[[int], Any]:
    """Return a function that plays so many episodes of an agent on a river of n states."""
    import upriver as up
    from upriver.agents.table import AGENTS

    mdp = up.envs.riverswim(n_states, 24)
    task = mdp.task("local")
    given = () if kind == "counts" else (getattr(up.features, kind)(task),)
    agent = AGENTS[name](task, *given)
    return lambda count: up.simulate(mdp, agent, count, seed=0)


def prepare_fit(kind: str) -> Callable[[int], Any]:
    """Return a function that fits a model so many times."""
    import numpy as np

    import upriver as up

    rng = np.random.default_rng(0)
    if kind == "dense":
        mdp = up.envs.random_mnl(100, 2, 8, max_successors=20)
        phi = up.envs.random_mnl_features(mdp.task())
    else:
        phi = getattr(up.features, kind)(up.envs.riverswim(100, 24).task("local"))
    counts = rng.poisson(5.0, phi.task.n_triples).astype(float)
    return lambda count: [up.fit_mnl(phi, counts).theta for _ in range(count)]


def prepare_log() -> Callable[[int], Any]:
    """Return a function that fits the transitions of a frame of 20,000 rows so many times."""
    import upriver as up
    from benchmarks.frames import draw_log

    frame, moves, formula, _ = draw_log(20_000)
    return lambda count: [
        up.fit_transitions(formula, frame, states=moves).theta for _ in range(count)
    ]


def prepare_solve(n_states: int) -> Callable[[int], Any]:
    """Return a function that solves a river so many times."""
    import upriver as up

    mdps = [up.envs.riverswim(n_states, 24) for _ in range(8)]
    return lambda count: [up.solve(mdps[i % 8]).v for i in range(count)]


RIVERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ucrl-mnl", ("one_hot",)),
    ("ucrl-mnl-se", ("one_hot", "shared")),
    ("orrl-mnl", ("one_hot",)),
    ("ucbvi", ("counts",)),
    ("ucrl2", ("counts",)),
)
CASES: dict[str, tuple[Callable[..., Callable[[int], Any]], tuple[Any, ...]]] = {
    f"{agent}, S={n}, {kind}": (prepare_episodes, (agent, n, kind))
    for agent, kinds in RIVERS
    for kind in kinds
    for n in (6, 20, 100, 10_000, 1_000_000)
}
CASES |= {f"fit_mnl, {x}": (prepare_fit, (x,)) for x in ("dense", "one_hot", "shared")}
CASES |= {"fit_transitions": (prepare_log, ())}
CASES |= {f"solve, S={n}": (prepare_solve, (n,)) for n in (20, 1000)}


def work() -> None:
    """Time cases in this process: read "CASE<tab>COUNT" lines, print CPU seconds per repetition."""
    from time import process_time

    name, run = "", None
    for line in sys.stdin:
        case, count = line.rstrip("\n").split("\t")
        if case != name:
            prepare, arguments = CASES[case]
            name, run = case, prepare(*arguments)
            run(1)
        assert run is not None
        began = process_time()
        run(int(count))
        print((process_time() - began) / int(count), flush=True)


class Worker:
    """A process that times cases with the sources of one folder."""

    def __init__(self, sources: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.versions", "--work"], cwd=HERE, text=True,
            env=environment(sources), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def measure(self, case: str, count: int) -> float:
        """Return the CPU seconds of one repetition of a case."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(f"{case}\t{count}", file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def environment(sources: Path) -> dict[str, str]:
    """Return the environment of a process that uses the sources of a folder, on one thread."""
    path = os.pathsep.join([str(sources.resolve()), str(HERE)])
    return os.environ | dict.fromkeys(ONE_THREAD, "1") | {"PYTHONPATH": path}


def compare_cases(old: Path, cases: list[str], repeats: int) -> None:
    """Print the CPU microseconds of each case in both versions, and their ratio."""
    workers = Worker(old), Worker(HERE / "src")
    for case in cases:
        for worker in workers:
            worker.measure(case, 1)
        count = max(int(SECONDS / workers[0].measure(case, 1)), 1)
        turns = [[worker.measure(case, count) for worker in workers] for _ in range(repeats)]
        before, now = (1e6 * median(column) for column in zip(*turns, strict=True))
        print(f"{case:<36} {before:12.1f} {now:12.1f} us {now / before:6.2f}", flush=True)


def compare_first_runs(old: Path, repeats: int) -> None:
    """Print the CPU seconds of the example in a new process, kernels compiled and not."""
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, sources in (("before", old), ("now", HERE / "src")):
            with tempfile.TemporaryDirectory() as folder:
                for cache in ("empty", "full"):
                    done = subprocess.run(
                        [sys.executable, "-c", EXAMPLE + "import time; print(time.process_time())"],
                        env=environment(sources) | {"NUMBA_CACHE_DIR": folder}, check=True,
                        capture_output=True, text=True,
                    )  # fmt: skip
                    times.setdefault((cache, name), []).append(float(done.stdout.split()[-1]))
    for cache in ("empty", "full"):
        before, now = median(times[cache, "before"]), median(times[cache, "now"])
        print(f"{f'example, {cache} cache':<36} {before:12.2f} {now:12.2f} s  {now / before:6.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("old", type=Path, nargs="?", help="the folder that holds the old upriver/")
    parser.add_argument("cases", nargs="*", help="patterns such as 'ucrl-mnl, S=6*'; default: all")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--first-run", action="store_true", help="time the example instead")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return 0
    if given.old is None or not (given.old / "upriver").is_dir():
        parser.error("OLD must be a folder that holds the package upriver/, such as ../old/src")
    if given.first_run:
        compare_first_runs(given.old, given.repeats)
        return 0
    patterns = given.cases or ["*"]
    compare_cases(
        given.old, [x for x in CASES if any(fnmatchcase(x, y) for y in patterns)], given.repeats
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
