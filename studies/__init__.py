"""The studies behind the results pages: `python -m studies NAME` runs one and writes its tables.

A study is a specification in `studies/specs` and a function that turns its stored runs into a table
and figures. The functions play nothing, so they can be repeated on a results folder:

    experiment = studies.load_study("scaling")
    found = studies.find(experiment, upriver.load_runs("results/scaling"))
    found.table, found.figures
"""

from __future__ import annotations

from pathlib import Path

from studies.measured import Cell, Measured, measure
from studies.pages import FINDINGS, Found, find, slope_of, solved_range
from upriver.experiments import Experiment, import_code, load

FOLDER = Path(__file__).parent
CODE = ("changing.py", "default_agent.py", "environments.py", "kappa.py", "problems.py")
"""Files with environments, features and agents that specifications name as `file:name`."""


def load_study(name: str) -> Experiment:
    """Return the experiment of a study, after importing the code that specifications may name."""
    path = FOLDER / "specs" / f"{name}.toml"
    if not path.exists():
        names = sorted(p.stem for p in (FOLDER / "specs").glob("*.toml"))
        raise ValueError(f"study {name!r} is unknown; it must be one of {', '.join(names)}")
    for file in CODE:
        import_code(FOLDER / file)
    return load(path)


__all__ = [
    "FINDINGS", "Cell", "Found", "Measured", "find", "load_study", "measure", "slope_of",
    "solved_range",
]  # fmt: skip
