"""The ways a function is compiled here: numba, cached on disk where a cache can be written.

And how one runs on all cores: on several ranges at once, a thread for each. `njit_nogil` kernels
let go of the interpreter while they run, so plain threads do, and nothing is compiled twice. Every
state is computed by itself: how many threads there are changes no bit of the result.
NUMBA_NUM_THREADS says how many; the workers of a sweep have one.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba

SOURCES = sorted(Path(__file__).parent.glob("*.py"))
STAMP = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in SOURCES)
"""What a cached kernel was made from. Numba looks only at the file of the kernel itself, and would
go on using one whose callees have changed."""


PLAIN: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""IEEE division instead of Python's ZeroDivisionError; no kernel is called through C."""


def njit_cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile `function` on its first call."""
    options |= PLAIN
    try:
        kernel: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to cache in: a read-only install
        return numba.njit(**options)(function)
    kernel._cache._cache_file._source_stamp = STAMP
    return kernel


def njit_without_refcounts(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that makes no array and returns none: no reference is counted.

    Counting them, at every slice and every array taken out of a layout, is atomic, and costs more
    than the short loops in between.
    """
    return njit_cached(function, _nrt=False, **options)


def njit_nogil(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that may run in several threads, on a part each: see `parallel_ranges`."""
    return njit_cached(function, nogil=True)


def njit_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a lean function that only kernels call, and that becomes part of them.

    Unpacking a layout of a dozen arrays for Python takes longer to compile than most loops, and
    handing it from one function to another takes longer than many of them run. It is in the cache
    as a part of them, and not once more by itself, which would take a tenth of the time.
    """
    options: dict[str, Any] = PLAIN | {
        "_nrt": False,
        "no_cpython_wrapper": True,
        "forceinline": True,
    }
    return numba.njit(**options)(function)


def njit_inline_ir(function: Callable[..., Any]) -> Callable[..., Any]:
    """Write a function into the kernels that call it, before anything is compiled.

    For those with few callers that mostly call others: as a level of their own, all that they call
    would be optimised once more on the way up.
    """
    return numba.njit(inline="always")(function)


def thread_count() -> int:
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def thread_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "upriver")


def parallel_ranges(work: Callable[[int, int], Any], size: int, parts: int = 0) -> list[Any]:
    """work(first, last) on consecutive parts of range(size), as many as threads unless told.

    Whoever is free takes the next part, the thread that asks included: waking another one takes
    about as long as a small part.
    """
    threads = thread_count()
    parts = parts or threads
    edges = [size * i // parts for i in range(parts + 1)]
    done: list[Any] = [None] * parts
    rest = iter(range(parts))

    def take() -> None:
        for i in rest:
            done[i] = work(edges[i], edges[i + 1])

    others = [thread_pool(threads - 1).submit(take) for _ in range(threads - 1)]
    try:
        take()
    finally:
        for other in others:  # one that never began has nothing left to do
            if not other.cancel():
                other.result()
    return done
