"""Tables: every kind reads alike, gaps are refused or dropped, and nothing in a table is code."""

import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import upriver as up
from upriver.logs.tables import Table

from . import clinic

MOVES = clinic.moves()


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(clinic.visits(np.random.default_rng(5), 200))


def fit(given, formula=clinic.FORMULA, **options):
    return up.fit_transitions(formula, given, states=MOVES, **options)


def test_files_folders_and_frames_give_one_fit(frame, tmp_path):
    """Clusters and weights too, whatever the order of the rows."""
    weighted = frame.assign(times=1 + frame["patient"] % 3)
    weighted.to_csv(tmp_path / "log [1].csv", index=False)
    folder = tmp_path / "many"
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        (folder / f"part={i}").mkdir(parents=True)
        rows = pa.Table.from_pandas(weighted.iloc[part], preserve_index=False)
        parquet.write_table(rows, folder / f"part={i}" / "x.parquet")
    options = {"cluster": "patient", "weights": "times"}
    expected = fit(weighted, **options)
    shuffled = weighted.sample(frac=1.0, random_state=0)
    columns = {c: weighted[c].tolist() for c in weighted}
    polars = pl.from_pandas(weighted)
    frames = [shuffled, polars, polars.lazy(), pa.Table.from_pandas(weighted), columns]
    for given in (tmp_path / "log [1].csv", folder, *frames):
        again = fit(given, **options)
        np.testing.assert_allclose(again.theta, expected.theta, rtol=1e-9)
        np.testing.assert_allclose(again.bse, expected.bse, rtol=1e-9)
        assert again.log.n_rows == len(frame) and again.nobs == weighted["times"].sum()


def test_yes_and_no_in_a_file_are_words_as_in_a_frame(tmp_path):
    """Only a column that holds nothing but true and false has truth values."""
    given = {
        "smoker": ["yes", "no", "yes"], "short": ["t", None, "f"], "mixed": ["true", "no", "yes"],
        "action": ["True", "FALSE", "true"], "gap": ["false", None, "true"],
    }  # fmt: skip
    pd.DataFrame(given).to_csv(tmp_path / "log.csv", index=False)
    table = Table(tmp_path / "log.csv")
    types = table.open_columns(list(given))
    assert [types[c] for c in given] == ["VARCHAR"] * 3 + ["BOOLEAN"] * 2
    rows = table.read(list(given), missing="drop")
    assert {c: rows.values(c).tolist() for c in given} == {
        "smoker": ["yes", "yes"], "short": ["t", "f"], "mixed": ["true", "yes"],
        "action": [True, True], "gap": [False, True],
    }  # fmt: skip


def test_equal_rows_of_a_file_are_counted_before_python_sees_them(frame, tmp_path):
    frame.to_parquet(tmp_path / "log.parquet")
    rows = Table(tmp_path / "log.parquet").read(
        ["state", "action", "next_state", "age"], group=True
    )
    assert len(rows.weight) < len(frame) / 5 and rows.n_rows == len(frame)
    counted = frame.groupby(["state", "action", "next_state", "age"], as_index=False).size()
    ours = pd.DataFrame({c: rows.values(c) for c in rows.columns}).assign(size=rows.weight)
    key = ["state", "action", "next_state", "age"]
    pd.testing.assert_frame_equal(
        ours.sort_values(key, ignore_index=True), counted, check_dtype=False
    )


def holed(frame, column, rows=(3, 8)):
    """The frame as CSV text, Parquet, polars and pandas, with gaps in one column."""
    made = frame.copy()
    made[column] = made[column].astype(object)
    made.loc[list(rows), column] = None
    return made.infer_objects()


@pytest.mark.parametrize("column", ["state", "action", "next_state", "age", "patient"])
@pytest.mark.parametrize("form", ["csv", "parquet", "polars", "pandas", "string", "arrow"])
def test_gaps_are_refused_by_row_or_dropped(frame, tmp_path, column, form):
    made = holed(frame, column)
    table = pa.Table.from_pandas(made, preserve_index=False)
    given, place = made, f"rows 3, 8 of the frame has no '{column}'"
    if form == "csv":
        given, place = tmp_path / "log.csv", rf"log\.csv:5, 10 has no '{column}'"
        made.to_csv(given, index=False)
    elif form == "parquet":
        given, place = tmp_path / "log.parquet", rf"rows 3, 8 of .*log\.parquet has no '{column}'"
        parquet.write_table(table, given)
    elif form == "polars":
        given = pl.from_arrow(table)
    elif form == "arrow":
        given = table
    elif form == "string":
        given = made.convert_dtypes()
    with pytest.raises(ValueError, match=place):
        fit(given, cluster="patient")
    dropped = fit(given, cluster="patient", missing="drop")
    without = fit(frame.drop(index=[3, 8]), cluster="patient")
    np.testing.assert_allclose(dropped.theta, without.theta, rtol=1e-9)
    assert f"2 without '{column}'" in dropped.summary() and dropped.log.n_rows == len(frame) - 2


@pytest.mark.parametrize("as_table", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_nan_is_a_gap_in_rows_that_all_differ(frame, as_table):
    """Columns without gaps are not searched for them, and are taken as they are."""
    dose = np.random.default_rng(0).normal(size=len(frame))
    whole = {c: frame[c].to_numpy() for c in ("state", "action", "next_state")} | {"dose": dose}
    holes = whole | {"dose": np.where(np.isin(np.arange(len(dose)), (3, 8)), np.nan, dose)}
    with pytest.raises(ValueError, match="rows 3, 8 of the frame has no 'dose'"):
        fit(as_table(holes), "worse + dose:worse")
    dropped = fit(as_table(holes), "worse + dose:worse", missing="drop")
    kept = {c: np.delete(x, (3, 8)) for c, x in whole.items()}
    expected = fit(as_table(kept), "worse + dose:worse")
    np.testing.assert_array_equal(dropped.theta, expected.theta)
    assert dropped.dropped == {"dose": 2}


def test_an_index_may_have_the_name_of_a_column(frame):
    named = frame.set_index(frame["state"].rename("age"))
    np.testing.assert_array_equal(fit(named).theta, fit(frame).theta)


@pytest.mark.parametrize("name", ["fault", "number", "met", "key_0"])
def test_a_column_may_have_a_name_that_queries_use(frame, name):
    formula, renamed = f"worse + {name}:worse", frame.rename(columns={"age": name})
    expected = fit(frame, "worse + age:worse")
    np.testing.assert_allclose(fit(renamed, formula).theta, expected.theta, rtol=1e-9)
    with pytest.raises(ValueError, match=f"rows 3, 8 of the frame has no '{name}'"):
        fit(holed(renamed, name), formula)


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("options", [{}, {"cluster": "patient"}, {"reward": "cost"},
                                     {"reward": "cost", "cluster": "patient"}])  # fmt: skip
def test_rows_of_weight_0_are_as_if_absent(frame, tmp_path, options, as_file):
    """Their clusters, states and gaps do not count either."""
    some = frame.assign(times=frame["patient"] % 3 * 1.0, cost=np.arange(len(frame)) % 7)
    only = some[some["times"] > 0]
    odd = pd.DataFrame({"state": ["gone", "ill"], "action": "rest", "next_state": "well",
                        "age": [np.nan, 9.0], "times": 0.0, "patient": 10**6})  # fmt: skip
    given = pd.concat([odd, some], ignore_index=True)
    if as_file:
        given.to_csv(tmp_path / "log.csv", index=False)
        given = tmp_path / "log.csv"
    one, other = (fit(x, weights="times", **options) for x in (given, only))
    assert one.log.n_rows == len(only) and one.dropped == {}
    assert one.fitted.degrees == other.fitted.degrees
    assert list(one.log.space.states) == list(other.log.space.states)
    np.testing.assert_allclose(one.bse, other.bse, rtol=1e-9)
    reward = options.get("reward", {"well": 1.0})
    values = [
        up.policy_value(x.at(horizon=3, reward=reward).at(start="ill"), "behaviour")
        for x in (one, other)
    ]
    assert values[0].standard_error == pytest.approx(values[1].standard_error, rel=1e-9)
    assert values[0].value == pytest.approx(values[1].value, rel=1e-9)
    with pytest.raises(ValueError, match=r"the weights .* are all 0; one must be above 0"):
        fit(frame, weights=np.zeros(len(frame)))


@pytest.mark.parametrize("cost", [np.inf, -np.inf, 1e200])
def test_an_infinite_reward_is_refused_by_row(frame, cost):
    costs = np.ones(len(frame))
    costs[[7, 9]] = cost
    with pytest.raises(ValueError, match="row 7 of the frame has an infinite or too large 'cost'"):
        fit(frame.assign(cost=costs), reward="cost")


def test_drop_is_not_advised_where_it_cannot_be_asked_for(frame):
    model, new = fit(frame), frame.head(3).assign(age=[1.0, np.nan, 2.0])
    gaps = {"state": ["well", None], "frail": [1.0, 2.0]}
    for call in (
        lambda: model.predict(new),
        lambda: up.fit_transitions("frail_next", frame, states=gaps),
    ):
        with pytest.raises(ValueError, match=r"row 1 of .* has no .*, or leave out such rows$"):
            call()


@pytest.mark.parametrize("part", ["I(ward == 'age'):worse", 'I(ward == "age"):worse',
                                  "`ward of age`:worse", "Q('ward of age'):worse"])  # fmt: skip
def test_a_name_within_quotes_is_not_that_column(frame, part):
    """Of age within a text or within another name; the covariates need values."""
    wards = {"ward": frame["patient"] % 2, "ward of age": frame["patient"] % 3, "it's": 1.0}
    named = frame.assign(**wards)
    named["ward"] = np.where(named["ward"], "age", "it's")
    model = fit(named, f"worse + better + {part}", reward=f"patient ~ {part.split(':')[0]}")
    assert list(model.log.situations.covariates) == ["ward" if "==" in part else "ward of age"]


@pytest.mark.parametrize("name", [Decimal("0.1"), pd.Timestamp(2026, 1, 1, tz="UTC")])
def test_states_of_any_kind_may_have_attributes(name):
    step = pd.Timedelta(days=1) if isinstance(name, pd.Timestamp) else 1
    names = [name + i * step for i in range(3)]
    here, following = np.divmod(np.arange(90) % 9, 3)
    log = pd.DataFrame({"state": [names[i] for i in here], "action": "go",
                        "next_state": [names[i] for i in following]})  # fmt: skip
    levels = pd.DataFrame({"state": names[::-1], "level": [3.0, 2.0, 1.0]})
    model = up.fit_transitions("level_next", log, states=levels, horizon=2, reward={name: 1.0})
    assert list(model.task.state_names) == names[::-1]
    assert model.params["level_next"] == pytest.approx(0.0, abs=1e-9)


def test_missing_is_one_of_two_words(frame):
    with pytest.raises(ValueError, match="missing is 'skip'"):
        fit(frame, missing="skip")


def text_file(folder, text, encoding="utf-8"):
    (folder / "log.csv").write_bytes(text.encode(encoding))
    return folder / "log.csv"


HEAD = "state,action,next_state,age"
MISTAKES = {
    "duplicate columns of a file": (
        lambda frame, folder: text_file(folder, f"{HEAD},age\na,b,c,1,2\n"), {},
        r"log\.csv has more than one column 'age'",
    ),
    "duplicate columns of a frame": (
        lambda frame, folder: pd.concat([frame, frame["age"]], axis=1), {}, "one column 'age'",
    ),
    "only a header": (
        lambda frame, folder: text_file(folder, f"{HEAD}\n"), {}, r"log\.csv has no rows",
    ),
    "a Latin-1 file": (
        lambda frame, folder: text_file(folder, f"{HEAD}\n\xe9tat,b,c,1\n", "latin-1"), {},
        r"log\.csv is not encoded as UTF-8",
    ),
    "rewards that are words": (
        lambda frame, folder: frame, {"reward": "state"}, "column 'state' .* must hold numbers",
    ),
    "a negative weight": (
        lambda frame, folder: frame.assign(times=np.where(frame.index == 4, -1.0, 1.0)),
        {"weights": "times"}, "row 4 of the frame has a weight 'times' below 0",
    ),
    "a misspelt column": (
        lambda frame, folder: frame, {"cluster": "patent"}, "no column 'patent'.*'patient'",
    ),
    "a misspelt name in a formula": (
        lambda frame, folder: frame, {"formula": "worse + agee:better"}, "agee.*'patient'.*'age'",
    ),
    "states of several types": (
        lambda frame, folder: frame.assign(state=[0, *frame["state"][1:]]), {},
        "entries of column 'state' of the frame must be all numbers, all words",
    ),
    "states that are records": (
        lambda frame, folder: frame.assign(state=[{"ward": x} for x in frame["state"]]), {},
        "column 'state' of the frame holds records",
    ),
    "no rows": (lambda frame, folder: frame.head(0), {}, "has no rows"),
    "a number": (lambda frame, folder: 3, {}, "the frame is a int; it must be a pandas"),
    "no such file": (lambda frame, folder: folder / "none.csv", {}, "does not exist"),
    "no Parquet in a folder": (lambda frame, folder: folder, {}, r"holds no \.parquet file"),
    "covariates of 1e200": (
        lambda frame, folder: frame.assign(age=frame["age"] * 1e200), {}, r"'age' is .*1e\+200",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_bad_table_is_one_sentence(frame, tmp_path, name):
    given, options, message = MISTAKES[name]
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message) as raised:
        fit(given(frame, tmp_path), **options)
    assert "\n" not in str(raised.value)


class TestNothingIsCode:
    """Names of columns, states and files are data."""

    code = "{__import__('pathlib').Path('pwned').touch()}"

    @pytest.fixture(autouse=True)
    def inside(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        yield
        assert not (tmp_path / "pwned").exists()

    def test_a_column_that_the_formula_quotes(self, frame):
        ward = np.where(frame["patient"] % 2, "east", "west")
        plain = fit(frame.assign(ward=ward), "worse + better + ward:worse")
        for name in (self.code, "my ward", "ward'); DROP TABLE source; --", 'a "b" c'):
            made = fit(frame.assign(**{name: ward}), f"worse + better + `{name}`:worse")
            np.testing.assert_allclose(made.theta, plain.theta, rtol=1e-9)
            assert any(name in x for x in made.coefficient_names)

    def test_words_in_cells(self, frame):
        hostile = frame.replace({"ill": self.code, "well": "'; DROP TABLE source; --"})
        made = up.fit_transitions("next_state", hostile, regularization=1.0)
        assert self.code in made.log.space.states
        with pytest.raises(ValueError, match="has the state 'gone'"):
            made.predict({"state": ["gone"], "action": ["rest"]})


def test_a_table_of_moves_may_depend_on_the_action():
    """Two actions, of which one helps: the estimate is log 3, not 0 as without the action."""
    log = {"state": ["a"] * 8, "action": ["go", "stop"] * 4, "next_state": list("aabaaaba")}
    log["next_state"] = ["b", "a", "b", "a", "b", "a", "a", "a"]
    moves = {
        "state": ["a"] * 4,
        "action": ["go", "go", "stop", "stop"],
        "next_state": ["a", "b"] * 2,
        "helps": [0.0, 1.0, 0.0, 0.0],
    }

    def reach(s, a):
        return ["a", "b"] if s == "a" else []

    model = up.fit_transitions("helps", log, states=moves, successors=reach)
    assert model.theta == pytest.approx([np.log(3)])
    again = {c: [*x, x[-1]] for c, x in moves.items()}
    with pytest.raises(ValueError, match=r"more than one row .* 'a', 'stop', 'b'"):
        up.fit_transitions("helps", log, states=again, successors=reach)
    short = {c: x[:3] for c, x in moves.items()}
    with pytest.raises(
        ValueError, match="no 'helps' for the state 'a', action 'stop', next state 'b'"
    ):
        up.fit_transitions("helps", log, states=short, successors=reach)
    other = {"state": ["a"] * 2, "action": ["go", "stop"], "dose": [1.0, 0.0]}
    by_dose = up.fit_transitions("dose:next_state", log, states=other, successors=reach)
    assert abs(by_dose.theta[0]) == pytest.approx(np.log(3))


def test_no_progress_bar_goes_into_a_pipe():
    """DuckDB takes `python -c` for somebody at a terminal."""
    code = """from upriver.logs.tables import connect
print(connect().execute("SELECT current_setting('enable_progress_bar')").fetchone())"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "(False,)\n"
