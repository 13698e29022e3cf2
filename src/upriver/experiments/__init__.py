"""Experiments as data: specification -> runs -> files.

    experiment = load("quick")                     # a name of the catalogue, or a TOML file
    outcome = execute(experiment, "results/quick", jobs=2)
    table = upriver.load_runs("results/quick")

This package imports pydantic and pyarrow; `import upriver` does not import it.
"""

from upriver.experiments.build import RunSpec, run_one
from upriver.experiments.execute import SweepResult, execute
from upriver.experiments.registry import import_code
from upriver.experiments.spec import Experiment, catalogue, load, parse
from upriver.experiments.store import Store, check, read_records

__all__ = [
    "Experiment",
    "RunSpec",
    "Store",
    "SweepResult",
    "catalogue",
    "check",
    "execute",
    "import_code",
    "load",
    "parse",
    "read_records",
    "run_one",
]  # fmt: skip
