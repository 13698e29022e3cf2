"""Files of policies, agents' states and MDPs: npz archives with a JSON header, never a pickle.

An archive has one member per array and a header, which says what the file is and how the arrays fit
together. Reading builds only frozen dataclasses and named tuples of this package (and of the module
of the caller's agent), so that a foreign file runs no code. The checksums of zip find damage.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.mdp.writing import replacing

HEADER = "upriver"
VERSION = 3
MAX_PLAIN_SIZE = 2**28
"""Bytes that any file may expand to; beyond it, at most 100 times the size of the file."""


def name_of(kind: Any) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def to_tree(
    value: Any, arrays: dict[str, Array], by_name: bool = False, plain: bool = False
) -> Any:
    """Return a JSON tree of `value`, whose arrays go into `arrays`.

    Code and objects of other classes cannot be written to a file; `by_name` writes their names.
    `plain` writes named tuples of the user as tuples, which are equal.
    """
    walk = partial(to_tree, arrays=arrays, by_name=by_name, plain=plain)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | range):
        return list(map(walk, value))
    if isinstance(value, Mapping):
        return {"dict": [[walk(k), walk(x)] for k, x in value.items()]}
    if issubclass(type(value), np.ndarray) and not value.dtype.hasobject:
        arrays[name := f"a{len(arrays)}"] = value
        return {"array": name}
    if hasattr(value, "tocsr"):  # a sparse matrix: part of digests, but of no file
        rows = value.tocsr()
        return {"sparse": walk([list(rows.shape), rows.data, rows.indices, rows.indptr])}
    if hasattr(value, "without_closures"):
        value = value.without_closures()
    names = getattr(value, "_fields", None)
    if plain and not type(value).__module__.startswith("upriver."):
        names = None
    if names is None and isinstance(value, tuple):
        return {"tuple": list(map(walk, value))}
    if is_dataclass(value):
        names = [f.name for f in fields(value) if f.init]
    if names is None or isinstance(value, type):
        if by_name:
            text = getattr(value, "__qualname__", None) or repr(value)
            return type(value).__qualname__ if " at 0x" in text else text
        raise TypeError(f"a {type(value).__name__} cannot be written to a file")
    tree = {name: walk(getattr(value, name)) for name in names}
    return {"object": name_of(type(value)), "fields": tree}


def from_tree(tree: Any, arrays: dict[str, Array], trusted: str) -> Any:
    """Return the value of a tree that `to_tree` made; it may name classes of module `trusted`."""
    walk = partial(from_tree, arrays=arrays, trusted=trusted)
    if isinstance(tree, list):
        return list(map(walk, tree))
    if not isinstance(tree, dict):
        return tree
    if "tuple" in tree:
        return tuple(map(walk, tree["tuple"]))
    if "dict" in tree:
        return {walk(k): walk(x) for k, x in tree["dict"]}
    if "array" in tree:
        return arrays[tree["array"]]
    kind = find_class(tree["object"], trusted)
    return kind(**{name: walk(x) for name, x in tree["fields"].items()})


def find_class(name: str, trusted: str) -> Any:
    """Return the class "module:name", if it is one that a file may name."""
    module, _, qualified = name.partition(":")
    if module != trusted and module.split(".")[0] != "upriver":
        raise ValueError(f"the file names {name!r}, which is not part of Upriver")
    found = getattr(import_module(module), qualified)
    is_data = isinstance(found, type) and (is_dataclass(found) or hasattr(found, "_fields"))
    if not is_data or name_of(found) != name:
        raise ValueError(f"the file names {name!r}, which is not a kind of data")
    return found


def digest(value: Any) -> str:
    """Return the SHA-256 of what a file of the value would hold, and of the names of code."""
    arrays: dict[str, Array] = {}
    sha = hashlib.sha256(json.dumps(to_tree(value, arrays, by_name=True)).encode())
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def save_object(path: Any, kind: str, value: Any, plain: bool = False) -> None:
    arrays: dict[str, Array] = {}
    write_archive(path, kind, to_tree(value, arrays, plain=plain), arrays)


def write_archive(path: Any, kind: str, body: Any, arrays: dict[str, Array]) -> None:
    """Write a JSON tree and its arrays to one file, completely or not at all."""
    header = {"version": VERSION, "kind": kind, "body": body}
    with replacing(path) as part, open(part, "wb") as file:
        members: dict[str, Any] = {HEADER: np.array(json.dumps(header)), **arrays}
        np.savez_compressed(file, **members)


def read_archive(path: Any, kind: str) -> tuple[Any, dict[str, Array]]:
    """Return (body, arrays) of a file of that kind; a damaged file is refused."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > max(MAX_PLAIN_SIZE, 100 * Path(path).stat().st_size):
            raise ValueError("a small file would fill the memory")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop(HEADER)))
        found, version, body = (header[x] for x in ("kind", "version", "body"))
    except PermissionError:
        raise
    except Exception:  # numpy, zipfile, zlib and json raise a dozen kinds
        raise ValueError(f"{path} is damaged, or was not written by Upriver") from None
    if found != kind:
        raise ValueError(f"{path} holds a saved {found}, where a saved {kind} is needed")
    if version != VERSION:
        raise ValueError(f"{path} has file version {version}; this Upriver reads {VERSION}")
    return body, arrays


def load_object(path: Any, kind: str, fits: type, trusted: str = "upriver") -> Any:
    """Return the object of a file that `save_object` wrote; it must be a `fits`.

    The file may name classes of module `trusted`.
    """
    body, arrays = read_archive(path, kind)
    try:
        value = from_tree(body, arrays, trusted)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:  # whatever the fields of a class do not take
        raise ValueError(f"{path} does not fit this version of Upriver ({error})") from error
    if not isinstance(value, fits):
        raise ValueError(f"{path} holds no {kind}")
    return value
