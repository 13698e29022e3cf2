"""What `coverage` measured, as curves and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array
from upriver.diagnostics.coverage import Coverage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def coverage_curves(measured: Coverage) -> dict[str, dict[str, Array]]:
    """{panel: {curve: (K,)}}: distances and radii, optimism, clips and ties, and the potential.

    "distance" holds the median and the 1 - delta quantile over the runs of
    ||theta_hat_k - theta*||_{A_k}, and the median of every radius.
    """
    distance = measured.distance
    radii = {f"{name} radius": np.median(x, axis=0) for name, x in measured.radii.items()}
    return {
        "distance": {
            "median distance": np.median(distance, axis=0),
            f"{1.0 - measured.delta:.0%} of runs below": np.quantile(
                distance, 1.0 - measured.delta, axis=0
            ),
            **radii,
        },
        "optimism": {"share of runs with V_1 >= V*_1": measured.optimistic.mean(axis=0)},
        "clips and ties": {
            "share of (h, s) clipped": measured.clipped.mean(axis=0),
            "share of states tied": measured.tied.mean(axis=0),
        },
        "elliptical potential": {
            "largest sum": measured.potential.max(axis=0),
            "bound": measured.potential_bound.min(axis=0),
        },
    }


def coverage_figure(measured: Coverage) -> Figure:
    """One panel for each group of `coverage_curves`, against the episode."""
    from upriver.display.figures import figure_style
    from upriver.results.plots import make_axes

    panels = coverage_curves(measured)
    with figure_style():
        figure, every = make_axes(len(panels), "two", 0.72)
        for axes, (title, curves) in zip(every, panels.items(), strict=True):
            episode = np.arange(1, measured.distance.shape[1] + 1)
            drawn: list[Any] = [axes.plot(episode, y, label=x)[0] for x, y in curves.items()]
            axes.set(title=title, xlabel="episode")
            if title in ("distance", "elliptical potential"):
                positive = all((y > 0.0).all() for y in curves.values())
                axes.set_yscale("log" if positive else "symlog")
            else:
                axes.set_ylim(-0.03, 1.03)
            below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
            axes.legend(handles=drawn, frameon=False, ncols=2, **below)
    return figure
