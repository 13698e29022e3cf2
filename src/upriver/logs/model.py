"""A fitted MNL transition model: its coefficients and tests, and the task that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, check_kinds, positive_integer
from upriver.display import Card, add_repr
from upriver.display.card import format_brief
from upriver.features import Features
from upriver.logs import effects
from upriver.logs.design import Design
from upriver.logs.estimates import WIDTH, Estimates, wrap_lines
from upriver.logs.goodness import Cells, GoodnessOfFit, goodness_of_fit
from upriver.logs.situations import Situations, StateSpace, build_situations, expand
from upriver.logs.tables import array_of, listed
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.formats import from_model
from upriver.mdp.validation import check_discount
from upriver.mnl import likelihood
from upriver.mnl.choices import Choices
from upriver.mnl.fitted import FittedMNL, pair_table


@add_repr
class FittedLog(NamedTuple):
    """What a formula was fitted to: the situations of a log."""

    space: StateSpace
    design: Design
    situations: Situations
    data: Choices  # The choice data: rows, offset and counts of the distinct situations
    chosen: Array  # (m,) the row of the choice data that each set of equal rows of the log chose
    weights: Array  # (m,) the weight of each set of equal rows
    cluster: Array | None  # (m,) the cluster of each set of equal rows
    n_rows: int
    dropped: Mapping[str, int]
    """The number of rows that were left out, by the column that has the gap."""
    horizon: int | None
    discount: float | None
    reward: Any  # Horizon, discount and reward that `at` takes unless others are given
    clusters: Sequence[Any] = ()  # The name of each cluster

    def cluster_scores(self, theta: Array) -> Array:
        """Return (C, d) the sums of the scores of the rows of each cluster."""
        assert self.cluster is not None
        return self.data.cluster_scores(theta, self.cluster, self.chosen, self.weights)

    def triple_counts(self) -> tuple[Array, Array]:
        """Return the numbers (s * A + a) * S + s' of all candidates, and their weights."""
        of = self.situations
        key = np.repeat(of.pair, np.diff(of.indptr)) * len(self.space.states) + of.successor
        keys, cell = np.unique(key, return_inverse=True)
        return keys, np.bincount(cell, self.data.counts)


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class TransitionModel(Estimates):
    """An MNL transition model fitted to a log by `fit_transitions`.

    Its estimates have the names that statsmodels gives them. A model without covariates has a task,
    and is what `plan_from_model`, `policy_value`, `compare_policies` and `check_policy_value` take.
    A model with covariates has one after `at` has fixed their values: `model.at(age=60)`.
    """

    fitted: FittedMNL
    log: FittedLog | None = None
    """The situations of the log; None where features were given instead of a formula."""
    task: Any = None
    """The `Task`: states, actions, rewards, horizon; None as long as covariates have no values."""
    steps: tuple[Features, ...] = ()  #: The features: one for all steps, or one for each.
    offsets: tuple[Array | float, ...] = ()
    """(n,) what the logits of each step have besides features times theta."""
    counts: Array = field(default_factory=lambda: np.empty(0))
    """(n,) the weight of each triple of the task in the log, whatever its covariates."""
    values: Mapping[str, Any] = field(default_factory=dict)  #: The values of the covariates.

    # What was estimated.

    @property
    def terms(self) -> list[str]:
        """The term of the formula that each coefficient belongs to."""
        return self.coefficient_names if self.log is None else self.log.design.terms

    @check_kinds
    def with_errors(self, kind: str) -> TransitionModel:
        """Return the model with "classical", "robust" or "cluster" standard errors."""
        return replace(self, fitted=self.fitted.with_errors(kind))

    def card(self) -> Card:
        card = self.fitted.card()
        if self.log is None:
            return card._replace(of=self.task.card().brief)
        sizes = {"states": len(self.log.space.states), "actions": len(self.log.space.actions)}
        at = "".join(f", {name} {format_brief(value)}" for name, value in self.values.items())
        words = formula_text(self.log.design.formula) + at
        return card._replace(of=words, facts={**card.facts, **sizes})

    @check_kinds
    def summary(self, limit: int = 40) -> str:
        """Return what was fitted to which log, and the first `limit` coefficients, as text."""
        fitted, log, lines = self.fitted, self.log, []
        if log is not None:
            single = int((np.diff(log.data.indptr) == 1).sum())
            lines = [
                f"transitions ~ {formula_text(log.design.formula)}"
                + (f", for each {log.design.per_step}" if log.design.per_step else ""),
                f"{log.n_rows} rows, {len(log.data.visits)} distinct situations, {len(log.data.x)} "
                f"candidates; {len(log.space.states)} states, {len(log.space.actions)} actions",
                f"reachable states: {log.space.rule}"
                + (f"; {single} situations have only one" if single else ""),
            ]
            if log.dropped:
                gaps = ", ".join(f"{n} without {c!r}" for c, n in log.dropped.items())
                lines.append(f"rows left out: {gaps}")
            if log.design.dropped:
                lines.append(f"reference (no coefficient): {listed(log.design.dropped, 6)}")
        clusters = f" ({fitted.n_clusters} clusters)" if fitted.errors == "cluster" else ""
        lines += [
            f"multinomial logit: {fitted.n_observations:g} observations, {len(fitted.theta)} "
            f"coefficients, ridge {fitted.regularization:g}",
            f"log-likelihood {fitted.log_likelihood:.4f} ({fitted.null_log_likelihood:.4f} with "
            f"theta = 0), AIC {fitted.aic:.1f}, BIC {fitted.bic:.1f}, McFadden's R2 "
            f"{fitted.pseudo_r2:.3f}",
            f"standard errors: {fitted.errors}{clusters}",
        ]
        text = [*wrap_lines(lines), *self.coefficient_lines(limit)]
        if fitted.is_pooled or fitted.effects:
            text += [fill(x, WIDTH, drop_whitespace=len(x) > WIDTH) for x in fitted.effect_lines()]
        return "\n".join([*text, *(fill(line, WIDTH) for line in fitted.warnings)])

    # Tests of the model.

    def cells(self) -> Cells:
        """Return the situations that have a choice, and the cells (s, a, s') of their rows."""
        if self.log is None:
            task, x, counts = check_model(self).task, self.features.matrix, self.counts
            of_pair, indptr, successor = np.arange(len(task.sizes)), task.indptr, task.successors
            states, actions = list(task.state_names), list(task.action_names)
            p, offset = self.probability, None
            some = (task.sizes > 1) & (task.by_pair(counts) > 0)
        else:
            space, (of_pair, _, indptr, successor) = self.log.space, self.log.situations
            data = self.log.data
            x, counts, offset = data.x[:], data.counts, data.offset
            states, actions, p = space.states, space.actions, data.probabilities(self.theta)
            some = np.diff(indptr) > 1
        sizes, n_states, n_actions = np.diff(indptr), len(states), len(actions)
        rows, members = np.flatnonzero(np.repeat(some, sizes)), None
        if self.log is not None and self.fitted.errors == "cluster":
            entries = self.log.weights, (self.log.cluster, self.log.chosen)
            members = sparse.csc_array(entries, (self.fitted.n_clusters, len(counts)))[:, rows]
        pair = np.repeat(of_pair, sizes)[rows]
        key, cell = np.unique(pair * n_states + successor[rows], return_inverse=True)
        pairs, of_cell = np.unique(key // n_states, return_inverse=True)
        return Cells(
            np.concatenate([[0], np.cumsum(sizes[some])]), x[rows], counts[rows], p[rows],
            0.0 if offset is None else offset[rows], cell, of_cell,
            names=[(states[g // n_actions], actions[g % n_actions]) for g in pairs.tolist()],
            members=members,
        )  # fmt: skip

    @check_kinds
    def goodness_of_fit(self, replicates: int = 999, seed: int = 0) -> GoodnessOfFit:
        """Return Pearson's test of what happened from each (state, action), over all covariates.

        The p-values are shares of `replicates` logs drawn from the fitted model (a parametric
        bootstrap), so they hold for sparse logs too. With clustered errors they come from a wild
        bootstrap by cluster.
        """
        return goodness_of_fit(self.cells(), self.fitted, replicates, seed)

    likelihood_ratio = effects.likelihood_ratio
    predict = effects.predict
    marginal_effects = effects.marginal_effects

    @check_kinds
    def transitions(
        self, state: Any, action: Any, confidence: float = 0.95, step: int = 0
    ) -> list[dict[str, Any]]:
        """Return the probability of each next state of a pair, with intervals."""
        h = min(step, len(self.steps) - 1)
        check_model(self)
        return pair_table(self.steps[h], self.prob[h], self.fitted, state, action, confidence)

    def plot(self, state: Any = None, action: Any = None, step: int = 0) -> Any:
        """Return a figure of the coefficients; of a pair, of its next states."""
        from upriver.display import figures

        if state is None and action is None:
            return self.fitted.plot()
        return figures.plot_probabilities(self.transitions(state, action, step=step), state, action)

    # The task that the model makes.

    @property
    def features(self) -> Features:
        """The features of all steps."""
        check_model(self)
        if len(self.steps) != 1:
            raise ValueError("the features change with the step; `steps` holds one for each")
        return self.steps[0]

    @cached_property
    def prob(self) -> Array:
        """(1 | H, n) the estimated probability of every triple of the task."""
        found = []
        for features, offset in zip(self.steps, self.offsets, strict=True):
            if np.ndim(offset) == 0:
                found.append(likelihood.probabilities(features, self.theta))
            else:
                logits = np.asarray(features.matrix @ self.theta) + offset
                found.append(effects.softmax(features.task.indptr, logits))
        return np.array(found)

    @property
    def probability(self) -> Array:
        """(n,) the estimated probability of every triple, where all steps are alike."""
        assert self.features is not None
        return self.prob[0]

    @check_kinds
    def at(
        self, values: Mapping[str, Any] | None = None, /, *, horizon: int | None = None,
        discount: float | None = None, reward: Any = None, **covariates: Any,
    ) -> TransitionModel:  # fmt: skip
        """Return the model at fixed covariates, for planning and valuing policies.

        Parameters
        ----------
        values, **covariates
            The value of each covariate, by name or in a mapping; or a sequence of `horizon` values
            where it changes with the step.
        horizon
            Steps of an episode; None for an infinite horizon.
        discount
            The discount of an infinite horizon; None for the average reward per step.
        reward
            A function (state, action) -> number, {state: number} with 0 for other states, or an
            array (S, A) or (H, S, A). What `fit_transitions` was given unless another is given.
        """
        fixed = {**(values or {}), **covariates}
        given = {**self.values, **fixed}
        if self.log is None:
            if given:
                raise ValueError(f"at names {next(iter(given))!r}; the model has no covariates")
            model = self if reward is None else with_reward(self, reward)
            if horizon is None and discount is None:
                return model
            rule, steps = check_discount(horizon, discount), 1 if horizon is None else horizon
            return replace(model, task=replace(model.task, horizon=steps, discount=rule))
        log, task = self.log, self.task
        if horizon is not None or discount is not None:
            # the steps of another horizon do not count
            given = {c: x for c, x in given.items() if c != log.design.per_step or c in fixed}
        elif task is not None:  # the model keeps what it has
            horizon = None if task.infinite_horizon else task.horizon
            discount = None if task.discount == 1.0 else task.discount
        else:
            horizon, discount = log.horizon, log.discount
        if reward is None:
            reward = log.reward if task is None else task.reward
        return at_values(self, given, horizon, discount, reward)

    @check_kinds
    def to_mdp(self, start: Any = None) -> FiniteMDP:
        """Return the MDP of the estimated probabilities.

        start: the first state, or {state: probability}; the first state of the task unless given.
        """
        return from_model(check_model(self).task, self.prob, start=start)


def check_model(model: Any) -> TransitionModel:
    """Return a model that has a task, or say how to get one."""
    if not isinstance(model, TransitionModel):
        raise TypeError(f"model is a {type(model).__name__}; it must come from fit_transitions")
    if model.task is None:
        assert model.log is not None
        needed = ", ".join(f"{c}=..." for c in model.log.situations.covariates)
        raise ValueError(f"the model has covariates; fix their values first: model.at({needed})")
    return model


def formula_text(formula: Any) -> str:
    """Return a formula as one line."""
    return formula if isinstance(formula, str) else " + ".join(formula)


def with_reward(model: TransitionModel, reward: Any) -> TransitionModel:
    """Return a model with other rewards."""
    task = check_model(model).task
    table = reward_table(list(task.state_names), list(task.action_names), reward)
    task = replace(task, reward=table, next_state_reward=None, reward_range=None)
    return replace(model, task=task)


def at_values(
    model: TransitionModel, values: dict[str, Any], horizon: int | None, discount: float | None,
    reward: Any,
) -> TransitionModel:  # fmt: skip
    """Return a model of a formula at fixed covariates."""
    log = model.log
    assert log is not None
    space, n_actions = log.space, len(log.space.actions)
    discount = check_discount(horizon, discount)
    per_step = values_by_step(log, values, horizon)
    # a state that the log never left stays where it is
    stays = np.repeat(~(space.sizes > 0).reshape(-1, n_actions).any(axis=1), n_actions)
    sizes = np.where(stays, 1, space.sizes)
    real = np.repeat(~stays, sizes)
    pairs = np.flatnonzero(space.sizes > 0)
    successors = np.repeat(np.arange(len(sizes)) // n_actions, sizes)
    successors[real] = build_situations(space, pairs, {}).successor
    task = Task(
        len(space.states), n_actions, horizon or 1, np.concatenate([[0], np.cumsum(sizes)]),
        successors, reward_table(space.states, space.actions, reward), discount=discount,
        states=list(space.states), actions=list(space.actions),
    )  # fmt: skip
    steps, offsets = [], []
    for fixed in per_step:
        cells = {c: np.repeat(array_of([x]), len(pairs)) for c, x in fixed.items()}
        of = build_situations(space, pairs, cells)
        x, offset = log.design.rows(expand(space, of, lambda name: True))
        rows, logits = np.zeros((task.n_triples, x.shape[1])), np.zeros(task.n_triples)
        rows[real], logits[real] = x, offset
        steps.append(Features(task, rows, names=log.design.names))
        offsets.append(logits)
    key = np.repeat(np.arange(len(sizes)), sizes) * task.n_states + task.successors
    counts, (keys, weight) = np.zeros(task.n_triples), log.triple_counts()
    counts[np.searchsorted(key, keys)] = weight
    return replace(
        model, task=task, steps=tuple(steps), offsets=tuple(offsets), counts=counts, values=values
    )


def values_by_step(
    log: FittedLog, values: dict[str, Any], horizon: int | None
) -> list[dict[str, Any]]:
    """Return the values of the covariates: one set for all steps, or one for each step.

    Where coefficients differ by step, the steps of the log are added to the values.
    """
    step, needed = log.design.per_step, list(log.situations.covariates)
    if step is not None and step not in values:
        steps = np.unique(log.situations.covariates[step]).tolist()
        if horizon is None:
            raise ValueError(f"the coefficients differ by {step!r}; with an infinite horizon `at` "
                             "must name one")  # fmt: skip
        if horizon > len(steps):
            raise ValueError(f"horizon is {horizon}; the log has {len(steps)} steps, so it must be "
                             f"at most that, or `at` must say which {step!r} to take for each "
                             "step")  # fmt: skip
        values[step] = steps[:horizon]
    for name in values:
        if name not in needed:
            raise ValueError(f"at names {name!r}; the covariates of the model are {listed(needed)}")
    for name in needed:
        if name not in values:
            raise ValueError(f"at lacks {name!r}; the model needs a value, or one for each step")
    changing = {c: x for c, x in values.items() if isinstance(x, list | tuple | np.ndarray)}
    n = 1 if horizon is None else positive_integer("horizon", horizon)
    for name, given in changing.items():
        if len(given) != n:
            raise ValueError(f"at[{name!r}] has {len(given)} values; there must be one, or {n}, "
                             "one for each step")  # fmt: skip
    sets = range(n if changing else 1)
    return [{c: values[c][h] if c in changing else values[c] for c in needed} for h in sets]


def reward_table(states: Sequence[Any], actions: Sequence[Any], reward: Any) -> Any:
    """Return rewards as an array, from a function (state, action), {state: number} or an array."""
    if isinstance(reward, Mapping):
        for name in reward:
            if name not in states:
                raise ValueError(f"reward names {name!r}; the states are {listed(states)}")
        of_state = np.array([reward.get(s, 0.0) for s in states], np.float64)
        return np.repeat(of_state[:, None], len(actions), axis=1)
    if not callable(reward):
        return reward
    table: Any = [[reward(s, a) for a in actions] for s in states]
    return np.array(table, np.float64)
