"""Draw the house from its imports, into CONTRIBUTING.md: `make rooms`.

A room is a package (or the one loose module) below src/upriver. Each line says what the room is
for, in the words of its own docstring, and on which rooms it stands: those that it imports, less
those that are already below another one of them.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: made by `make rooms` -->\n```\n", "```\n<!-- end of rooms -->"


def layers() -> list[list[str]]:
    """The rooms from the top of the house to the ground, as pyproject.toml declares them."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = declared["tool"]["importlinter"]["contracts"][0]
    return [layer.replace("|", " ").replace(":", " ").split() for layer in contract["layers"]]


def arrows() -> dict[str, set[str]]:
    """Room -> the rooms that its modules import when they run."""
    graph = grimp.build_graph("upriver", exclude_type_checking_imports=True, cache_dir=None)
    found: dict[str, set[str]] = {}
    for importer in graph.modules - {"upriver", "upriver.__main__"}:
        room = importer.split(".")[1]
        for imported in graph.find_modules_directly_imported_by(importer) - {"upriver"}:
            found.setdefault(room, set()).add(imported.split(".")[1])
        found.setdefault(room, set()).discard(room)
    return found


def below(room: str, found: dict[str, set[str]]) -> set[str]:
    return found[room].union(*(below(other, found) for other in found[room]))


def purpose(room: str) -> str:
    package = ROOT / "src" / "upriver" / room / "__init__.py"
    file = package if package.exists() else package.parent.with_suffix(".py")
    told = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return told.split("\n")[0].rstrip(".")


def drawing() -> str:
    found = arrows()
    lines = []
    for layer in layers():
        for room in layer:
            implied = set().union(*(below(other, found) for other in found[room]))
            stands = " ".join(sorted(found[room] - implied))
            lines.append((room, purpose(room), stands))
    wide, long = max(len(x[0]) for x in lines), max(len(x[1]) for x in lines)
    return "".join(
        f"{room:<{wide}}  {told:<{long}}  {'-> ' + stands if stands else ''}".rstrip() + "\n"
        for room, told, stands in lines
    )


def drawn(text: str) -> str:
    """The page with the drawing as it is now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{drawing()}{END}{tail}"


if __name__ == "__main__":
    sys.stdout.write(drawing())
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
