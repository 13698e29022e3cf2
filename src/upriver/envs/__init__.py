"""Environments: functions that return a FiniteMDP, and the table of those that have a name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from upriver import features
from upriver.checks import check_kinds
from upriver.envs.bus_engine import bus_engine
from upriver.envs.deep_sea import deep_sea, deep_sea_features
from upriver.envs.queue import queue
from upriver.envs.random_mnl import misspecified_mnl, random_mnl, random_mnl_features
from upriver.envs.river_grid import river_grid, river_grid_features
from upriver.envs.riverswim import riverswim
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task


class Environment(NamedTuple):
    """An entry of the table."""

    make: Callable[..., FiniteMDP]
    size: str
    """The argument of `make` that the number in a name such as "riverswim-6" sets."""
    shared: Callable[[Task], Features]
    """Features of the environment whose dimension does not grow with the number of states."""


ENVIRONMENTS: dict[str, Environment] = {
    "bus-engine": Environment(bus_engine, "n_bins", features.changes),
    "deep-sea": Environment(deep_sea, "size", deep_sea_features),
    "misspecified-mnl": Environment(misspecified_mnl, "n_states", random_mnl_features),
    "queue": Environment(queue, "buffer", features.changes),
    "random-mnl": Environment(random_mnl, "n_states", random_mnl_features),
    "river-grid": Environment(river_grid, "length", river_grid_features),
    "riverswim": Environment(riverswim, "n_states", features.shared),
}


@check_kinds
def make(name: str, **numbers: Any) -> FiniteMDP:
    """Make the environment of a name, such as "riverswim", or "riverswim-6" for n_states=6.

    Further arguments are those of its function.
    """
    entry, size = read_name(name)
    return entry.make(**size, **numbers)


def find(name: str) -> Environment:
    """Return the entry of a name, with or without a size."""
    return read_name(name)[0]


def read_name(name: str) -> tuple[Environment, dict[str, int]]:
    """Return the entry of a name and the argument of its number, such as {"n_states": 6}."""
    base, _, number = name.rpartition("-")
    if base in ENVIRONMENTS and number.isdigit():
        return ENVIRONMENTS[base], {ENVIRONMENTS[base].size: int(number)}
    if name not in ENVIRONMENTS:
        near = get_close_matches(name, ENVIRONMENTS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(ENVIRONMENTS))
        raise ValueError(f"environment {name!r} is unknown{hint} (known: {known})")
    return ENVIRONMENTS[name], {}


def __getattr__(name: str) -> Any:  # imports gymnasium
    if name in ("from_gymnasium", "to_gymnasium"):
        return getattr(import_module("upriver.envs.gymnasium"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
