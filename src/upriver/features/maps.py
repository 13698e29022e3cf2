"""Feature maps: one-hot, along a line, from a function, of components, pooled; `recentre`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import TINY, check_function, check_kinds, finite_number
from upriver.features.features import Features, triple_columns
from upriver.mdp import FactoredMDP, Task


@check_kinds
def one_hot(task: Task) -> Features:
    """Return e_(s,a) (x) (e_s' - e_ref) of `task`, ref the first successor of (s, a).

    Their largest norm L_varphi is sqrt(2). The formal dimension is S*A*S, as in the formulas of the
    paper; only coordinates that can be reached are kept. A pair with one successor has no feature.
    """
    return tabular(task, -1.0)


@check_kinds
def one_hot_indicator(task: Task) -> Features:
    """Return indicators e_(s,a,s') of `task`, 0 for the first successor of a pair: L_varphi = 1."""
    return tabular(task, 0.0)


def tabular(task: Task, at_reference: float) -> Features:
    """Return features with one coordinate per triple that is not the first of its pair.

    The coordinate is 1 at its triple and `at_reference` at the first triple of the pair.
    """
    first = np.repeat(task.indptr[:-1], task.sizes)
    rows = np.flatnonzero(np.arange(task.n_triples) != first)
    entries = np.repeat([1.0, at_reference], len(rows))
    at = np.tile(rows, 2), np.append(rows, first[rows])
    matrix = sparse.csr_array((entries, at), shape=(task.n_triples, task.n_triples))
    matrix.eliminate_zeros()
    used = np.unique(matrix.indices)
    if not len(used):
        used = np.array([0])  # every pair has one successor: keep one coordinate that is 0
    s, a, s2 = task.triples
    names, (states, actions) = None, (task.state_names, task.action_names)
    if len(used) <= 10_000:
        names = [f"s={states[s[i]]} a={actions[a[i]]} s'={states[s2[i]]}" for i in used]
    return Features(task, matrix[:, used], names, task.n_states * task.n_actions * task.n_states)


@check_kinds
def shared(task: Task) -> Features:
    """Return indicators of (action, where on the line, direction) of `task`: few for any S.

    For states on a line. Where: the first state, the last one, or in between. Direction: one step
    left, staying, one step right, or anywhere else; staying has the zero vector (where a state
    cannot stay, so has its first successor). Two actions with local support give d = 8.
    """
    if task.states is not None and not all(isinstance(s, int) for s in task.states):
        raise ValueError(
            "shared features need states on a line, numbered from left to right; "
            "use features.from_function for other states"
        )
    position = np.arange(task.n_states) if task.states is None else np.asarray(task.states)
    s, a, s2 = task.triples
    where = np.where(s == np.argmin(position), 0, np.where(s == np.argmax(position), 2, 1))
    offset = position[s2] - position[s]
    direction = np.where(np.abs(offset) <= 1, offset, 2)
    if task.support != "full" and (direction == 2).mean() > 0.2:
        raise ValueError(
            f"{int((direction == 2).sum())} of {task.n_triples} transitions leap over neighbours, "
            "so these states are not on a line; use features.from_function"
        )
    code = (a * 3 + where) * 4 + direction + 1
    stays = np.repeat(task.by_pair(direction == 0, np.logical_or), task.sizes)
    is_first = np.arange(task.n_triples) == np.repeat(task.indptr[:-1], task.sizes)
    reference = np.where(stays, direction == 0, is_first)
    used, column = np.unique(code[~reference], return_inverse=True)
    matrix = np.zeros((task.n_triples, max(len(used), 1)))
    matrix[np.flatnonzero(~reference), column] = 1.0
    places, moves = ("first", "interior", "last"), ("left", "stay", "right", "elsewhere")
    names = [f"a={c // 12} {places[c // 4 % 3]} {moves[c % 4]}" for c in used]
    return Features(task, matrix, names=names or ["nothing to learn"])


@check_kinds
def from_function(
    task: Task, function: Callable[[Any, Any, Any], Any], names: Sequence[str] | None = None
) -> Features:
    """Return features of `task` made by a `function`, which is called once per reachable triple.

    function(s, a, s') returns a vector, of the same length for all triples. States and actions are
    passed by name where the task has names, otherwise by number. `names` has one name per feature.
    """
    check_function("function", function, "s", "a", "s2")
    states, actions, rows = task.state_names, task.action_names, []
    for s, a, s2 in zip(*task.triples, strict=True):
        triple = f"(s={states[s]!r}, a={actions[a]!r}, s'={states[s2]!r})"
        given = function(states[s], actions[a], states[s2])
        try:
            row = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the features of {triple} are not a vector of numbers") from error
        rows.append(np.atleast_1d(row))
        if rows[-1].shape != rows[0].shape or rows[-1].ndim != 1:
            raise ValueError(
                f"the features of {triple} have shape {rows[-1].shape}; the first triple has "
                f"{rows[0].shape}"
            )
    return Features(task, np.array(rows), names=names)


@check_kinds
def components(problem: FactoredMDP) -> Features:
    """Return the features of the component choices of `problem`, for `fit_mnl` with its `count`.

    The likelihood of factored transitions is that of independent choices, one for each component
    and step. The task of these features has a state for each kind and one action; the next state is
    the value.
    """
    matrix = problem.matrix
    if not matrix.shape[1]:
        raise ValueError(f"{problem.name} has no parameter: every kind has one possible value")
    n_states, extra = max(problem.support.shape), problem.n_extra_rows
    sizes = np.append(problem.support.sum(axis=1), np.ones(extra, int))
    stay = np.arange(n_states - extra, n_states)  # a value that is not the number of a kind
    values = np.append(np.nonzero(problem.support)[1], stay)
    matrix = np.vstack([matrix, np.zeros((extra, matrix.shape[1]))])
    indptr = np.append(0, np.cumsum(sizes))
    task = Task(n_states, 1, 1, indptr, values, np.zeros((n_states, 1)))
    return Features(task, matrix, problem.parameter_names)


@check_kinds
def pooled(shared: Features, spread: float | str = "estimate") -> Features:
    """Return the features of `shared` and a triple effect for every triple but the first of a pair.

    Parameters
    ----------
    shared : Features
    spread : float or "estimate"
        With a ridge lambda a triple effect has prior standard deviation spread / sqrt(lambda): it
        is shrunk towards the shared model, and data decide how far it differs. "estimate" leaves
        the number to the data as well: `agents.UCRLMNLSE` estimates it while it learns, and an
        offline fit maximises the marginal likelihood. All others take it as 1.
    """
    if shared.spread:
        raise ValueError("these features have triple effects already; pool the shared ones")
    if spread != "estimate":
        spread = finite_number("spread", spread, TINY, "above 0, or 'estimate'")
    columns = [sparse.csr_array(shared.matrix), triple_columns(shared.task, spread)]
    matrix = sparse.hstack(columns, format="csr")
    return Features(shared.task, matrix, names=shared.names, spread=spread)


@check_kinds
def unpooled(features: Features) -> Features:
    """Return the pooled `features` without their triple effects."""
    return Features(features.task, features.matrix[:, : features.n_shared], features.names)


@check_kinds
def recentre(features: Features) -> Features:
    """Subtract the first successor's row of `features` from the rows of each pair, so it is zero.

    The model and its likelihood do not change; L_varphi and the Gram matrix do.
    """
    if features.spread:
        return pooled(recentre(unpooled(features)), features.spread)
    task = features.task
    matrix = features.matrix - features.matrix[np.repeat(task.indptr[:-1], task.sizes)]
    return Features(task, matrix, features.names, features.formal_dimension)


OWN: dict[str, Callable[[Features], Features]] = {"shared": lambda shared: shared, "pooled": pooled}
"""What a specification may make of the features that come with an environment."""
