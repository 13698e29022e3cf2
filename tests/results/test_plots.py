"""Figures: the right numbers are drawn, the same agent looks the same, fonts are embedded."""

import csv
import itertools
import re
import zlib

import numpy as np
import pytest

from upriver.results import plots, tables
from upriver.results.styles import KNOWN, Style, assign_styles

X = np.arange(1, 31)


def band(slope=0.1):
    return plots.Band(X, slope * X, slope * X - 0.2, slope * X + 0.2)


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_known_agents_have_looks_of_their_own():
    looks = [style[:3] for style in KNOWN.values()]
    assert len(set(looks)) == len(looks)


def test_an_agent_looks_the_same_whatever_it_is_shown_with():
    alone = assign_styles(["ucrl-mnl"])["ucrl-mnl"]
    assert assign_styles(["optimal", "UCRL-MNL", "mine", "yours"])["UCRL-MNL"] == alone
    assert assign_styles(["mine"])["mine"] == assign_styles(["ucrl-mnl", "mine"])["mine"]


def test_unknown_agents_in_one_figure_differ():
    labels = [f"my agent {i}" for i in range(20)]
    found = assign_styles(labels)
    assert list(found) == labels
    assert len(set(found.values())) == 20
    assert len({s.light for s in assign_styles(labels[:6]).values()}) == 6


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
    figure = plots.plot_curves(panels, "return", {"river-6": 3.0})
    first, second = figure.axes
    assert [first.get_title(), second.get_title()] == ["river-6", "river-8"]
    drawn = lines_of(first)
    assert np.array_equal(drawn["ucrl-mnl"].get_ydata(), 0.1 * X)
    assert drawn["ucrl-mnl"].get_color() == KNOWN["ucrl-mnl"].light
    levels = [line.get_ydata()[0] for line in first.get_lines()]
    assert 3.0 in levels
    assert first.get_ylabel() == "return"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["ucrl-mnl", "random", "optimal"]


def test_the_optimum_is_a_line_and_not_its_runs():
    panels = {"river": {"optimal": band(0.2), "random": band(0.01)}}
    figure = plots.plot_curves(panels, "return", {"river": 3.0})
    heights = [np.asarray(line.get_ydata()).max() for line in figure.axes[0].get_lines()]
    assert sorted(heights) == pytest.approx([0.3, 3.0])
    assert {text.get_text() for text in figure.axes[0].texts} == {"random", "optimal"}


def test_a_log_scale_leaves_out_what_it_cannot_show():
    nothing = plots.Band(X, 0 * X, 0 * X, 0 * X)
    late = plots.Band(X, np.maximum(X - 3.0, 0), 0 * X, X)
    figure = plots.plot_curves({"river": {"optimal": nothing, "greedy": late}}, log=True)
    (axes,) = figure.axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    drawn = lines_of(axes)
    assert list(drawn) == ["greedy"]
    assert np.isnan(drawn["greedy"].get_ydata()[:3]).all()
    assert plots.plot_curves({"river": {"greedy": late}}).axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("width", ["one", "two"])
def test_nothing_overlaps_or_leaves_the_figure(width):
    labels = ["ucrl-mnl", "uc-matrix-rl", "ucrl-vtr", "lsvi-ucb", "lsvi-phe", "greedy", "random"]
    panels = {f"river-{n}": {label: band() for label in labels} for n in (6, 8, 10, 20)}
    figure = plots.plot_curves(panels, "return", dict.fromkeys(panels, 3.0), width=width)
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
    draw = lambda: plots.plot_curves({"river": {"ucrl-mnl": band()}}, width="one")  # noqa: E731
    once = plots.save_figure(draw(), tmp_path / "a" / "regret")
    again = plots.save_figure(draw(), tmp_path / "b" / "regret")
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
        figure = plots.plot_curves({"river": {"ucrl-mnl": band()}})
        assert figure.axes[0].get_lines()[0].get_linewidth() == 1.3
        assert matplotlib.rcParams["lines.linewidth"] == 9.0


def test_wrong_calls_are_errors():
    with pytest.raises(ValueError, match="width is 'three'"):
        plots.plot_curves({"river": {"ucrl-mnl": band()}}, width="three")
    with pytest.raises(ValueError, match="no curves"):
        plots.plot_curves({})
    assert isinstance(assign_styles([""])[""], Style)


def test_infinite_horizons_are_drawn_by_the_step():
    panels = {"river": {"ucrl2": band()}}
    assert plots.plot_curves(panels, unit="step").axes[0].get_xlabel() == "step"
    assert plots.plot_curves(panels).axes[0].get_xlabel() == "episode"


def test_names_with_dollar_signs_are_drawn_as_they_are(tmp_path):
    figure = plots.plot_curves({"5$ and $\\frac": {"mine $x": band()}}, width="one")
    assert plots.save_figure(figure, tmp_path / "dollars", ["png"])
    assert figure.axes[0].get_title() == "5$ and $\\frac"


def test_tables_are_written_in_three_ways():
    rows = [["agent", "mean"], ["ucrl-mnl", "1.50"], ["psrl", "12.25"]]
    assert tables.to_markdown(rows).splitlines()[1:3] == ["| --- | ---: |", "| ucrl-mnl | 1.50 |"]
    assert tables.to_text(rows) == "agent      mean\nucrl-mnl   1.50\npsrl      12.25\n"
    assert tables.to_csv(["a", "b"], [("x", 0.1 + 0.2), (None, 7)]) == (
        "a,b\nx,0.30000000000000004\n,7\n"
    )
    assert tables.to_csv(["a"], [(2 / 3,)], digits=3) == "a\n0.667\n"
    assert tables.to_csv(["a", "b"], [(float("nan"), 1.0)]) == "a,b\n,1.0\n"
    assert [tables.format_setting(x) for x in (0.5, 1e-7, 3, "x")] == ["0.5", "1e-07", "3", "x"]


def test_a_label_is_never_a_formula_of_a_spreadsheet():
    labels = ['=HYPERLINK("http://x")', "+1+cmd|' /C calc'!A0", "@SUM(1)", "-x", "-0.5 to 1.2"]
    written = list(csv.reader(tables.to_csv(["agent"], [[x] for x in labels]).splitlines()))
    assert [row[0] for row in written[1:]] == [*(f"'{x}" for x in labels[:4]), "-0.5 to 1.2"]
    assert tables.to_csv(["a"], [[-1.5], ["+1.50"]]) == "a\n-1.5\n+1.50\n"


def test_at_most_six_agents_are_named_and_the_optimum_is_black():
    labels = [f"agent {i}" for i in range(9)]
    panel = {"optimal": band(0.2)} | {label: band(0.01 * i) for i, label in enumerate(labels)}
    figure = plots.plot_curves({"river": panel})
    (axes,) = figure.axes
    assert not figure.legends  # the names stand at the ends of the lines
    names = {text.get_text(): text.get_color() for text in axes.texts}
    assert set(names) == {"optimal", *labels[:6], "others"}
    drawn = lines_of(axes)
    assert drawn["optimal"].get_color() == KNOWN["optimal"].light == "#1a1a1a"
    assert all(names[label] == drawn[label].get_color() for label in labels[:6])
    assert {drawn[label].get_color() for label in labels[6:]} == {plots.REST.light}
    assert len({(drawn[x].get_color(), drawn[x].get_marker()) for x in labels[:6]}) == 6


def test_names_at_the_ends_of_lines_do_not_overlap():
    panel = {f"agent {i}": band(0.1 + 1e-4 * i) for i in range(6)}
    figure = plots.plot_curves({"river": panel}, width="one")
    figure.canvas.draw()
    boxes = sorted((t.get_window_extent() for t in figure.axes[0].texts), key=lambda b: b.y0)
    assert all(below.y1 <= above.y0 + 1.0 for below, above in itertools.pairwise(boxes))
    assert all(box.x1 <= figure.bbox.x1 + 1 for box in boxes)


def test_no_two_agents_have_colour_and_marker_in_common():
    looks = [(style.light, style.marker) for style in KNOWN.values()]
    assert len(set(looks)) == len(looks)
    variants = [f"UCRL-MNL-SE{x}" for x in ("", " shared", " pooled", " one-hot")]
    found = assign_styles(variants)
    assert len({s.light for s in found.values()}) == 1
    assert len({s.marker for s in found.values()}) == 4
    for label in variants:  # whatever it is shown with
        assert assign_styles([label])[label] == found[label]


def test_numbers_have_significant_digits():
    assert tables.format_numbers([0.001234, 0.0002]) == ["0.00123", "0.00020"]
    assert tables.format_numbers([302.4, 16.96]) == ["302", "17"]
    assert tables.format_numbers([-1e-9, 5.0]) == ["0.00", "5.00"]  # never -0.00
    assert tables.format_numbers([1e300, float("nan")]) == ["1.00e+300", "–"]
    assert tables.format_numbers([0.0]) == ["0.00"]
