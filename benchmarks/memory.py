"""Memory of one episode of large problems, each in a process of its own; and time against size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.timing import Measurement

HORIZON = 50

EPISODE = """
import json, sys, time, tracemalloc
import numpy as np
import upriver as up
from upriver.agents.base import Episode

cls, name, support, (n_states, horizon, repeats) = *sys.argv[1:4], map(int, sys.argv[4:])

def dense(n_states):  # 4 actions, 5 successors next door, 20 features of each, float32, borrowed
    first = np.clip(np.arange(n_states, dtype=np.int32) - 2, 0, max(n_states - 5, 0))
    successors = (np.repeat(first, 4)[:, None] + np.arange(5, dtype=np.int32)).ravel()
    rng, indptr = np.random.default_rng(0), np.arange(0, len(successors) + 1, 5)
    task = up.Task(n_states, 4, horizon, indptr, successors, rng.random((n_states, 4)))
    del first, successors, indptr
    x = rng.standard_normal((task.n_triples, 20), np.float32)
    x.setflags(write=False)
    return getattr(up.agents, cls)(task, up.Features(task, x))

def start(n_states):
    if name == "dense":
        return dense(n_states)
    task = up.envs.riverswim(n_states, horizon).task(support)
    if name == "pooled":
        return getattr(up.agents, cls)(task, up.features.pooled(up.features.shared(task)))
    return getattr(up.agents, cls)(task, getattr(up.features, name)(task))

def play(agent, state, rng):
    plan = agent.plan(state, rng)
    steps = np.arange(horizon + 1) % 2  # right to state 1, left to state 0
    return plan, agent.update(state, plan, Episode(steps, 1 - steps[:-1], np.zeros(horizon)))

rng = np.random.default_rng(0)
small = start(5)
play(small, small.init(), rng)  # compiled before it is measured
tracemalloc.start()
agent = start(n_states)
built = tracemalloc.get_traced_memory()[1]
tracemalloc.reset_peak()
plan, state = play(agent, agent.init(), rng)
now, peak = tracemalloc.get_traced_memory()
tracemalloc.stop()
seconds, passed = [], []
for _ in range(repeats):
    plan = None
    began, clock = time.process_time(), time.perf_counter()
    plan, state = play(agent, state, rng)
    seconds.append(time.process_time() - began)
    passed.append(time.perf_counter() - clock)
try:  # the peak of this program alone; that of getrusage begins with that of its parent
    status = open("/proc/self/status").read()
    resident = 1024 * int(status.split("VmHWM:")[1].split()[0])
except OSError:  # not Linux
    resident = None
print(json.dumps({
    "built": built, "peak": peak, "now": now, "seconds": sorted(seconds)[repeats // 2],
    "passed": sorted(passed)[repeats // 2], "resident": resident,
    "triples": agent.task.n_triples, "dimension": agent.features.dimension,
    "policy": plan.policy.nbytes, "v": plan.v.nbytes,
}))
"""


def measure_episode(
    features: str,
    n_states: int,
    horizon: int = HORIZON,
    repeats: int = 3,
    agent: str = "UCRLMNL",
    support: str = "known",
    threads: int = 1,
) -> dict:
    """One episode of an agent, planned and learned from, measured in a fresh process."""
    environment = os.environ | {"NUMBA_NUM_THREADS": str(threads)}
    numbers = map(str, (n_states, horizon, repeats))
    given = [sys.executable, "-c", EPISODE, agent, features, support, *numbers]
    done = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChildProcessError(f"an episode at S={n_states} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def count_needed_bytes(seen: dict, horizon: int, n_states: int) -> int:
    """Bytes of one number for each triple and each (step, state), and a policy of one byte."""
    return 8 * seen["triples"] + (8 + 1) * horizon * n_states


def measure_memory(quick: bool, _: bool = False) -> Iterator[Measurement]:
    sizes = {"shared": (10**4,), "one_hot": (10**4,)}
    if not quick:
        sizes = {"shared": (10**3, 10**4, 10**5, 10**6), "one_hot": (10**3, 10**4, 10**5)}
    for features, counts in sizes.items():
        first: dict | None = None
        for n_states in counts:
            repeats = 1 if quick else max(3, min(51, 10**6 // n_states))
            seen = measure_episode(features, n_states, repeats=repeats)
            case = f"ucrl-mnl, {features}, S={n_states}, H={HORIZON}"
            yield Measurement(
                "memory",
                case,
                seen["peak"] / 2**20,
                "MiB",
                "triples and values alone",
                count_needed_bytes(seen, HORIZON, n_states) / 2**20,
                note="the arrays of task, features, agent and plan, at their peak",
            )
            first = first or seen
            yield Measurement(
                "time against size",
                case,
                per_triple(seen),
                "ns/triple/step",
                f"the same, S={counts[0]}",
                per_triple(first),
                note=f"{seen['seconds']:.3g} s an episode",
            )


def measure_pooled_features(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """UCRL-MNL-SE with 8 shared features, pooled, against the same features alone."""
    for n_states in (10**3,) if quick else (10**4, 10**5):
        repeats = 1 if quick else max(3, 10**5 // n_states)
        seen, alone = (
            measure_episode(features, n_states, repeats=repeats, agent="UCRLMNLSE", support="local")
            for features in ("pooled", "shared")
        )
        case, against = f"ucrl-mnl-se, pooled, S={n_states}, H={HORIZON}", "the same, shared"
        yield Measurement(
            "pooled: time",
            case,
            1e3 * seen["seconds"],
            "ms",
            against,
            1e3 * alone["seconds"],
            note="planning and learning from one episode",
        )
        yield Measurement(
            "pooled: memory",
            case,
            seen["peak"] / 2**20,
            "MiB",
            against,
            alone["peak"] / 2**20,
            note="the arrays of task, features, agent and plan, at their peak",
        )


def measure_dense_features(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """4 actions, 5 successors and 20 features of each triple, in float32, on all cores."""
    n_states, horizon, threads = 10**3 if quick else 10**6, 20, os.cpu_count() or 1
    seen = measure_episode("dense", n_states, horizon, threads=threads)
    case = f"ucrl-mnl, d=20, S={n_states}, H={horizon}, {threads} threads"
    resident = (seen["resident"] or 0) / 1e9
    yield Measurement(
        "dense: time",
        case,
        seen["passed"],
        "s",
        note=f"by the clock; {seen['seconds']:.3g} s of CPU",
    )
    yield Measurement(
        "dense: memory",
        case,
        resident,
        "GB",
        note="all that the process held, at its peak",
    )


def per_triple(seen: dict) -> float:
    return 1e9 * seen["seconds"] / (seen["triples"] * HORIZON)
