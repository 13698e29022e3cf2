"""`upriver run` and `tune`: play an experiment, or choose its settings."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from upriver.cli import CALL

if TYPE_CHECKING:
    from upriver.experiments import Experiment, SweepResult


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """How an experiment is read and how its runs are played."""

    jobs: int | None = None
    """Number of worker processes. The default is one for each processor."""
    cluster: str | None = None
    """Address of a running Dask scheduler, such as tcp://host:8786."""
    run_timeout: float | None = None
    """Number of seconds after which a run counts as failed and its process is ended."""
    code: Annotated[list[Path] | None, Parameter(name="--import")] = None
    """A Python file with code that you trust; may be given several times. The experiment refers
    to what agents.py defines as `agents:NAME`. No other code is ever executed."""

    def load(self, experiment: str) -> Experiment:
        from upriver.experiments import import_code, load

        for path in self.code or ():
            import_code(path)
        return load(experiment)

    def for_execute(self) -> dict[str, Any]:
        from upriver.experiments.execute import make_reporter

        names = ("jobs", "cluster", "run_timeout")
        given = {name: getattr(self, name) for name in names}
        return given | {"reporter": make_reporter(), "command": shlex.join(CALL)}


DEFAULTS = Options()


def run(
    experiment: str | None = None, *, out: Path | None = None, options: Options = DEFAULTS
) -> int:
    """Play the runs of an experiment that are not stored yet.

    **Example:** `upriver run quick --out results/quick --jobs 2`

    Parameters
    ----------
    experiment
        A name of the catalogue (`upriver list` shows them), or a TOML file, which `upriver new`
        writes.
    out
        The results folder. The default is results/NAME.
    """
    from upriver.experiments import execute

    if experiment is None:
        raise ValueError(
            "run needs an experiment: `upriver run quick` plays a demonstration, `upriver list` "
            "names the others, and `upriver new NAME` writes a file to start from"
        )
    spec = options.load(experiment)
    folder = out or Path("results") / spec.name
    with keep_on_interrupt(folder):
        outcome = execute(spec, folder, **options.for_execute())
    return print_outcome(outcome, folder)


def tune(
    experiment: str,
    *,
    out: Path | None = None,
    runs: int = 10,
    options: Options = DEFAULTS,
) -> int:
    """Choose each agent's settings from its grid and write tuned.toml, which `run` accepts.

    Tuning seeds never overlap the seeds of an experiment. The highest mean cumulative exact value
    wins; grid.csv has every grid point with its interval.

    **Example:** `upriver tune quick --runs 5`, then `upriver run tuning/quick/tuned.toml`

    Parameters
    ----------
    experiment
        A name of the catalogue (`upriver list` shows them), or a TOML file.
    out
        The folder to write to. The default is tuning/NAME.
    runs
        Number of tuning seeds for each grid point.
    """
    from upriver import tuning

    spec = options.load(experiment)
    folder = out or Path("tuning") / spec.name
    with keep_on_interrupt(folder):
        tuned = tuning.tune(spec, folder, runs, **options.for_execute())
    code = print_outcome(tuned.outcome, folder)
    for p in tuned.points:
        if p.chosen:
            settings = ", ".join(f"{k} = {v}" for k, v in p.settings.items())
            print(f"{p.env}  {p.agent}: {settings}  ({p.mean:.6g}, {p.low:.6g} to {p.high:.6g})")
    for sentence in tuned.warnings:
        print(f"warning: {sentence}", file=sys.stderr)
    if code == 0:
        print(f"chosen settings: {folder / 'tuned.toml'}; every point: {folder / 'grid.csv'}")
    return code


@contextmanager
def keep_on_interrupt(folder: Path) -> Iterator[None]:
    """On Ctrl-C say that finished runs are kept and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        again = f"Continue with: {shlex.join(CALL)}"
        print(f"stopped; finished runs are kept in {folder}. {again}", file=sys.stderr)
        raise


def print_outcome(outcome: SweepResult, folder: Path) -> int:
    """Print what became of the runs, and return the exit code."""
    numbers = f"{outcome.stored} were stored, {outcome.ran} ran, {len(outcome.failed)} failed"
    print(f"{outcome.total} runs in {folder}: {numbers}")
    sentences = [f"{x}; move the file away and run again" for x in outcome.broken]
    if outcome.failed:
        run, error = outcome.failed[0]
        first = f"{run.env}, {run.label}, seed {run.seed}: {error}"
        traces = f"(tracebacks in {folder / '_failed'})"
        sentences.append(f"{len(outcome.failed)} runs failed, first {first} {traces}")
    for sentence in sentences:
        print(f"upriver: {sentence}", file=sys.stderr)
    return 0 if outcome.complete else 1
