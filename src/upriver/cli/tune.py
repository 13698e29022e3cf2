"""`upriver tune`: the declared grids, on tuning seeds."""

from __future__ import annotations

import sys
from pathlib import Path

from upriver.cli.run import USUALLY, How, guarded, summarise


def tune(
    experiment: str,
    *,
    out: Path | None = None,
    runs: int = 10,
    shared: bool = False,
    widen: int = 0,
    how: How = USUALLY,
) -> int:
    """Choose each agent's numbers over its grid; writes tuned.toml, which `run` accepts.

    Tuning seeds never overlap the seeds of an experiment. The best mean cumulative exact value
    wins; every grid point, with its interval, is kept in grid.csv.

    **Example:** `upriver tune quick --runs 5`, then `upriver run tuning/quick/tuned.toml`

    Parameters
    ----------
    experiment
        A name of the catalogue (see `upriver list`), or a TOML file.
    out
        Where to write; tuning/NAME if absent.
    runs
        Tuning seeds for each grid point.
    shared
        One choice for all environments instead of one for each.
    widen
        Steps beyond the edge of a grid: taken one at a time, from the best point, while each is
        better than the last.
    """
    from upriver import tuning
    from upriver.experiments import load

    spec = load(experiment, how.trust)
    folder = out or Path("tuning") / spec.name
    tuned = guarded(lambda: tuning.tune(spec, folder, runs, shared, widen, **how.options()), folder)
    code = summarise(tuned.outcome, folder / "runs")
    for p in tuned.points:
        if p.chosen:
            numbers = ", ".join(f"{k} = {v}" for k, v in p.numbers.items()) or "nothing to tune"
            print(f"{p.env}  {p.agent}: {numbers}  ({p.mean:.6g}, {p.low:.6g} to {p.high:.6g})")
    for sentence in tuned.warnings:
        print(f"warning: {sentence}", file=sys.stderr)
    if code == 0:
        print(f"chosen numbers: {folder / 'tuned.toml'}; every point: {folder / 'grid.csv'}")
    return code
