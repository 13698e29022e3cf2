"""Builders of MDPs: from arrays, functions of states, and fitted models.

The first two are static methods of `FiniteMDP`. They end in `assemble`, which takes triples.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    Array,
    as_float,
    check_function,
    check_kinds,
    check_sparse,
    positive_integer,
)
from upriver.mdp import declaring, validation
from upriver.mdp.names import Names
from upriver.mdp.task import Task
from upriver.mdp.validation import check_discount, support_of_triples

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP


@check_kinds
def from_arrays(
    transition: ArrayLike, reward: ArrayLike, horizon: int | None,
    initial_state: int | ArrayLike = 0, **names: Any,
) -> FiniteMDP:  # fmt: skip
    """Make an MDP from arrays, dense or of scipy.sparse.

    Parameters
    ----------
    transition : (S, A, S), (H, S, A, S) or sparse (S*A, S)
        Probabilities; zeros are not reachable, and row s * A + a of a sparse matrix is P(. | s, a).
        A state does not have the actions whose rows are all zero.
    reward : (S, A), (H, S, A), (S, A, S), (H, S, A, S) or sparse (S*A, S)
        The latter three where the reward depends on the next state.
    horizon : int or None
        None is an infinite horizon: with a `discount`, or without one for the average reward.
    initial_state : int or (S,)
        A state, or the distribution of the initial state.
    **names
        Fields of `Task` and `FiniteMDP`: name, states, actions, local, terminal, reward_range,
        discount.
    """
    if hasattr(transition, "tocsr"):
        matrix = check_sparse("transition", transition)
        n_states = matrix.shape[1]
        if n_states == 0 or matrix.shape[0] == 0 or matrix.shape[0] % n_states:
            given = f"transition has shape {matrix.shape}"
            raise ValueError(f"{given}; a sparse one must be (S*A, S), row s*A + a")
        matrix.sum_duplicates()
        pair = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        successors, probability = matrix.indices, matrix.data[None]
        shape = n_states, matrix.shape[0] // n_states
    else:
        dense = as_float("transition", transition)
        if dense.ndim not in (3, 4) or dense.shape[-1] != dense.shape[-3] or not dense.size:
            allowed = "it must be (S, A, S) or (H, S, A, S)"
            raise ValueError(f"transition has shape {dense.shape}; {allowed}")
        if dense.ndim == 4 and (n := len(dense)) != positive_integer("horizon", horizon):
            wanted = f"with horizon {horizon} it must have {horizon}"
            raise ValueError(f"transition has {n} steps; {wanted}")
        n_states, shape = dense.shape[-1], dense.shape[-3:-1]
        flat = dense.reshape(-1, n_states * shape[1], n_states)
        pair, successors = np.nonzero(flat.any(axis=0))
        probability = flat[:, pair, successors]
    next_state_reward, n_pairs = None, n_states * shape[1]
    if hasattr(reward, "tocsr"):
        by_triple = check_sparse("reward", reward)
        if by_triple.shape != (n_pairs, n_states):
            wanted = f"a sparse one must be {(n_pairs, n_states)}"
            raise ValueError(f"reward has shape {by_triple.shape}; {wanted}")
        next_state_reward = np.asarray(by_triple[pair, successors]).reshape(1, -1)
    elif (table := as_float("reward", reward)).shape in {
        (*shape, n_states), (horizon, *shape, n_states)
    }:  # fmt: skip
        if table.shape == (horizon, *shape) and table.size > 1:
            what = f"reward {table.shape} may be (H, S, A) or (S, A, S)"
            raise ValueError(f"{what}; give it as {(horizon, *table.shape)}, (H, S, A, S)")
        next_state_reward = table.reshape(-1, n_pairs, n_states)[:, pair, successors]
    return assemble(
        pair, successors, probability, shape,
        reward if next_state_reward is None else np.zeros(shape), horizon, initial_state, names,
        next_state_reward,
    )  # fmt: skip


@check_kinds
def from_functions(
    start: Hashable | Mapping[Any, float],
    actions: Sequence[Hashable] | Callable[[Any], Iterable[Hashable]],
    successors: Callable[[Any, Any], Iterable[Any]], probability: Callable[[Any, Any, Any], float],
    reward: Callable[..., float], horizon: int | None, max_states: int = 1_000_000,
    terminal: Callable[[Any], float] | None = None, **names: Any,
) -> FiniteMDP:  # fmt: skip
    """Make an MDP from functions of the user's states, which are any hashable values.

    Only the states that can be reached from the start within `horizon` steps are listed, so the
    state space itself may be far too large to list. A state that is first reached by the last
    action never acts: it stays where it is with a reward of 0, and an infinite horizon is refused.

    Parameters
    ----------
    start : state, or {state: probability}
        The initial state or its distribution.
    actions : list of hashable, or function
        Names of all actions, or a function from a state to the actions that it has.
    successors, probability : functions of (s, a) and (s, a, s')
        The states that can follow, each once, and how likely each is.
    reward : function of (s, a) or (s, a, s')
    max_states : int
        A larger problem is refused.
    terminal : function of s, optional
        Value of the state after the last step.
    horizon, **names
        As in `from_arrays`, without `states` and `actions`.
    """
    max_steps = max_states if horizon is None else positive_integer("horizon", horizon)
    check_function("probability", probability, "s", "a", "s2")
    starts = dict(start) if isinstance(start, Mapping) else {start: 1.0}
    weights = as_float("the probabilities of start", list(starts.values()))
    found = declaring.explore(list(starts), actions, successors, max_steps, max_states)
    chances = declaring.tabulate_calls("probability", probability, found.triples())
    chances = np.append(chances, np.ones(len(found.pair) - len(chances)))  # of those who stay
    rewards = declaring.tabulate_reward(reward, found)
    initial = np.pad(weights, (0, len(found.states) - len(weights)))
    if terminal is not None:
        names["terminal"] = declaring.tabulate_terminal(terminal, found)
    names = {"states": found.states, "actions": found.actions, **names}
    triples = found.pair, found.following, chances, rewards
    mdp = from_triples(*triples, found.shape, horizon, initial, names)
    return replace(mdp, listed_steps=horizon) if found.n_listed < len(found.pair) else mdp


def from_triples(
    pair: Array, following: Array, probability: Array, reward: Array, shape: tuple[int, int],
    horizon: int | None, initial: Any, names: dict[str, Any],
) -> FiniteMDP:  # fmt: skip
    """Make an MDP from (m,) pairs s * A + a, next states, probabilities and rewards in any order.

    A triple that occurs several times gets the sum of its probabilities and, weighted by them, the
    mean of its rewards. The reward becomes r(s, a) where it does not depend on the next state.
    """
    possible = probability != 0.0
    if not possible.any():
        raise ValueError("all probabilities are 0; each (s, a) needs probabilities that sum to 1")
    key = (pair * shape[0] + following)[possible]
    probability, reward = probability[possible], reward[possible]
    key, first, row = np.unique(key, return_index=True, return_inverse=True)
    weight, triple_reward = probability[first], reward[first]
    if len(key) < len(row):
        weight = np.bincount(row, probability, len(key))
        triple_reward = np.bincount(row, probability * reward, len(key)) / weight
        triple_reward[~np.isfinite(weight)] = 0.0  # the check of probabilities will refuse it
    pair, successors = np.divmod(key, shape[0])
    table, next_state_reward = declaring.split_rewards(pair, triple_reward, shape)
    return assemble(
        pair, successors, weight[None], shape, table, horizon, initial, names, next_state_reward
    )


def assemble(
    pair: Array, successors: Array, probability: Array, shape: tuple[int, int], reward: Any,
    horizon: int | None, initial_state: Any, names: dict[str, Any],
    next_state_reward: Array | None = None,
) -> FiniteMDP:  # fmt: skip
    """Make an MDP from triples in ascending order; those of probability 0 are left out.

    `pair` and `successors` (n,) are s * A + a and s', `shape` is (S, A), and `probability` and
    `next_state_reward` are (1 or H, n). The rest is as in `from_arrays`.
    """
    from upriver.mdp.finite import FiniteMDP

    of_mdp, of_task = {"local", "name"}, {"states", "actions", "terminal", "reward_range"}
    if extra := set(names) - of_mdp - of_task - {"discount"}:
        allowed = sorted({"discount", *of_mdp, *of_task})
        raise TypeError(f"unknown argument {min(extra)!r}; allowed are {allowed}")
    keep = probability.any(axis=0)
    indptr, successors = support_of_triples(pair[keep], successors[keep], shape[0] * shape[1])
    task = Task(
        *shape, horizon=1 if horizon is None else horizon,
        indptr=indptr, successors=successors, reward=reward, support="known",
        next_state_reward=None if next_state_reward is None else next_state_reward[:, keep],
        discount=check_discount(horizon, names.get("discount")),
        **{key: x for key, x in names.items() if key in of_task},
    )  # fmt: skip
    starts, weights = validation.initial_distribution(initial_state, shape[0])
    rest = {key: x for key, x in names.items() if key in of_mdp}
    return FiniteMDP(task, probability[:, keep], starts, weights, **rest)


def from_model(
    task: Task, probability: Array, reward: Any = None, horizon: int | None = None,
    start: Any = None,
) -> FiniteMDP:  # fmt: skip
    """Make the MDP of a task and estimated probabilities (1 or H, n) of its triples, with another
    reward or horizon where given. It starts in the first state, or as `read_start` says."""
    from upriver.mdp.finite import FiniteMDP

    given = {"horizon": horizon, "reward": reward}
    task = replace(task, **{name: x for name, x in given.items() if x is not None})
    if task.reward is None:
        raise ValueError("the task has no known reward; give reward, (S, A) or (H, S, A)")
    return FiniteMDP(task, probability, *read_start(task.state_names, start), name="fitted")


def read_start(names: Names, start: Any) -> tuple[Array, Array]:
    """Return (states, probabilities) of a start given by name or as {name: probability}."""
    chances = {names[0]: 1.0} if start is None else start
    if not isinstance(chances, Mapping):
        chances = {names[names.number(chances, "start")]: 1.0}
    weight = as_float(name := "the probabilities of start", list(chances.values()))
    validation.check_distribution(name, weight)
    return np.array([names.number(state, "start") for state in chances]), weight
