"""Rows to text: for a terminal, for a spreadsheet, for a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def as_csv(head: Sequence[str], rows: Iterable[Iterable[Any]], digits: int | None = None) -> str:
    """Numbers with all their digits, or with so many significant ones; None is empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([written(x, digits) for x in row] for row in rows)
    return sink.getvalue()


def written(x: Any, digits: int | None) -> Any:
    if isinstance(x, float):
        return repr(x) if digits is None else f"{x:.{digits}g}"
    return "" if x is None else x


def as_markdown(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table whose first row is its head; the first columns are words, the others numbers."""
    rule = ["---:" if i >= words else "---" for i in range(len(rows[0]))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [rows[0], rule, *rows[1:]])


def as_text(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Columns under each other, words to the left and numbers to the right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(w) if i < words else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, width, strict=True))
        )
        for line in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def plain(number: Any) -> str:
    """A number of a setting, without the digits that nobody wrote."""
    return f"{number:g}" if isinstance(number, float) else str(number)
