"""The ways a function is compiled here: numba, cached on disk where a cache can be written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

SOURCES = sorted(Path(__file__).parent.glob("*.py"))
STAMP = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in SOURCES)
"""What a cached kernel was made from. Numba looks only at the file of the kernel itself, and would
go on using one whose callees have changed."""


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile `function` on its first call; IEEE division instead of Python's ZeroDivisionError."""
    options["error_model"] = "numpy"
    try:
        kernel: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to cache in: a read-only install
        return numba.njit(**options)(function)
    kernel._cache._cache_file._source_stamp = STAMP
    return kernel


def lean(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that makes no array and returns none: no reference is counted.

    Counting them, at every slice and every array taken out of a layout, is atomic, and costs more
    than the short loops in between.
    """
    return compiled(function, _nrt=False, **options)


def divisible(function: Callable[..., Any], compile: Callable[..., Any] = compiled) -> Any:
    """Compile a function that may run in several threads, each on a part: see `threads`."""
    return compile(function, nogil=True)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a lean function that only kernels call, and that becomes part of them.

    Unpacking a layout of a dozen arrays for Python takes longer to compile than most loops, and
    handing it from one function to another takes longer than many of them run.
    """
    return lean(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
