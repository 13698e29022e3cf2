"""A fitted MNL transition model: its coefficients and tests, and the task that it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array, check_kinds, format_value, is_hashable, positive_integer
from upriver.display import Card, add_repr
from upriver.display.card import format_brief
from upriver.features import Features
from upriver.logs import effects
from upriver.logs.behaviour import Behaviour, covariate_factors, fit_behaviour
from upriver.logs.design import Design
from upriver.logs.goodness import Cells, GoodnessOfFit, goodness_of_fit
from upriver.logs.population import History, Population, read_population
from upriver.logs.rewards import (
    Outcome,
    RewardEstimates,
    RewardRows,
    is_outcomes,
    parse_reward,
    tabulate,
)  # fmt: skip
from upriver.logs.situations import Situations, StateSpace, build_situations, expand
from upriver.logs.tables import array_of, listed, value_or_list
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.building import from_model, read_start
from upriver.mdp.names import Names
from upriver.mdp.validation import check_discount, check_size
from upriver.mnl.choices import Choices, softmax
from upriver.mnl.fitted import Estimates, FittedMNL, pair_table, wrap_lines

MAX_NUMBERS = 200_000_000  # of the features of all segments
NO_REWARDS = {"reward": None, "next_state_reward": None, "reward_range": None}  # of a task


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class FittedLog:
    """What a formula was fitted to: the situations of a log."""

    space: StateSpace
    design: Design
    situations: Situations
    data: Choices  # The choice data: rows and counts of the distinct situations
    chosen: Array  # (m,) the row of the choice data that each set of equal rows of the log chose
    weights: Array  # (m,) the weight of each set of equal rows
    cluster: Array | None  # (m,) the cluster of each set of equal rows
    n_rows: int
    reward: Any  # What `fit_transitions` was given
    clusters: Sequence[Any] = ()  # The name of each cluster
    rewards: RewardEstimates | None = None  # The rewards that come from columns
    weight_column: str | None = None  # Where the weights come from a column
    source: str = "a frame"  # The name of the file
    notes: tuple[str, ...] = ()  # What a reader should know, in sentences

    def cluster_scores(self, theta: Array) -> Array:
        """Return (C, d) the sums of the scores of the rows of each cluster."""
        assert self.cluster is not None
        return self.data.cluster_scores(theta, self.cluster, self.chosen, self.weights)

    def outcomes(self) -> dict[str, Any]:
        """Return {name: reward} of all outcomes; one that was estimated has its own name."""
        fitted = {} if self.rewards is None else {name: name for name in self.rewards.outcomes}
        return {**(self.reward if is_outcomes(self.reward) else {}), **fitted}

    @cached_property
    def behaviour(self) -> Behaviour:
        """The model of the actions given the state and the covariates."""
        return self.model_actions(self.data.visits)

    def model_actions(self, visits: Array) -> Behaviour:
        """Return the model of the actions, fitted to the weights (G,) of the situations."""
        space, of = self.space, self.situations
        others = [*space.columns, *space.attributes]
        factors = covariate_factors(self.design.recipe.factors, of.covariates, others)
        exists = (space.sizes > 0).reshape(len(space.states), -1)
        exists[~exists.any(axis=1)] = True  # a state that the log never left stays where it is
        return fit_behaviour(factors, of.covariates, of.pair, visits, exists, space.states)

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

    Its estimates have the names that statsmodels gives them. `plan_from_model`, `policy_value`,
    `compare_policies`, `check_policy_value` and `decide` take it, for its `population`: the
    individuals of the log, with the covariates that each of them has. `model.at(sex="f")` is the
    model for some of them, `model.at(population=frame)` for others.
    """

    fitted: FittedMNL
    log: FittedLog
    task: Any = None
    """The `Task`: states, actions, rewards, horizon; None as long as covariates have no values."""
    steps: tuple[Features, ...] = ()  #: The features: one for all steps, or one for each.
    counts: Array = field(default_factory=lambda: np.empty(0))
    """(n,) the weight of each triple of the task in the log, whatever its covariates."""
    values: Mapping[str, Any] = field(default_factory=dict)  #: The values of the covariates.
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The number of rows that were left out, by the column that has the gap."""
    setting: tuple[int | None, float | None, Any] = (None, None, None)
    """The horizon, the discount and the reward that `fit_transitions` or `at` was given."""
    reward_rows: RewardRows | None = None
    """How the task's rewards depend on the coefficients that were estimated from columns."""
    segments: tuple[Mapping[str, Any], ...] = ()
    """The distinct values of covariates of the individuals, where they differ.

    The states of the task are then (values, state), segment by segment.
    """
    people: Any = None
    """All individuals of the log, or of `population=`; a sentence where it is not known."""
    history: History | None = None  #: The rows of the individuals, where they have a name.
    member: Array = field(default_factory=lambda: np.empty((2, 0), np.int64))
    """(2, n) individuals of `people` that have the values of covariates, and their segments."""
    joint: Array | None = None  #: (S,) the shares of the first states of the task.
    first: Any = None  #: The first state, or {state: probability}, that `at` was given.

    # What was estimated.

    @property
    def theta(self) -> Array:
        """(d,) the estimate (3), without names."""
        return self.fitted.theta

    @property
    def terms(self) -> list[str]:
        """The term of the formula that each coefficient belongs to."""
        return self.log.design.terms

    @check_kinds
    def with_errors(self, kind: str) -> TransitionModel:
        """Return the model with "classical", "robust" or "cluster" standard errors."""
        return replace(self, fitted=self.fitted.with_errors(kind))

    def card(self) -> Card:
        card = self.fitted.card()
        sizes = {"states": len(self.log.space.states), "actions": len(self.log.space.actions)}
        at = "".join(f", {name} {format_brief(value)}" for name, value in self.values.items())
        words = self.log.design.formula + at
        return card._replace(of=words, facts={**card.facts, **sizes})

    @check_kinds
    def summary(self, limit: int = 40) -> str:
        """Return what was fitted to which log, and the first `limit` coefficients, as text."""
        log = self.log
        single = int((np.diff(log.data.indptr) == 1).sum())
        lines = [
            f"transitions ~ {log.design.formula}",
            f"{log.n_rows} rows, {len(log.data.visits)} distinct situations, {len(log.data.x)} "
            f"candidates; {len(log.space.states)} states, {len(log.space.actions)} actions",
            f"reachable states: {log.space.rule}"
            + (f"; {single} of the situations with only one" if single else ""),
        ]
        if log.design.dropped:
            lines.append(f"reference (no coefficient): {listed(log.design.dropped, 6)}")
        lines += [] if log.rewards is None else log.rewards.summary()
        lines += log.notes
        if self.dropped:
            gaps = ", ".join(f"{n} without {c!r}" for c, n in self.dropped.items())
            lines.append(f"rows left out: {gaps}")
        return "\n".join([*wrap_lines(lines), self.fitted.summary(limit)])

    # Tests of the model.

    def cells(self) -> Cells:
        """Return the situations that have a choice, and the cells (s, a, s') of their rows."""
        space, data, of = self.log.space, self.log.data, self.log.situations
        sizes, n_states = np.diff(of.indptr), len(space.states)
        some = (sizes > 1) & (data.visits > 0)
        rows = np.flatnonzero(np.repeat(some, sizes))
        pair = np.repeat(of.pair, sizes)[rows]
        key, cell = np.unique(pair * n_states + of.successor[rows], return_inverse=True)
        pairs, of_cell = np.unique(key // n_states, return_inverse=True)
        indptr, x = np.concatenate([[0], np.cumsum(sizes[some])]), data.x[rows]
        return Cells(
            Choices(indptr, x, data.counts[rows], data.visits[some], 0.0),
            data.probabilities(self.theta)[rows], cell, of_cell,
            names=[space.names(g) for g in pairs.tolist()],
        )  # fmt: skip

    @check_kinds
    def goodness_of_fit(self, replicates: int = 999, seed: int = 0) -> GoodnessOfFit:
        """Return Pearson's test of what happened from each (state, action), over all covariates.

        The p-values are shares of `replicates` logs drawn from the fitted model (a parametric
        bootstrap), so they hold for sparse logs too. Raises ValueError for clustered errors, since
        rows of drawn logs are independent.
        """
        return goodness_of_fit(self.cells(), self.fitted, replicates, seed)

    def comparable(self) -> tuple[Any, ...]:
        """Return what `likelihood_ratio` compares: the names, the triples and their weights."""
        space = self.log.space
        return (list(space.states), list(space.actions)), *self.log.triple_counts()

    likelihood_ratio = effects.likelihood_ratio
    wald = effects.wald
    predict = effects.predict

    @check_kinds
    def transitions(
        self, state: Any, action: Any, confidence: float = 0.95, step: int = 0
    ) -> list[dict[str, Any]]:
        """Return the probability of each next state of a pair, with intervals."""
        if self.task is None:
            needed = ", ".join(f"{c}=..." for c in self.log.situations.covariates)
            raise ValueError("the model has covariates; fix their values first: "
                             f"model.at({needed})")  # fmt: skip
        h = min(step, len(self.steps) - 1)
        return pair_table(self.steps[h], self.prob[h], self.fitted, state, action, confidence)

    def plot(self, state: Any = None, action: Any = None, step: int = 0) -> Any:
        """Return a figure of the coefficients; of a pair, of its next states."""
        from upriver.display import figures

        if state is None and action is None:
            return self.fitted.plot()
        return figures.plot_probabilities(self.transitions(state, action, step=step), state, action)

    # The task that the model makes.

    @cached_property
    def prob(self) -> Array:
        """(1 | H, n) the estimated probability of every triple of the task."""
        each = [softmax(x.task.indptr, np.asarray(x.matrix @ self.theta)) for x in self.steps]
        return np.array(each)

    @check_kinds
    def at(
        self, values: Mapping[str, Any] | None = None, /, *, horizon: int | None = None,
        discount: float | None = None, reward: Any = None, start: Any = None,
        population: Any = None, **covariates: Any,
    ) -> TransitionModel:  # fmt: skip
        """Return the model for some individuals, a horizon and a reward.

        Parameters
        ----------
        values, **covariates
            The value of a covariate, by name or in a mapping; or a sequence of `horizon` values
            where it changes with the step. The population is then that of the individuals who have
            these values at their start, or all individuals where nobody has. Covariates without a
            value are those of each individual: values of policies are means over individuals, and a
            plan depends on the covariates.
        horizon
            Steps of an episode; None for an infinite horizon. Of horizon and discount the model
            keeps its own only if neither is given.
        discount
            What a reward of the next step counts, with a horizon or without; with an infinite
            horizon 1 stands for the average reward per step. None: all steps count alike.
        reward
            A function of (state, action) or (state, action, next state); {state: number} or
            {(state, action): number} with 0 for others; an array (S, A) or (H, S, A); an outcome of
            `fit_transitions` by name, or a weighted sum of outcomes, {"qaly": 30_000, "cost": -1}.
            What `fit_transitions` was given unless another is given.
        start
            The first state of everybody, or {state: probability}, instead of each one's own.
        population
            A table with a row for each individual: the columns of the state and of the covariates,
            and that of the weights, if the log has one. It replaces the individuals of the log.
        """
        given = {**self.values, **(values or {}), **covariates}
        start = self.first if start is None else start
        if population is not None:
            if not isinstance(population, Population):
                log, names = self.log, list(self.log.situations.covariates)
                population = read_population(
                    population, log.space.states, log.space.columns[0], names, log.weight_column,
                    list(given), start,
                )  # fmt: skip
            self = replace(self, people=population, history=None)
        if horizon is None and discount is None:
            horizon, discount, _ = self.setting
        reward = self.setting[2] if reward is None else reward
        return at_values(replace(self, first=start), given, horizon, discount, reward)

    @property
    def state_names(self) -> Names:
        """The names of the states, without covariates."""
        return Names("state", len(self.log.space.states), self.log.space.states)

    @property
    def population(self) -> Population:
        """The individuals that values of policies are means over, for the covariates of `at`."""
        return self.selection[0]

    @cached_property
    def selection(self) -> tuple[Population, Array]:
        """The individuals who have the values of the covariates, and their numbers in `people`."""
        if isinstance(self.people, str):
            raise ValueError(self.people)
        return self.people.having(self.values)

    def locate(self, segments: list[dict[str, Any]], of: Array) -> dict[str, Any]:
        """Return `member` and `joint` of a model with these segments; of (n,): the segment of each.

        No `joint` means that the log does not say where individuals start.
        """
        n_states, first = self.state_names.size, None
        if self.first is not None:
            at, chance = read_start(self.state_names, self.first)
            first = np.bincount(at, chance, minlength=n_states)
        if isinstance(self.people, str):
            return {"joint": first}
        people, chosen = self.selection
        of = np.resize(of, len(chosen))
        joint = np.zeros((len(segments), n_states))
        np.add.at(joint, (of, people.start), people.weight)
        if first is not None:
            joint = np.outer(joint.sum(axis=1), first)
        return {"joint": (joint / joint.sum()).ravel(), "member": np.stack([chosen, of])}

    @property
    def start(self) -> Array:
        """(S,) the probabilities of the first states of the task."""
        joint = for_population(self).joint
        if joint is None:
            raise ValueError(self.people)
        return joint

    @property
    def behaviour(self) -> Behaviour:
        """What was done: a model of the actions given the state and the covariates."""
        return self.log.behaviour

    @cached_property
    def behaviour_columns(self) -> Array:
        """(1 | H, n, k) what the model of the actions has of covariates, in each segment."""
        found = []
        for sets in self.values_by_step():
            cells = {c: array_of([x[c] for x in sets]) for c in sets[0]}
            found.append(self.behaviour.columns(cells, len(sets)))
        return np.stack(found)

    @cached_property
    def segment_task(self) -> Task:
        """The task of one segment, without rewards; the whole task where there are none."""
        if not self.segments:
            return self.task
        whole, n = self.task, len(self.segments)
        n_pairs, n_triples = len(whole.sizes) // n, whole.n_triples // n
        return replace(
            whole, n_states=whole.n_states // n, indptr=whole.indptr[: n_pairs + 1],
            successors=whole.successors[:n_triples], **NO_REWARDS,
            states=list(self.log.space.states),
        )  # fmt: skip

    def values_by_step(self) -> list[tuple[dict[str, Any], ...]]:
        """Return the values of covariates: of all steps, or of each, those of every segment."""
        needed = list(self.log.situations.covariates)
        sets = [{**self.values, **x} for x in self.segments] or [self.values]
        values, horizon = sets[0], self.setting[0]
        unknown, lacking = set(values) - set(needed), [c for c in needed if c not in values]
        if unknown:
            known = f"the covariates of the model are {listed(needed) or '(none)'}"
            raise ValueError(f"at names {listed(unknown)}; {known}")
        if lacking:
            raise ValueError(f"at lacks {lacking[0]!r}; it needs a value, or one for each step")
        changing = {c: x for c, x in values.items() if isinstance(x, list)}
        for name, given in values.items():
            if not all(is_hashable(x) for x in changing.get(name, [given])):
                raise ValueError(f"at[{name!r}] is {format_value(given)}; it must be one value, or "
                                 "one for each step")  # fmt: skip
        n = 1 if horizon is None else positive_integer("horizon", horizon)
        for name, given in changing.items():
            if len(given) != n:
                raise ValueError(f"at[{name!r}] has {len(given)} values; there must be one, or "
                                 f"{n}, one for each step")  # fmt: skip
        return [
            tuple({c: x[c][h] if c in changing else x[c] for c in needed} for x in sets)
            for h in range(n if changing else 1)
        ]

    def step_situations(self, least: int = 1) -> Iterator[Situations]:
        """Yield the pairs of all segments as situations: for all steps, or for each.

        least: the number of next states that a pair must have.
        """
        pairs = np.flatnonzero(self.log.space.sizes >= least)
        for sets in self.values_by_step():
            cells = {c: np.repeat(array_of([x[c] for x in sets]), len(pairs)) for c in sets[0]}
            yield build_situations(self.log.space, np.tile(pairs, len(sets)), cells)

    def reward_columns(self, weights: Mapping[str, float]) -> tuple[Any, ...]:
        """Return (n, R) sparse, of each step: how rewards depend on what was estimated."""
        log, task = self.log, self.task
        assert log.rewards is not None
        # states that the log never left have triples in the task and none in the log
        exists = np.resize(log.space.sizes > 0, len(task.sizes))
        real = np.flatnonzero(np.repeat(exists, task.sizes))
        entries = np.ones(len(real)), (real, np.arange(len(real)))
        place = sparse.csr_array(entries, (task.n_triples, len(real)))

        def columns(name: str, outcome: Outcome, of: Situations) -> Any:
            weight = weights.get(name, 0.0)
            if weight == 0.0:  # the log need not say what other outcomes are
                return sparse.csr_array((len(real), len(outcome.coefficients)))
            return sparse.csr_array(weight * outcome.columns(log.space, of))

        each = log.rewards.outcomes.items()
        return tuple(
            place @ sparse.hstack([columns(name, x, of) for name, x in each])
            for of in self.step_situations()
        )

    def to_mdp(self) -> FiniteMDP:
        """Return the MDP of the estimated probabilities, in which episodes start as individuals."""
        model = for_population(self)
        names, start = model.task.state_names, model.start
        first = {names[s]: float(start[s]) for s in np.flatnonzero(start)}
        return from_model(model.task, model.prob, start=first)


def for_population(model: Any) -> TransitionModel:
    """Return a model that has a task: for its population, unless `at` has named another."""
    if not isinstance(model, TransitionModel):
        raise TypeError(f"model is a {type(model).__name__}; it must come from fit_transitions")
    return model.at() if model.task is None else model


def task_discount(horizon: int | None, discount: float | None) -> float | None:
    """Return the discount of a task: None with a horizon, 1 for the average reward."""
    if horizon is not None:
        return None
    return 1.0 if discount == 1.0 and discount is not True else check_discount(None, discount)


def with_reward(model: TransitionModel, reward: Any) -> TransitionModel:
    """Return a model with other rewards."""
    log, (horizon, discount, _) = model.log, model.setting
    task = replace(model.task, discount=task_discount(horizon, discount), **NO_REWARDS)
    model = replace(model, task=task, setting=(horizon, discount, reward), reward_rows=None)
    if reward is None:
        return model
    discounts = discount_factors(horizon, discount)
    weights, given = combine_outcomes(log, reward)
    table, pay, rows = np.zeros((1, task.n_states, task.n_actions)), np.zeros((1, 1)), None
    for known, weight in given:
        code = getattr(known, "__code__", None)
        for name in code.co_varnames[2 : code.co_argcount] if code else ():
            if name in log.situations.covariates:
                raise ValueError(f"reward is a function of the covariate {name!r}; a column of "
                                 f"the log may depend on it: 'cost ~ state + {name}'")  # fmt: skip
        n_segments = max(len(model.segments), 1)
        of_pairs, of_triples = tabulate(task, known, n_segments, log.space.states)
        table = table + weight * of_pairs
        pay = pay if of_triples is None else pay + weight * of_triples
    if weights:
        assert log.rewards is not None
        rows = RewardRows(model.reward_columns(weights), discounts)
        found = np.array([np.asarray(x @ log.rewards.coefficients) for x in rows.columns])
        mean = task.by_pair(found) / np.maximum(task.sizes, 1)
        if np.allclose(np.repeat(mean, task.sizes, axis=1), found, rtol=1e-12, atol=0.0):
            table = table + mean.reshape(-1, *table.shape[1:])  # a reward of pairs
        else:
            pay = pay + found
    # rewards count what they are worth, seen from the first step
    table, pay = table * discounts[:, None, None], pay * discounts[:, None]
    table = table[0] if len(table) == 1 else table
    more = pay if pay.any() else None
    task = replace(task, reward=table, next_state_reward=more, reward_range=None)
    return replace(model, task=task, reward_rows=rows)


def discount_factors(horizon: int | None, discount: float | None) -> Array:
    """Return (1 | H,) what a reward of each step counts; an infinite horizon discounts itself."""
    if horizon is None or discount is None:
        return np.ones(1)
    if isinstance(discount, bool) or not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount is {discount!r}; it must be at least 0 and at most 1")
    return np.ones(1) if discount == 1.0 else float(discount) ** np.arange(horizon)


def combine_outcomes(
    log: FittedLog, reward: Any
) -> tuple[dict[str, float], list[tuple[Any, float]]]:
    """Return the weights of estimated outcomes, and rewards that are given with their weights."""
    outcomes = log.outcomes()
    if isinstance(reward, str):
        name, formula = parse_reward(reward, list(outcomes))
        made = None if log.rewards is None else log.rewards.outcomes.get(name)
        if name not in outcomes or formula not in (None, made and made.source.formula):
            known = listed(outcomes) if outcomes else "none: name a column in fit_transitions"
            raise ValueError(f"reward is {reward!r}; the outcomes of the model are {known}")
        parts = {name: 1.0}
    elif is_outcomes(reward):
        raise ValueError(f"reward names the outcomes {listed(reward)}; name one, or give each a "
                         "weight, or value them with policy_value(..., rewards=...)")  # fmt: skip
    elif isinstance(reward, Mapping) and outcomes and set(reward) <= set(outcomes):
        # one name that is not a state says that all are outcomes
        if reward and set(reward) <= set(log.space.states):
            raise ValueError(f"reward names {next(iter(reward))!r}, which is a state and an "
                             "outcome of a column; rename one of them")  # fmt: skip
        parts = dict(reward)
    else:
        return {}, [(reward, 1.0)]
    weights, given = {}, []
    for name, weight in parts.items():
        if isinstance(outcomes[name], str):
            weights[name] = float(weight)
        else:
            given.append((outcomes[name], float(weight)))
    return weights, given


def at_values(
    model: TransitionModel, values: dict[str, Any], horizon: int | None,
    discount: float | None, reward: Any,
) -> TransitionModel:  # fmt: skip
    """Return a model of a formula at fixed covariates, or for individuals who have their own."""
    log = model.log
    values = {c: value_or_list(x) for c, x in values.items()}
    space, n_actions = log.space, len(log.space.actions)
    model = replace(model, values=values, setting=(horizon, discount, reward), segments=())
    segments, of = [{}], np.zeros(1, np.int64)
    free = [c for c in log.situations.covariates if c not in values]
    if free:
        people = model.population
        changing = [c for c in free if c in people.paths]
        if changing and horizon is None:
            raise ValueError(
                f"{listed(changing)} changes with the step, and an infinite horizon "
                f"has no last one; give a horizon, or fix it: at({changing[0]}=...)"
            )
        segments, of = people.segments(free, horizon or 1)
    # a state that the log never left stays where it is
    stays = np.repeat(~(space.sizes > 0).reshape(-1, n_actions).any(axis=1), n_actions)
    sizes = np.where(stays, 1, space.sizes)
    successors = np.repeat(np.arange(len(sizes)) // n_actions, sizes)
    successors[np.repeat(~stays, sizes)] = space.successors
    n, n_states = len(segments), len(space.states)
    names: list[Any] = list(space.states)
    if n > 1:
        values_of = [[tuple(x) if isinstance(x, list) else x for x in s.values()] for s in segments]
        labels = [x[0] if len(x) == 1 else tuple(x) for x in values_of]
        names = [(label, state) for label in labels for state in names]
    first = np.repeat(np.arange(n) * n_states, len(successors))  # of the states of each segment
    changes = any(isinstance(x, list) for x in (*segments[0].values(), *values.values()))
    n_numbers = n * len(successors) * max(len(log.design.names), 1)
    check_size(n * n_states, n_numbers * (horizon or 1 if changes else 1), MAX_NUMBERS)
    task = Task(
        n * n_states, n_actions, horizon or 1, np.concatenate([[0], np.cumsum(np.tile(sizes, n))]),
        np.tile(successors, n) + first, None, states=names, actions=list(space.actions),
        discount=task_discount(horizon, discount),
    )  # fmt: skip
    key = np.repeat(np.arange(len(sizes)), sizes) * n_states + successors
    counts, (keys, weight) = np.zeros(len(key)), log.triple_counts()
    counts[np.searchsorted(key, keys)] = weight
    made = replace(
        model, task=task, counts=np.tile(counts, n), segments=tuple(segments) if n > 1 else (),
        values=values if n > 1 else {**values, **segments[0]}, **model.locate(segments, of),
    )  # fmt: skip
    steps = []
    # the only next state of a pair follows whatever its features are, so they may be unknown
    choice = np.tile(np.repeat(sizes > 1, sizes), n)
    for of in made.step_situations(least=2):
        rows = np.zeros((len(choice), len(log.design.names)))
        if choice.any():
            rows[choice] = log.design.rows(expand(space, of, lambda name: True))
        steps.append(Features(task, rows, names=log.design.names))
    return with_reward(replace(made, steps=tuple(steps)), reward)
