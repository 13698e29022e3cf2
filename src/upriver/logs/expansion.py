"""A frame of transitions as choice situations: which next states could have been, and which was.

A situation is a distinct (state, action, covariates); equal rows of the frame are counted once.
Its candidates are the reachable next states. The expanded table has one row per candidate: state,
action, next_state, the covariates, the attributes of the state under their names and those of the
candidate with the suffix `_next`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.display import displayed
from upriver.logs.frames import Read, among, coded, codes, numbered, read_frame, take
from upriver.logs.reading import column, listed

Wanted = Callable[[str], bool]
"""Whether a column of that name is used."""
RULES = {
    "pair": "those seen from each (state, action)",
    "state": "those seen from each state, by any action",
    "all": "all states",
}


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class World:
    """The states, actions, reachable sets and attributes that a transition model speaks of."""

    states: Sequence[Any]
    actions: Sequence[Any]
    indptr: Array
    """(S*A + 1,) where the candidates of each (s, a) begin; a pair without any does not exist."""
    successors: Array
    rule: str
    """Where the reachable sets come from, in words."""
    attributes: Mapping[str, Array]
    """(S,) each: what is known of a state."""
    moves: Mapping[str, Mapping[tuple[int, int], Any]]
    """What is known of a move (s, s')."""
    columns: tuple[str, str, str]

    @property
    def sizes(self) -> Array:
        return np.diff(self.indptr)


@displayed
class Situations(NamedTuple):
    """Situations and their candidates."""

    group: Array
    """(G,) s * A + a of each situation."""
    covariates: Mapping[str, Array]
    """(G,) each."""
    indptr: Array
    """(G + 1,) where the candidates of each situation begin."""
    successor: Array
    """(n,) the candidates."""


def in_order(values: Iterable[Any]) -> list[Any]:
    """Distinct values, sorted where they can be."""
    distinct = list(dict.fromkeys(values))
    try:
        return sorted(distinct)
    except TypeError:
        return distinct


def build_world(
    read: Read, columns: tuple[str, ...], states: Any, successors: Any, wanted: Wanted
) -> tuple[World, Array, Array, Array]:
    """The states, actions, reachable sets and attributes of a frame; and its s, a, s' (m,)."""
    if len(columns) != 3:
        raise ValueError(f"columns is {columns!r}; it must name the state, action and next state")
    state, action, following = columns
    codes_of = [coded(read, c) for c in columns]
    seen = [words for _, words in codes_of]
    tables = [] if states is None else list(states) if isinstance(states, list) else [states]
    names, attributes, moves = in_order([*seen[0], *seen[2]]), {}, {}
    reads = [read_frame(table, "states") for table in tables]
    for table in reads:  # a table of states says which there are, one of moves adds its own
        told = coded(table, state)[1]
        if following not in table.names:
            names = told
            break
        names = in_order([*names, *told, *coded(table, following)[1]])
    for table in reads:
        at = numbered(table, state, names, "state")
        rest = [c for c in table.names if wanted(c) or wanted(f"{c}_next")]
        rest = [c for c in rest if c not in columns]
        if following in table.names:
            to = numbered(table, following, names, "state")
            pairs = list(zip(at.tolist(), to.tolist(), strict=True))
            for c in rest:
                moves[c] = dict(zip(pairs, take(table, c).tolist(), strict=True))
        elif len(np.unique(at)) < len(at):
            twice = names[int(np.argmax(np.bincount(at) > 1))]
            raise ValueError(f"states has more than one row for the state {twice!r}")
        else:
            order = np.argsort(at)
            attributes.update({c: take(table, c)[order] for c in rest})
    actions = in_order(seen[1])
    nothing = np.empty(0)
    world = World(
        names, actions, nothing, nothing, "", attributes, moves, (state, action, following)
    )
    s, a, s2 = (
        among(read, found, known, what)
        for found, known, what in zip(codes_of, (names, actions, names), COLUMN_WORDS, strict=True)
    )
    indptr, flat, rule = reachable(world, s, a, s2, successors)
    world = replace(world, indptr=indptr, successors=flat, rule=rule)
    return world, s, a, s2


COLUMN_WORDS = ("state", "action", "next state")


def reachable(
    world: World, s: Array, a: Array, s2: Array, successors: Any
) -> tuple[Array, Array, str]:
    """(indptr, successors, the rule in words) of every pair."""
    n_states, n_actions = len(world.states), len(world.actions)
    groups = n_states * n_actions
    if successors is None or isinstance(successors, str):
        rule = successors or "pair"
        if rule not in RULES:
            raise ValueError(f"successors is {rule!r}; it must be one of {listed(list(RULES))}")
        if rule == "all":
            key = np.arange(groups * n_states)
        elif rule == "pair":
            key = np.unique((s * n_actions + a) * n_states + s2)
        else:
            moves = np.unique(s * n_states + s2)
            pairs = np.unique(s * n_actions + a)  # an action that was never tried stays away
            of = pairs // n_actions
            low, high = (np.searchsorted(moves, of * n_states + x) for x in (0, n_states))
            at = np.concatenate([np.arange(i, j) for i, j in zip(low, high, strict=True)])
            key = np.repeat(pairs, high - low) * n_states + moves[at] % n_states
        words = RULES[rule]
    elif callable(successors):
        key, words = from_function(world, successors), "given by a function"
    else:
        read = read_frame(successors, "successors")
        state, action, following = world.columns
        i, j, k = (
            numbered(read, c, known, what)
            for c, known, what in (
                (state, world.states, "state"),
                (action, world.actions, "action"),
                (following, world.states, "next state"),
            )
        )
        key, words = np.unique((i * n_actions + j) * n_states + k), "given by a table"
    indptr = np.searchsorted(key, np.arange(groups + 1) * n_states)
    return indptr, (key % n_states).astype(np.int32), words


def from_function(world: World, successors: Callable[..., Any]) -> Array:
    number = {x: i for i, x in enumerate(world.states)}
    key = []
    for s, state in enumerate(world.states):
        for a, action in enumerate(world.actions):
            for following in successors(state, action) or ():
                if following not in number:
                    raise ValueError(
                        f"successors({state!r}, {action!r}) names {following!r}, which is not "
                        "among the states"
                    )
                key.append((s * len(world.actions) + a) * len(world.states) + number[following])
    return np.unique(key)


def situations(world: World, group: Array, covariates: Mapping[str, Array]) -> Situations:
    """The candidates of each situation."""
    sizes = world.sizes[group]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    row = np.arange(indptr[-1])
    row += np.repeat(world.indptr[group] - indptr[:-1], sizes)
    return Situations(group, covariates, indptr, world.successors[row])


def distinct(group: Array, covariates: Mapping[str, Array]) -> tuple[Any, Array]:
    """(a row of each distinct situation, the situation of each row), in order of appearance.

    Where all rows differ the first is a slice, so that nothing is copied.
    """
    columns = [group, *covariates.values()]
    mixed = np.zeros(len(group), np.uint64)
    for cells in columns:
        mixed ^= bits(cells)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    ordered = np.sort(mixed)
    if (ordered[1:] != ordered[:-1]).all():
        return slice(None), np.arange(len(group))
    _, first, situation = np.unique(mixed, return_index=True, return_inverse=True)
    if any((cells != cells[first[situation]]).any() for cells in columns):  # a rare coincidence
        key = group
        for cells in columns[1:]:
            code, values = codes(cells)
            key = np.unique(key, return_inverse=True)[1] * len(values) + code
        _, first, situation = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[situation]


def bits(cells: Array) -> Array:
    """(m,) whole numbers that are equal where the entries are."""
    if cells.dtype.kind == "f":
        return (cells.astype(np.float64) + 0.0).view(np.uint64)  # one zero, not two
    whole = cells if cells.dtype.kind in "biu" else codes(cells)[0]
    return whole.astype(np.int64).view(np.uint64)


def expanded(world: World, of: Situations, wanted: Wanted) -> dict[str, Array]:
    """The expanded table: the columns that are `wanted`, one row per candidate."""
    sizes = np.diff(of.indptr)
    group = np.repeat(of.group, sizes)
    s, a, s2 = group // len(world.actions), group % len(world.actions), of.successor
    state, action, following = world.columns
    table: dict[str, Array] = {}
    for name, values, at in (
        (state, world.states, s), (action, world.actions, a), (following, world.states, s2),
    ):  # fmt: skip
        if wanted(name):
            table[name] = column(list(values))[at]
    for name, cells in of.covariates.items():
        if wanted(name):
            table[name] = np.repeat(cells, sizes)
    for name, cells in world.attributes.items():
        if wanted(name):
            table[name] = cells[s]
        if wanted(f"{name}_next"):
            table[f"{name}_next"] = cells[s2]
    for name, known in world.moves.items():
        if wanted(name):
            table[name] = of_moves(world, name, known, s, s2)
    return table


def of_moves(
    world: World, name: str, known: Mapping[tuple[int, int], Any], s: Array, s2: Array
) -> Array:
    pairs, at = np.unique(s * len(world.states) + s2, return_inverse=True)
    values = []
    for pair in pairs.tolist():
        i, j = divmod(pair, len(world.states))
        if (i, j) not in known:
            raise ValueError(
                f"states has no {name!r} for the move from {world.states[i]!r} to "
                f"{world.states[j]!r}"
            )
        values.append(known[i, j])
    return column(values)[at]
