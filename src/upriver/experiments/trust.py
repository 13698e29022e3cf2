"""Whose code a spec may name: yours, or that of a package which you installed for the purpose.

`module:name` in a spec is imported and called, so a spec from a stranger could run anything. It
may name only what lies in a file beside the spec or in the current folder, where you put it, and
what an installed package offers under the entry points of GROUPS. Anything else needs `--trust`.
A spec that is made in Python, with `parse`, is the program's own and is not asked.

A spec that we write has copies of that code beside it, in a folder CODE.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from upriver.experiments import names
from upriver.mdp.writing import write_file

GROUPS = {
    "agent": "upriver.agents",
    "environment": "upriver.environments",
    "features": "upriver.features",
}
"""Where packages offer theirs: what a spec calls it, and the group of its entry points."""

CODE = "_code"
"""Beside a spec that we wrote: the modules that it names, as they were."""
HOMES: dict[str, str] = {}
"""Module -> the folder where a spec found it."""
STUDIES = "upriver.studies."
"""Modules of this package that the experiments of the catalogue name."""


@cache
def offered(kind: str) -> dict[str, EntryPoint]:
    """What installed packages offer, by the name that a spec gives it."""
    return {point.name: point for point in entry_points(group=GROUPS[kind])}


def vet_entry(entry: dict[str, Any], folder: Path, source: str) -> None:
    """Refuse an entry of a spec that names code of somewhere else."""
    for kind, word in code_words(entry):
        vet(word, kind, folder, source)


def code_words(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, `module:name`) of everything in an entry of a spec that is code."""
    for key, kind in (("name", "environment"), ("agent", "agent"), ("features", "features")):
        given = entry.get(key)
        for word in given if isinstance(given, list) else [given]:
            if not isinstance(word, str) or ":" not in word or word in names.RENAMED:
                continue
            if kind != "features" or not names.is_file(word):
                yield kind, word


def keep_code(data: dict[str, Any], folder: Path) -> None:
    """Copy the modules that a spec names, and their neighbours that they import, for its folder."""
    words = [w for key in ("environments", "agents") for e in data[key] for _, w in code_words(e)]
    homes = {HOMES.get(word.partition(":")[0].partition(".")[0]) for word in words} - {None}
    for name, module in list(sys.modules.items()) if homes else ():
        file = getattr(module, "__file__", None) or ""
        if file.endswith(".py") and (home := home_of(name)) in homes:
            copy = folder / CODE / os.path.relpath(os.path.realpath(file), home)
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_file(copy, Path(file).read_bytes())


def vet(word: str, kind: str, folder: Path, source: str) -> None:
    if word in {point.value for point in offered(kind).values()}:
        return
    module = word.partition(":")[0]
    folders = [os.path.realpath(p) for p in (folder, Path.cwd(), folder / CODE)]
    # behind everything installed: a file of yours called random.py hides nobody's random
    sys.path += [p for p in dict.fromkeys(folders) if p not in sys.path]
    if not (module.startswith(STUDIES) or is_in(module, folders)):
        raise ValueError(f"{source}: {kind} {word!r} {refusal(module)}")
    found = names.imported(word, kind)
    own = getattr(found, "__module__", None) or ""
    is_code = inspect.isfunction(found) or inspect.isclass(found)
    if not is_code or not (own.startswith("upriver.") or is_in(own, folders)):
        raise ValueError(f"{source}: {kind} {word!r} is not defined there; give --trust to use it")
    top = module.partition(".")[0]
    HOMES[top] = str(home_of(top))


def is_in(module: str, folders: list[str]) -> bool:
    """Whether the import of a module would find it in one of some folders."""
    return home_of(module) in folders


def home_of(module: str) -> str | None:
    """The one folder where the import of a module would find it."""
    top = module.partition(".")[0]
    try:
        spec = find_spec(top) if top else None
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = {os.path.realpath(os.path.dirname(p)) for p in spec.submodule_search_locations or ()}
    if not places and spec.has_location and spec.origin:
        places = {os.path.realpath(os.path.dirname(spec.origin))}
    return places.pop() if len(places) == 1 else None


def refusal(module: str) -> str:
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "cannot be imported: no such file lies beside the spec or in the current folder"
    return (
        f"is code of {spec.origin or spec.name}, which lies neither beside the spec nor in the "
        "current folder; if you know what it does, give --trust"
    )
