"""Names of states and actions: converting names to numbers and comparing two lists of names.

States and actions are numbered from 0; those without names are called 0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq, index
from typing import Any

import numpy as np

from upriver.checks import Array, format_value


def to_tuples(value: Any) -> Any:
    """Return nested lists as nested tuples, which are hashable."""
    return tuple(map(to_tuples, value)) if isinstance(value, list) else value


def check_names(what: str, names: Any, size: int) -> Sequence[Hashable] | None:
    """Return `size` distinct names as a tuple, or None where there are no names."""
    if names is None or (isinstance(names, range) and names == range(size)):
        return names
    try:
        names = names if isinstance(names, range) else tuple(names)
        n_distinct = len(set(names))
    except TypeError:
        raise TypeError(f"{what} must be a list of names, each a hashable value") from None
    if len(names) != size:
        raise ValueError(f"{what} has {len(names)} names; there must be {size}")
    if n_distinct != size:
        repeated = next(x for i, x in enumerate(names) if x in names[:i])
        raise ValueError(f"{what} has the name {repeated!r} twice; names must be distinct")
    return names


def abbreviate(names: Sequence[Any]) -> str:
    """Return the first and the last of some names as text."""
    if len(names) <= 4:
        return " / ".join(map(str, names))
    return f"{names[0]} / {names[1]} / ... / {names[-1]}"


@dataclass(frozen=True, eq=False)
class Names:
    """The names of all states, or of all actions, of a task."""

    what: str
    """"state" or "action", for error messages."""
    size: int
    given: Sequence[Hashable] | None
    """The user's names; None where the names are the numbers."""

    def __getitem__(self, number: Any) -> Any:
        return int(number) if self.given is None else self.given[number]

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.size) if self.given is None else self.given)

    def __contains__(self, name: Any) -> bool:
        if self.given is not None:
            return name in self.numbers
        return isinstance(name, int | np.integer) and bool(0 <= name < self.size)

    @cached_property
    def numbers(self) -> dict[Hashable, int]:
        """The number of each name that the user gave."""
        return {name: i for i, name in enumerate(self.given or ())}

    def number(self, name: Any, called: str = "") -> int:
        """Return the number of a name; errors call it `called`. Arrays stand for tuples."""
        if isinstance(name, np.ndarray | np.generic):
            name = to_tuples(name.tolist())
        try:
            if self.given is not None:
                return self.numbers[to_tuples(name)]
            if 0 <= index(name) < self.size:
                return index(name)
        except (KeyError, TypeError):
            pass
        raise ValueError(
            f"{called or self.what} {format_value(name)} is unknown; there are {self.size} "
            f"{self.what}s, from {self[0]!r} to {self[self.size - 1]!r}"
        )

    def numbers_in(self, other: Names, owner: str) -> Array | None:
        """Return the number of each of these names in the `other` names of `owner`, or None where
        both are the same."""
        if self.size == other.size and same_names(self.given, other.given):
            return None
        missing = next((i for i in range(self.size) if self[i] not in other), None)
        if missing is None:
            return np.array([other.number(self[i]) for i in range(self.size)])
        raise ValueError(
            f"{self.what} {self[missing]!r} is unknown to {owner}, whose {other.size} "
            f"{other.what}s are {other[0]!r} to {other[other.size - 1]!r}"
        )


def same_names(x: Sequence[Hashable] | None, y: Sequence[Hashable] | None) -> bool:
    """Return whether two lists of names are equal; None stands for 0, 1, 2, ..."""
    if x is None or y is None:
        given = y if x is None else x
        return given is None or all(i == name for i, name in enumerate(given))
    # equal names have equal hashes, and NumPy numbers cannot be compared with tuples
    return x is y or (list(map(hash, x)) == list(map(hash, y)) and all(map(eq, x, y)))


def check_same_names(mine: Any, other: Any) -> None:
    """Refuse features of one task for another, whose names differ or have another order."""
    named = ((x.state_names, x.action_names) for x in (mine, other))
    for own, names in zip(*named, strict=True):
        if not same_names(own.given, names.given):
            raise ValueError(
                f"features were made for {own.what}s named {abbreviate(list(own))}, and here they "
                f"are {abbreviate(list(names))}; build the features from a task of this problem"
            )
