"""Figures: the right numbers are drawn, the same agent looks the same, fonts are embedded."""

import re
import zlib

import numpy as np
import pytest

from upriver.display.figures import RC
from upriver.results import plots
from upriver.results.styles import KNOWN, Style, styles

X = np.arange(1, 31)


def band(slope=0.1):
    return plots.Band(X, slope * X, slope * X - 0.2, slope * X + 0.2)


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_known_agents_have_looks_of_their_own():
    aliases = {"ucrl-mnl-one-hot"}
    looks = [style[:3] for name, style in KNOWN.items() if name not in aliases]
    assert len(set(looks)) == len(looks)


def test_an_agent_looks_the_same_whatever_it_is_shown_with():
    alone = styles(["ucrl-mnl"])["ucrl-mnl"]
    assert styles(["optimal", "UCRL-MNL", "mine", "yours"])["UCRL-MNL"] == alone
    assert styles(["mine"])["mine"] == styles(["ucrl-mnl", "mine"])["mine"]


def test_unknown_agents_in_one_figure_differ():
    labels = [f"my agent {i}" for i in range(20)]
    found = styles(labels)
    assert list(found) == labels
    assert len(set(found.values())) == 20
    assert len({s.light for s in styles(labels[:6]).values()}) == 6


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_lines_stand_out_on_their_page():
    # contrast of graphics against the page, as accessibility rules ask for: at least 3 to 1
    page = {"light": luminance("#ffffff"), "dark": luminance("#1a1e21")}
    for name, style in KNOWN.items():
        for theme in ("light", "dark"):
            a, b = sorted([luminance(getattr(style, theme)), page[theme]])
            assert (b + 0.05) / (a + 0.05) >= 2.9, (name, theme)


def test_learning_curves_draw_the_means_and_the_optimum():
    panels = {
        "river-6": {"ucrl-mnl": band(0.1), "random": band(0.01)},
        "river-8": {"random": band()},
    }
    figure = plots.learning_curves(panels, {"river-6": 3.0}, window=5)
    first, second = figure.axes
    assert [first.get_title(), second.get_title()] == ["river-6", "river-8"]
    drawn = lines_of(first)
    assert np.array_equal(drawn["ucrl-mnl"].get_ydata(), 0.1 * X)
    assert drawn["ucrl-mnl"].get_color() == KNOWN["ucrl-mnl"].light
    levels = [line.get_ydata()[0] for line in first.get_lines()]
    assert 3.0 in levels
    assert "mean of the last 5" in first.get_ylabel()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["ucrl-mnl", "random", "optimal"]


def test_the_optimum_is_a_line_and_not_its_runs():
    panels = {"river": {"optimal": band(0.2), "random": band(0.01)}}
    figure = plots.learning_curves(panels, {"river": 3.0})
    heights = [np.asarray(line.get_ydata()).max() for line in figure.axes[0].get_lines()]
    assert sorted(heights) == pytest.approx([0.3, 3.0])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["random", "optimal"]


def test_a_log_scale_leaves_out_what_it_cannot_show():
    nothing = plots.Band(X, 0 * X, 0 * X, 0 * X)
    late = plots.Band(X, np.maximum(X - 3.0, 0), 0 * X, X)
    figure = plots.regret_curves({"river": {"optimal": nothing, "greedy": late}}, log=True)
    (axes,) = figure.axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    drawn = lines_of(axes)
    assert list(drawn) == ["greedy"]
    assert np.isnan(drawn["greedy"].get_ydata()[:3]).all()
    assert plots.regret_curves({"river": {"greedy": late}}).axes[0].get_yscale() == "linear"


def test_scaling_ticks_are_the_sizes():
    sizes = [6, 10, 20, 40, 80]
    figure = plots.scaling_figure({"psrl": plots.Band(sizes, [1, 2, 4, 8, 16], *[[1] * 5] * 2)})
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["6", "10", "20", "40", "80"]


def test_a_bonus_of_zero_has_a_place_on_the_log_axis():
    c = np.array([0, 1e-4, 1e-2, 1.0])
    figure = plots.bonus_sweep_figure({"exact": plots.Band(c, [0.9] * 4, [0.8] * 4, [1.0] * 4)})
    axes = figure.axes[0]
    x = lines_of(axes)["exact"].get_xdata()
    assert 0 < x[0] < 1e-4
    assert np.array_equal(x[1:], c[1:])
    assert axes.get_xticklabels()[0].get_text() == "0"
    assert axes.get_xticks()[0] == x[0]


def test_the_rate_names_its_slope():
    x = np.geomspace(10, 1e4, 40)
    panel = {"ucrl-mnl": plots.Band(x, 3 * x**0.5, x**0.5, 4 * x**0.5)}
    figure = plots.rate_figure(panel, {"ucrl-mnl": (0.5, 0.45, 0.55)}, first=1000)
    assert figure.legends[0].get_texts()[0].get_text() == "ucrl-mnl: slope 0.50 [0.45, 0.55]"
    fit = figure.axes[0].get_lines()[1]
    assert fit.get_xdata()[0] >= 1000
    assert np.allclose(fit.get_ydata(), 3 * fit.get_xdata() ** 0.5)


@pytest.mark.parametrize("width", ["one", "two"])
def test_nothing_overlaps_or_leaves_the_figure(width):
    labels = ["ucrl-mnl", "uc-matrix-rl", "ucrl-vtr", "lsvi-ucb", "lsvi-phe", "greedy", "random"]
    panels = {f"river-{n}": {label: band() for label in labels} for n in (6, 8, 10, 20)}
    figure = plots.learning_curves(panels, dict.fromkeys(panels, 3.0), window=10, width=width)
    assert figure.get_figwidth() == plots.WIDTHS[width]
    figure.canvas.draw()
    whole = figure.bbox
    legend = figure.legends[0].get_window_extent()
    assert whole.x0 <= legend.x0 and legend.x1 <= whole.x1 and whole.y0 - 1 <= legend.y0
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for i, box in enumerate(boxes):
        assert not box.overlaps(legend)
        assert whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_saved_figures_are_equal_and_hold_their_fonts(tmp_path):
    draw = lambda: plots.regret_curves({"river": {"ucrl-mnl": band()}}, width="one")  # noqa: E731
    once = plots.save(draw(), tmp_path / "a" / "regret")
    again = plots.save(draw(), tmp_path / "b" / "regret")
    assert [p.name for p in once] == ["regret.png", "regret.pdf"]
    for first, second in zip(once, again, strict=True):
        assert first.read_bytes() == second.read_bytes()
    pdf = once[1].read_bytes()
    packed = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    text = pdf + b"".join(map(unpacked, packed))
    assert b"/FontFile2" in text  # TrueType, embedded
    assert b"/Type3" not in text


def unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error:
        return b""


def test_other_settings_do_not_leak_in_or_out():
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9.0}):
        figure = plots.regret_curves({"river": {"ucrl-mnl": band()}})
        assert figure.axes[0].get_lines()[0].get_linewidth() == RC["lines.linewidth"]
        assert matplotlib.rcParams["lines.linewidth"] == 9.0


def test_wrong_calls_are_told():
    with pytest.raises(ValueError, match="width is 'three'"):
        plots.regret_curves({"river": {"ucrl-mnl": band()}}, width="three")
    with pytest.raises(ValueError, match="no curves"):
        plots.learning_curves({})
    assert isinstance(styles([""])[""], Style)


def test_streams_are_drawn_by_the_step():
    streams = {"river-6-discount-1": {"ucrl2": band()}, "bus-discount-0.9999": {"ucrl2": band()}}
    regret, learned = plots.regret_curves(streams), plots.learning_curves(streams)
    assert {axes.get_xlabel() for axes in regret.axes} <= {"step", ""}
    assert learned.axes[0].get_ylabel() == "return of a step"
    mixed = plots.regret_curves({**streams, "river-6": {"ucrl2": band()}})
    assert {axes.get_xlabel() for axes in mixed.axes} <= {"episode", ""}
