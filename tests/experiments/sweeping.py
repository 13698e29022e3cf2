"""Starting real sweeps in real processes, for the tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from upriver.experiments import Experiment, import_code, parse
from upriver.results.runs import load_runs, read_results
from upriver.results.statistics import Row, summarize
from upriver.results.tables import to_csv

ROOT = Path(__file__).parents[2]
AGENTS_FILE = ROOT / "tests" / "experiments" / "sweep_agents.py"
AGENTS = "sweep_agents"
import_code(AGENTS_FILE)


def sweep(agents: list[dict], seeds: int, episodes: int = 3, **environment) -> Experiment:
    return parse(
        {
            "name": "sweep",
            "episodes": episodes,
            "seeds": {"count": seeds},
            "environments": [{"name": "riverswim-3", "horizon": 5, **environment}],
            "agents": agents,
        }
    )


TWO_HUNDRED = sweep([{"agent": "ucrl-mnl"}, {"agent": f"{AGENTS}:Logged"}], seeds=100)


def command(*words: object) -> list[str]:
    """A command line; what plays runs may use the agents of this folder."""
    code = ["--import", AGENTS_FILE] if words[0] in ("run", "tune") else []
    return [sys.executable, "-m", "upriver", *map(str, [*words, *code])]


def environment(**extra: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **extra}


def start(*words: object, **extra: str) -> subprocess.Popen[str]:
    """A sweep as a process group of its own, so that all of it can be killed at once."""
    return subprocess.Popen(
        command(*words),
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 300.0) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def stored(folder: Path) -> list[Path]:
    return sorted(folder.glob("env=*/agent=*/*.parquet"))


def table_bytes(folder: Path) -> bytes:
    """Everything deterministic in a folder: every row of every run, and the printed table."""
    table = load_runs(folder)
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return (
        sink.getvalue().to_pybytes()
        + to_csv(Row._fields, summarize(read_results(folder).samples)).encode()
    )
