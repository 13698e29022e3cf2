"""The hot loops, compiled with numba, one file per family of loops.

Importing this package imports no numba: a room is loaded when its name is first used
(`kernels.planning.sweep`), so that `import upriver` stays quick.

Two conventions hold in every room. An array whose leading axis counts steps has length H there,
or 1 when the quantity does not change with the step, and is read at `min(h, len(x) - 1)`. And a
state-action pair (s, a) is the number g = s * n_actions + a, called its group.
"""

from importlib import import_module
from typing import Any

ROOMS = (
    "cholesky", "choices", "covariance", "ellipsoid", "gram", "layout", "likelihood", "linear",
    "model", "newton", "online", "optimism", "planning", "pooled", "ratio", "sampling",
    "stationary", "tabular", "value",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
