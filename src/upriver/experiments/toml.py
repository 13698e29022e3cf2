"""Plain data to TOML text; the standard library reads TOML but does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def dumps(data: Mapping[str, Any]) -> str:
    """TOML of nested tables.

    A list of tables becomes [[name]] sections, a table of tables [name.inner] sections; a table
    of plain values stays on one line.
    """
    return "\n".join(lines_of(data, "")).strip() + "\n"


def lines_of(data: Mapping[str, Any], path: str) -> list[str]:
    """Lines of one table: its values first, then the sections inside it."""
    lines: list[str] = []
    later: list[str] = []
    for key, value in data.items():
        name = f"{path}{bare(key)}"
        if isinstance(value, list) and value and all(isinstance(x, Mapping) for x in value):
            for each in value:
                later += ["", f"[[{name}]]", *lines_of(each, f"{name}.")]
        elif isinstance(value, Mapping) and any(isinstance(x, Mapping) for x in value.values()):
            for inner, table in value.items():
                inside = f"{name}.{bare(inner)}"
                later += ["", f"[{inside}]", *lines_of(table, f"{inside}.")]
        else:
            lines.append(f"{bare(key)} = {scalar(value)}")
    return lines + later


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
