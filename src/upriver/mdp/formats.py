"""MDPs from long lists of triples: one function of arrays, and the explicit formats of others.

Each function is a method of `FiniteMDP`. All end in `from_triples`, which adds up what is named
more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import Array, as_float, positive_integer, shown
from upriver.mdp.building import assemble
from upriver.mdp.task import Task

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP


def from_triples(
    group: Array,
    following: Array,
    probability: Array,
    reward: Array,
    sizes: tuple[int, int],
    horizon: int | None,
    initial: Any,
    names: dict[str, Any],
) -> FiniteMDP:
    """From (m,) pairs s * A + a, next states, probabilities and rewards, in any order.

    What is named twice has the sum of the probabilities, and their mean of the rewards. sizes:
    (n_states, n_actions).
    """
    n_states, n_actions = sizes
    some = probability != 0.0
    key, row = np.unique((group * n_states + following)[some], return_inverse=True)
    weight = np.bincount(row, probability[some], len(key))
    paid = np.bincount(row, (probability * reward)[some], len(key)) / weight
    paid[~np.isfinite(weight)] = 0.0  # it is the probability that is wrong, and will be named
    pair, successors = np.divmod(key, n_states)
    starts = np.flatnonzero(np.r_[True, np.diff(pair) > 0])
    least, most = np.minimum.reduceat(paid, starts), np.maximum.reduceat(paid, starts)
    table, next_state_reward = np.zeros(n_states * n_actions), None
    if np.allclose(least, most, rtol=1e-12, atol=1e-12 * np.abs(paid).max()):  # r(s, a)
        table[pair[starts]] = least
    else:
        next_state_reward = paid[None]
    return assemble(
        pair, successors, weight[None], n_states, n_actions, table.reshape(n_states, n_actions),
        horizon, initial, names, next_state_reward,
    )  # fmt: skip


def from_outcomes(
    start: Hashable | Mapping[Any, float],
    actions: Sequence[Hashable],
    outcomes: Callable[[Array, Any], tuple[ArrayLike, ArrayLike, ArrayLike]],
    horizon: int | None,
    max_states: int = 1_000_000,
    **names: Any,
) -> FiniteMDP:
    """From one function of arrays: what may happen to many states at once.

    outcomes(states, action) -> (next_states, probability, reward). states is (n,) whole numbers,
    or (n, k) where a state is k whole numbers; next_states is (n, m), or (n, m, k), for m things
    that may happen; probability and reward are (n, m) or broadcast to it. The same next state may
    come about in several ways. A state does not have an action whose probabilities are all 0.

    As in `from_functions`, only what can be reached from `start` within `horizon` steps is listed,
    and `start` is a state or {state: probability}.
    """
    within = max_states if horizon is None else positive_integer("horizon", horizon)
    starts = dict(start) if isinstance(start, Mapping) else {start: 1.0}
    labels = list(actions)
    flat = not isinstance(next(iter(starts)), tuple)
    number: dict[Any, int] = {(s,) if flat else s: i for i, s in enumerate(starts)}
    parts: list[tuple[Array, ...]] = []
    acting = 0
    for _ in range(within):
        newest = np.array(list(number)[acting:], np.int64)
        if not len(newest):
            break
        for a, label in enumerate(labels):
            given = newest[:, 0] if flat else newest
            here, there, p, r = ways(outcomes, given, label, newest.shape)
            rows, inverse = np.unique(there, axis=0, return_inverse=True)
            found = [number.setdefault(tuple(x), len(number)) for x in rows.tolist()]
            if len(number) > max_states:
                raise ValueError(
                    f"more than max_states={max_states} states are reachable within {within} "
                    "steps; raise max_states or shorten the horizon"
                )
            following = np.array(found, np.int64)[inverse.ravel()]
            parts.append(((acting + here) * len(labels) + a, following, p, r))
        acting += len(newest)
    n_states = len(number)
    late = np.arange(acting, n_states)  # first met after the last action: they never act
    if len(late):
        parts.append((late * len(labels), late, np.ones(len(late)), np.zeros(len(late))))
    group, following, p, r = (np.concatenate(x) for x in zip(*parts, strict=True))
    initial = np.zeros(n_states)
    initial[: len(starts)] = list(starts.values())
    states = [s[0] if flat else s for s in number]
    return from_triples(
        group, following, p, r, (n_states, len(labels)), horizon, initial,
        {"states": states, "actions": labels, **names},
    )  # fmt: skip


def ways(
    outcomes: Callable[..., Any], given: Array, action: Any, shape: tuple[int, ...]
) -> tuple[Array, Array, Array, Array]:
    """(number of the state, where to, how likely, what is paid) of each way that is possible."""
    n, k = shape
    answer = outcomes(given, action)
    if not (isinstance(answer, tuple | list) and len(answer) == 3):
        raise ValueError(
            f"outcomes of {action!r} are {shown(answer)}; they must be (next_states, probability, "
            "reward)"
        )
    there, p, r = (np.asarray(x) for x in answer)
    wanted = f"(n, m) or (n, m, {k}) with n = {n}" if k > 1 else f"(n, m) with n = {n}"
    if (
        there.dtype.kind not in "iu"
        or there.ndim != (2 if given.ndim == 1 else 3)
        or len(there) != n
    ):
        raise ValueError(
            f"outcomes of {action!r}: next states are {there.dtype} of shape {there.shape}; they "
            f"must be whole numbers {wanted}"
        )
    there = there.reshape(n, there.shape[1], k)
    try:
        p = np.broadcast_to(as_float("probability", p), there.shape[:2])
        r = np.broadcast_to(as_float("reward", r), there.shape[:2])
    except ValueError as error:
        raise ValueError(f"outcomes of {action!r}: {error}") from None
    here, way = np.nonzero(p)
    return here, there[here, way].astype(np.int64), p[here, way], r[here, way]


def from_quantecon(
    ddp: Any, horizon: int | None, initial_state: int | ArrayLike = 0, **names: Any
) -> FiniteMDP:
    """From a `DiscreteDP` of QuantEcon, in either of its forms; a reward of -inf: no such action.

    Its discount is not part of an MDP: `solve(mdp, discount=ddp.beta)`.
    """
    from scipy import sparse

    if not hasattr(ddp, "to_sa_pair_form"):
        raise TypeError(f"ddp is a {type(ddp).__name__}; it must be a DiscreteDP of QuantEcon")
    pairs = ddp.to_sa_pair_form()
    group = np.asarray(pairs.s_indices, np.int64), np.asarray(pairs.a_indices, np.int64)
    n_states, n_actions = pairs.Q.shape[1], int(group[1].max()) + 1
    there = sparse.coo_array(pairs.Q)
    row, column = there.coords
    return from_triples(
        (group[0] * n_actions + group[1])[row], column.astype(np.int64), there.data,
        np.asarray(pairs.R)[row], (n_states, n_actions), horizon, initial_state, names,
    )  # fmt: skip


def from_mdptoolbox(
    transition: Any,
    reward: Any,
    horizon: int | None,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """From the arrays of pymdptoolbox and its relatives: transition (A, S, S), action first.

    transition: an array, or a list of A matrices (S, S), dense or scipy.sparse. reward: (S,),
    (S, A), or (A, S, S) in the same forms.
    """
    from scipy import sparse

    try:
        matrices: list[Any] = [sparse.coo_array(matrix) for matrix in transition]
        n_actions, n_states = len(matrices), matrices[0].shape[0]
    except (TypeError, ValueError, IndexError):
        raise ValueError(
            f"transition is {shown(transition)}; it must hold a matrix (S, S) for each action"
        ) from None
    for a, matrix in enumerate(matrices):
        if matrix.shape != (n_states, n_states):
            raise ValueError(
                f"transition[{a}] has shape {matrix.shape}; it must be ({n_states}, {n_states})"
            )
    s, s2 = (np.concatenate([m.coords[i] for m in matrices]).astype(np.int64) for i in (0, 1))
    a = np.repeat(np.arange(n_actions), [m.nnz for m in matrices])
    if sparse.issparse(reward[0]) or np.ndim(reward) == 3:
        if len(reward) != n_actions:
            raise ValueError(f"reward has {len(reward)} matrices; there must be {n_actions}")
        sheets: list[Any] = [sparse.csr_array(matrix) for matrix in reward]
        paid = np.concatenate([
            np.asarray(sheet[matrix.coords]).ravel()
            for sheet, matrix in zip(sheets, matrices, strict=True)
        ])  # fmt: skip
    else:
        table = as_float("reward", reward)
        if table.shape not in {(n_states,), (n_states, n_actions)}:
            raise ValueError(
                f"reward has shape {table.shape}; it must be ({n_states},), ({n_states}, "
                f"{n_actions}) or ({n_actions}, {n_states}, {n_states})"
            )
        paid = table[s] if table.ndim == 1 else table[s, a]
    return from_triples(
        s * n_actions + a, s2, np.concatenate([m.data for m in matrices]).astype(np.float64), paid,
        (n_states, n_actions), horizon, initial_state, names,
    )  # fmt: skip


def from_model(
    task: Task,
    probability: Array,
    reward: Any = None,
    horizon: int | None = None,
    start: Any = None,
) -> FiniteMDP:
    """The MDP of a task and (1 | H, n) estimated probabilities of its triples.

    reward and horizon: the task's own unless given. start: a state, or {state: probability}.
    """
    from upriver.mdp.finite import FiniteMDP

    if horizon is not None:
        task = replace(task, horizon=horizon)
    if reward is not None:
        task = replace(task, reward=reward)
    if task.reward is None:
        raise ValueError("the task has no known reward; give reward, (S, A) or (H, S, A)")
    return FiniteMDP(task, probability, *start_of(task, start), name="fitted")


def start_of(task: Task, start: Any) -> tuple[Array, Array]:
    """(states, probabilities) of a start given by name or as {name: probability}."""
    names = task.state_names
    chances = {names[0]: 1.0} if start is None else start
    chances = dict(chances) if isinstance(chances, Mapping) else {chances: 1.0}
    weight = np.array(list(chances.values()), np.float64)
    if not ((weight >= 0).all() and abs(weight.sum() - 1.0) <= 1e-8):
        raise ValueError(f"the probabilities of start sum to {weight.sum():g}; they must sum to 1")
    return np.array([names.number(state, "start") for state in chances]), weight
