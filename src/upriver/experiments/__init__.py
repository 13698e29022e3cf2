"""Experiments as data: spec -> runs -> files. A pure function over a list of runs, and a folder.

    experiment = load("quick")                     # a name of the catalogue, or a TOML file
    outcome = execute(experiment, "results/quick", jobs=2)
    table = upriver.load_runs("results/quick")

This package imports pydantic and pyarrow; `import upriver` does not import it.
"""

from upriver.experiments.build import run_one
from upriver.experiments.execute import Outcome, execute
from upriver.experiments.reading import catalogue, load
from upriver.experiments.runspec import RunSpec
from upriver.experiments.spec import Experiment
from upriver.experiments.store import Store

__all__ = ["Experiment", "Outcome", "RunSpec", "Store", "catalogue", "execute", "load", "run_one"]
