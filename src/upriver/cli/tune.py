"""`upriver tune`: choose the settings of each agent on tuning seeds."""

from __future__ import annotations

import sys
from pathlib import Path

from upriver.cli.run import DEFAULTS, Options, keep_on_interrupt, print_outcome


def tune(
    experiment: str,
    *,
    out: Path | None = None,
    runs: int = 10,
    shared: bool = False,
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
    shared
        Make one choice for all environments instead of one for each.
    """
    from upriver import tuning

    spec = options.load(experiment)
    folder = out or Path("tuning") / spec.name
    tuned = keep_on_interrupt(
        lambda: tuning.tune(spec, folder, runs, shared, **options.for_execute()), folder
    )
    code = print_outcome(tuned.outcome, folder / "runs")
    for p in tuned.points:
        if p.chosen:
            numbers = ", ".join(f"{k} = {v}" for k, v in p.numbers.items()) or "nothing to tune"
            print(f"{p.env}  {p.agent}: {numbers}  ({p.mean:.6g}, {p.low:.6g} to {p.high:.6g})")
    for sentence in tuned.warnings:
        print(f"warning: {sentence}", file=sys.stderr)
    if code == 0:
        print(f"chosen settings: {folder / 'tuned.toml'}; every point: {folder / 'grid.csv'}")
    return code
