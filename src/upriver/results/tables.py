"""Rows to text: CSV, Markdown, or aligned columns for a terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from math import isnan
from typing import Any

NUMBERS = re.compile(r"[-+\d.e to]+")
"""Numbers and intervals, which may begin with a sign."""


def to_csv(head: Sequence[str], rows: Iterable[Iterable[Any]], digits: int | None = None) -> str:
    """Write rows as CSV: numbers with all digits, or `digits` significant ones.

    None and nan are empty cells.
    A text that a spreadsheet would execute as a formula gets a leading apostrophe.
    """

    def cell(x: Any) -> Any:
        if x is None or (isinstance(x, float) and isnan(x)):
            return ""
        if isinstance(x, float):
            return repr(x) if digits is None else f"{x:.{digits}g}"
        risky = isinstance(x, str) and x.startswith(("=", "+", "-", "@", "\t", "\r"))
        return f"'{x}" if risky and not NUMBERS.fullmatch(x) else x

    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow([cell(x) for x in head])
    writer.writerows([cell(x) for x in row] for row in rows)
    return sink.getvalue()


def to_markdown(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Write a table whose first row is its head; columns after the first `words` hold numbers."""
    rule = ["---:" if i >= words else "---" for i in range(len(rows[0]))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [rows[0], rule, *rows[1:]])


def to_text(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Align columns: the first `words` to the left, numbers to the right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = [str.ljust if i < words else str.rjust for i in range(len(width))]
    lines = ("  ".join(p(x, w) for p, x, w in zip(pad, line, width, strict=True)) for line in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def format_setting(value: Any) -> str:
    """Write a number of a setting without superfluous digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)
