"""Large problems on all cores: the same kernel on several ranges at once, a thread for each.

The kernels let go of the interpreter while they run, so plain threads do, and nothing is compiled
twice. Every state is computed by itself: how many threads there are changes no bit of the result.
NUMBA_NUM_THREADS says how many; the workers of a sweep have one.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numba


def count() -> int:
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "upriver")


def each(work: Callable[[int, int], Any], size: int, parts: int = 0) -> list[Any]:
    """work(first, last) on consecutive parts of range(size), as many as threads unless told."""
    parts = parts or count()
    edges = [size * i // parts for i in range(parts + 1)]
    if count() == 1:
        return [work(*edge) for edge in pairwise(edges)]
    return list(pool(count()).map(work, edges[:-1], edges[1:]))
