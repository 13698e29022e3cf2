"""A transition model at fixed covariates: the task, features and MDP of the rest of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, positive_integer
from upriver.display import Card, displayed
from upriver.display.card import brief
from upriver.features import Features
from upriver.logs.expansion import World, expanded, situations
from upriver.logs.reading import column, listed
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.declaring import checked_discount
from upriver.mdp.formats import from_model
from upriver.mnl.fitted import FittedMNL, pair_table

if TYPE_CHECKING:
    from upriver.logs.transitions import TransitionModel


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class ModelAt:
    """A fitted transition model at fixed covariates; `plan_from_model` and `policy_value` take it."""

    task: Task
    steps: tuple[Features, ...]
    """The features: one for all steps, or one for each."""
    prob: Array
    """(1 | H, n) P_theta_hat of every triple."""
    fitted: FittedMNL
    counts: Array
    """(n,) weight of each triple in the log, whatever its covariates."""
    at: Mapping[str, Any]

    def card(self) -> Card:
        at = ", ".join(f"{name} {brief(value)}" for name, value in self.at.items())
        return self.task.card()._replace(of=at)

    def transitions(
        self, state: Any, action: Any, confidence: float = 0.95, step: int = 0
    ) -> list[Any]:
        """Where (state, action) leads, with intervals; see `FittedMNL.transitions`."""
        h = min(step, len(self.steps) - 1)
        return pair_table(self.steps[h], self.prob[h], self.fitted, state, action, confidence)

    def plot(self, state: Any, action: Any, step: int = 0) -> Any:
        """A figure of where (state, action) leads, with intervals."""
        from upriver.display import figures

        return figures.probabilities(self.transitions(state, action, step=step), state, action)

    @property
    def features(self) -> Features:
        if len(self.steps) != 1:
            raise ValueError("the features change with the step; `steps` holds one for each")
        return self.steps[0]

    def to_mdp(self, start: Any = None) -> FiniteMDP:
        """The MDP that the estimate makes; start: a state, or {state: probability}."""
        return from_model(self.task, self.prob, start=start)


def at(
    model: TransitionModel,
    at: Mapping[str, Any],
    horizon: int | None,
    reward: Any,
    discount: float | None = None,
) -> ModelAt:
    """See `TransitionModel.at`."""
    world, n_actions = model.world, len(model.world.actions)
    discount = checked_discount(horizon, discount)
    horizon = 1 if horizon is None else positive_integer("horizon", horizon)
    per_step = covariates_at(model, at, horizon)
    exists = (world.sizes > 0).reshape(-1, n_actions)
    stays = np.repeat(~exists.any(axis=1), n_actions)  # a state that the log never left
    sizes = np.where(stays, 1, world.sizes)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    real = np.repeat(~stays, sizes)
    group = np.flatnonzero(world.sizes > 0)
    flat = np.repeat(np.arange(len(sizes)) // n_actions, sizes)
    flat[real] = situations(world, group, {}).successor
    task = Task(
        len(world.states), n_actions, horizon, indptr, flat,
        reward_table(world, reward), states=list(world.states), actions=list(world.actions),
        discount=discount,
    )  # fmt: skip
    steps, prob = [], []
    for values in per_step:
        cells = {c: np.repeat(column([x]), len(group)) for c, x in values.items()}
        of = situations(world, group, cells)
        x, offset = model.design.rows(expanded(world, of, lambda name: True))
        rows = np.zeros((task.n_triples, x.shape[1]))
        rows[real] = x
        steps.append(Features(task, rows, names=model.design.names))
        logits = rows @ model.fitted.theta
        logits[real] += offset
        logits -= np.repeat(task.by_pair(logits, np.maximum), sizes)
        p = np.exp(logits)
        prob.append(p / np.repeat(task.by_pair(p), sizes))
    return ModelAt(task, tuple(steps), np.array(prob), model.fitted, counts_of(model, task), at)


def covariates_at(
    model: TransitionModel, at: Mapping[str, Any], horizon: int
) -> list[dict[str, Any]]:
    """The values of the covariates: one set for all steps, or one for each."""
    needed = list(model.situations.covariates)
    for name in at:
        if name not in needed:
            raise ValueError(f"at names {name!r}; the covariates of the model are {listed(needed)}")
    for name in needed:
        if name not in at:
            raise ValueError(f"at lacks {name!r}; the model needs a value, or one for each step")
    changing = {c: x for c, x in at.items() if isinstance(x, list | tuple | np.ndarray)}
    for name, values in changing.items():
        if len(values) != horizon:
            raise ValueError(
                f"at[{name!r}] has {len(values)} values; there must be one, or {horizon}, one for "
                "each step"
            )
    n = horizon if changing else 1
    return [{c: at[c][h] if c in changing else at[c] for c in needed} for h in range(n)]


def reward_table(world: World, reward: Any) -> Any:
    if not callable(reward):
        return reward
    table: Any = [[reward(s, a) for a in world.actions] for s in world.states]
    return np.array(table, np.float64)


def counts_of(model: TransitionModel, task: Task) -> Array:
    """(n,) the weight of each triple in the log."""
    of, n = model.situations, task.n_states
    key = np.repeat(of.group, np.diff(of.indptr)) * n + of.successor
    listed = np.repeat(np.arange(len(task.sizes)), task.sizes) * n + task.successors
    row = np.searchsorted(listed, key)
    return np.bincount(row, model.data.counts, minlength=task.n_triples)
