"""The one way a function is compiled here: numba, cached on disk where a cache can be written."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on its first call; IEEE division instead of Python's ZeroDivisionError."""
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # numba found no folder to cache in: a read-only install
        return numba.njit(error_model="numpy")(function)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call: without the wrapper that Python would need.

    Unpacking a layout of a dozen arrays takes longer to compile than most loops.
    """
    options = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
