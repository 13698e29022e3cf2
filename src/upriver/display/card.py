"""What an object says of itself, once: `repr` makes a line of it and a notebook a card.

    @displayed
    class Run(NamedTuple):
        def card(self) -> Card: ...

A class without `card` says what its fields hold, arrays by their shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, NamedTuple, TypeVar

LONGEST = 300
"""Characters of a line."""
MOST_ROWS = 10
"""Rows of a card's table."""

Kind = TypeVar("Kind", bound=type[Any])

STYLE = """<style>
.upriver{color:inherit;max-width:100%;overflow-x:auto;line-height:1.4;margin:.2em 0}
.upriver .of{opacity:.7;font-weight:400}
.upriver .facts{display:flex;flex-wrap:wrap;gap:.1em 1.4em;margin:.25em 0}
.upriver .facts i{font-style:normal;opacity:.7}
.upriver table{border-collapse:collapse;margin:.4em 0;color:inherit;font-size:.92em;width:auto}
.upriver tr,.upriver th,.upriver td{background:none!important;color:inherit;text-align:right;
 border:0;padding:.12em .8em .12em 0;white-space:nowrap;font-variant-numeric:tabular-nums}
.upriver th{font-weight:600;border-bottom:1px solid currentColor}
.upriver .words{text-align:left}
.upriver .more{opacity:.7;font-size:.92em}
</style>"""  # colours are inherited: whatever the page is, light or dark, the card is too


class Card(NamedTuple):
    """What there is to say of an object."""

    facts: Mapping[str, Any] = {}
    """In the order of their weight; a line ends where it would be too long."""
    of: str = ""
    """Its own name, or what it belongs to."""
    rows: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    """Makes the rows of its table, of which the card shows the first; a line needs none."""
    n_rows: int | None = None
    """How many rows the table has, where `rows` does not make them all."""
    most: int = MOST_ROWS
    """How many rows the card shows."""
    more: str = ""
    """Where to look on."""
    brief: str = ""
    """How another object's line names this one."""


def displayed(kind: Kind) -> Kind:
    """A class whose objects have a line and a card."""
    kind.__repr__ = line  # type: ignore[method-assign]
    kind._repr_html_ = html
    return kind


def card_of(thing: Any) -> Card:
    return thing.card() if hasattr(thing, "card") else Card(fields_of(thing))


def fields_of(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass or a named tuple that say something."""
    if is_dataclass(thing):
        names = [f.name for f in fields(thing) if f.repr]
    else:
        names = list(getattr(thing, "_fields", ()))
    found = {name: getattr(thing, name) for name in names}
    said = {name.removeprefix("n_").replace("_", " "): x for name, x in found.items()}
    return {name: x for name, x in said.items() if x is not None}


def line(self: Any) -> str:
    """At most 300 characters."""
    card, name = card_of(self), type(self).__name__
    text = f"{name}({f'{card.of}: ' if card.of else ''}"
    said: list[str] = []
    for label, value in card.facts.items():
        said.append(phrase(label, brief(value)))
        if len(text) + sum(len(x) + 2 for x in said) > LONGEST - 5:
            said[-1] = "..."
            break
    text = text + ", ".join(said) + ")"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}...)"


def phrase(label: str, value: str) -> str:
    """A number of things stands before their name: 6 states, but horizon 24."""
    counted = value.isdigit() and label.endswith("s")
    return f"{value} {label}" if counted else f"{label} {value}"


def brief(value: Any, most: int = 60) -> str:
    """A value in a few characters."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        text = str(value)
    elif hasattr(value, "ndim") and hasattr(value, "dtype"):
        if value.ndim:
            return "x".join(map(str, value.shape)) + f" {value.dtype}"
        return brief(value.item())
    elif isinstance(value, float):
        text = f"{value:.4g}" if math.isfinite(value) else str(value)
    elif getattr(type(value), "__repr__", None) is line:
        text = card_of(value).brief or type(value).__name__
    elif isinstance(value, int):
        text = str(value)
    elif isinstance(value, list | dict) or (isinstance(value, tuple) and len(value) > 4):
        text = f"{len(value)} {'entries' if len(value) != 1 else 'entry'}"
    elif isinstance(value, tuple):
        text = f"({', '.join(map(brief, value))})"
    elif callable(value) and hasattr(value, "__name__"):
        text = value.__name__
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def html(self: Any) -> str:
    """A card without any script; the page's own colours."""
    card = card_of(self)
    of = f' <span class="of">{escape(card.of)}</span>' if card.of else ""
    parts = [f"<div><b>{escape(type(self).__name__)}</b>{of}</div>"]
    if card.facts:
        said = "".join(
            f"<span><i>{escape(label)}</i> {escape(brief(value))}</span>"
            for label, value in card.facts.items()
        )
        parts.append(f'<div class="facts">{said}</div>')
    more = [card.more] if card.more else []
    try:
        every = card.rows() if card.rows is not None else ()
    except ValueError as error:  # such as standard errors that do not exist
        every, more = (), [str(error)]
    rows = every[: card.most]
    left = (len(every) if card.n_rows is None else card.n_rows) - len(rows)
    if rows and left > 0:
        more.insert(0, f"and {left} more rows")
    if rows:
        words = {c for c in rows[0] if any(isinstance(row[c], str | tuple) for row in rows)}
        lines = [{c: str(c).replace("_", " ") for c in rows[0]}, *rows]
        cells = (
            "".join(
                f"<t{kind}{' class=words' * (c in words)}>{escape(brief(x, 100))}</t{kind}>"
                for c, x in line.items()
            )
            for kind, line in zip("h" + "d" * len(rows), lines, strict=True)
        )
        parts.append(f"<table>{''.join(f'<tr>{line}</tr>' for line in cells)}</table>")
    if more:
        parts.append(f'<div class="more">{escape("; ".join(more))}</div>')
    return f'<div class="upriver">{STYLE}{"".join(parts)}</div>'
