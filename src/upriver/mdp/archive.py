"""Files of policies, agents and MDPs: npz archives with a JSON header, never a pickle.

An archive is a zip file with one .npy member per array and `upriver.json`, which says what the file
is, how the arrays fit together and a digest of everything. Reading builds only frozen dataclasses
and named tuples of this package (and of the module of the caller's agent), so that a foreign file
runs no code; a truncated or edited file is refused.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.mdp.writing import replacing

HEADER = "upriver.json"
VERSION = 2
MAX_PLAIN_SIZE = 2**28
"""Bytes that any file may expand to; beyond it, at most 100 times the size of the file."""
DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that equal contents give equal bytes."""
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError, NotImplementedError,
    RuntimeError, MemoryError, OverflowError, SyntaxError,
)  # fmt: skip
"""What zipfile, json and numpy raise for damaged files."""


class Oversized(Exception):
    """A small file that would fill the memory."""


class Unwritable(TypeError):
    """A value that cannot be written to a file."""


def name_of(kind: Any) -> str:
    """Return the name of a class or function in files, "module:name"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def is_ours(kind: Any) -> bool:
    """Return whether a class or function is part of this package."""
    return kind.__module__.split(".")[0] == "upriver"


def encode(value: Any, arrays: dict[str, Array], seen: dict[int, Any] | None = None) -> Any:
    """Return a JSON tree of `value`, whose arrays go into `arrays`; each object is written once,
    for which `seen` holds (number, object) of what was written before."""
    seen = {} if seen is None else seen

    def walk(x: Any) -> Any:
        return encode(x, arrays, seen)

    if isinstance(value, np.generic):
        return {"scalar": add_array(np.asarray(value), arrays)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [walk(x) for x in value]
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {"dict": [[walk(k), walk(x)] for k, x in value.items()]}
    if isinstance(value, FunctionType):
        if not is_ours(value) or "<" in value.__qualname__:
            raise Unwritable(f"{value!r} is not a function of Upriver; no file can hold it")
        return {"function": name_of(value)}
    if id(value) in seen:
        return {"same": seen[id(value)][0]}
    if hasattr(value, "without_closures"):
        value = value.without_closures()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"named": name_of(type(value)), "items": [walk(x) for x in value]}
    if isinstance(value, tuple):
        return {"tuple": [walk(x) for x in value]}
    number = len(seen)
    seen[id(value)] = number, value
    if isinstance(value, np.ndarray):
        return {"array": add_array(value, arrays), "id": number}
    from scipy import sparse  # not before it is needed: it would be half of `import upriver`

    if sparse.issparse(value):
        parts: Any = sparse.csr_array(value)
        data = [add_array(x, arrays) for x in (parts.data, parts.indices, parts.indptr)]
        return {"sparse": data, "shape": list(parts.shape), "id": number}
    if is_dataclass(value):
        inputs = {f.name: walk(getattr(value, f.name)) for f in fields(value) if f.init}
        return {"object": name_of(type(value)), "fields": inputs, "id": number}
    raise Unwritable(f"a {type(value).__name__} cannot be written to a file")


def add_array(array: Array, arrays: dict[str, Array]) -> str:
    """Add an array to `arrays` and return its name there."""
    if array.dtype.hasobject:
        raise Unwritable("an array of Python objects cannot be written to a file")
    arrays[name := f"a{len(arrays)}"] = array
    return name


def decode_from(path: Any, tree: Any, arrays: dict[str, Array], trusted: str = "upriver") -> Any:
    """Return the value of a tree that `encode` made; it may name classes of module `trusted`."""
    try:
        return decode(tree, arrays, trusted, {})
    except (KeyError, TypeError, AttributeError, ImportError, IndexError) as error:
        raise ValueError(f"{path} does not fit this version of Upriver ({error})") from error
    except (RecursionError, OverflowError, MemoryError):
        raise ValueError(f"{path} is damaged, or was not written by Upriver") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def decode(tree: Any, arrays: dict[str, Array], trusted: str, made: dict[int, Any]) -> Any:
    """Return the value of a tree; `made` holds the objects that were made before."""

    def walk(x: Any) -> Any:
        return decode(x, arrays, trusted, made)

    if isinstance(tree, list):
        return [walk(x) for x in tree]
    if not isinstance(tree, dict):
        return tree
    if "same" in tree:
        return made[tree["same"]]
    if "tuple" in tree:
        return tuple(walk(x) for x in tree["tuple"])
    if "range" in tree:
        return range(*tree["range"])
    if "dict" in tree:
        return {walk(k): walk(x) for k, x in tree["dict"]}
    if "scalar" in tree:
        return arrays[tree["scalar"]][()]
    if "function" in tree:
        return find(tree["function"], trusted, lambda x: isinstance(x, FunctionType))
    if "named" in tree:
        kind = find(tree["named"], trusted, lambda x: hasattr(x, "_fields"))
        return kind(*map(walk, tree["items"]))
    if "array" in tree:
        value = arrays[tree["array"]]
    elif "sparse" in tree:
        from scipy import sparse

        parts = tuple(arrays[x] for x in tree["sparse"])
        value = sparse.csr_array(parts, shape=tuple(tree["shape"]))
        value.check_format(full_check=True)
    else:
        kind = find(tree["object"], trusted, is_dataclass)
        value = kind(**{k: walk(x) for k, x in tree["fields"].items()})
    made[tree["id"]] = value
    return value


def find(name: str, trusted: str, fits: Any) -> Any:
    """Return the class or function "module:name", if it is one that a file may name."""
    module, _, qualified = name.partition(":")
    if module != trusted and module.split(".")[0] != "upriver":
        raise ValueError(f"the file names {name!r}, which is not part of Upriver")
    found = getattr(import_module(module), qualified)
    if not fits(found) or name_of(found) != name:
        raise ValueError(f"the file names {name!r}, which is not a kind of data")
    return found


def digest(body: Any, arrays: dict[str, Array]) -> str:
    """Return the SHA-256 of a JSON tree and its arrays."""
    sha = hashlib.sha256(json.dumps(body).encode())
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def write_archive(path: Any, kind: str, body: Any, arrays: dict[str, Array]) -> None:
    """Write a JSON tree and its arrays to one file, completely or not at all."""
    header = {"format": "upriver", "version": VERSION, "kind": kind, "digest": digest(body, arrays)}
    with replacing(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps({**header, "body": body}, indent=1)
        archive.writestr(zipfile.ZipInfo(HEADER, DATE), text, zipfile.ZIP_DEFLATED)
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy", DATE), "w") as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_archive(path: Any, kind: str) -> tuple[Any, dict[str, Array]]:
    """Return (body, arrays) of a file of that kind; a damaged or changed file is refused."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > MAX_PLAIN_SIZE and size > 100 * Path(path).stat().st_size:
                raise Oversized
            header = json.loads(archive.read(HEADER))
            for member in archive.namelist():
                if member != HEADER:
                    with archive.open(member) as file:
                        name = member.removesuffix(".npy")
                        arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
        keys = "format", "kind", "version", "body", "digest"
        written_by, found, version, body, stored_digest = (header[key] for key in keys)
        if written_by != "upriver":
            raise KeyError("format")
    except UNREADABLE:
        raise ValueError(f"{path} is damaged, or was not written by Upriver") from None
    except Oversized:
        raise ValueError(
            f"{path} would take {size / 2**20:.0f} MB of memory, more than 100 times its size; it "
            "was not written by Upriver"
        ) from None
    if found != kind:
        raise ValueError(f"{path} holds a saved {found}, where a saved {kind} is needed")
    if version != VERSION:
        raise ValueError(f"{path} has file version {version}; this Upriver reads {VERSION}")
    if digest(body, arrays) != stored_digest:
        raise ValueError(f"{path} was changed after it was written")
    return body, arrays


def save_object(path: Any, kind: str, value: Any) -> None:
    """Write one object to a file."""
    arrays: dict[str, Array] = {}
    write_archive(path, kind, encode(value, arrays), arrays)


def load_object(path: Any, kind: str, fits: type) -> Any:
    """Return the object of a file that `save_object` wrote; it must be a `fits`."""
    value = decode_from(path, *read_archive(path, kind))
    if not isinstance(value, fits):
        raise ValueError(f"{path} holds no {kind}")
    return value


def fingerprints(agent: Any) -> dict[str, str]:
    """Return a digest of each field of an agent; "own" where a field holds the user's code."""
    prints = {}
    for f in fields(agent):
        arrays: dict[str, Array] = {}
        try:
            prints[f.name] = digest(encode(getattr(agent, f.name), arrays), arrays)
        except Unwritable:
            prints[f.name] = "own"
    return prints
