"""The decorators with which functions are compiled here, their cache, and ranges run in threads.

A compiled function is kept on disk in a folder whose name holds a digest of all sources of this
package. Numba itself compares only the file of the function, and would go on using one whose
callees have changed.

`parallel_ranges` runs a function on several ranges at once. Kernels made by `njit_nogil` release
the interpreter while they run, so plain threads suffice and nothing is compiled twice. Every state
is computed by itself, so the number of threads changes no bit of a result. NUMBA_NUM_THREADS sets
that number; the workers of a sweep have one.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import gep_inbounds
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    lower_getattr_generic,
    models,
    register_jitable,
    register_model,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array

WORD = ir.IntType(64)
PACKAGE = Path(__file__).parent
KEPT_DIGESTS = 3  # folders of other versions of the sources that are kept, the newest ones

OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""IEEE division instead of Python's ZeroDivisionError; no kernel is called through C."""


def find_cache_folder() -> Path | None:
    """Return the folder for compiled functions, or None if no candidate can be written to.

    The candidates are NUMBA_CACHE_DIR where it is set; otherwise `__pycache__` beside the sources
    and, for an installation that is read-only, the user's cache folder.
    """
    sources = sorted(PACKAGE.glob("*.py"))
    digest = sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources))
    name = f"kernels-{digest.hexdigest()[:16]}"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "upriver"
    chosen = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    for parent in [Path(chosen)] if chosen else [PACKAGE / "__pycache__", user]:
        folder = parent / name
        try:
            is_new = not folder.is_dir()
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):  # permissions alone do not say it
                pass
        except OSError:
            continue
        if is_new:
            prune_cache(folder)
        return folder
    return None


def prune_cache(folder: Path) -> None:
    """Delete folders that belong to other digests, except for the KEPT_DIGESTS newest ones."""
    others = [path for path in folder.parent.glob("kernels-*") if path != folder]
    others.sort(key=lambda path: path.stat().st_mtime)
    for path in others[:-KEPT_DIGESTS]:
        shutil.rmtree(path, ignore_errors=True)


def announce_compilation(folder: Path | None) -> None:
    """Tell a person at a terminal that functions are compiled now, if the cache is empty."""
    is_worker = multiprocessing.parent_process() is not None
    if is_worker or not sys.stderr.isatty() or (folder is not None and any(folder.iterdir())):
        return
    print("upriver: compiling, once, about ten seconds", file=sys.stderr)


CACHE_FOLDER = find_cache_folder()
announce_compilation(CACHE_FOLDER)


def njit_cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile `function` with `numba.njit` on its first call, and cache it on disk."""
    if CACHE_FOLDER is None:
        return numba.njit(**OPTIONS, **options)(function)
    config: Any = numba.config  # pyright: ignore[reportPrivateImportUsage]
    before, config.CACHE_DIR = config.CACHE_DIR, str(CACHE_FOLDER)
    try:  # numba asks for the folder here, and not again when it compiles
        return numba.njit(cache=True, **OPTIONS, **options)(function)
    finally:
        config.CACHE_DIR = before


def njit_without_refcounts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes no array and returns none, without counting references.

    Numba counts a reference at every slice and at every array taken out of a tuple. That is atomic,
    and costs more than the short loops in between: 1 to 3 microseconds in `model.refresh`. The
    function may run in several threads at once, see `parallel_ranges`.
    """
    return njit_cached(function, _nrt=False, nogil=True)


def njit_nogil(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that may run in several threads at once, see `parallel_ranges`."""
    return njit_cached(function, nogil=True)


def njit_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call `function`, which LLVM makes a part of them, without counting references.

    It has no compiled entry for Python, which for a layout of a dozen arrays takes longer to
    compile than most loops, and it is cached only as a part of its callers.
    """
    options: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "forceinline": True}
    return register_jitable(**options)(function)


def njit_inline_ir(function: Callable[..., Any]) -> Callable[..., Any]:
    """Write a function into the kernels that call it before anything is compiled.

    For functions with few callers that mostly call others. As a level of their own, all that they
    call would be optimised once more on the way up.
    """
    return numba.njit(inline="always")(function)


class ConstantsType(types.Type):
    """The type of `Constants`: (name, type, place) of each field, the place counted in words."""

    def __init__(self, name: str, fields: tuple[tuple[str, types.Type, int], ...]) -> None:
        self.fields = {field: (kind, place) for field, kind, place in fields}
        digest = sha256(str(fields).encode()).hexdigest()[:16]
        super().__init__(name=f"Constants({name}, {digest})")  # short: it is in every symbol


class Constants:
    """A named tuple of arrays, numbers and named tuples that kernels read as if it were one.

    It hands many arrays to a kernel as one argument, the address of a table of words. Numba looks
    at every array of an argument list in every call, and at those of a named tuple for longer
    still, and compiles code that does so. Measured with numba 0.68: a `Constants` costs 0.3
    microseconds a call, an array 0.06, a named tuple of seven arrays 1.6. The arrays have no
    reference counts in a kernel, so a kernel must not return one.
    """

    def __init__(self, values: Any) -> None:
        self.values = values  # the arrays live as long as this object
        words: list[int] = []
        self._numba_type_ = add_words(values, words)  # numba asks for this name
        self.words = np.array(words, np.int64)
        self.address = self.words.ctypes.data

    def __reduce__(self) -> Any:
        return Constants, (self.values,)


def add_words(values: Any, words: list[int]) -> ConstantsType:
    """Append what `read_field` reads of a named tuple to words, and return its type.

    An array has its address, its shape and its strides; a number is a word; None has none.
    """
    start, fields = len(words), []
    for name, value in zip(values._fields, values, strict=True):
        place = len(words) - start
        if isinstance(value, tuple):
            kind: types.Type = add_words(value, words)
        else:
            kind = numba.typeof(value)
            if isinstance(kind, types.Array):
                words += [value.ctypes.data, *value.shape, *value.strides]
            elif kind == types.float64:
                words.append(int(np.float64(value).view(np.int64)))
            elif kind == types.int64:
                words.append(int(value))
            elif value is not None:
                raise TypeError(f"{name} is {value!r}; it must be an array, a number or None")
        fields.append((name, kind, place))
    return ConstantsType(type(values).__name__, tuple(fields))


@register_model(ConstantsType)
class ConstantsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, WORD.as_pointer())


@unbox(ConstantsType)
def unbox_constants(_kind: Any, constants: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(constants, "address")
    pointer = c.builder.bitcast(c.pyapi.long_as_voidptr(address), WORD.as_pointer())
    c.pyapi.decref(address)
    return NativeValue(pointer)


@infer_getattr
class ConstantsFields(AttributeTemplate):
    key = ConstantsType

    def generic_resolve(self, typ: ConstantsType, attr: str) -> Any:
        return typ.fields[attr][0] if attr in typ.fields else None


@lower_getattr_generic(ConstantsType)
def read_field(context: Any, builder: Any, constants: ConstantsType, words: Any, name: str) -> Any:
    """Write the code that reads a field of a `Constants`."""
    kind, place = constants.fields[name]

    def load(i: int) -> Any:
        word = builder.load(gep_inbounds(builder, words, place + i))
        word.set_metadata("invariant.load", builder.module.add_metadata([]))  # it never changes
        return word

    if isinstance(kind, ConstantsType):
        return gep_inbounds(builder, words, place)
    if isinstance(kind, types.Array):
        array, n = make_array(kind)(context, builder), kind.ndim
        populate_array(
            array,
            data=builder.inttoptr(load(0), array.data.type),
            shape=[load(1 + i) for i in range(n)],
            strides=[load(1 + n + i) for i in range(n)],
            itemsize=context.get_abi_sizeof(context.get_data_type(kind.dtype)),
            meminfo=None,
        )
        return array._getvalue()
    if kind == types.float64:
        return builder.bitcast(load(0), context.get_value_type(kind))
    return load(0) if kind == types.int64 else context.get_dummy_value()


def thread_count() -> int:
    """Return the number of threads that `parallel_ranges` uses."""
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def thread_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "upriver")


def parallel_ranges(work: Callable[[int, int], Any], size: int, parts: int = 0) -> list[Any]:
    """Call work(first, last) on consecutive parts of range(size) and return the results in order.

    `work` must release the interpreter for the threads to help, see `njit_nogil`. There are as many
    parts as threads by default. The calling thread takes parts too, because waking another thread
    takes about as long as a small part.
    """
    threads = thread_count()
    parts = parts or threads
    edges = [size * i // parts for i in range(parts + 1)]
    results: list[Any] = [None] * parts
    remaining = iter(range(parts))

    def take_parts() -> None:
        for i in remaining:
            results[i] = work(edges[i], edges[i + 1])

    others = [thread_pool(threads - 1).submit(take_parts) for _ in range(threads - 1)]
    try:
        take_parts()
    finally:
        for other in others:  # one that has not begun has nothing left to do
            if not other.cancel():
                other.result()
    return results
