"""What an object says of itself: `repr` shows one line of it and a notebook shows a card.

    @add_repr
    class Run(NamedTuple):
        def card(self) -> Card: ...

A class without the method `card` shows its fields, arrays by their shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from upriver.checks import Array

MAX_LINE = 300
"""Characters of a line."""
MAX_ROWS = 10
"""Rows of a card's table."""

Kind = TypeVar("Kind", bound=type[Any])

# colours are inherited, so that a card is light or dark as the page is
STYLE = f"<style>{Path(__file__).with_name('card.css').read_text(encoding='utf-8')}</style>"


class Card(NamedTuple):
    """The facts and the table that an object displays."""

    facts: Mapping[str, Any] = {}
    """{label: value}, the most important first; a line that is too long is cut off."""
    of: str = ""
    """The name of the object, or of what it belongs to."""
    rows: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    """A function that makes the rows of the card's table; a line does not call it."""
    most: int = MAX_ROWS
    """The number of rows that the card shows."""
    more: str = ""
    """A note below the table, such as which method has all rows."""
    brief: str = ""
    """How the line of another object names this one."""


def add_repr(kind: Kind) -> Kind:
    """Give a class `__repr__` (one line) and `_repr_html_` (a card)."""
    kind.__repr__ = format_line  # type: ignore[method-assign]
    kind._repr_html_ = format_html
    return kind


def make_card(thing: Any) -> Card:
    """Return the card of an object; that of its fields where it has no method `card`."""
    if hasattr(thing, "card"):
        return thing.card()
    own = [f.name for f in fields(thing) if f.repr] if is_dataclass(thing) else thing._fields
    found = {name.removeprefix("n_").replace("_", " "): getattr(thing, name) for name in own}
    return Card({name: x for name, x in found.items() if x is not None})


def format_line(self: Any) -> str:
    """Return one line of at most 300 characters."""
    card = make_card(self)
    phrases = []
    for label, value in card.facts.items():
        word = format_brief(value)  # a number stands before what it counts: 6 states
        counts = isinstance(value, int) and word.isdigit() and label.endswith("s")
        phrases.append(f"{word} {label}" if counts else f"{label} {word}")
    text = f"{type(self).__name__}({card.of}{': ' * bool(card.of)}{', '.join(phrases)})"
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 4]}...)"


def format_brief(value: Any, most: int = 60) -> str:
    """Return a value in at most `most` characters; an array as its shape and type."""
    if value is None:
        return "–"
    if isinstance(value, bool | str | int):
        text = str(value)
    elif hasattr(value, "ndim") and hasattr(value, "dtype"):
        if not value.ndim:
            return format_brief(value.item())
        return "x".join(map(str, value.shape)) + f" {value.dtype}"
    elif isinstance(value, float):
        text = f"{value:.4g}" if math.isfinite(value) else str(value)
    elif getattr(type(value), "__repr__", None) is format_line:
        text = make_card(value).brief or type(value).__name__
    elif isinstance(value, list | dict) or (isinstance(value, tuple) and len(value) > 4):
        text = f"{len(value)} {'entries' if len(value) != 1 else 'entry'}" if value else "none"
    elif isinstance(value, tuple):
        text = f"({', '.join(map(format_brief, value))})"
    elif callable(value) and hasattr(value, "__name__"):
        text = value.__name__
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def format_html(self: Any) -> str:
    """Return a card as HTML without scripts, in the colours of the page."""
    card = make_card(self)
    name = f'<b>{escape(type(self).__name__)}</b> <span class="of">{escape(card.of)}</span>'
    facts = (
        f"<span><i>{escape(label)}</i> {escape(format_brief(value))}</span>"
        for label, value in card.facts.items()
    )
    parts = [f"<div>{name}</div>", f'<div class="facts">{"".join(facts)}</div>']
    notes = [card.more] if card.more else []
    try:
        every = card.rows() if card.rows is not None else ()
    except ValueError as error:  # such as standard errors that do not exist
        every, notes = (), [str(error)]
    rows = every[: card.most]
    if len(every) > len(rows):
        notes.insert(0, f"and {len(every) - len(rows)} more rows")
    if rows:
        words = {c for c in rows[0] if any(isinstance(row[c], str | tuple) for row in rows)}

        def format_row(tag: str, row: Mapping[str, Any]) -> str:
            cells = (
                f"<{tag}{' class=words' * (c in words)}>{escape(format_brief(x, 100))}</{tag}>"
                for c, x in row.items()
            )
            return f"<tr>{''.join(cells)}</tr>"

        head = format_row("th", {c: str(c).replace("_", " ") for c in rows[0]})
        parts.append(f"<table>{head}{''.join(format_row('td', row) for row in rows)}</table>")
    parts += [f'<div class="more">{escape("; ".join(notes))}</div>'] if notes else []
    return f'<div class="upriver">{STYLE}{"".join(parts)}</div>'


def to_frame(data: Any) -> Any:
    """Return a pandas data frame of a mapping of columns, or of a list of rows."""
    import pandas as pd

    return pd.DataFrame(data)


def name_column(names: Any, numbers: Array) -> Any:
    """Return the names of an array of states or actions; the numbers where they have no names."""
    if names is None:
        return numbers
    return np.fromiter(names, object)[numbers]  # an array of tuples would be a matrix
