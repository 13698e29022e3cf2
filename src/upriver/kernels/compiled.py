"""The two decorators of the compiled loops, their cache on disk, and ranges run in threads.

`njit_cached` is for kernels that Python calls, `njit_inline` for functions that kernels call. Both
are numba with options that its documentation explains: IEEE division instead of Python's
ZeroDivisionError, and kernels that release the interpreter while they run.

Compiled kernels are kept in a folder whose name holds a digest of all sources of this package.
Numba itself compares only the file of a kernel, and would go on using one whose callees changed.
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
from itertools import pairwise
from pathlib import Path
from threading import current_thread
from typing import Any

import numba
from numba.extending import register_jitable

KEPT_DIGESTS = 3  # folders of other versions of the sources that are kept, the newest ones
THREADS = "upriver"  # how the names of threads begin


def find_cache_folder(package: Path = Path(__file__).parent) -> Path | None:
    """Return the folder for compiled kernels, or None if no candidate can be written to.

    The candidates are NUMBA_CACHE_DIR where it is set; otherwise `__pycache__` beside the sources
    and, for an installation that is read-only, the user's cache folder.
    """
    sources = (p.name.encode() + p.read_bytes() for p in sorted(package.glob("*.py")))
    name = f"kernels-{sha256(b''.join(sources)).hexdigest()[:16]}"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "upriver"
    chosen = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    for parent in [Path(chosen)] if chosen else [package / "__pycache__", user]:
        folder = parent / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):  # permissions alone do not say it
                return folder
        except OSError:
            continue
    return None


def prepare_cache(folder: Path | None) -> None:
    """If the cache is empty, say at a terminal that kernels are compiled; delete older caches."""
    if folder is not None:
        if any(folder.iterdir()):
            return
        others = [path for path in folder.parent.glob("kernels-*") if path != folder]
        others.sort(key=lambda path: path.stat().st_mtime)
        for path in others[:-KEPT_DIGESTS]:
            shutil.rmtree(path, ignore_errors=True)
    if multiprocessing.parent_process() is None and sys.stderr.isatty():
        print("upriver: compiling, once, about ten seconds", file=sys.stderr)


CACHE_FOLDER = find_cache_folder()
prepare_cache(CACHE_FOLDER)


def njit_cached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel on its first call with arguments of new types, and keep it on disk."""
    is_cached = CACHE_FOLDER is not None
    config: Any = numba.config  # pyright: ignore[reportPrivateImportUsage]
    before, config.CACHE_DIR = config.CACHE_DIR, str(CACHE_FOLDER) if is_cached else ""
    try:  # numba asks for the folder here, and not again when it compiles
        return numba.njit(cache=is_cached, nogil=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before


def njit_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call a function, which LLVM may make a part of them.

    It has no entry of its own for Python, which takes longer to compile than most loops; Python
    can still call it as it is written.
    """
    return register_jitable(error_model="numpy")(function)


def thread_count() -> int:
    """Return the number of threads that `parallel_ranges` uses."""
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def thread_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, THREADS)


def parallel_ranges(work: Callable[[int, int], Any], size: int, parts: int = 0) -> list[Any]:
    """Call work(first, last) on consecutive parts of range(size) and return the results in order.

    There are as many parts as threads by default, and as many threads as NUMBA_NUM_THREADS says;
    the workers of a sweep have one. A part that calls this function itself has one too: threads
    that wait for each other would never end.
    """
    threads = thread_count()
    parts = parts or threads
    edges = [size * i // parts for i in range(parts + 1)]
    if threads == 1 or current_thread().name.startswith(THREADS):
        return [work(*edge) for edge in pairwise(edges)]
    return list(thread_pool(threads).map(work, edges[:-1], edges[1:]))
