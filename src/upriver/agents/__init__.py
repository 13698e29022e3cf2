"""The learning algorithms, one file each; `up.agents.NAME` is the class of an algorithm.

The names come from the table in `upriver.agents.table`.
"""

from importlib import import_module
from typing import Any

from upriver.agents.table import AGENTS, NAMES_BY_CLASS

FACTORED = ("FactoredGreedy", "FactoredPSRL")
"""Agents of factored problems; they are not in the table, which is for agents of a `Task`."""


def __getattr__(name: str) -> Any:
    if name in FACTORED:
        return getattr(import_module("upriver.agents.factored"), name)
    if name not in NAMES_BY_CLASS:
        raise AttributeError(f"module 'upriver.agents' has no attribute {name!r}")
    return AGENTS[NAMES_BY_CLASS[name]]


def __dir__() -> list[str]:
    return sorted([*NAMES_BY_CLASS, *FACTORED])
