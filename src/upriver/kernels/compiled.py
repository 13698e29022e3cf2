"""The one way a function is compiled here: numba, cached on disk where a cache can be written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

SOURCES = sorted(Path(__file__).parent.glob("*.py"))
STAMP = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in SOURCES)
"""What a cached kernel was made from. Numba looks only at the file of the kernel itself, and would
go on using one whose callees have changed."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on its first call; IEEE division instead of Python's ZeroDivisionError."""
    return cached(function, error_model="numpy")


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call: without the wrapper that Python would need.

    Unpacking a layout of a dozen arrays takes longer to compile than most loops.
    """
    return cached(function, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


def cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        kernel: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to cache in: a read-only install
        return numba.njit(**options)(function)
    kernel._cache._cache_file._source_stamp = STAMP
    return kernel
