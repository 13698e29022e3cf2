"""Files that hold policies, agents and MDPs: npz archives with a JSON head, never a pickle.

An archive is a zip with one .npy member per array and `upriver.json`, which says what the file is,
how the arrays fit together and a digest of everything. Reading builds nothing but the frozen
dataclasses and named tuples of this package (and of the caller's own agent), so that a foreign
file can do no harm; a truncated or edited one is refused.
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

HEAD = "upriver.json"
VERSION = 1
MUCH = 2**28  # bytes that any file may expand to
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal contents give equal bytes


class Oversized(Exception):
    """An archive that expands beyond reason."""


class Unwritable(TypeError):
    """A value that has no place in a file."""


FILED_UNDER = {
    "upriver.agents.linear": "upriver.linear",
    "upriver.agents.rewards": "upriver.rewards",
    "upriver.agents.tabular": "upriver.tabular",
    "upriver.features.features": "upriver.features",
    "upriver.features.maps": "upriver.features",
    "upriver.mdp.finite": "upriver.mdp",
    "upriver.mdp.task": "upriver.mdp",
    "upriver.mnl.radii": "upriver.confidence",
    "upriver.planning.induction": "upriver.planning",
    "upriver.planning.optimism": "upriver.optimism",
    "upriver.play.policy": "upriver.policy",
    "upriver.play.simulate": "upriver.simulate",
}
"""Module -> the word that files have for it. A module may move; the files that name it stay."""

RENAMED = {
    f"upriver.agents.{old}State": "upriver.agents.mnl_family:State"
    for old in (
        "epsilon_greedy:EpsilonGreedy", "orrl_mnl:ORRLMNL", "rrl_mnl:RRLMNL", "ucrl_mnl:UCRLMNL",
        "ucrl_mnl_l1:UCRLMNLL1", "ucrl_mnl_ll:UCRLMNLLL", "ucrl_mnl_plus:UCRLMNLPlus",
    )
}  # fmt: skip
"""What files of version 0.1 call by a name of its own."""

BEFORE = {
    f"upriver.agents.{name}": {"regress_reward": True}
    for name in ("lsvi_phe:LSVIPHE", "lsvi_ucb:LSVIUCB")
}
"""Fields that files of version 0.1 lack, and what was done then."""


def name_of(kind: Any) -> str:
    return f"{FILED_UNDER.get(kind.__module__, kind.__module__)}:{kind.__qualname__}"


def is_ours(kind: Any) -> bool:
    return kind.__module__.split(".")[0] == "upriver"


def encode(value: Any, arrays: dict[str, Array], seen: dict[int, Any] | None = None) -> Any:
    """A JSON tree of `value`; its arrays go into `arrays`, each object is written once."""
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
            raise Unwritable(f"{value!r} is a function of your own, which no file can hold")
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
    if array.dtype.hasobject:
        raise Unwritable("an array of Python objects cannot be written to a file")
    arrays[name := f"a{len(arrays)}"] = array
    return name


def decode_from(path: Any, tree: Any, arrays: dict[str, Array], trusted: str = "upriver") -> Any:
    """`decode`, with a sentence about the file where the tree makes no sense."""
    try:
        return decode(tree, arrays, trusted, {})
    except (KeyError, TypeError, AttributeError, ImportError, IndexError) as error:
        raise ValueError(f"{path} does not fit this version of Upriver ({error})") from error
    except (RecursionError, OverflowError, MemoryError):
        raise ValueError(f"{path} is damaged, or was not written by Upriver") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def decode(tree: Any, arrays: dict[str, Array], trusted: str, made: dict[int, Any]) -> Any:
    """The value of a tree that `encode` made; `trusted`: one more module whose classes it knows."""

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
        return getattr(kind, "from_file", kind)(*map(walk, tree["items"]))
    if "array" in tree:
        value = arrays[tree["array"]]
    elif "sparse" in tree:
        from scipy import sparse

        parts = tuple(arrays[x] for x in tree["sparse"])
        value = sparse.csr_array(parts, shape=tuple(tree["shape"]))
        value.check_format(full_check=True)
    else:
        kind = find(tree["object"], trusted, is_dataclass)
        given = {k: walk(x) for k, x in tree["fields"].items()}
        inputs = {**BEFORE.get(tree["object"], {}), **given}
        value = getattr(kind, "from_file", kind)(**inputs)
    made[tree["id"]] = value
    return value


def find(name: str, trusted: str, fits: Any) -> Any:
    """The class or function called "module:name", if it is one that a file may name."""
    name = RENAMED.get(name, name)
    module, _, qualified = name.partition(":")
    if module != trusted and module.split(".")[0] != "upriver":
        raise ValueError(f"the file names {name!r}, which is not part of Upriver")
    homes = [home for home, word in FILED_UNDER.items() if word == module] or [module]
    rooms = [room for room in map(import_module, homes) if hasattr(room, qualified)]
    found = getattr(rooms[0] if rooms else import_module(homes[0]), qualified)
    if not fits(found) or name_of(found) != name:
        raise ValueError(f"the file names {name!r}, which is not a kind of data")
    return found


def digest(body: Any, arrays: dict[str, Array]) -> str:
    sha = hashlib.sha256(json.dumps(body).encode())
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def write_archive(path: Any, kind: str, body: Any, arrays: dict[str, Array]) -> None:
    """Write one file, whole or not at all."""
    head = {"format": "upriver", "version": VERSION, "kind": kind, "digest": digest(body, arrays)}
    with replacing(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps({**head, "body": body}, indent=1)
        archive.writestr(zipfile.ZipInfo(HEAD, LONG_AGO), text, zipfile.ZIP_DEFLATED)
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy", LONG_AGO), "w") as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def check_size(path: Any, archive: zipfile.ZipFile) -> None:
    """Refuse a small file that would fill the memory; zeros shrink well, but not for ever."""
    whole = sum(member.file_size for member in archive.infolist())
    if whole > MUCH and whole > 100 * Path(path).stat().st_size:
        raise Oversized(
            f"{path} would take {whole / 2**20:.0f} MB of memory, more than 100 times its size; it "
            "was not written by Upriver"
        )


def read_archive(path: Any, kind: str) -> tuple[Any, dict[str, Array]]:
    """(body, arrays) of a file of that kind, or one sentence that says what is wrong with it."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            check_size(path, archive)
            head = json.loads(archive.read(HEAD))
            for member in archive.namelist():
                if member != HEAD:
                    with archive.open(member) as file:
                        name = member.removesuffix(".npy")
                        arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
        if head["format"] != "upriver":
            raise KeyError("format")
        found, version, body, printed = (
            head["kind"], head["version"], head["body"], head["digest"],
        )  # fmt: skip
    except (
        zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError,
        NotImplementedError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    ):  # fmt: skip
        raise ValueError(f"{path} is damaged, or was not written by Upriver") from None
    except Oversized as error:
        raise ValueError(str(error)) from None
    if found != kind:
        raise ValueError(f"{path} holds a saved {found}, where a saved {kind} is needed")
    if version != VERSION:
        raise ValueError(f"{path} has file version {version}; this Upriver reads {VERSION}")
    if digest(body, arrays) != printed:
        raise ValueError(f"{path} was changed after it was written")
    return body, arrays


def save_object(path: Any, kind: str, value: Any) -> None:
    """Write one object to a file of its own."""
    arrays: dict[str, Array] = {}
    write_archive(path, kind, encode(value, arrays), arrays)


def load_object(path: Any, kind: str, fits: type) -> Any:
    """The object of a file that `save_object` wrote."""
    value = decode_from(path, *read_archive(path, kind))
    if not isinstance(value, fits):
        raise ValueError(f"{path} holds no {kind}")
    return value


def fingerprints(agent: Any) -> dict[str, str]:
    """A digest of each input of an agent; "own" for what only the user's code can rebuild."""
    prints = {}
    for f in fields(agent):
        arrays: dict[str, Array] = {}
        try:
            prints[f.name] = digest(encode(getattr(agent, f.name), arrays), arrays)
        except Unwritable:
            prints[f.name] = "own"
    return prints
