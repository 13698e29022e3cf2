"""Columns of frames and files: what is asked for is read, words become numbers, gaps are named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.logs.reading import listed, lookup
from upriver.mdp.frames import column, column_names, read_table


class Read(NamedTuple):
    """The columns of a frame or a file, as they come."""

    frame: Any
    names: list[str]
    source: str | None
    what: str
    """What it is in a call: the frame, states or successors."""

    def place(self, i: int) -> str:
        if self.source is None:
            return f"row {i} of {self.what}"
        return (
            f"{self.source}:{i + 2}" if self.source.endswith(".csv") else f"{self.source} row {i}"
        )


def read_frame(
    frame: Any, what: str = "the frame", wanted: Callable[[str], bool] = lambda name: True
) -> Read:
    """A mapping of columns, a pandas, polars or pyarrow frame, or a .csv or .parquet file.

    Of a file only the columns that are `wanted` are read.
    """
    source = None
    if isinstance(frame, str | Path):
        source = str(frame)
        frame, names = read_table(Path(frame), wanted)
    else:
        names = column_names(frame)
    if names is None:
        raise TypeError(
            f"{what} is a {type(frame).__name__}; it must be a pandas, polars or pyarrow frame, a "
            "mapping of columns, or the path of a .csv or .parquet file"
        )
    return Read(frame, names, source, what)


def raw(read: Read, name: str) -> Any:
    if name not in read.names:
        raise ValueError(
            f"{read.source or read.what} has no column {name!r}; it has {listed(read.names)}"
        )
    return read.frame[name]


def take(read: Read, name: str) -> Array:
    """A column without gaps."""
    values = raw(read, name)
    if words_of(values) is not None:
        code, words = coded(read, name)
        return np.array(words, object)[code]  # every word is held once
    cells = column(values)
    if cells.dtype == object:
        missing = np.array([x is None or x != x for x in cells.tolist()], bool)
    else:
        missing = np.isnat(cells) if cells.dtype.kind in "mM" else cells != cells
    if missing.any():
        raise gap(read, name, int(np.argmax(missing)))
    return cells


def gap(read: Read, name: str, i: int) -> ValueError:
    return ValueError(f"{read.place(i)} has no {name!r}; drop the row or fill it in")


def coded(read: Read, name: str) -> tuple[Array, list[Any]]:
    """(the number of each entry of a column, the distinct entries); gaps are refused."""
    words = words_of(raw(read, name))
    if words is None:
        return codes(take(read, name))
    if words.null_count:
        raise gap(read, name, int(np.argmax(words.is_null().to_numpy())))
    index = words.indices.to_numpy()
    rows = np.bincount(index)
    used = np.flatnonzero(rows)
    if len(used) < len(rows):  # categories may be without rows
        index = np.searchsorted(used, index)
    return index, words.dictionary.take(used).to_pylist()


def words_of(values: Any) -> Any:
    """An arrow dictionary array of a column of words, or None: then it is read as NumPy does."""
    import pyarrow as pa

    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    elif str(getattr(values, "dtype", "")).startswith(("str", "category")):  # pandas
        values = pa.array(values, from_pandas=True)
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return None
    kind = values.type
    if pa.types.is_string_view(kind):
        values = values.cast(pa.large_string())
    elif pa.types.is_dictionary(kind):
        values = values.unify_dictionaries() if isinstance(values, pa.ChunkedArray) else values
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    coded = values if pa.types.is_dictionary(kind) else values.dictionary_encode()
    return coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded


def codes(cells: Array) -> tuple[Array, list[Any]]:
    """(the number of each entry, the distinct entries in order of appearance)."""
    import pyarrow as pa

    if cells.dtype.kind in "biufUS" or all(isinstance(x, str) for x in cells[:100].tolist()):
        try:
            found = pa.array(cells).dictionary_encode()
            return found.indices.to_numpy(), found.dictionary.to_pylist()
        except pa.ArrowException:  # strings and something else
            pass
    number: dict[Any, int] = {}
    try:
        coded = [number.setdefault(x, len(number)) for x in map(hashable, cells.tolist())]
    except TypeError:
        raise ValueError("the entries of a column must be hashable, such as words") from None
    return np.array(coded, np.int64), list(number)


def hashable(x: Any) -> Any:
    return tuple(x) if isinstance(x, list | np.ndarray) else x


def numbered(read: Read, name: str, names: Sequence[Any], what: str) -> Array:
    """(m,) the numbers of the entries of a column among `names`."""
    return among(read, coded(read, name), names, what)


def among(
    read: Read, column: tuple[Array, Sequence[Any]], names: Sequence[Any], what: str
) -> Array:
    """(m,) the numbers of the entries of a coded column among `names`."""
    code, distinct = column
    number = {x: i for i, x in enumerate(names)}
    found = np.array([lookup(number, x) for x in distinct], np.int64)
    if (found < 0).any():
        i = int(np.argmax(found[code] < 0))
        raise ValueError(
            f"{read.place(i)} has the {what} {distinct[code[i]]!r}; it must be one of "
            f"{listed(names)}"
        )
    return found[code]
