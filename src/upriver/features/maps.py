"""Feature maps: one-hot, shared along a line, from a function of one's own; and `recentre`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array, instance, positive_number
from upriver.features.features import Features, triple_columns
from upriver.mdp import Task


def one_hot(task: Task) -> Features:
    """Difference features e_(s,a) (x) (e_s' - e_ref), ref the first successor: L_varphi = sqrt(2).

    The formal dimension is S*A*S, as in the formulas of the paper; only coordinates that can be
    reached are kept, so nothing of that size is ever stored. Where (s, a) has one successor there
    is nothing to learn and no feature.
    """
    return tabular(task, -1.0)


def one_hot_indicator(task: Task) -> Features:
    """Indicator features e_(s,a,s'), zero for the first successor of each (s, a): L_varphi = 1."""
    return tabular(task, 0.0)


def tabular(task: Task, at_reference: float) -> Features:
    """+1 at each triple's own coordinate except the reference's, `at_reference` at the latter."""
    first = np.repeat(instance("task", task, Task).indptr[:-1], task.sizes)
    rows = np.arange(task.n_triples)
    other = rows != first
    data = np.concatenate([np.ones(other.sum()), np.full(other.sum(), at_reference)])
    matrix = sparse.csr_array(
        (data, (np.tile(rows[other], 2), np.concatenate([rows[other], first[other]]))),
        shape=(task.n_triples, task.n_triples),
    )
    matrix.eliminate_zeros()
    used = np.unique(matrix.indices)
    if not len(used):
        used = np.array([0])  # every (s, a) has one successor: keep one idle coordinate
    s, a, s2 = task.triples
    return Features(
        task,
        matrix[:, used],
        names=[f"s={s[i]} a={a[i]} s'={s2[i]}" for i in used] if len(used) <= 10_000 else None,
        formal_dimension=task.n_states * task.n_actions * task.n_states,
    )


def shared(task: Task) -> Features:
    """Indicators of (action, where on the line, direction): d does not grow with the states.

    For states on a line. Where: the first state, the last one, or in between. Direction: one step
    left, staying, one step right, or anywhere else; staying has the zero vector (where a state
    cannot stay, so has its first successor). Two actions with local support give d = 8.
    """
    instance("task", task, Task)
    if task.states is not None and not all(isinstance(s, int) for s in task.states):
        raise ValueError(
            "shared features need states on a line, numbered from left to right; "
            "use features.from_function for other states"
        )
    place = np.arange(task.n_states) if task.states is None else np.asarray(task.states)
    s, a, s2 = task.triples
    offset = place[s2] - place[s]
    direction = np.where(np.abs(offset) <= 1, offset, 2)
    if task.support != "full" and (direction == 2).mean() > 0.2:
        raise ValueError(
            f"{int((direction == 2).sum())} of {task.n_triples} transitions leap over neighbours, "
            "so these states are not on a line; use features.from_function"
        )
    where = np.where(s == np.argmin(place), 0, np.where(s == np.argmax(place), 2, 1))
    code = (a * 3 + where) * 4 + direction + 1
    group = s * task.n_actions + a
    stays = np.zeros(len(task.sizes), bool)
    stays[group[direction == 0]] = True
    is_first = np.arange(task.n_triples) == np.repeat(task.indptr[:-1], task.sizes)
    reference = np.where(stays[group], direction == 0, is_first)
    used, column = np.unique(code[~reference], return_inverse=True)
    matrix = np.zeros((task.n_triples, max(len(used), 1)))
    matrix[np.flatnonzero(~reference), column] = 1.0
    towards = {0: "left", 1: "stay", 2: "right", 3: "elsewhere"}
    names = [
        f"a={c // 12} {('first', 'interior', 'last')[c // 4 % 3]} {towards[c % 4]}" for c in used
    ]
    return Features(task, matrix, names=names or ["nothing to learn"])


def from_function(
    task: Task, function: Callable[[Any, Any, Any], Any], names: Sequence[str] | None = None
) -> Features:
    """varphi from a function (s, a, s') -> vector, called once per reachable triple.

    States and actions are passed by the task's own names where it has them, else by number.
    """
    states = task.states if task.states is not None else range(task.n_states)
    actions = task.actions if task.actions is not None else range(task.n_actions)
    rows = []
    for s, a, s2 in zip(*task.triples, strict=True):
        try:
            row = np.asarray(function(states[s], actions[a], states[s2]), dtype=np.float64)
        except (TypeError, ValueError) as error:
            if "array" not in str(error) and "float" not in str(error):
                raise
            raise ValueError(
                f"the features of (s={states[s]!r}, a={actions[a]!r}, s'={states[s2]!r}) are not "
                "a vector of numbers"
            ) from error
        rows.append(np.atleast_1d(row))
        if rows[-1].shape != rows[0].shape or rows[-1].ndim != 1:
            raise ValueError(
                f"the features of (s={states[s]!r}, a={actions[a]!r}, s'={states[s2]!r}) have "
                f"shape {rows[-1].shape}; the first triple has {rows[0].shape}"
            )
    return Features(task, np.array(rows), names=names)


def pooled(shared: Features, spread: float | str = 1.0) -> Features:
    """The features of `shared`, and an own effect for every triple but the first of its (s, a).

    With a ridge lambda an own effect has prior standard deviation spread / sqrt(lambda): it is
    shrunk towards the shared model and takes over where data say so. spread="estimate" leaves it
    to an offline fit, which maximises the marginal likelihood.
    """
    if instance("shared", shared, Features).spread:
        raise ValueError("these features have own effects already; pool the shared ones")
    if isinstance(spread, str):
        if spread != "estimate":
            raise ValueError(f"spread is {spread!r}; it must be a positive number or 'estimate'")
    else:
        spread = positive_number("spread", spread)
    task, own = shared.task, triple_columns(shared.task, spread)
    matrix = sparse.hstack([sparse.csr_array(shared.matrix), own], format="csr")
    return Features(task, matrix, names=shared.names, spread=spread)


def unpooled(features: Features) -> Features:
    """Pooled features without their own effects."""
    return Features(features.task, features.matrix[:, : features.n_shared], features.names)


def recentre(features: Features, reference: Array | None = None) -> Features:
    """Subtract one successor's row from each group, so that it has the zero vector (Remark 1).

    reference (S*A,) is the position of that successor within each group; the first by default. The
    model and its likelihood do not change; L_varphi and the Gram matrix do.
    """
    if features.spread:
        return pooled(recentre(unpooled(features), reference), features.spread)
    task = features.task
    place = np.zeros(len(task.sizes), np.int64) if reference is None else np.asarray(reference)
    if (
        place.shape != task.sizes.shape
        or ((place < 0) | (place >= np.maximum(task.sizes, 1))).any()
    ):
        raise ValueError(
            f"reference must hold, for each of the {len(task.sizes)} pairs (s, a), a position "
            "within its successors"
        )
    rows = np.repeat(task.indptr[:-1] + place, task.sizes)
    return Features(
        task, features.matrix - features.matrix[rows], features.names, features.formal_dimension
    )


def directions(task: Task) -> Features:
    """`features.shared` with staying as a direction too: the river as a linear mixture.

    Every triple has exactly one indicator, of (action, where on the line, direction), and the
    probabilities of a river are linear in them: what a linear learner needs to share as much as an
    MNL model with the shared features does. d = 14 with two actions and local support.
    """
    base = shared(task).matrix
    place = np.arange(task.n_states) if task.states is None else np.asarray(task.states)
    s, a, _ = task.triples
    where = np.where(s == np.argmin(place), 0, np.where(s == np.argmax(place), 2, 1))
    left_out = np.flatnonzero(~base.any(axis=1))
    _, column = np.unique((a * 3 + where)[left_out], return_inverse=True)
    extra = np.zeros((task.n_triples, column.max() + 1))
    extra[left_out, column] = 1.0
    return Features(task, np.hstack([base, extra]))


FEATURES: dict[str, Callable[[Task], Features]] = {
    "one-hot": one_hot,
    "one-hot-indicator": one_hot_indicator,
    "directions": directions,
}
"""Feature maps that any task has."""

OWN: dict[str, Callable[[Features], Features]] = {"shared": lambda shared: shared, "pooled": pooled}
"""What a spec's word makes of an environment's own features."""


def own_map(name: str) -> Callable[[Features], Features] | None:
    """The map of a word of OWN, "pooled" also with a spread, "pooled 0.5"; None for other words."""
    word, _, spread = name.partition(" ")
    if word != "pooled" or not spread:
        return OWN.get(name)
    try:
        return partial(pooled, spread=positive_number("spread", float(spread)))
    except ValueError as error:
        raise ValueError(
            f"features {name!r}: the spread is {spread!r}; it must be a positive number"
        ) from error
