"""Features that nobody has to write: indicators of (action, what changes), found from the states.

States that are numbers, tuples or records have *variables*. The label of a transition is its action
and what happens to the variables: the difference of a numeric one, the old and the new value of any
other. Transitions with the same label share an indicator, so that what is learned in one state
serves all states. The idea is known as relocatable action models (Leffler, Littman and Edmunds,
AAAI 2007) and from object-oriented MDPs (Diuk, Cohen and Littman, ICML 2008).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, check_kinds, format_value
from upriver.features.features import Features
from upriver.features.maps import one_hot, one_hot_indicator, pooled
from upriver.mdp import Task

MAX_NUMBER = 2**53
"""Numbers of at least this size, whose differences are not exact, are values without order."""
COMMON_TARGET = 2
"""A transition is labelled by its next state if the action leads there from more than this many
times as many pairs as have the same change: a reset, or a fall back to the start."""
N_EXCHANGES, SHARE = 4, 2 / 3
"""Variables describe the transitions if there are at most SHARE times as many labels as there are
after the states have exchanged their variables at random."""


class Variable(NamedTuple):
    """One variable of the states: its numbers (S,), or their positions in the `levels` of one that
    is not numeric; anything for states without variables."""

    name: str
    values: Array
    levels: Sequence[Any] | None


class States(NamedTuple):
    """The variables of the states of a task that are not constant, and which states have them (S,):
    a few may be of another kind, such as "done"."""

    variables: list[Variable]
    known: Array


class Labels(NamedTuple):
    """The label of each triple: its action and what changes, or its action and the next state."""

    code: Array
    """(n,) the number of the label; labels of changes come first, in the order of actions."""
    example: Array
    """A triple of each label."""
    by_target: Array
    """(n,) whether a triple is labelled by its next state."""


def list_variables(value: Any, name: str = "") -> list[tuple[str, Any]] | None:
    """Return (name, value) of all variables of a state, nested tuples and records taken apart.

    None for a state without variables, such as a text.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        return [(name, value)]
    prefix = f"{name}." if name else ""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [(prefix + f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, Mapping):
        parts = [(f"{prefix}{key}", part) for key, part in value.items()]
    elif isinstance(value, tuple | list | np.ndarray):
        keys = getattr(value, "_fields", None)
        names = [prefix + k for k in keys] if keys else [f"{name}[{i}]" for i in range(len(value))]
        parts = list(zip(names, value, strict=True))
    else:
        return None
    found = [(key, part, list_variables(part, key)) for key, part in parts]
    return [x for key, part, inner in found for x in ([(key, part)] if inner is None else inner)]


def find_variables(task: Task, variables: Callable[[Any], Any] | None) -> States:
    """Return the variables that most states have, without those that are constant."""
    names: Any = range(task.n_states) if task.states is None else task.states
    given = [list_variables(state if variables is None else variables(state)) for state in names]
    kinds = [tuple(name for name, _ in parts) if parts else None for parts in given]
    kind: Any
    kind, many = Counter(kinds).most_common(1)[0]
    if not kind or 2 * many <= task.n_states - (task.support == "discovered"):
        return States([], np.zeros(task.n_states, bool))
    known = np.array([k == kind for k in kinds])
    rows = [[value for _, value in parts or ()] for parts, k in zip(given, known, strict=True) if k]
    found = []
    for name, column in zip(kind, zip(*rows, strict=True), strict=True):
        codes, levels = encode(name, column)
        if (codes != codes[0]).any():
            values = np.zeros(task.n_states)
            values[known] = codes
            found.append(Variable(name, values, levels))
    return States(found, known)


def encode(name: str, column: Sequence[Any]) -> tuple[Array, Sequence[Any] | None]:
    """Return a variable as numbers, or as the positions of its values among its levels."""
    if all(isinstance(x, Real) and not isinstance(x, bool) for x in column):
        numbers = np.array([float(x) if abs(x) < MAX_NUMBER else np.nan for x in column])
        if np.isfinite(numbers).all():
            return numbers, None
    if bad := [value for value in column if not isinstance(value, Hashable)]:
        raise ValueError(f"variable {name!r} is {format_value(bad[0])}; it must be hashable")
    place = {value: i for i, value in enumerate(dict.fromkeys(column))}
    return np.array([place[value] for value in column], np.float64), list(place)


def combine(first: Array, second: Array) -> Array:
    """Return (n,) numbers, from 0 on, of the distinct pairs of two arrays of whole numbers."""
    return np.unique(first * (int(second.max(initial=0)) + 1) + second, return_inverse=True)[1]


def label(task: Task, states: States) -> Labels:
    """Return the labels of all triples."""
    s, a, s2 = task.triples
    change, target = a, combine(a, s2)
    for _, values, levels in states.variables:
        old, new = values[s], values[s2]
        if levels is None:  # differences that are equal up to rounding are equal
            size = float(np.abs(new - old).max(initial=0.0)) or 1.0
            moved = np.round((new - old) / size, 9)
        else:
            moved = np.where(old == new, -1.0, old * len(levels) + new)
        change = combine(change, np.unique(moved, return_inverse=True)[1])
    of_change, of_target = (np.bincount(code)[code] for code in (change, target))
    by_target = of_target > COMMON_TARGET * of_change
    by_target |= ~(states.known[s] & states.known[s2])
    code = np.where(by_target, int(change.max()) + 1 + target, change)
    _, example, code = np.unique(code, return_index=True, return_inverse=True)
    return Labels(code, example, by_target)


def describe_moves(task: Task, states: States) -> bool:
    """Return whether the variables say something about which transitions are possible.

    Numbers that states were given at random make about as many labels as when the states exchange
    their numbers; on a line, in a grid or a queue there are then several times as many. Where every
    state may follow on every other the support cannot tell, so data will.
    """
    if (task.sizes[task.sizes > 0] == task.n_states).all():
        return True
    rng, exchanged = np.random.default_rng(0), []
    for _ in range(N_EXCHANGES):
        order = rng.permutation(task.n_states)
        variables = [x._replace(values=x.values[order]) for x in states.variables]
        exchanged.append(len(label(task, States(variables, states.known[order])).example))
    return len(label(task, states).example) <= SHARE * float(np.mean(exchanged))


def name_label(task: Task, states: States, labels: Labels, triple: int) -> str:
    """Return the name of the label of a triple, such as "right: x +1" or "replace: to 0"."""
    s, a, s2 = (int(numbers[triple]) for numbers in task.triples)
    if labels.by_target[triple]:
        return f"{task.action_names[a]}: to {task.state_names[s2]}"
    moves = []
    for name, values, levels in states.variables:
        if values[s] != values[s2]:
            old_new = levels and f"{levels[int(values[s])]} -> {levels[int(values[s2])]}"
            moves.append(f"{name} {old_new or format(values[s2] - values[s], '+g')}".strip())
    return f"{task.action_names[a]}: {', '.join(moves) or 'no change'}"


@check_kinds
def changes(task: Task, variables: Callable[[Any], Any] | None = None) -> Features:
    """Return indicators of (action, what changes): d does not grow with the number of states.

    A transition is labelled by its action and by the change of each variable of the state: the
    difference of a number, the old and the new value of anything else. A transition to a state
    where the action often leads, such as a reset, is labelled by that state instead, and so is one
    from or to a state that has other variables than most, such as "done". Each label has an
    indicator, unless it is the same for all successors of every pair.

    Parameters
    ----------
    task : Task
    variables : function, optional
        variables(state) returns the variables of a state, which is passed by name where the task
        has names: a number, or a tuple, named tuple, dataclass or mapping of numbers and other
        values. By default the state itself is taken apart in this way.

    Raises
    ------
    ValueError
        If most states have no variables, as texts.
    """
    states = find_variables(task, variables)
    if not states.known.any():
        raise ValueError(
            f"state {task.state_names[0]!r} has no variables; pass `variables`, a function that "
            "returns numbers or a tuple, or use features.one_hot"
        )
    labels = label(task, states)
    n, size = task.n_triples, len(labels.example)
    pair = np.repeat(np.arange(len(task.sizes)), task.sizes)
    cell, count = np.unique(pair * size + labels.code, return_counts=True)
    varies = np.unique(cell[count < task.sizes[cell // size]] % size)
    if not len(varies):
        return Features(task, sparse.csr_array((n, 1)), ["nothing to learn"])
    rows = np.ones(n), labels.code, np.arange(n + 1)
    matrix = sparse.csr_array(rows, shape=(n, size))[:, varies]
    names = None
    if len(varies) <= 10_000:
        names = [name_label(task, states, labels, int(labels.example[i])) for i in varies]
    return Features(task, matrix, names)


@check_kinds
def automatic(task: Task, variables: Callable[[Any], Any] | None = None) -> Features:
    """Return the features of `task` that learners use where none are given.

    They are `changes`, pooled with a spread that is learned; or one-hot features where the states
    have no variables, or where their numbers say nothing: where there are hardly fewer labels than
    if the states exchanged their variables at random. `variables` as in `changes`; where they are
    given they are used.
    """
    if variables is None:
        states, reason = find_variables(task, None), None
        if not states.known.any():
            reason = "none: the states have no variables"
        elif not describe_moves(task, states):
            reason = "none: the variables are unrelated to the transitions"
        if reason is not None:
            return replace(one_hot(task), sharing=reason)
    shared = changes(task, variables)
    note = f"(action, change): {shared.dimension} indicators for {task.n_triples} triples"
    return replace(pooled(shared), sharing=note)


FEATURES: dict[str, Callable[[Task], Features]] = {
    "automatic": automatic,
    "one-hot": one_hot,
    "one-hot-indicator": one_hot_indicator,
}
"""Feature maps that any task has."""
