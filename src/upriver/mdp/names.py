"""Names of states and actions: where a name becomes a number, and where two lists of them meet."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq, index
from typing import Any

import numpy as np

from upriver.checks import Array, shown


def tupled(value: Any) -> Any:
    """Nested lists as nested tuples, which can be looked up."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value


def checked_names(what: str, names: Any, size: int) -> Sequence[Hashable] | None:
    """Distinct names, as many as there must be, which nobody can change."""
    if names is None or (isinstance(names, range) and names == range(size)):
        return names
    try:
        names = names if isinstance(names, range) else tuple(names)
        distinct = len(set(names))
    except TypeError:
        raise TypeError(f"{what} must be a list of names, each a hashable value") from None
    if len(names) != size:
        raise ValueError(f"{what} has {len(names)} names; there must be {size}")
    if distinct != size:
        twice = next(x for i, x in enumerate(names) if x in names[:i])
        raise ValueError(f"{what} has the name {twice!r} twice; names must be distinct")
    return names


def few(names: Sequence[Any]) -> str:
    """The first and the last of some names."""
    if len(names) <= 4:
        return " / ".join(map(str, names))
    return f"{names[0]} / {names[1]} / ... / {names[-1]}"


@dataclass(frozen=True, eq=False)
class Names:
    """The names of all states, or of all actions; without any, they are called 0, 1, 2, ..."""

    what: str
    size: int
    given: Sequence[Hashable] | None

    def __getitem__(self, number: Any) -> Any:
        return int(number) if self.given is None else self.given[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.size) if self.given is None else self.given)

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
            f"{called or self.what} {shown(name)} is unknown; there are {self.size} {self.what}s, "
            f"from {self[0]!r} to {self[self.size - 1]!r}"
        )

    def several(self, given: Any) -> list[Any] | None:
        """The states of a list, an array or a column of them; None where it is itself a state."""
        if isinstance(given, str | tuple) or not hasattr(given, "__len__"):
            return None
        listed = given.tolist() if hasattr(given, "tolist") else list(given)
        if not isinstance(listed, list) or tupled(listed) in self:
            return None
        return [tupled(x) for x in listed]

    def numbers_in(self, other: Names, whose: str) -> Array | None:
        """The number in `other` of each of these names; None where they are the same."""
        if self.size == other.size and same_names(self.given, other.given):
            return None
        missing = next((i for i in range(self.size) if self[i] not in other), None)
        if missing is None:
            return np.array([other.number(self[i]) for i in range(self.size)])
        raise ValueError(
            f"{self.what} {self[missing]!r} is unknown to {whose}, whose {other.size} "
            f"{other.what}s are {other[0]!r} to {other[other.size - 1]!r}"
        )

    def __contains__(self, name: Any) -> bool:
        if self.given is not None:
            return name in self.numbers
        return isinstance(name, int | np.integer) and bool(0 <= name < self.size)


def same_names(x: Sequence[Hashable] | None, y: Sequence[Hashable] | None) -> bool:
    if x is None or y is None:
        given = y if x is None else x
        return given is None or all(i == name for i, name in enumerate(given))
    return x is y or (len(x) == len(y) and all(map(eq, x, y)))
