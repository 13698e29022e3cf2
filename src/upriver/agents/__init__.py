"""The learning algorithms, one file each; `up.agents.NAME` is the class of an algorithm.

The names come from the table in `upriver.agents.table`.
"""

from typing import Any

from upriver.agents.table import AGENTS, CLASSES


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
        raise AttributeError(f"module 'upriver.agents' has no attribute {name!r}")
    return AGENTS[CLASSES[name]]


def __dir__() -> list[str]:
    return sorted(CLASSES)
