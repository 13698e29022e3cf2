"""Rows to text: CSV, Markdown, or aligned columns for a terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from math import floor, isfinite, isnan, log10
from typing import Any

NUMBERS = re.compile(r"[-+\d.e to]+")
"""Numbers and intervals, which may begin with a sign."""


def to_csv(head: Sequence[str], rows: Iterable[Iterable[Any]], digits: int | None = None) -> str:
    """Write rows as CSV: numbers with all digits, or `digits` significant ones.

    None and nan are empty cells. A text that a spreadsheet would execute as a formula gets a
    leading apostrophe.
    """

    def cell(x: Any) -> Any:
        if x is None or (isinstance(x, float) and isnan(x)):
            return ""
        if isinstance(x, float):
            return repr(x) if digits is None else f"{x:.{digits}g}"
        risky = isinstance(x, str) and x.startswith(("=", "+", "-", "@", "\t", "\r"))
        return f"'{x}" if risky and not NUMBERS.fullmatch(x) else x

    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([cell(x) for x in row] for row in (head, *rows))
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


def format_numbers(numbers: Sequence[float], digits: int = 3) -> list[str]:
    """Write numbers with the decimals of which the largest has `digits` significant digits.

    Very large and very small ones have an exponent, and what is not a number is a dash.
    """
    largest = max((abs(x) for x in numbers if isfinite(x)), default=0.0)
    power = floor(log10(largest)) if largest > 0.0 else 0
    decimals = max(0, digits - 1 - power)
    form = f".{decimals}f" if -4 <= power < 7 else f".{digits - 1}e"
    return ["–" if isnan(x) else f"{round(x, decimals) + 0.0:{form}}" for x in numbers]  # 0 for -0


def escape_controls(text: str) -> str:
    """Return text in which a terminal finds no commands: they are written as in Python, \\x1b."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def format_setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
