"""Tables that a person can read and write: CSV files and the names in them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from upriver.mdp.names import tupled


def written(names: Any, size: int) -> Any:
    """How states or actions appear in a .csv: by name if the names are text, else by number."""
    if names is None or not all(isinstance(x, str) for x in names):
        return range(size)
    return names


def lookup(
    cells: list[str], names: list[Any] | None, what: str, path: Path
) -> tuple[Any, Sequence[Any]]:
    """(a function from a cell to its number, the names in order).

    Names come from TOML, where arrays stand for tuples; without them the cells themselves do.
    """
    names = None if names is None else [tupled(x) for x in names]
    if names is None and all(c.isdecimal() for c in cells):
        names = list(range(1 + max((int(c) for c in cells), default=-1)))
    elif names is None:
        names = list(dict.fromkeys(cells))
    by_number = not all(isinstance(x, str) for x in names)
    table = {str(i) if by_number else x: i for i, x in enumerate(names)}
    plain = by_number and names == list(range(len(names)))

    def find(cell: str, line: int | None) -> int:
        if cell not in table:
            at = f"{path}:{line}" if line is not None else str(path)
            raise ValueError(
                f"{at}: {what} {cell!r} is unknown; there are {len(names)}, from "
                f"{next(iter(table))!r} to {next(reversed(table))!r}"
            )
        return table[cell]

    return find, range(len(names)) if plain else names


def number(row: dict[str, str], column: str, path: Path, line: int) -> float:
    try:
        x = float(row[column])
    except ValueError:
        x = math.nan
    if not math.isfinite(x):
        raise ValueError(f"{path}:{line}: {column} is {row[column]!r}; it must be a number")
    return x


def read_csv(path: Path, columns: list[str]) -> list[tuple[int, dict[str, str]]]:
    """(line number, row) of every line of a .csv file with at least these columns."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            missing = [c for c in columns if c not in (reader.fieldnames or [])]
            if missing:
                raise ValueError(f"{path} has no column {missing[0]!r}; it needs {columns}")
            rows = []
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(
                        f"{path}:{reader.line_num}: the line has too few or too many cells"
                    )
                rows.append((reader.line_num, row))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable CSV file: {error}") from None
    if not rows:
        raise ValueError(f"{path} has no lines below its head")
    return rows


def csv_text(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def literal(value: Any) -> str:
    """A TOML literal of names: text, whole numbers, truth values, and tuples of them."""
    if type(value) in (list, tuple):  # not a named tuple, which would come back as a plain one
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float):
        return repr(value)
    raise ValueError(f"the name {value!r} cannot be written as TOML; save to .npz instead")
