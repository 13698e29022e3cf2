"""Figures of the findings pages."""

import numpy as np

from studies import figures
from upriver.results.statistics import Band


def test_a_bonus_of_zero_has_a_place_on_the_log_axis():
    c = np.array([0, 1e-4, 1e-2, 1.0])
    figure = figures.plot_bonus_scale({"exact": Band(c, [0.9] * 4, [0.8] * 4, [1.0] * 4)})
    axes = figure.axes[0]
    x = axes.get_lines()[1].get_xdata()
    assert 0 < x[0] < 1e-4
    assert np.array_equal(x[1:], c[1:])
    assert axes.get_xticklabels()[0].get_text() == "0"
    assert axes.get_xticks()[0] == x[0]


def test_the_rate_names_its_slope():
    x = np.geomspace(10, 1e4, 40)
    panel = {"ucrl-mnl": Band(x, 3 * x**0.5, x**0.5, 4 * x**0.5)}
    figure = figures.plot_regret_rate(panel, {"ucrl-mnl": (0.5, 0.45, 0.55)}, first=1000)
    assert figure.legends[0].get_texts()[0].get_text() == "ucrl-mnl: slope 0.50 [0.45, 0.55]"
    fit = figure.axes[0].get_lines()[1]
    assert fit.get_xdata()[0] >= 1000
    assert np.allclose(fit.get_ydata(), 3 * fit.get_xdata() ** 0.5)
