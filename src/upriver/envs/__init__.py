"""Environments: functions that return a FiniteMDP, and the table of those that have a name.

`sysadmin` and `game_of_life` return a FactoredMDP.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from upriver import features
from upriver.checks import check_kinds
from upriver.envs.bus_engine import bus_engine
from upriver.envs.deep_sea import deep_sea, deep_sea_features
from upriver.envs.factored import game_of_life as game_of_life
from upriver.envs.factored import sysadmin as sysadmin
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
    return find(name).make(**split_name(name)[1], **numbers)


def find(name: str) -> Environment:
    """Return the entry of a name, with or without a size."""
    base, _ = split_name(name)
    if base not in ENVIRONMENTS:
        near = get_close_matches(name, ENVIRONMENTS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(ENVIRONMENTS))
        raise ValueError(f"environment {name!r} is unknown{hint} (known: {known})")
    return ENVIRONMENTS[base]


def split_name(name: Any) -> tuple[str, dict[str, int]]:
    """Return (riverswim, {n_states: 6}) of riverswim-6, and (name, {}) of other names."""
    base, _, number = str(name).rpartition("-")
    if base in ENVIRONMENTS and number.isdigit() and len(number) < 300:
        return base, {ENVIRONMENTS[base].size: int(number)}
    return str(name), {}


def __getattr__(name: str) -> Any:  # imports gymnasium
    if name in ("from_gymnasium", "to_gymnasium"):
        return getattr(import_module("upriver.envs.gymnasium"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    own = {name.replace("-", "_") for name in ENVIRONMENTS} & globals().keys()
    return sorted([*own, "ENVIRONMENTS", "find", "from_gymnasium", "make", "to_gymnasium"])
