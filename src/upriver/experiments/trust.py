"""Whose code a spec may name: yours, or that of a package which you installed for the purpose.

`module:name` in a spec is imported and called, so a spec from a stranger could run anything. It
may name only what lies in a file beside the spec or in the current folder, where you put it, and
what an installed package offers under the entry points of GROUPS. Anything else needs `--trust`.
A spec that is made in Python, with `parse`, is the program's own and is not asked.
"""

from __future__ import annotations

import inspect
import os
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from upriver.experiments import names

GROUPS = {
    "agent": "upriver.agents",
    "environment": "upriver.environments",
    "features": "upriver.features",
}
"""Where packages offer theirs: what a spec calls it, and the group of its entry points."""


@cache
def offered(kind: str) -> dict[str, EntryPoint]:
    """What installed packages offer, by the name that a spec gives it."""
    return {point.name: point for point in entry_points(group=GROUPS[kind])}


def vet_entry(entry: dict[str, Any], folder: Path, source: str) -> None:
    """Refuse an entry of a spec that names code of somewhere else."""
    for key, kind in (("name", "environment"), ("agent", "agent"), ("features", "features")):
        given = entry.get(key)
        for word in given if isinstance(given, list) else [given]:
            if not isinstance(word, str) or ":" not in word or word in names.RENAMED:
                continue
            if kind != "features" or not names.is_file(word):
                vet(word, kind, folder, source)


def vet(word: str, kind: str, folder: Path, source: str) -> None:
    if word in {point.value for point in offered(kind).values()}:
        return
    module = word.partition(":")[0]
    folders = [os.path.realpath(p) for p in (folder, Path.cwd())]
    # behind everything installed: a file of yours called random.py hides nobody's random
    sys.path += [p for p in dict.fromkeys(folders) if p not in sys.path]
    if not is_in(module, folders):
        raise ValueError(f"{source}: {kind} {word!r} {refusal(module)}")
    found = names.imported(word, kind)
    own = getattr(found, "__module__", None) or ""
    is_code = inspect.isfunction(found) or inspect.isclass(found)
    if not is_code or not (own.startswith("upriver.") or is_in(own, folders)):
        raise ValueError(f"{source}: {kind} {word!r} is not defined there; give --trust to use it")


def is_in(module: str, folders: list[str]) -> bool:
    """Whether the import of a module would find it in one of some folders."""
    top = module.partition(".")[0]
    try:
        spec = find_spec(top) if top else None
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = {os.path.realpath(os.path.dirname(p)) for p in spec.submodule_search_locations or ()}
    if not places and spec.has_location and spec.origin:
        places = {os.path.realpath(os.path.dirname(spec.origin))}
    return bool(places) and places <= set(folders)


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
