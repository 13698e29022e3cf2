"""Transition models from a data frame: a formula, covariates, standard errors that hold.

model = fit_transitions("action:jump + age:worse", frame, states=moves, cluster="patient")
print(model.summary())
model.predict(new_rows)
mdp = model.to_mdp(reward=pays, horizon=20, at={"age": 60})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from upriver.checks import Array, nonnegative_number
from upriver.display import Card, displayed
from upriver.logs import decisions, effects
from upriver.logs.columns import Formula, by_step, mentions
from upriver.logs.design import Design, build_design
from upriver.logs.expansion import Situations, World, build_world, distinct, situations
from upriver.logs.fit import LikelihoodRatio
from upriver.logs.frames import Read, coded, read_frame, take
from upriver.logs.goodness import Cells, GoodnessOfFit, goodness_of_fit
from upriver.logs.pooling import best_deviation, penalised
from upriver.logs.reading import COLUMNS, Log, checked_weights, listed
from upriver.mnl.choices import Choices
from upriver.mnl.fit import fit_dense
from upriver.mnl.fitted import FittedMNL
from upriver.mnl.pooled import TripleEffects


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class TransitionModel:
    """An MNL transition model with covariates, fitted to a data frame."""

    world: World
    design: Design
    situations: Situations
    data: Choices
    """The choice data: rows, offset and counts of the distinct situations."""
    fitted: FittedMNL
    chosen: Array
    """(m,) the row of the choice data that each row of the frame chose."""
    weights: Array
    """(m,) how often each row of the frame counts."""
    cluster: Array | None
    """(m,) the cluster of each row of the frame."""
    per_step: str | None
    """The column of the step, where every step has coefficients of its own."""

    def card(self) -> Card:
        sizes = {"states": len(self.world.states), "actions": len(self.world.actions)}
        own = self.fitted.card()
        return own._replace(of=words_of(self.design.formula), facts={**own.facts, **sizes})

    @cached_property
    def probability(self) -> Array:
        """(n,) fitted probability of each candidate of each distinct situation."""
        return self.data.probabilities(self.fitted.theta)

    def with_errors(self, kind: str) -> TransitionModel:
        """The same model with "classical", "robust" or "cluster" standard errors."""
        return replace(self, fitted=self.fitted.with_errors(kind))

    def table(self) -> list[dict[str, Any]]:
        """One row per coefficient: name, estimate, standard_error, z, p_value, low, high."""
        return self.fitted.table()

    def to_pandas(self) -> Any:
        """The table of coefficients as a data frame."""
        return self.fitted.to_pandas()

    def plot(self) -> Any:
        """A figure of the coefficients with their intervals."""
        return self.fitted.plot()

    def summary(self, limit: int = 40) -> str:
        """What was fitted to what, and the coefficients (log-odds), the first `limit` of them."""
        n_single = int((np.diff(self.data.indptr) == 1).sum())
        lines = [
            f"transitions ~ {words_of(self.design.formula)}",
            f"{len(self.chosen)} rows, {len(self.data.visits)} distinct situations, "
            f"{len(self.data.x)} candidates; {len(self.world.states)} states, "
            f"{len(self.world.actions)} actions"
            + (f"; {self.fitted.n_clusters} clusters" if self.cluster is not None else ""),
            f"reachable states: {self.world.rule}"
            + (f"; {n_single} situations have only one" if n_single else ""),
        ]
        if self.design.dropped:
            lines.append(f"reference (no coefficient): {listed(self.design.dropped, 6)}")
        return "\n".join([*lines, self.fitted.summary(limit)])

    def goodness_of_fit(self, replicates: int = 999, seed: int = 0) -> GoodnessOfFit:
        """Pearson's test of what happened from each (state, action), over all covariates.

        The p-values are shares of logs drawn from the fitted model (a parametric bootstrap).
        """
        return goodness_of_fit(self.cells(), self.fitted, replicates, seed)

    def cells(self) -> Cells:
        """The situations that have a choice, and the cells (s, a, s') of their rows."""
        of, sizes = self.situations, np.diff(self.data.indptr)
        rows = np.repeat(sizes > 1, sizes)
        group = np.repeat(of.group, sizes)[rows]
        key, cell = np.unique(
            group * len(self.world.states) + of.successor[rows], return_inverse=True
        )
        groups, pair = np.unique(key // len(self.world.states), return_inverse=True)
        some = sizes[sizes > 1]
        return Cells(
            indptr=np.concatenate([[0], np.cumsum(some)]),
            matrix=self.data.x[:][rows],
            counts=self.data.counts[rows],
            probability=self.probability[rows],
            offset=0.0 if self.data.offset is None else self.data.offset[rows],
            cell=cell,
            pair=pair,
            names=[
                (self.world.states[g // len(self.world.actions)],
                 self.world.actions[g % len(self.world.actions)])
                for g in groups.tolist()
            ],
        )  # fmt: skip

    def likelihood_ratio(self, smaller: TransitionModel) -> LikelihoodRatio:
        """The test of a nested model: does it lose more than chance would explain?

        Both must be fitted to the same frame without penalty. Rows of one cluster that depend on
        each other make the test too sharp: then use `wald` with clustered errors.
        """
        effects.check_nested(self, smaller)
        degrees = len(self.fitted.theta) - len(smaller.fitted.theta)
        statistic = max(2.0 * (self.fitted.log_likelihood - smaller.fitted.log_likelihood), 0.0)
        return LikelihoodRatio(statistic, degrees, float(special.chdtrc(degrees, statistic)))

    def wald(self, names: str | Sequence[str]) -> LikelihoodRatio:
        """The test that the named coefficients or terms are all 0, with the model's errors."""
        return effects.wald(self, [names] if isinstance(names, str) else list(names))

    def predict(self, frame: Any, confidence: float = 0.95) -> Any:
        """Probabilities of every candidate for new rows, with delta-method intervals.

        A data frame with one row per row of `frame` and candidate: row, state, action, next_state,
        probability, standard_error, low, high. The interval is made on the scale of log-odds, so
        it lies between 0 and 1.
        """
        return effects.predict(self, frame, confidence)

    def marginal_effects(self, name: str, confidence: float = 0.95) -> Any:
        """Average marginal effects of a covariate, or of the action, on each next state.

        For numbers, the mean over the log of the derivative of the probability; for words, of
        the difference to the first word. A data frame: next_state, to, effect, standard_error,
        low, high.
        """
        return effects.marginal_effects(self, name, confidence)

    def residuals(self) -> Any:
        """Observed and expected transitions by (state, action, next_state), with Pearson's."""
        return effects.residuals(self)

    def calibration(self, bins: int = 10) -> Any:
        """Mean predicted probability against how often it came true, in `bins` of equal size."""
        return effects.calibration(self, bins)

    def plot_calibration(self, bins: int = 10) -> Any:
        """A figure of `calibration`."""
        return effects.plot_calibration(self.calibration(bins))

    def compare(self, *others: TransitionModel) -> Any:
        """Models side by side: coefficients with standard errors, log-likelihood, AIC, BIC."""
        return effects.compare((self, *others))

    def at(
        self,
        at: Any = None,
        *,
        horizon: int | None,
        reward: Any = None,
        discount: float | None = None,
    ) -> decisions.ModelAt:
        """The model at fixed covariates, for planning and valuing policies.

        at: {covariate: value}, or a sequence of `horizon` values where it changes with the step.
        horizon: None where there is no last step, with a discount or, without, for the average.
        reward: a function (state, action) -> number, or an array (S, A) or (H, S, A).
        """
        given = dict(at or {})
        if self.per_step is not None and self.per_step not in given:
            steps = steps_of(self.situations.covariates[self.per_step])
            if horizon is None:
                raise ValueError(
                    f"the coefficients differ by {self.per_step!r}, and without a last step `at` "
                    "must name one"
                )
            if horizon > len(steps):
                raise ValueError(
                    f"horizon is {horizon}; the log has {len(steps)} steps, so it must be at most "
                    f"that, or `at` must say which {self.per_step!r} to take for each step"
                )
            given[self.per_step] = steps[:horizon]
        return decisions.at(self, given, horizon, reward, discount)

    def task(self, at: Any = None, *, horizon: int | None, reward: Any = None) -> Any:
        """The `Task` of the model; see `at`."""
        return self.at(at, horizon=horizon, reward=reward).task

    def features(self, at: Any = None, *, horizon: int | None, reward: Any = None) -> Any:
        """The `Features` of the model at fixed covariates; see `at`."""
        return self.at(at, horizon=horizon, reward=reward).features

    def to_mdp(
        self, reward: Any, horizon: int | None, at: Any = None, start: Any = None,
        discount: float | None = None,
    ) -> Any:  # fmt: skip
        """The `FiniteMDP` that the estimate makes at fixed covariates; see `at`.

        start: the name of the first state, or {state: probability}; the first state unless given.
        """
        return self.at(at, horizon=horizon, reward=reward, discount=discount).to_mdp(start)

    mdp = to_mdp


def fit_transitions(
    formula: Formula,
    frame: Any,
    states: Any = None,
    successors: Any = None,
    columns: Sequence[str] = COLUMNS,
    cluster: str | None = None,
    weights: Any = None,
    regularization: float = 0.0,
    per_step: str | None = None,
    pooled: bool = False,
) -> TransitionModel:
    """Fit an MNL transition model, written as a formula, to a frame of transitions.

    frame: pandas, polars or pyarrow, a mapping of columns, or a .csv or .parquet file, with one row
    per transition: the `columns` state, action and next state, and covariates. Every row is
    expanded to the next states that could have been, and the formula is evaluated there; it may
    use the three columns, covariates, and attributes of states from the table `states`: under
    their names those of the state, with the suffix `_next` those of the candidate. A table with
    both a state and a next-state column holds attributes of moves; several tables go in a list.

    formula: in the language of formulaic, with offset(...) for a fixed coefficient of 1; or a list
    of columns; or a function from the expanded columns to columns. What is the same for every
    candidate has no effect and must be interacted.

    successors: which next states could have been. None: those seen from that (state, action);
    "state": those seen from that state; "all"; a function (state, action) -> states; or a table of
    the three columns. cluster: the column of the individual, whose rows may depend on each other:
    standard errors are then those of the sandwich by cluster. weights: how often each row counts,
    a column or an array. per_step: the column of the step, for coefficients that differ from step
    to step. pooled: every triple gets an own effect, shrunk towards the formula as far as the data
    say (`fitted.triple_effects()`).
    """
    lam = nonnegative_number("regularization", regularization)
    used = mentions(formula)
    columns = tuple(columns)

    def wanted(name: str) -> bool:
        return used(name) or name == per_step

    spare = {*columns, cluster, weights if isinstance(weights, str) else None}
    read = read_frame(frame, wanted=lambda name: wanted(name) or name in spare)
    world, s, a, s2 = build_world(read, columns, states, successors, wanted)
    clash = [c for c in read.names if c in world.attributes or c in world.moves]
    if clash:
        raise ValueError(f"column {clash[0]!r} is in the frame and in states; rename one of them")
    if per_step is not None:
        formula = by_step(formula, per_step, steps_of(take(read, per_step)))
    named = {c for c in read.names if wanted(c) and (c not in spare or not callable(formula))}
    covariates = {c: take(read, c) for c in read.names if c in named and c not in columns}
    of_row = None if cluster is None else coded(read, cluster)[0]
    group = s * len(world.actions) + a
    first, situation = distinct(group, covariates)
    of = situations(world, group[first], {c: cells[first] for c, cells in covariates.items()})
    chosen = of.indptr[situation] + place_of(read, world, group, s2)
    times = checked_weights(Log([], weight_column(read, weights), read.source), len(group))
    counts = np.bincount(chosen, times, minlength=len(of.successor))
    visits = np.add.reduceat(counts, of.indptr[:-1])
    design, x, offset = build_design(formula, world, of, wanted, visits, lam == 0.0, pooled)
    data, own = Choices(of.indptr, x, counts, visits, lam, offset), None
    if design.own:
        data, own = pool(data, design, world, of)
    if of_row is not None and int(of_row.max()) < 1:
        raise ValueError(f"column {cluster!r} has one cluster; clustered errors need at least 2")
    fitted = replace(fit_dense(data, design.names, chosen, times, of_row), effects=own)
    return TransitionModel(world, design, of, data, fitted, chosen, times, of_row, per_step)


def steps_of(cells: Array) -> list[Any]:
    """The steps of a log, in order."""
    return np.unique(cells).tolist()


def pool(data: Choices, design: Design, world: World, of: Situations) -> tuple[Choices, TripleEffects]:
    """The data with the ridge that own effects have, and what they are."""
    deviation = best_deviation(data, len(design.own))
    visits = np.bincount(of.group, data.visits, len(world.sizes))
    group = [
        world.states.index(s) * len(world.actions) + world.actions.index(a)
        for s, a, _ in design.own
    ]
    own = TripleEffects(list(design.own), visits[group], deviation)
    return penalised(data, len(design.own), deviation**-2), own


def place_of(read: Read, world: World, group: Array, s2: Array) -> Array:
    """(m,) the place of each next state among the candidates of its pair."""
    n = len(world.states)
    declared = np.repeat(np.arange(len(world.sizes)), world.sizes) * n + world.successors
    wanted = group * n + s2
    row = np.minimum(np.searchsorted(declared, wanted), len(declared) - 1)
    outside = declared[row] != wanted
    if outside.any():
        i = int(np.argmax(outside))
        g = int(group[i])
        known = world.successors[world.indptr[g] : world.indptr[g + 1]]
        raise ValueError(
            f"{read.place(i)} goes from ({world.states[g // len(world.actions)]!r}, "
            f"{world.actions[g % len(world.actions)]!r}) to {world.states[s2[i]]!r}, which is not "
            f"among the declared successors {listed([world.states[j] for j in known])}"
        )
    return row - world.indptr[group]


def weight_column(read: Read, weights: Any) -> Any:
    return take(read, weights) if isinstance(weights, str) else weights


def words_of(formula: Formula) -> str:
    if isinstance(formula, str):
        return formula
    return getattr(formula, "__name__", "a function") if callable(formula) else " + ".join(formula)
