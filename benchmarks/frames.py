"""A transition model of a large frame: time against the expanded arrays, memory against the frame.

Every row of the frame has covariates of its own, so nothing can be counted together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.choices import fit_with_lbfgs, make_mean_loss
from benchmarks.timing import Measurement, SkippedComparison, measure_interleaved
from upriver import fit_transitions
from upriver.checks import Array

STATES, STEPS, COVARIATES = 10, np.arange(-2, 3), 20
MEMORY = Path("/proc/self/clear_refs")  # Linux forgets the peak there


def draw_log(m: int, seed: int = 0) -> tuple[Any, dict[str, Any], str, tuple[Array, Array]]:
    """(frame, table of moves, formula, (X, chosen) of its expansion): m rows, 5 candidates, d = 20.

    Covariates change how the state drifts around a ring, or how far it goes.
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    theta = rng.normal(size=COVARIATES) / np.sqrt(COVARIATES)
    moved = np.array([STEPS / 2.0, np.abs(STEPS) - 1.0])[np.arange(COVARIATES) % 2]
    covariates = rng.normal(size=(m, COVARIATES))
    taken = (covariates @ (theta[:, None] * moved) + rng.gumbel(size=(m, 5))).argmax(axis=1)
    names = np.array([f"mile {i}" for i in range(STATES)])
    state = rng.integers(STATES, size=m)
    frame = pd.DataFrame(
        {
            "state": names[state],
            "action": np.array(["wait", "row"])[rng.integers(2, size=m)],
            "next_state": names[(state + STEPS[taken]) % STATES],
            **{f"x{i}": x for i, x in enumerate(np.ascontiguousarray(covariates.T))},
        }
    )
    here, step = np.divmod(np.arange(STATES * 5), 5)
    moves = {
        "state": names[here],
        "next_state": names[(here + STEPS[step]) % STATES],
        "drift": moved[0][step],
        "far": moved[1][step],
    }
    formula = " + ".join(f"x{i}:{('drift', 'far')[i % 2]}" for i in range(COVARIATES))
    chosen = np.arange(5) == taken[:, None]
    return frame, moves, formula, (covariates, chosen.ravel())


def expand(covariates: Array) -> Array:
    """(5 m, 20) what L-BFGS is given."""
    moved = np.array([STEPS / 2.0, np.abs(STEPS) - 1.0])[np.arange(COVARIATES) % 2]
    return (covariates[:, None, :] * moved.T).reshape(-1, COVARIATES)


FIT = """
import json, sys
from benchmarks.frames import MEMORY, draw_log
from upriver import fit_transitions

def memory(word):
    return 1024 * next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(word))

frame, moves, formula, _ = draw_log(int(sys.argv[1]))
del _
fit_transitions(formula, frame.head(2000), states=moves)  # compiled before it is measured
MEMORY.write_text("5")
before = memory("VmRSS")
model = fit_transitions(formula, frame, states=moves)
frame_bytes = int(frame.memory_usage(deep=True).sum())
print(json.dumps({"frame": frame_bytes, "fit": memory("VmHWM") - before}))
"""


def measure_frame_fits(quick: bool, _: bool = False) -> Iterator[Measurement | SkippedComparison]:
    """One fit of 10^6 rows x 5 candidates x 20 columns, from the frame to the coefficients."""
    m = 5_000 if quick else 1_000_000
    case = f"{m} rows x 5 x {COVARIATES}, all different"
    if find_spec("pandas") is None or find_spec("formulaic") is None:
        yield SkippedComparison(
            "fit_transitions", case, "pandas or formulaic is not installed here"
        )
        return
    frame, moves, formula, (covariates, chosen) = draw_log(m)
    x = expand(covariates)
    del covariates
    reached = fit_transitions(formula, frame, states=moves).theta
    norm = float(np.abs(make_mean_loss(x, chosen, 5)(reached)[1]).max())
    taken = measure_interleaved(
        {
            "ours": lambda: fit_transitions(formula, frame, states=moves),
            "theirs": lambda: fit_with_lbfgs(x, chosen, 5, norm),
        },
        1,
    )
    yield Measurement(
        "fit_transitions",
        case,
        1e3 * taken["ours"],
        "ms",
        "SciPy L-BFGS, expanded",
        1e3 * taken["theirs"],
        note=f"gradient norm {norm:.0e} a situation",
    )
    if not MEMORY.exists():
        yield SkippedComparison(
            "fit_transitions", f"{case}, memory", "the peak is read from Linux's /proc"
        )
        return
    given = [sys.executable, "-c", FIT, str(m)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChildProcessError(f"a fit of {m} rows failed: {done.stderr.strip()[-500:]}")
    used = json.loads(done.stdout)
    yield Measurement(
        "fit_transitions",
        f"{case}, memory",
        used["fit"] / 2**20,
        "MiB",
        "the frame",
        used["frame"] / 2**20,
    )
