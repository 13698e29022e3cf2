"""Names of states and actions: where a name becomes a number, and where two lists of them meet."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import numpy as np


def tupled(value: Any) -> Any:
    """Nested lists as nested tuples, which can be looked up."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value


@dataclass(frozen=True, eq=False)
class Names:
    """The names of all states, or of all actions; without any, they are called 0, 1, 2, ..."""

    what: str
    size: int
    given: Sequence[Hashable] | None

    def __getitem__(self, number: Any) -> Any:
        return int(number) if self.given is None else self.given[number]

    @cached_property
    def numbers(self) -> dict[Hashable, int]:
        return {name: i for i, name in enumerate(self.given or ())}

    def number(self, name: Any, called: str = "") -> int:
        """The number of a name, which errors call `called`; arrays are tuples of numbers."""
        if isinstance(name, np.ndarray | np.generic):
            name = tupled(name.tolist())
        try:
            if self.given is not None:
                return self.numbers[tupled(name)]
            if 0 <= index(name) < self.size:
                return index(name)
        except (KeyError, TypeError):
            pass
        raise ValueError(
            f"{called or self.what} {name!r} is unknown; there are {self.size} {self.what}s, from "
            f"{self[0]!r} to {self[self.size - 1]!r}"
        )
