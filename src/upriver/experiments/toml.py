"""Plain data to TOML text; the standard library reads TOML but does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def dumps(data: Mapping[str, Any]) -> str:
    """TOML of nested tables: a list of tables becomes [[name]] sections, a table is one line."""
    sections = {k: v for k, v in data.items() if v and is_list_of_tables(v)}
    lines = lines_of({k: v for k, v in data.items() if k not in sections})
    for key, tables in sections.items():
        for each in tables:
            lines += ["", f"[[{bare(key)}]]", *lines_of(each)]
    return "\n".join(lines).strip() + "\n"


def is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, Mapping) for x in value)


def lines_of(table: Mapping[str, Any]) -> list[str]:
    """One line for each value, and for each table inside a table: at.riverswim-6 = { ... }."""
    lines = []
    for key, value in table.items():
        inner = isinstance(value, Mapping) and any(isinstance(x, Mapping) for x in value.values())
        parts = (
            {f"{bare(key)}.{bare(k)}": x for k, x in value.items()} if inner else {bare(key): value}
        )
        lines += [f"{name} = {scalar(x)}" for name, x in parts.items()]
    return lines


def bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{bare(k)} = {scalar(v)}" for k, v in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"{value!r} has no TOML form")
