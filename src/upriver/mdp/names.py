"""Names of states and actions: converting names to numbers and comparing two lists of names.

States and actions are numbered from 0; those without names are called 0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import eq, index
from typing import Any

import numpy as np

from upriver.checks import Array, format_value, is_hashable
from upriver.mdp import validation


def to_tuples(value: Any) -> Any:
    """Return nested lists and arrays as nested tuples, which are hashable."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(to_tuples, value)) if isinstance(value, list) else value


def as_names(name: str, values: Any) -> list[Any]:
    """Return a list of values that can be names of states or actions."""
    # NumPy's arrays of no dimension say that they are iterable, sparse ones that they have a size
    shape = getattr(values, "shape", (1,))
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or len(shape) != 1:
        raise TypeError(f"{name} is {format_value(values)}; it must be a list")
    most = validation.MAX_TRIPLES
    size = len(values) if isinstance(values, Sized) else 0
    listed = [] if size > most else list(islice(values, most + 1))
    if max(size, len(listed)) > most:
        raise ValueError(f"{name} has more than {most:,} names, which are too many to list")
    for value in listed:
        if not is_hashable(value):
            raise TypeError(f"{name} holds {format_value(value)}; names must be hashable")
    return listed


def list_distinct(name: str, values: Any) -> list[Any]:
    """Return a list of at least one name, all of them distinct."""
    if not (listed := as_names(name, values)):
        raise ValueError(f"{name} is empty; it must have at least one name")
    if len(set(listed)) < len(listed):
        repeated = next(x for i, x in enumerate(listed) if x in listed[:i])
        raise ValueError(f"{name} has the name {repeated!r} twice; names must be distinct")
    return listed


def check_names(name: str, names: Any, size: int) -> Sequence[Hashable] | None:
    """Return `size` distinct names as a tuple, or None where there are no names."""
    if names is None or (isinstance(names, range) and len(names) == size):
        return names
    listed = list_distinct(name, names)
    if len(listed) != size:
        raise ValueError(f"{name} has {len(listed)} names; there must be {size}")
    return tuple(listed)


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

    @cached_property
    def numbers(self) -> dict[Hashable, int]:
        """The number of each name that the user gave."""
        return {name: i for i, name in enumerate(self.given or ())}

    def number(self, name: Any, called: str = "", owner: str = "") -> int:
        """Return the number of a name, which errors call `called`. Arrays stand for tuples."""
        if isinstance(name, np.ndarray | np.generic):
            name = to_tuples(name)
        try:
            if self.given is not None:
                return self.numbers[to_tuples(name)]
            if 0 <= index(name) < self.size:
                return index(name)
        except (KeyError, TypeError):
            pass
        raise ValueError(
            f"{called or self.what} {format_value(name)} is unknown{owner and f' to {owner}'}; "
            f"there are {self.size} {self.what}s, from {self[0]!r} to {self[self.size - 1]!r}"
        )

    def numbers_in(self, other: Names, owner: str) -> Array | None:
        """Return the number of each of these names in the `other` names of `owner`, or None where
        both are the same."""
        if self.size == other.size and same_names(self.given, other.given):
            return None
        return np.array([other.number(name, owner=owner) for name in self])


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
        if own.size != names.size or not same_names(own.given, names.given):
            raise ValueError(
                f"features were made for {own.size} {own.what}s named {abbreviate(list(own))}, and "
                f"here they are {names.size} named {abbreviate(list(names))}; build the features "
                "from a task of this problem"
            )
