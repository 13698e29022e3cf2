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
