"""Benchmarks run, say what they skip, and compare two versions in units of the yardstick."""

import pytest
from benchmarks.__main__ import FAMILIES, ONE_THREAD, main, measure
from benchmarks.timing import Measurement, SkippedComparison

import upriver as up
from benchmarks import choices, compare, peers, planning, report, timing


@pytest.fixture(autouse=True)
def use_one_thread(monkeypatch):
    """Set the variables that the command sets before it starts itself again."""
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "1")
    # QuantEcon starts numba's threads, whose number this process could not change afterwards.
    monkeypatch.setattr(peers, "find_spec", lambda name: None)


def make_line(case="time", figure=3.0, unit="us", **fields):
    return Measurement("family", case, figure, unit, **fields)


def test_a_ratio_is_the_figure_over_that_of_the_reference():
    assert make_line().ratio is None
    line = make_line(reference="other", reference_figure=2.0)
    assert line.ratio == 1.5 and "1.5 x other" in report.format_line(line)
    assert "skipped: why" in report.format_line(SkippedComparison("family", "case", "why"))


def test_repeats_take_turns_and_the_first_round_is_not_counted():
    clock, order = iter(range(1000)), []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    seconds = timing.measure_interleaved(works, 3, lambda: next(clock))
    assert order == ["a", "b"] * 4 and seconds == {"a": 1, "b": 1}


@pytest.mark.parametrize("near", [True, False])
def test_drawn_problems_have_the_number_of_successors_that_is_asked_for(near):
    task = planning.draw_mdp(30, 3, near).task()
    assert set(task.sizes) == {3}
    if near:
        s, _, s2 = task.triples
        assert abs(s - s2).max() <= 2


def test_the_plain_likelihood_is_the_one_that_is_fitted():
    x, chosen, groups = choices.draw_choices(500, 3, 4)
    ours = up.fit_choices(x, chosen, groups)
    loss, gradient = choices.make_mean_loss(x, chosen, 3)(ours.theta)
    assert -500 * loss == pytest.approx(ours.log_likelihood)
    assert abs(gradient).max() < 1e-9
    assert choices.fit_with_lbfgs(x, chosen, 3, 1e-7).x == pytest.approx(ours.theta, abs=1e-5)


def test_every_quick_family_yields_figures_and_names_missing_peers(tmp_path, capsys):
    slow = {"memory", "pooled", "dense", "startup", "sweep"}
    out = tmp_path / "figures.json"
    assert main([*(FAMILIES.keys() - slow), "--quick", "--peers", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    _, lines = report.read_json(out)
    for line in lines:
        assert line.figure > 0 and line.yardstick > 0 and line.case in printed
    assert {"episodes", "fit_choices", "backward induction"} <= {line.family for line in lines}
    for peer in ("quantecon", "xlogit", "UPRIVER_RLBERRY_PYTHON"):
        assert peer in printed


def test_an_unknown_family_is_refused(capsys):
    with pytest.raises(SystemExit) as error:
        main(["speed"])
    assert error.value.code == 2 and "'speed'" in capsys.readouterr().err


def test_figures_carry_the_speed_of_the_machine(monkeypatch):
    monkeypatch.setattr(timing, "time_yardstick", lambda: 3.0)
    assert all(line.yardstick == 3.0 for line in measure(("exact",), True, False))


def test_two_versions_are_compared_in_units_of_the_yardstick(tmp_path, capsys):
    old = [
        make_line("time", 10.0, yardstick=2.0),
        make_line("rate", 100.0, "steps/s", yardstick=2.0),
        make_line("memory", 8.0, "MiB", yardstick=2.0),
        make_line("gone", 8.0, yardstick=2.0),
    ]
    new = [  # on a machine at half its speed
        make_line("time", 40.0, yardstick=4.0),
        make_line("rate", 100.0, "steps/s", yardstick=4.0),
        make_line("memory", 8.0, "MiB", yardstick=4.0),
        make_line("new", 8.0, yardstick=4.0),
    ]
    found = {x.case: (x.ratio, x.verdict) for x in compare.compare(old, new)}
    assert found == {"time": (2.0, "slower"), "rate": (0.5, "faster"), "memory": (1.0, "")}
    report.write_json(tmp_path / "old.json", old)
    report.write_json(tmp_path / "new.json", new)
    assert compare.main([str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 0
    assert "1 of 3 figures are slower" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", '{"lines": [{"figure": 1}], "machine": {}}'])
def test_a_file_without_figures_is_refused(tmp_path, text):
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"figures\.json"):
        report.read_json(path)


def test_the_page_has_one_row_for_each_agent(tmp_path):
    lines = [
        Measurement(
            "episodes", f"psrl, S={n}", 30.0 + n, "us", report.SIMULATE_ALONE, 10.0, yardstick=1.0
        )
        for n in (6, 20)
    ]
    growth = Measurement(report.GROWTH_FAMILY, "psrl, S=6, k=5000", 40.0, "us", "early", 20.0)
    assert report.format_agents([*lines, growth]).splitlines()[-1] == "| psrl | 36 | 50 | 2 |"
    report.write_csv(tmp_path / "all.csv", [*lines, growth])
    rows = (tmp_path / "all.csv").read_text().splitlines()
    assert len(rows) == 4 and rows[1] == f'episodes,"psrl, S=6",36,us,3.6,{report.SIMULATE_ALONE}'
