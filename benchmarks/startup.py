"""Starting: imports, help, and compilation with an empty and with a filled cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.timing import Measurement

KERNELS = """
from dataclasses import replace
from upriver.experiments import load
from upriver.experiments.build import build, simulate_run
from upriver.paper.table1 import EXPERIMENTS

seen = set()
for name in EXPERIMENTS:
    for run in load(name).with_seeds(1).runs():
        what = run.agent, str(sorted(run.settings)), run.support, run.features
        if what not in seen:  # every agent of the table, in every form
            seen.add(what)
            simulate_run(replace(run, episodes=2), *build(run)[:2])
"""


def measure_process(code: str, cache: Path | None = None) -> float:
    """CPU seconds of a fresh Python process that runs `code`, its start included."""
    environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    words = [sys.executable, "-c", f"{code}\nimport time\nprint(time.process_time())"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChildProcessError(f"a process to time failed: {done.stderr.strip()[-500:]}")
    return float(done.stdout.split()[-1])


def measure_startup(quick: bool, _: bool = False) -> Iterator[Measurement]:
    works = {
        "numpy": "import numpy, scipy.sparse, scipy.linalg",
        "import": "import upriver",
        "help": "from upriver.cli import main; main(['--help'])",
    }
    rounds = [
        {name: measure_process(works[name]) for name in works} for _ in range(1 if quick else 5)
    ]
    taken = {name: median(each[name] for each in rounds) for name in works}
    for name, label in (("import", "import upriver"), ("help", "upriver --help")):
        yield Measurement(
            "start-up", label, taken[name], "s", "importing numpy and scipy", taken["numpy"]
        )
    if quick:
        return
    with tempfile.TemporaryDirectory() as folder:
        cold = measure_process(KERNELS, Path(folder))
        warm = median([measure_process(KERNELS, Path(folder)) for _ in range(3)])
    note = "with imports and two episodes of every agent"
    for label, taken in (("compiled", cold - warm), ("cached", warm)):
        case = f"all kernels of reproduce, {label}"
        yield Measurement("start-up", case, taken, "s", note=note)
