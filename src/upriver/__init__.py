"""Reinforcement learning with multinomial-logistic transition models: UCRL-MNL and its peers.

The public names, each loaded when it is first used, from where `__init__.pyi` imports it.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "1.1.0"

STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
WHERE = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", STUB, re.M)}
"""The module that defines each public name, or holds each public module."""

__all__ = list(WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module 'upriver' has no attribute {name!r}")
    home = import_module(WHERE[name])
    if name not in vars(home):
        return import_module(f"{WHERE[name]}.{name}")
    globals()[name] = value = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
