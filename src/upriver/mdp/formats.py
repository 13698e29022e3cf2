"""MDPs of other libraries, and of fitted models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import Array, as_float, check_kinds
from upriver.mdp.building import from_triples
from upriver.mdp.task import Task

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP


@check_kinds
def from_quantecon(
    ddp: Any, horizon: int | None, initial_state: int | ArrayLike = 0, **names: Any
) -> FiniteMDP:
    """Make an MDP from a `DiscreteDP` of QuantEcon in any of its forms.

    A reward of -inf means that a state does not have an action. The discount of the DiscreteDP is
    not used: give `discount=ddp.beta` with `horizon=None`, or call `solve(mdp, discount=ddp.beta)`.
    The other parameters are those of `from_arrays`.
    """
    from scipy import sparse

    if not hasattr(ddp, "to_sa_pair_form"):
        raise TypeError(f"ddp is a {type(ddp).__name__}; it must be a DiscreteDP of QuantEcon")
    form = ddp.to_sa_pair_form()
    s, a = np.asarray(form.s_indices, np.int64), np.asarray(form.a_indices, np.int64)
    n_states, n_actions = form.Q.shape[1], int(a.max()) + 1
    matrix = sparse.coo_array(form.Q)
    row, column = matrix.coords
    return from_triples(
        (s * n_actions + a)[row], column.astype(np.int64), matrix.data, np.asarray(form.R)[row],
        (n_states, n_actions), horizon, initial_state, names,
    )  # fmt: skip


def from_model(
    task: Task, probability: Array, reward: Any = None, horizon: int | None = None,
    start: Any = None,
) -> FiniteMDP:  # fmt: skip
    """Make the MDP of a task and estimated probabilities (1 or H, n) of its triples, with another
    reward or horizon where given. It starts in the first state, or as `start_of` says."""
    from upriver.mdp.finite import FiniteMDP

    if horizon is not None:
        task = replace(task, horizon=horizon)
    if reward is not None:
        task = replace(task, reward=reward)
    if task.reward is None:
        raise ValueError("the task has no known reward; give reward, (S, A) or (H, S, A)")
    return FiniteMDP(task, probability, *start_of(task, start), name="fitted")


def start_of(task: Task, start: Any) -> tuple[Array, Array]:
    """Return (states, probabilities) of a start given by name or as {name: probability}."""
    names = task.state_names
    chances = {names[0]: 1.0} if start is None else start
    if not isinstance(chances, Mapping):
        chances = {names[names.number(chances, "start")]: 1.0}
    weight = as_float("the probabilities of start", list(chances.values()))
    if not ((weight >= 0).all() and abs(weight.sum() - 1.0) <= 1e-8):
        raise ValueError(f"the probabilities of start sum to {weight.sum():g}; they must sum to 1")
    return np.array([names.number(state, "start") for state in chances]), weight
