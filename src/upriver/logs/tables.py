"""Read tables: DuckDB reads every kind of table, and counts equal rows of files.

A table is a .csv or .parquet file, a folder of Parquet files, a pandas, polars or pyarrow frame, or
a mapping of columns. Names of columns are quoted in every query, so nothing that a table holds is
ever executed.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date
from functools import cache
from glob import escape
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from upriver.checks import Array, check_choice, is_hashable

COLUMNS = ("state", "action", "next_state")
KINDS = (
    "a pandas, polars or pyarrow frame, a mapping of columns, or the path of a .csv or .parquet "
    "file or of a folder of Parquet files"
)
GIVEN_WEIGHTS = "weights that were given"  # the name of a column that is not in the frame
NUMBERS = (  # DuckDB's types
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN",
)  # fmt: skip
UNCHANGED = ("double", "int64", "string", "large_string")  # Arrow's types that need no conversion
MEMORY = "800MB"  # of a database, beside the rows that a query returns
GAPS = ["", "NA", "N/A", "NULL", "NaN", ".", "-"]  # cells of a .csv file that are gaps
LARGEST = 1e100  # larger numbers overflow when they are multiplied


@cache
def database() -> Any:
    """Return a DuckDB database in memory; a query that needs more than MEMORY goes to disk."""
    spill = Path(gettempdir()) / f"upriver-{token_hex(8)}"  # DuckDB makes it when it needs it
    return duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(spill)})


def connect() -> Any:
    """Return a connection of its own to the database; a long read shows its progress."""
    connection = database().cursor()
    if "ipykernel" not in sys.modules:  # in a notebook DuckDB would ask for a package of widgets
        shown = "true" if sys.stdout.isatty() else "false"  # a pipe gets results only
        connection.execute(f"SET enable_progress_bar = {shown}")
    return connection


def listed(names: Iterable[Any], limit: int = 12) -> str:
    """Return the names, or the first `limit` of many, for an error message."""
    names = list(names)
    text = ", ".join(repr(x) for x in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"


def quote(name: str) -> str:
    """Return the name of a column as an identifier of SQL."""
    return '"' + str(name).replace('"', '""') + '"'


def object_array(values: Sequence[Any]) -> Array:
    """Return (m,) Python objects; np.asarray would make a matrix of a list of tuples."""
    cells = np.empty(len(values), object)
    cells[:] = values
    return cells


def array_of(values: Sequence[Any]) -> Array:
    """Return (m,) one entry per value; values that are tuples stay tuples."""
    if len(values) and all(isinstance(x, date | np.datetime64) for x in values):
        return np.array([np.datetime64(x, "us") for x in values])
    has_tuples = any(isinstance(x, tuple) for x in values)
    return object_array(values) if has_tuples else np.asarray(values)


def is_same(cells: Array, value: Any) -> Array:
    """Return (m,) whether cells are a value, or (m,) values; fractions up to rounding."""
    if cells.dtype.kind == "f" and np.asarray(value).dtype.kind in "if":
        return np.isclose(cells, value, rtol=1e-9, atol=1e-12)
    return np.asarray(cells == value)


def value_or_list(given: Any) -> Any:
    """Return the entries of a sequence as a list, and anything else as it is."""
    if isinstance(given, str | bytes | Mapping | Set) or not hasattr(given, "__iter__"):
        return given
    return given[()] if getattr(given, "ndim", 1) == 0 else list(given)


def sort_distinct(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values, sorted where they can be."""
    distinct = list(dict.fromkeys(values))
    try:
        return sorted(distinct)
    except TypeError:
        return distinct


class Rows(NamedTuple):
    """Rows of a table without gaps; equal rows of a file may have been counted together."""

    table: Table
    columns: dict[str, Any]  # Arrow columns, each (m,)
    weight: Array
    """(m,) the sum of the weights of equal rows; without weights the number of equal rows."""
    n_rows: int  # The number of rows of the table that were used
    dropped: dict[str, int]  # The number of rows that were left out, by the column that has the gap

    def codes(self, name: str) -> tuple[Array, list[Any]]:
        """Return (m,) the number of each entry of a column, and the distinct entries in order."""
        column = self.columns[name]
        if pa.types.is_nested(column.type):
            number: dict[Any, int] = {}
            cells = [number.setdefault(tuple(x), len(number)) for x in column.to_pylist()]
            levels, index = list(number), np.array(cells, np.int64)
        else:
            column = column.combine_chunks().dictionary_encode()
            levels, index = column.dictionary.to_pylist(), column.indices.to_numpy()
        order = sorted(range(len(levels)), key=levels.__getitem__)
        return np.argsort(order)[index], [levels[i] for i in order]

    def values(self, name: str) -> Array:
        """Return (m,) a column: numbers and dates as NumPy has them, words as Python objects."""
        column = self.columns[name]
        if column.type in ("string", "large_string") or pa.types.is_nested(column.type):
            index, levels = self.codes(name)  # every word is held once
            return object_array(levels)[index]
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        cells = column.to_numpy()
        return cells if cells.flags.writeable else cells.copy()  # of a frame, which may change

    def numbers(self, name: str, known: Sequence[Any], what: str, coded: Any = None) -> Array:
        """Return (m,) the number of each entry among `known`; another entry is refused by row.

        coded: the `codes` of the column, where they are known.
        """
        index, levels = coded or self.codes(name)
        number = {x: i for i, x in enumerate(known)}
        found = np.array([number.get(x, -1) for x in levels], np.int64)
        if (found < 0).any():
            value, whole = levels[int(np.argmax(found < 0))], isinstance(known, range)
            allowed = f"0 to {len(known) - 1}" if whole else f"one of {listed(known)}"
            raise ValueError(f"{self.table.place({name: value})} has the {what} {value!r}; it must "
                             f"be {allowed}")  # fmt: skip
        return found[index]


class Table:
    """A table and the DuckDB connection that reads it; what: its name in error messages."""

    def __init__(self, source: Any, what: str = "the frame") -> None:
        self.what, self.file, self.weights = what, None, None
        self.frame: Any = None
        self.arrow: Any = None  # the columns of a frame that were opened
        # what reading a damaged file raises
        self.errors = (duckdb.Error, OSError, RuntimeError, UnicodeError)
        self.connection = connect()
        if isinstance(source, str | Path):
            self.file = str(source)
            self.names = self.open_file(Path(source))
            return
        if hasattr(source, "collect"):  # a polars LazyFrame
            source = source.collect()
        if isinstance(source, tuple | list) and len(source) == 3:
            source = dict(zip(COLUMNS, source, strict=True))
        # the `columns` of pyarrow are the columns themselves
        names = getattr(source, "column_names", getattr(source, "columns", None))
        names = list(source) if isinstance(source, Mapping) else names
        if names is None or not all(map(is_hashable, names)):
            raise TypeError(f"{what} is a {type(source).__name__}; it must be {KINDS}")
        levels = getattr(getattr(source, "index", None), "names", ())
        if extra := [x for x in levels if x is not None and x not in names]:
            frame: Any = source  # of pandas
            source, names = frame.reset_index(level=extra), [*extra, *names]
        self.frame, self.names = source, list(names)
        self.check_distinct(self.names)

    @property
    def title(self) -> str:
        return self.file or self.what

    def check_distinct(self, names: Sequence[Any]) -> None:
        """Refuse two columns of one name."""
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ValueError(f"{self.title} has more than one column {name!r}; rename them")

    def open_file(self, path: Path) -> list[str]:
        """Make the view `source` of a file or a folder, and return the names of its columns."""
        if path.suffix not in (".csv", ".parquet") and not path.is_dir():
            raise ValueError(f"{self.what} is {str(path)!r}; it must end in .csv or .parquet, or "
                             "be a folder of Parquet files")  # fmt: skip
        files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
        if not path.exists() or not files:
            wanted = "does not exist" if not path.exists() else "holds no .parquet file"
            raise FileNotFoundError(f"{path} {wanted}")
        try:
            if path.suffix == ".csv" and path.is_file():
                self.check_distinct(self.read_header(path))
                found = self.read_csv(escape(files[0]))
            else:
                found = self.connection.read_parquet([escape(x) for x in files])
            self.connection.register("source", found)
            return list(found.columns)
        except self.errors as error:
            raise self.unreadable(error) from None

    def read_header(self, path: Path) -> list[str]:
        """Return the names of the columns of a .csv file."""
        with open(path, encoding="utf-8", newline="") as opened:
            line = opened.readline()
        try:
            names = next(csv.reader([line], strict=True), [])
        except csv.Error:
            raise ValueError(f"first line of {self.title} has a quote that does not belong there "
                             "or does not end; it must name the columns") from None  # fmt: skip
        if not names:
            raise ValueError(f"{self.title} is empty; its first line must name the columns")
        if len(names) == 1 and any(x in names[0] for x in ";\t|"):
            raise ValueError(f"{self.title} has one column, {names[0]!r}; its cells must be "
                             "separated by commas")  # fmt: skip
        return names

    def read_csv(self, file: str) -> Any:
        """Return the relation of a .csv file; the cells GAPS are gaps, also of words.

        DuckDB takes yes and no, t and f for truth values too. They are words, as in a frame; only
        columns that hold nothing but true and false are truth values.
        """
        form: Any = {
            "header": True, "sep": ",", "quotechar": '"', "escapechar": '"', "na_values": GAPS,
        }  # fmt: skip
        found = self.connection.read_csv(file, **form)
        kinds = zip(found.columns, map(str, found.types), strict=True)
        as_text = {name: "VARCHAR" for name, kind in kinds if kind == "BOOLEAN"}
        if not as_text:
            return found
        texts = self.connection.read_csv(file, dtype=as_text, **form)
        others = [f"bool_or(lower({quote(c)}) NOT IN ('true', 'false'))" for c in as_text]
        (has_others,) = texts.aggregate(", ".join(others)).fetchall()
        words = [c for c, has in zip(as_text, has_others, strict=True) if has]
        return self.connection.read_csv(file, dtype=dict.fromkeys(words, "VARCHAR"), **form)

    def unreadable(self, error: Exception) -> ValueError:
        """Return one sentence for an error of DuckDB or of the file system."""
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, UnicodeError) or "not utf-8" in text:
            return ValueError(f"{self.title} is not encoded as UTF-8; save it as UTF-8")
        return ValueError(f"{self.title} cannot be read: {text[:300]}")

    def open_columns(self, columns: Sequence[str]) -> dict[str, str]:
        """Return DuckDB's type of each column; the columns of a frame go into the view `source`."""
        for name in columns:
            if name not in self.names and name != GIVEN_WEIGHTS:
                own = name in ("state", "action", "next_state")
                hint = "; columns names those of the state, the action and the next state" * own
                raise ValueError(f"{self.title} has no column {name!r}; it has "
                                 f"{listed(self.names, 40)}{hint}")  # fmt: skip
        if self.file is None:
            arrays = {c: self.arrow_column(c) for c in columns}
            lengths = {c: len(x) for c, x in arrays.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"the columns of {self.title} have lengths {lengths}; they must "
                                 "have one length")  # fmt: skip
            self.arrow = pa.table(arrays)
            self.connection.register("source", self.arrow)
        found = self.connection.table("source")
        types = dict(zip(found.columns, map(str, found.types), strict=True))
        for name in columns:
            if types[name].startswith(("STRUCT", "MAP")):
                raise ValueError(f"column {name!r} of {self.title} holds records; it must hold "
                                 "numbers, words or tuples")  # fmt: skip
        return types

    def arrow_column(self, name: str) -> Any:
        """Return a column of a frame as Arrow has it; NaN and gaps of pandas become nulls."""
        values: Any = self.weights if name == GIVEN_WEIGHTS else self.frame[name]
        if hasattr(values, "to_arrow"):  # polars
            values = values.to_arrow()
        if isinstance(values, pa.ChunkedArray | pa.Array):
            if not pa.types.is_floating(values.type):
                return values
            values = values.to_numpy(zero_copy_only=False)
        if not isinstance(values, list | tuple) and np.ndim(values) != 1:
            raise ValueError(f"column {name!r} of {self.title} has shape {np.shape(values)}; it "
                             "must have one entry per row")  # fmt: skip
        try:
            return pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise ValueError(f"the entries of column {name!r} of {self.title} must be all numbers, "
                             "all words, or all tuples of one of them") from None  # fmt: skip

    def read(
        self, columns: Sequence[str], weights: Any = None, numeric: Sequence[str] = (),
        missing: str | None = None, group: bool = False,
    ) -> Rows:  # fmt: skip
        """Read some columns.

        weights: the column of the weight of each row, or (m,) weights of the rows of a frame; a row
        of weight 0 is as if it were not there. numeric: the columns that must hold numbers.
        missing: whether rows with gaps raise an error that names them ("refuse") or are left out
        ("drop"), None where the user has no choice. group: whether equal rows of a file are counted
        together, in an order that does not depend on threads; else all rows stay in order.
        """
        if missing is not None:
            check_choice("missing", missing, ("refuse", "drop"))
        if weights is not None and not isinstance(weights, str):
            if self.file is not None:
                raise ValueError("weights of a file must be the name of a column")
            self.weights, weights = weights, GIVEN_WEIGHTS
        numeric = list(dict.fromkeys(c for c in (weights, *numeric) if c is not None))
        keys: list[str] = list(dict.fromkeys(columns))
        every = list(dict.fromkeys([*keys, *numeric]))
        types = self.open_columns(every)
        for name in numeric:
            if not types[name].startswith(NUMBERS):
                raise ValueError(f"column {name!r} of {self.title} holds words; it must hold "
                                 "numbers")  # fmt: skip
        whole = [c for c in every if self.arrow is not None and not self.arrow[c].null_count]
        fault = fault_number(every, types, numeric, weights, whole)
        # numbers and words of a frame are not copied
        held = {} if self.arrow is None else {
            c: self.arrow[c] for c in keys if self.arrow[c].type in UNCHANGED
        }  # fmt: skip
        group, times = group and self.file is not None, as_double(weights)
        sums = [fault, f"sum({times})", "count(*)"] if group else [fault, times]
        made = ", ".join([*(quote(c) for c in keys if c not in held), *sums])
        order = "GROUP BY ALL ORDER BY ALL" if group else ""
        try:
            found = self.connection.sql(f"SELECT {made} FROM source {order}").to_arrow_table()
        except self.errors as error:
            raise self.unreadable(error) from None
        for i, name in enumerate(keys):
            found = found.add_column(i, name, held[name]) if name in held else found
        if not found.num_rows:
            raise ValueError(f"{self.title} has no rows; it must have at least one")
        faults = found.column(len(keys)).to_numpy()
        n_rows = found.column(len(keys) + 2).to_numpy() if group else np.ones(len(faults), int)
        dropped: dict[str, int] = {}
        if (faults > 0).any():
            dropped = self.count_faults(faults, n_rows, (every, numeric), fault, weights, missing)
        if faults.any():
            found, n_rows = found.filter(faults == 0), n_rows[faults == 0]
            if not found.num_rows and not dropped:
                raise ValueError(f"the weights {weights!r} are all 0; one must be above 0")
            if not found.num_rows:
                raise ValueError(f"{self.title} has no row without a gap in {listed(every)}")
        weight = found.column(len(keys) + 1).to_numpy()
        cells = dict(zip(keys, found.columns, strict=False))
        return Rows(self, cells, weight, int(n_rows.sum()), dropped)

    def count_faults(
        self, faults: Array, n_rows: Array, names: tuple[list[str], list[str]], fault: str,
        weights: str | None, missing: str | None,
    ) -> dict[str, int]:  # fmt: skip
        """Return {column: number of rows without an entry}, or refuse the first fault.

        names: all columns, and those of numbers, as in `fault_number`.
        """
        every, numeric = names
        count = np.bincount(np.maximum(faults, 0), n_rows).astype(int)[1:]
        if len(count) > len(every):
            at = self.name_rows(self.find_rows(f"{fault} = {len(count)}"))
            name = numeric[len(count) - len(every) - 1]
            if name == weights:
                raise ValueError(f"{at} has a weight {weights!r} below 0 or infinite; weights must "
                                 "be finite and at least 0")  # fmt: skip
            raise ValueError(f"{at} has an infinite or too large {name!r}; it must be less than "
                             f"{LARGEST:g} in size")  # fmt: skip
        if missing != "drop":
            i = int(np.argmax(count > 0))
            at = self.find_rows(f"{fault} = {i + 1}", limit=5)
            more = f" (and {count[i] - len(at)} more rows)" if count[i] > len(at) else ""
            advice = "" if missing is None else " with missing='drop'"
            raise ValueError(f"{self.name_rows(at)}{more} has no {every[i]!r}; fill it in, or "
                             f"leave out such rows{advice}")  # fmt: skip
        return {c: int(n) for c, n in zip(every, count, strict=False) if n}

    def find_change(self, column: str, episode: str) -> tuple[Any, Any, Any] | None:
        """Return the first episode in which a column changes, and two of its entries there.

        Rows of weight 0 count, too.
        """
        self.open_columns([column, episode])
        question = (
            "SELECT {0}, min({1}), max({1}) FROM source WHERE {0} IS NOT NULL GROUP BY {0} "
            "HAVING min({1}) < max({1}) ORDER BY {0} LIMIT 1"
        ).format(quote(episode), quote(column))
        return self.connection.execute(question).fetchone()

    def find_rows(self, condition: str, values: Sequence[Any] = (), limit: int = 1) -> list[int]:
        """Return the numbers of the first rows that meet a condition, counted from 0."""
        question = (
            f"SELECT number FROM (SELECT row_number() OVER () - 1 AS number, {condition} AS met "
            f"FROM source) WHERE met ORDER BY number LIMIT {int(limit)}"
        )
        return [row[0] for row in self.connection.execute(question, list(values)).fetchall()]

    def name_rows(self, rows: Sequence[int]) -> str:
        """Return how to find rows: by line of a .csv file, else by number from 0."""
        if not rows:
            return self.title
        if self.file is not None and self.file.endswith(".csv"):
            return f"{self.file}:" + ", ".join(str(i + 2) for i in rows)
        numbers = ", ".join(map(str, rows))
        return f"row{'s' if len(rows) > 1 else ''} {numbers} of {self.title}"

    def place(self, cells: Mapping[str, Any]) -> str:
        """Return how to find the first row with these entries."""
        given = [list(x) if isinstance(x, tuple) else x for x in cells.values()]
        condition = " AND ".join(f"{quote(c)} = ?" for c in cells)
        try:
            return self.name_rows(self.find_rows(condition, given))
        except self.errors:
            return self.title


def as_double(name: str | None) -> str:
    """Return a column as numbers in SQL; 1 for None."""
    return "CAST(1 AS DOUBLE)" if name is None else f"CAST({quote(name)} AS DOUBLE)"


def fault_number(
    columns: Sequence[str], types: Mapping[str, str], numeric: Sequence[str], weights: str | None,
    whole: Sequence[str],
) -> str:  # fmt: skip
    """Return an expression of SQL: the number of the first column without an entry, from 1.

    It is 0 for a row without a fault, -1 for a row of weight 0, and more than the number of columns
    for a bad weight, or another of the `numeric` columns whose square would not be finite. whole:
    the columns that are known to have all entries.
    """
    cases = [] if weights is None else [f"WHEN {as_double(weights)} = 0 THEN -1"]
    for i, name in enumerate(columns, start=1):
        if name in whole:
            continue
        nan = f" OR isnan({quote(name)})" if types[name] in ("FLOAT", "DOUBLE") else ""
        if types[name].startswith(("DATE", "TIMESTAMP")):
            nan = f" OR NOT isfinite({quote(name)})"  # 'infinity' is no day
        cases.append(f"WHEN {quote(name)} IS NULL{nan} THEN {i}")
    for i, name in enumerate(numeric, start=len(columns) + 1):
        cell = as_double(name)
        bad = f"{cell} < 0 OR isinf({cell})" if name == weights else f"abs({cell}) >= {LARGEST}"
        cases.append(f"WHEN {bad} THEN {i}")
    return f"(CASE {' '.join(cases)} ELSE 0 END)" if cases else "0"
