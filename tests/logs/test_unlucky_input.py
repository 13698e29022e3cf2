"""Tables and formulas that are nearly right: each gives one sentence, or the right numbers."""

import datetime
import time
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import upriver as up

LOG = {
    "state": ["a", "a", "b", "b"] * 10, "action": ["x"] * 40,
    "next_state": ["a", "b", "b", "a", "b", "a", "a", "b"] * 5, "age": list(np.arange(40.0)),
}  # fmt: skip
CELLS = list(zip(*(LOG[c] for c in ("state", "action", "next_state")), strict=True))


def write(tmp_path, header, cells=CELLS, sep=","):
    path = tmp_path / "log.csv"
    path.write_text("\n".join([header, *(sep.join(map(str, row)) for row in cells)]) + "\n")
    return path


@pytest.mark.parametrize("times", [1, 2000])
@pytest.mark.parametrize("header", ['"state,action,next_state', '"state"x,action,next_state'])
def test_a_stray_quote_in_a_header(tmp_path, header, times):
    with pytest.raises(ValueError, match=r"^first line of .*log.csv .*quote"):
        up.fit_transitions("C(next_state)", write(tmp_path, header, CELLS * times))


@pytest.mark.parametrize("sep", [";", "\t", "|"])
def test_another_separator(tmp_path, sep):
    path = write(tmp_path, sep.join(("state", "action", "next_state")), sep=sep)
    with pytest.raises(ValueError, match=r"one column.*cells must be separated by commas"):
        up.fit_transitions("C(next_state)", path)


@pytest.mark.parametrize("formula", ["0", "next_state ~ age", "C(next_state) | age", "1", "-1"])
def test_formulas_without_terms_or_with_several_parts(formula):
    with pytest.raises(ValueError, match=r"nothing to estimate|one part, without ~ and \|"):
        up.fit_transitions(formula, LOG)
    with pytest.raises(ValueError, match=r"formula|estimate"):
        up.fit_transitions("C(next_state)", LOG, reward=f"age ~ {formula} | 0", horizon=2)


def test_gap_codes_of_files_are_gaps(tmp_path):
    codes = ["NA", "N/A", "NULL", "NaN", ".", "-"]
    path = write(tmp_path, "state,action,next_state", [*CELLS, *(("a", "x", c) for c in codes)])
    with pytest.raises(ValueError, match=r"log.csv:42, .*has no 'next_state'"):
        up.fit_transitions("C(next_state)", path)
    model = up.fit_transitions("C(next_state)", path, missing="drop")
    assert list(model.log.space.states) == ["a", "b"] and model.dropped == {"next_state": 6}
    rows = [(*row, "-" if i == 4 else i) for i, row in enumerate(CELLS)]
    path = write(tmp_path, "state,action,next_state,age", rows)
    model = up.fit_transitions("C(next_state):age", path, missing="drop")  # age is still a number
    assert model.dropped == {"age": 1} and len(model.theta) == 1


def test_states_have_one_kind_of_names():
    mixed = {"state": [1, 2] * 10, "action": ["x"] * 20,
             "next_state": ["1", "2", "dead", "2", "1"] * 4}  # fmt: skip
    with pytest.raises(ValueError, match=r"states are numbers, such as 1, and words, such as '1'"):
        up.fit_transitions("C(next_state)", mixed)
    words = {**mixed, "state": [str(s) for s in mixed["state"]]}
    assert list(up.fit_transitions("C(next_state)", words).log.space.states) == ["1", "2", "dead"]


def test_an_index_counts_as_columns():
    frame = pd.DataFrame(LOG)
    plain = up.fit_transitions("C(next_state):age", frame).theta
    for index in ("state", ["action", "next_state"]):
        np.testing.assert_array_equal(
            up.fit_transitions("C(next_state):age", frame.set_index(index)).theta, plain
        )
    states = pd.DataFrame({"state": ["a", "b"], "level": [1.0, 3.0]})
    by_column = up.fit_transitions("level_next", frame, states=states).theta
    by_index = up.fit_transitions("level_next", frame, states=states.set_index("state")).theta
    np.testing.assert_array_equal(by_index, by_column)


def test_an_empty_reward_is_refused():
    with pytest.raises(ValueError, match=r"reward is \{\}; it must name at least one"):
        up.fit_transitions("C(next_state)", LOG, reward={}, horizon=2)


class TestDates:
    days: ClassVar = [datetime.date(2020, 1, 1 + i % 2) for i in range(40)]

    def test_a_date_is_no_number(self):
        for days in (self.days, np.array(self.days, "datetime64[ns]")):
            with pytest.raises(ValueError, match="'day' holds dates; a formula needs numbers"):
                up.fit_transitions("C(next_state):day", {**LOG, "day": days})

    def test_an_infinite_date(self, tmp_path):
        rows = [(*row, "infinity" if i == 3 else "2020-01-02") for i, row in enumerate(CELLS)]
        path = write(tmp_path, "state,action,next_state,day", rows)
        for formula in ("C(next_state):C(day)", "C(next_state):I(day.dt.day > 1)"):
            with pytest.raises(ValueError, match=r"log.csv:5 has no 'day'"):
                up.fit_transitions(formula, path)

    @pytest.mark.skipif(
        int(pd.__version__.split(".")[0]) < 3, reason="with pandas 2 formulaic takes dates for new"
    )
    def test_dates_as_categories(self):
        model = up.fit_transitions("C(next_state):C(day)", {**LOG, "day": self.days})
        even = np.arange(40) % 2 == 0
        share = np.mean((np.array(LOG["next_state"]) == "b")[even])
        for day in (self.days[0], np.datetime64(self.days[0]), pd.Timestamp(self.days[0])):
            np.testing.assert_allclose(model.at(day=day).prob[0], np.tile([1 - share, share], 2))
        with pytest.raises(ValueError, match="which the log does not"):
            model.at(day=datetime.date(2021, 1, 1))


@pytest.mark.parametrize(
    "part", ["I(age - np.mean(age))", "I(age / age.max())", "I(age > np.median(age))"]
)
def test_aggregates_in_a_formula_are_refused(part):
    """On new rows they would be computed again, from those rows."""
    with pytest.raises(ValueError, match=r"depends on other rows.*center\(age\)"):
        up.fit_transitions(f"C(next_state):{part}", LOG)


@pytest.mark.parametrize("part", ["center(age)", "scale(age)", "bs(age, df=4)", "np.log(age + 1)"])
def test_what_a_formula_remembers_is_the_same_for_new_rows(part):
    model = up.fit_transitions(f"C(next_state):{part}", LOG)
    rows = {"state": ["a"] * 40, "action": ["x"] * 40, "age": LOG["age"]}
    whole = model.predict(rows)["probability"].to_numpy().reshape(40, -1)
    one = model.predict({c: x[7:8] for c, x in rows.items()})["probability"]
    np.testing.assert_allclose(one, whole[7])


def test_a_column_of_identifiers_is_found_quickly():
    """Every level has one row; the search for combinations took the cube of the levels."""
    from upriver.logs.design import select_identified
    from upriver.logs.formula import Column, Recipe

    rng = np.random.default_rng(0)
    d = 900
    x = rng.standard_normal((2 * d, d))
    x[:, 5] = x[:, 3] - 2 * x[:, 1]
    recipe = Recipe((), tuple(Column(f"x{j}", f"x{j}", (), 1.0) for j in range(d)))
    start = time.process_time()
    with pytest.raises(ValueError, match="'x5' is a combination of 'x1', 'x3';"):
        select_identified(recipe, x.T @ x, np.ones(d, bool), True)
    assert time.process_time() - start < 4.0
