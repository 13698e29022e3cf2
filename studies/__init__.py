"""The experiments of the findings page: runs to numbers to a table and figures. Plays nothing.

experiment = upriver.experiments.load("scaling")
found = find(experiment, upriver.load_runs("results/scaling"))
found.table, found.figures
"""

from studies.measured import Cell, Measured, measure
from studies.pages import FINDINGS, Found, find, slope_of, solved_range

__all__ = [
    "FINDINGS", "Cell", "Found", "Measured", "find", "measure", "slope_of", "solved_range",
]  # fmt: skip
