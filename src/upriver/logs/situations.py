"""Choice situations of a log: which next states were possible, and which one followed.

A situation is a distinct (state, action, covariates); its candidates are the reachable next states.
The expanded table has one row per candidate: state, action, next_state, the covariates, the
attributes of the state under their names, those of the candidate with the suffix `_next`, and the
attributes of the move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from upriver.checks import Array, check_function
from upriver.display import add_repr
from upriver.logs.tables import Rows, Table, array_of, listed, sort_distinct
from upriver.mdp.names import as_names

Wanted = Callable[[str], bool]
"""Whether a column of that name is used."""
WORDS = ("state", "action", "next state")


class Attribute(NamedTuple):
    """An attribute: one value per state, next state, (state, action), move or triple."""

    dims: tuple[int, ...]  # Which of state (0), action (1) and next state (2) it depends on
    keys: Array  # (m,) numbers of the combinations that have a value, ascending
    values: Array  # (m,) their values


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class StateSpace:
    """The states, actions, reachable next states and attributes of a log."""

    states: Sequence[Any]
    actions: Sequence[Any]
    columns: tuple[str, str, str]  # The names of the columns of state, action and next state
    attributes: Mapping[str, Attribute]  # By the names that a formula has for them
    indptr: Array
    """(S*A + 1,) where the candidates of each (s, a) begin; a pair without any does not exist."""
    successors: Array  # (n,) the candidates, ascending within each pair
    rule: str  # Where the reachable sets come from, in words

    @property
    def sizes(self) -> Array:
        """(S*A,) the number of candidates of each pair."""
        return np.diff(self.indptr)

    def names(self, pair: int) -> tuple[Any, Any]:
        """Return (state, action) of the pair s * A + a."""
        s, a = divmod(pair, len(self.actions))
        return self.states[s], self.actions[a]

    def number(self, dims: Sequence[int], parts: Sequence[Array]) -> Array:
        """Return (m,) one number for each combination of states and actions."""
        key = np.zeros(len(parts[0]), np.int64)
        for dim, part in zip(dims, parts, strict=True):
            key = key * len(self.actions if dim == 1 else self.states) + part
        return key


@add_repr
class Situations(NamedTuple):
    """Situations and their candidates."""

    pair: Array  # (G,) s * A + a of each situation
    covariates: Mapping[str, Array]  # (G,) each
    indptr: Array  # (G + 1,) where the candidates of each situation begin
    successor: Array  # (n,) the candidates


def build_space(
    rows: Rows, columns: tuple[str, str, str], states: Any, successors: Any, wanted: Wanted
) -> tuple[StateSpace, Array, Array, Array]:
    """Return the state space of a log, and (m,) the numbers of s, a and s' of its rows.

    states: a table of attributes, a list of such tables, or None. One with only the column of the
    state says which states there are; one that has the column of the action or of the next state as
    well holds attributes of moves. wanted: which attributes the formula uses.
    """
    read = read_attributes(states, columns, wanted)
    coded = [rows.codes(c) for c in columns]
    seen, actions, following = (levels for _, levels in coded)
    names = sort_distinct([*seen, *following])
    for dims, _, table in read:
        if dims == (0,):  # a table of states says which states there are, and their order
            number, levels = table.codes(columns[0])
            names = [levels[i] for i in dict.fromkeys(number.tolist())]
            break
        more = [x for i in dims if i != 1 for x in table.codes(columns[i])[1]]
        names = sort_distinct([*names, *more])
    words = {x for x in names if isinstance(x, str)}
    if twice := [x for x in names if x not in words and str(x) in words]:
        raise ValueError(f"states are numbers, such as {twice[0]!r}, and words, such as "
                         f"{str(twice[0])!r}; give all of them one kind")  # fmt: skip
    none = np.empty(0, np.int64)
    space = add_attributes(StateSpace(names, actions, columns, {}, none, none, ""), read)
    s, a, s2 = number_rows(rows, columns, names, actions, coded)
    key, rule = reachable_keys(space, s, a, s2, successors)
    indptr = np.searchsorted(key, np.arange(len(names) * len(actions) + 1) * len(names))
    successor = (key % len(names)).astype(np.int32)
    return replace(space, indptr=indptr, successors=successor, rule=rule), s, a, s2


def read_attributes(
    states: Any, columns: Sequence[str], wanted: Wanted
) -> list[tuple[tuple[int, ...], list[str], Rows]]:
    """Return the columns that identify each table of attributes, its wanted ones, and its rows."""
    tables = [] if states is None else states if isinstance(states, list) else [states]
    read = []
    for given in tables:
        table = Table(given, "states")
        dims = tuple(i for i, c in enumerate(columns) if c in table.names)
        used = [c for c in table.names if c not in columns and (wanted(c) or wanted(f"{c}_next"))]
        if 0 not in dims:
            raise ValueError(f"states has no column {columns[0]!r}; it has {listed(table.names)}")
        read.append((dims, used, table.read([*(columns[i] for i in dims), *used])))
    return read


def add_attributes(
    space: StateSpace, read: list[tuple[tuple[int, ...], list[str], Rows]]
) -> StateSpace:
    """Return a space with the attributes of tables that `read_attributes` has read."""
    attributes, columns = {}, space.columns
    for dims, used, table in read:
        known: list[Any] = [space.states, space.actions, space.states]
        if 1 in dims:  # the table may name actions that the log never took; they are not used
            known[1] = list(dict.fromkeys([*space.actions, *table.codes(columns[1])[1]]))
        parts = [table.numbers(columns[i], known[i], WORDS[i]) for i in dims]
        keep = parts[1] < len(space.actions) if 1 in dims else np.ones(len(parts[0]), bool)
        parts = [x[keep] for x in parts]
        key = space.number(dims, parts)
        order = np.argsort(key, kind="stable")
        twice = np.flatnonzero(np.diff(key[order]) == 0)
        if len(twice):
            i = order[twice[0] + 1]
            given = [known[d][p[i]] for d, p in zip(dims, parts, strict=True)]
            raise ValueError("states has more than one row for the "
                             f"{' and '.join(WORDS[d] for d in dims)} "
                             f"{', '.join(map(repr, given))}; it must have one")  # fmt: skip
        for name in used:
            values = table.values(name)[keep][order]
            attributes[name] = Attribute(dims, key[order], values)
            if dims == (0,) and columns[2]:
                attributes[f"{name}_next"] = Attribute((2,), key[order], values)
    return replace(space, attributes=attributes)


def reachable_keys(
    space: StateSpace, s: Array, a: Array, s2: Array, successors: Any
) -> tuple[Array, str]:
    """Return the numbers of all reachable triples, ascending, and the rule in words."""
    n_states, n_actions = len(space.states), len(space.actions)
    if successors is None:
        return np.sort(
            pd.unique(space.number((0, 1, 2), (s, a, s2)))
        ), "those seen from each (state, action)"
    if isinstance(successors, str):
        if successors != "all":
            raise ValueError(f"successors is {successors!r}; as a word it must be 'all'")
        return np.arange(n_states * n_actions * n_states), "all states"
    if callable(successors):
        check_function("successors", successors, "s", "a")
        number = {x: i for i, x in enumerate(space.states)}
        key = []
        for pair in range(n_states * n_actions):
            state, action = space.names(pair)
            given: Any = successors(state, action)
            given = () if given is None else given
            for following in as_names(f"successors({state!r}, {action!r})", given):
                if following not in number:
                    raise ValueError(f"successors({state!r}, {action!r}) names {following!r}, "
                                     "which is not among the states")  # fmt: skip
                key.append(pair * n_states + number[following])
        return np.unique(np.array(key, np.int64)), "given by a function"
    table = Table(successors, "successors").read(space.columns)
    parts = number_rows(table, space.columns, space.states, space.actions)
    return np.unique(space.number((0, 1, 2), parts)), "given by a table"


def find_triples(of: Any, pair: Array, s2: Array, n_states: int) -> Array:
    """Return (m,) the row of each (pair, s') in a space or task; -1 where it is not reachable."""
    key = np.repeat(np.arange(len(of.sizes)), of.sizes) * n_states + of.successors
    return pd.Index(key).get_indexer(pair * n_states + s2)  # by hashing, faster than a search


def number_rows(
    rows: Rows, columns: Sequence[str], states: Any, actions: Any, coded: Any = (None, None, None)
) -> list[Array]:
    """Return (m,) the numbers of s, a and s'; coded: the `codes` of the columns, where known."""
    words = zip(columns, (states, actions, states), WORDS, coded, strict=True)
    return [rows.numbers(*word) for word in words]


def build_situations(space: StateSpace, pair: Array, covariates: Mapping[str, Array]) -> Situations:
    """Return situations with the candidates of their pairs."""
    sizes = space.sizes[pair]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    row = np.arange(indptr[-1]) + np.repeat(space.indptr[pair] - indptr[:-1], sizes)
    return Situations(pair, covariates, indptr, space.successors[row])


def find_distinct(columns: Sequence[Array]) -> tuple[Any, Array]:
    """Return a row of each distinct row of (m,) columns, and (m,) the distinct row of each row.

    Where all rows differ the first result is a slice, so that nothing is copied.
    """
    whole = [pd.factorize(x)[0] if x.dtype == object else x for x in columns]
    for some in (whole[-1:], whole):  # one column may tell rows apart
        table = pd.DataFrame(dict(enumerate(some)))
        hashed: Any = pd.util.hash_pandas_object(table, index=False)  # pyright: ignore
        mixed = np.sort(hashed.to_numpy())
        if (mixed[1:] != mixed[:-1]).all():
            return slice(None), np.arange(len(mixed))
    at = table.groupby(list(table), sort=False).ngroup().to_numpy()
    return np.unique(at, return_index=True)[1], at


def expand(space: StateSpace, of: Situations, wanted: Wanted) -> dict[str, Array]:
    """Return the expanded table: the wanted columns, one row per candidate of each situation."""
    sizes = np.diff(of.indptr)
    pair = np.repeat(of.pair, sizes)
    parts = pair // len(space.actions), pair % len(space.actions), of.successor
    names = space.states, space.actions, space.states
    table = {
        c: array_of(known)[part]
        for c, known, part in zip(space.columns, names, parts, strict=True)
        if wanted(c)
    }
    table |= {c: np.repeat(x, sizes) for c, x in of.covariates.items() if wanted(c)}
    for name, attribute in space.attributes.items():
        if wanted(name):
            key = space.number(attribute.dims, [parts[i] for i in attribute.dims])
            at = np.minimum(np.searchsorted(attribute.keys, key), len(attribute.keys) - 1)
            absent = attribute.keys[at] != key
            if absent.any():
                i = int(np.argmax(absent))
                given = ", ".join(f"{WORDS[d]} {names[d][parts[d][i]]!r}" for d in attribute.dims)
                raise ValueError(f"states has no {name!r} for the {given}")
            table[name] = attribute.values[at]
    return table
