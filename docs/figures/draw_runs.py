"""Draw the figures that need single runs, in one column that can be read on a phone.

python docs/figures/draw_runs.py figure2 FOLDER            (of `upriver reproduce --out FOLDER`)
python docs/figures/draw_runs.py factored-learning FOLDER  (of `python -m studies factored`)

The tables in docs/results/tables are of the same runs.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from studies import factored  # noqa: E402
from upriver.cli import reproduce  # noqa: E402
from upriver.display.figures import figure_style  # noqa: E402
from upriver.paper import table1  # noqa: E402
from upriver.results import plots  # noqa: E402
from upriver.results.runs import read_results  # noqa: E402

RUNS = {"figure2": 10, "factored-learning": 30}


def figure2(folder):
    narrow = partial(plots.plot_curves, width="one")
    samples = [s.select_seeds(set(range(RUNS["figure2"]))) for s in read_results(folder).samples]
    with patch.object(plots, "plot_curves", narrow):
        figure = reproduce.draw_learning(samples, table1.METHODS, reproduce.WINDOW)
    for axes in figure.axes:
        axes.set_ylabel(f"return, mean of {reproduce.WINDOW}")
    return figure


def factored_learning(folder):
    n_runs = RUNS["factored-learning"]
    _, curves = factored.learning(folder, n_runs)
    _, curves["4 switches"] = factored.exploration(folder, 2 * n_runs // 3)
    del curves["SysAdmin 3"]
    with patch.object(factored, "make_axes", lambda n, _: plots.make_axes(n, "one")):
        return factored.draw_curves(curves)


if __name__ == "__main__":
    name, source = sys.argv[1:]
    draw = {"figure2": figure2, "factored-learning": factored_learning}[name]
    figure = draw(Path(source))
    figure.set_figheight(0.82 * figure.get_figheight())
    with figure_style():
        figure.savefig(HERE / f"{name}.png", dpi=150)
