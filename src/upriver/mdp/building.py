"""How MDPs are made: from dense arrays, sparse matrices, rows, or functions of one's own states.

Each function is a method of `FiniteMDP`. All end in `assemble`, which takes sorted triples.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import Array, as_float, initial_distribution, positive_integer, shown
from upriver.mdp.declaring import actions_of, checked_discount, takes_next
from upriver.mdp.task import Task

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP


def from_arrays(
    transition: ArrayLike,
    reward: ArrayLike,
    horizon: int | None,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """From dense probabilities, (S, A, S) or (H, S, A, S); zeros are not reachable.

    A state does not have the actions whose rows are all zero.
    reward is (S, A) or (H, S, A), or (S, A, S) or (H, S, A, S) where it depends on s'.
    initial_state is a state, or a distribution (S,). horizon is None where there is no last step:
    then `discount`, or the average reward. `names` are `local`, `name`, `states`, `actions`,
    `discount`, `terminal` and `reward_range` of the fields.
    """
    dense = as_float("transition", transition)
    if dense.ndim not in (3, 4) or dense.shape[-1] != dense.shape[-3] or not dense.size:
        raise ValueError(
            f"transition has shape {dense.shape}; it must be (S, A, S) or (H, S, A, S)"
        )
    stacked = dense if dense.ndim == 4 else dense[None]
    n_states, n_actions = stacked.shape[1:3]
    if dense.ndim == 4 and len(dense) != positive_integer("horizon", horizon):
        raise ValueError(
            f"transition has {len(dense)} steps; with horizon {horizon} it must have {horizon}"
        )
    flat = stacked.reshape(len(stacked), n_states * n_actions, n_states)
    group, successors = np.nonzero(flat.any(axis=0))
    paid = as_float("reward", reward)
    shape, next_state_reward = (n_states, n_actions), None
    by_step = dense.ndim == 4 and paid.shape == (horizon, *shape)
    if paid.shape in {(*shape, n_states), (horizon, *shape, n_states)} and not by_step:
        if paid.shape == (horizon, *shape):
            raise ValueError(
                f"reward has shape {paid.shape}, which may be (H, S, A) or (S, A, S); give it as "
                f"{(horizon, *paid.shape)}, (H, S, A, S)"
            )
        next_state_reward = paid.reshape(-1, len(flat[0]), n_states)[:, group, successors]
        paid = np.zeros(shape)
    return assemble(
        group, successors, flat[:, group, successors], n_states, n_actions, paid, horizon,
        initial_state, names, next_state_reward,
    )  # fmt: skip


def from_sparse(
    transition: Any,
    reward: Any,
    horizon: int | None,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """From a scipy.sparse matrix (S*A, S) whose row s*A + a is P(. | s, a), empty for no action.

    reward is (S, A) or (H, S, A), or a matrix like `transition` where it depends on s'.
    """
    from scipy import sparse

    if not sparse.issparse(transition):
        raise TypeError(
            f"transition is a {type(transition).__name__}; it must be a scipy.sparse matrix "
            "(for a dense array use from_arrays)"
        )
    matrix: Any = sparse.csr_array(transition, dtype=np.float64, copy=True)
    n_states = matrix.shape[1]
    if n_states == 0 or matrix.shape[0] == 0 or matrix.shape[0] % n_states:
        raise ValueError(
            f"transition has shape {matrix.shape}; it must be (S*A, S) with row s*A + a"
        )
    matrix.sum_duplicates()
    group = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    n_actions, next_state_reward = matrix.shape[0] // n_states, None
    if sparse.issparse(reward):
        if reward.shape != matrix.shape:
            raise ValueError(f"reward has shape {reward.shape}; transition has {matrix.shape}")
        next_state_reward = np.asarray(sparse.csr_array(reward)[group, matrix.indices]).ravel()[
            None
        ]
        reward = np.zeros((n_states, n_actions))
    return assemble(
        group, matrix.indices, matrix.data[None], n_states, n_actions, reward, horizon,
        initial_state, names, next_state_reward,
    )  # fmt: skip


def from_rows(
    rows: Mapping[tuple[int, int], Mapping[int, float]],
    reward: Any,
    horizon: int | None,
    initial_state: int | ArrayLike = 0,
    **names: Any,
) -> FiniteMDP:
    """From {(s, a): {s2: p}}; reward is an array (S, A) or {(s, a): r}, absent meaning 0.

    Where the reward depends on s', {(s, a): {s2: r}}. A state has the actions for which there is
    a row.
    """
    if not isinstance(rows, Mapping) or not rows:
        raise ValueError("rows must be a non-empty mapping {(s, a): {s2: p}}")
    group, successors, weights, n_states, n_actions = flatten_rows(rows)
    next_state_reward = None
    if isinstance(reward, Mapping):
        table, paid = np.zeros((n_states, n_actions)), {}
        for (s, a), r in reward.items():
            if (s, a) not in rows:
                raise ValueError(f"reward names (s={s}, a={a}), which has no row")
            if isinstance(r, Mapping):
                paid |= {(s * n_actions + a, s2): x for s2, x in r.items()}
            else:
                table[s, a] = r
        reward = table
        if paid:
            triples = list(zip(group.tolist(), successors.tolist(), strict=True))
            if extra := set(paid) - set(triples):
                g, s2 = min(extra)
                raise ValueError(
                    f"reward names next state {s2} of (s={g // n_actions}, a={g % n_actions}), "
                    "which is not among its successors"
                )
            next_state_reward = np.array([[paid.get(t, 0.0) for t in triples]])
    return assemble(
        group, successors, weights[None], n_states, n_actions, reward, horizon, initial_state,
        names, next_state_reward,
    )  # fmt: skip


def from_functions(
    start: Hashable | Mapping[Any, float],
    actions: Sequence[Hashable] | Callable[[Any], Iterable[Hashable]],
    successors: Callable[[Any, Any], Iterable[Any]],
    probability: Callable[[Any, Any, Any], float],
    reward: Callable[..., float],
    horizon: int | None,
    max_states: int = 1_000_000,
    name: str = "mdp",
    terminal: Callable[[Any], float] | None = None,
    discount: float | None = None,
) -> FiniteMDP:
    """From functions of the user's own states, any hashable values.

    Only the closure is listed: what can be reached from the start within `horizon` steps, so
    the state space itself may be far too large to list. A state first met after the last
    action never acts; its rows stay where they are and pay nothing. `start` is a state, or a
    mapping from states to probabilities. `actions` is a list, or a function from a state to the
    actions that it has. `reward` is a function of (s, a), or of (s, a, s') where it depends on the
    next state; `terminal` one of the state after the last step.
    """
    within = max_states if horizon is None else positive_integer("horizon", horizon)
    given = {"successors": successors, "probability": probability, "reward": reward}
    for what, function in (given if terminal is None else given | {"terminal": terminal}).items():
        if not callable(function):
            raise TypeError(f"{what} is {shown(function)}; it must be a function")
    of_state = actions_of(actions)
    starts = dict(start) if isinstance(start, Mapping) else {start: 1.0}
    states, table = close(list(starts), of_state, successors, within, max_states)
    acting = len(table)
    table += [{a: [s] for a in of_state(s)} for s in states[len(table) :]]
    number = {s: i for i, s in enumerate(states)}
    labels = list(dict.fromkeys(label for choices in table for label in choices))
    rows: dict[tuple[int, int], dict[int, float]] = {}
    rewards: dict[tuple[int, int], Any] = {}
    by_next = takes_next(reward)
    for i, s in enumerate(states):
        for a, label in enumerate(labels):
            if label not in table[i]:
                continue
            if i >= acting:
                rows[i, a] = {i: 1.0}
                continue
            rows[i, a] = {}
            for s2 in table[i][label]:
                if number[s2] in rows[i, a]:
                    raise ValueError(
                        f"successors({s!r}, {label!r}) names {s2!r} twice; each at most once"
                    )
                rows[i, a][number[s2]] = answered(probability, s, label, s2)
            if by_next:
                reached = table[i][label]
                rewards[i, a] = {number[s2]: answered(reward, s, label, s2) for s2 in reached}
            else:
                rewards[i, a] = answered(reward, s, label)
    initial = np.zeros(len(states))
    initial[: len(starts)] = list(starts.values())
    last = None if terminal is None else [answered(terminal, s) for s in states]
    return from_rows(
        rows, rewards, horizon, initial, states=states, actions=labels, name=name, terminal=last,
        discount=discount,
    )  # fmt: skip


def answered(function: Callable[..., float], *names: Any) -> float:
    """The number that a user's function gives."""
    value = function(*names)
    try:
        return float(value)
    except (TypeError, ValueError):
        said = ", ".join(map(repr, names))
        name = getattr(function, "__name__", "the function")
        raise TypeError(f"{name}({said}) is {shown(value)}; it must be a number") from None


def close(
    starts: list[Any],
    of_state: Callable[[Any], list[Any]],
    successors: Callable[[Any, Any], Iterable[Any]],
    horizon: int,
    max_states: int,
) -> tuple[list[Any], list[dict[Any, list[Any]]]]:
    """Breadth-first: (states, the successors by action of those that can act, which come first)."""
    states = list(starts)
    seen = set(states)
    table: list[dict[Any, list[Any]]] = []
    for _ in range(horizon):
        newest = states[len(table) :]
        if not newest:
            break
        for state in newest:
            table.append({a: list(successors(state, a)) for a in of_state(state)})
            for a, reached in table[-1].items():
                if not reached:
                    raise ValueError(
                        f"successors({state!r}, {a!r}) is empty; every action must lead somewhere"
                    )
                new = [s for s in dict.fromkeys(reached) if s not in seen]
                seen.update(new)
                states += new
            if len(states) > max_states:
                raise ValueError(
                    f"more than max_states={max_states} states are reachable within "
                    f"{horizon} steps; raise max_states or shorten the horizon"
                )
    return states, table


def flatten_rows(
    rows: Mapping[tuple[int, int], Mapping[int, float]],
) -> tuple[Array, Array, Array, int, int]:
    """(group, successor, probability, n_states, n_actions) of a dict of rows."""
    for key, row in rows.items():
        if not (isinstance(key, tuple) and len(key) == 2):
            raise ValueError(f"rows has the key {key!r}; keys must be pairs (s, a)")
        if not row:
            raise ValueError(f"transition row (s={key[0]}, a={key[1]}) is empty")
        for number in (*key, *row):
            try:
                bad = index(number) < 0
            except TypeError:
                bad = True
            if bad:
                raise ValueError(
                    f"transition row {key!r} names {number!r}; states and actions must be "
                    "whole numbers from 0 (for other states use from_functions)"
                )
    n_actions = 1 + max(a for _, a in rows)
    n_states = 1 + max(max(s, *row) for (s, _), row in rows.items())
    triples = [
        (s * n_actions + a, s2, float(rows[s, a][s2]))
        for s, a in sorted(rows)
        for s2 in sorted(rows[s, a])
    ]
    group, successors, weights = map(np.array, zip(*triples, strict=True))
    return group, successors, weights, n_states, n_actions


def assemble(
    group: Array,
    successors: Array,
    probability: Array,
    n_states: int,
    n_actions: int,
    reward: Any,
    horizon: int | None,
    initial_state: Any,
    names: dict[str, Any],
    next_state_reward: Array | None = None,
) -> FiniteMDP:
    """A FiniteMDP from sorted triples, without those of no weight; `names`: further fields."""
    from upriver.mdp.finite import FiniteMDP

    allowed = {"local", "name", "states", "actions", "terminal", "reward_range", "discount"}
    if extra := set(names) - allowed:
        raise TypeError(f"unknown argument {min(extra)!r}; allowed are {sorted(allowed)}")
    discount = checked_discount(horizon, names.pop("discount", None))
    keep = probability.any(axis=0)
    sizes = np.bincount(group[keep], minlength=n_states * n_actions)
    task = Task(
        n_states=n_states,
        n_actions=n_actions,
        horizon=1 if horizon is None else horizon,
        indptr=np.concatenate([[0], np.cumsum(sizes)]),
        successors=successors[keep],
        reward=reward,
        support="known",
        states=names.pop("states", None),
        actions=names.pop("actions", None),
        next_state_reward=None if next_state_reward is None else next_state_reward[:, keep],
        terminal=names.pop("terminal", None),
        reward_range=names.pop("reward_range", None),
        discount=discount,
    )
    starts, weights = initial_distribution(initial_state, n_states)
    return FiniteMDP(task, probability[:, keep], starts, weights, **names)
