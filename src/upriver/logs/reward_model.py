"""Rewards from choices: fit a dynamic logit model to a log of states and actions (Rust 1987).

model = fit_rewards("replaced + cost", frame, transitions=mdp, discount=0.9999, states=table)
print(model.summary())
model.what_if(replaced=-8.0).predict()

`logs.dynamic_choice` has the likelihood. The same estimate is known as inverse reinforcement
learning with maximum causal entropy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from upriver.checks import Array, check_choice, check_kinds, finite_number, format_value
from upriver.display import Card, add_repr
from upriver.logs import effects, situations
from upriver.logs.design import select_identified
from upriver.logs.dynamic_choice import (
    DynamicLogit,
    Evaluation,
    Objective,
    maximize_likelihood,
    sum_parts,
)
from upriver.logs.formula import Columns, Recipe, check_words, mentions, parse_recipe, words_of
from upriver.logs.model import TransitionModel
from upriver.logs.situations import Situations, StateSpace
from upriver.logs.tables import Rows, Table, array_of, listed, value_or_list
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.building import from_model
from upriver.mdp.validation import check_discount
from upriver.mnl.fitted import ERRORS, Estimates, FittedMNL, log_odds_intervals, wrap_lines
from upriver.planning.stationary import StationaryPlan
from upriver.play.policy import Policy

VANISHED = 1e-9  # share of its first information at which a coefficient is on its way to infinity
REASONS = (
    "does not change any choice: it adds the same to all that can be chosen; let it differ "
    "between actions",
    "leave one of them out (of the rewards of all actions, one is the reference)",
    "it must differ between actions",
)


@dataclass(frozen=True, eq=False, repr=False)
class FittedRewards(FittedMNL):
    """The coefficients of rewards, with the covariance that was asked for."""

    matrix: Any = None  # (d, d)

    @cached_property
    def covariance(self) -> Any:
        return self.matrix


@add_repr
class ChoiceLog(NamedTuple):
    """What rewards were fitted to: the choices of a log, and who is taken to have made them."""

    formula: str
    recipe: Recipe
    keep: Array  # The columns of the formula that are estimated
    references: list[str]  # Columns that are combinations of others: reference categories
    space: StateSpace
    used: frozenset[str]  # The columns and attributes that the formula uses
    transitions: Any  # The MDP or the transition model
    discount: float
    covariates: Mapping[str, Array]  # (T,) each: the distinct sets of covariates
    problems: list[DynamicLogit]  # One for each set of covariates
    members: Any  # (C, sets * S*A) sparse: how often each cluster chose each pair
    clusters: Sequence[Any]  # The name of each cluster; none without clusters
    n_rows: int
    dropped: Mapping[str, int]  # The number of rows that were left out, by the column with the gap

    @property
    def task(self) -> Task:
        return self.problems[0].task


def expand_choices(
    space: StateSpace, task: Task, used: frozenset[str], covariates: Columns
) -> Columns:
    """Return a table of all states and actions, for each set of covariates."""
    n_sets = len(next(iter(covariates.values()))) if covariates else 1
    pairs = np.flatnonzero(task.sizes)
    cells = {c: np.repeat(x, len(pairs)) for c, x in covariates.items()}
    n = n_sets * len(pairs)
    of = Situations(np.tile(pairs, n_sets), cells, np.arange(n + 1), np.zeros(n, np.int64))
    return situations.expand(space, of, used.__contains__)


def place_rows(task: Task, rows: Array) -> Array:
    """Return (T, S*A, j) the rows (n, j) of `expand_choices`, set by set."""
    pairs = np.flatnonzero(task.sizes)
    every = np.zeros((len(rows) // len(pairs), len(task.sizes), rows.shape[1]))
    every[:, pairs] = rows.reshape(len(every), len(pairs), -1)
    return every


def transitions_at(
    transitions: FiniteMDP | TransitionModel, discount: float, values: Mapping[str, Any]
) -> tuple[Task, Array, Array | None]:
    """Return the task at values of the covariates, (n,) probabilities and (n, d) features."""
    if isinstance(transitions, FiniteMDP):
        task, prob, phi = transitions.task(), transitions.probability, None
    else:
        model = transitions
        model = model.at(values, discount=discount) if model.task is None else model
        task, prob, phi = model.task, model.prob, model.steps[0].matrix
        phi = np.array(phi.toarray() if sparse.issparse(phi) else phi)
    if len(prob) > 1:
        raise ValueError(f"the transitions change with the step and have {len(prob)} steps; "
                         "fit_rewards needs the same for all steps")  # fmt: skip
    return task, np.array(prob[0]), phi


def open_covariates(model: Any) -> list[str]:
    """Return the covariates of a transition model that have no values yet."""
    if isinstance(model, FiniteMDP) or model.task is not None:
        return []
    return list(model.log.situations.covariates)


@check_kinds
def fit_rewards(
    formula: str, frame: Any, transitions: FiniteMDP | TransitionModel,
    discount: float, *, states: Any = None, columns: Sequence[str] = ("state", "action"),
    cluster: str | None = None, weights: Any = None, missing: str = "refuse",
) -> RewardModel:  # fmt: skip
    """Fit the rewards that explain a log of choices, by maximum likelihood (Rust 1987).

    Whoever chose is taken to maximize the expected discounted sum of r(s, a) = psi(s, a)'w and of
    independent extreme-value shocks of scale 1, and to know the transitions. So the coefficients
    are in units of the shocks' scale. The discount is not estimated.

    Parameters
    ----------
    formula
        The reward, in the language of formulaic. It may use state, action, covariates, and
        attributes from `states`. Formulas are executed; use only formulas you trust.
    frame
        One row per choice, with the columns of state and action; the kinds of tables are those of
        `fit_transitions`. A covariate is a property of the decision maker: it is taken to last.
    transitions
        An MDP, whose rewards are not used, or a model from `fit_transitions`; then the standard
        errors have the error of its coefficients in them. Its covariates are read from the frame.
    discount
        In [0, 1). The horizon is infinite.
    states
        Tables of attributes of states, or of pairs of state and action.
    columns
        The columns of the state and the action.
    cluster
        The column of the individual: standard errors are then those of the sandwich by cluster.
        Where the transitions have the same clusters, both errors are taken together; without
        clusters here the transitions keep the errors by cluster that they were fitted with.
    weights, missing
        As in `fit_transitions`.

    Raises
    ------
    ValueError
        If a state or an action of the log is not one of the model, or if the choices do not
        identify a coefficient.
    """
    check_discount(None, discount)
    table = Table(frame)
    uses, needed = mentions(formula), open_covariates(transitions)
    names = [c for c in table.names if c not in columns and (uses(c) or c in needed)]
    names = list(dict.fromkeys([*names, *needed]))
    keys = [*columns, *names, *([] if cluster is None else [cluster])]
    rows = table.read(keys, weights, missing=missing, group=True)
    cells = {c: rows.values(c) for c in names}
    first, of_row = situations.find_distinct([*cells.values(), np.zeros(len(rows.weight))])
    covariates, n_sets = {c: x[first] for c, x in cells.items()}, int(of_row.max()) + 1
    sets = [{c: covariates[c][t] for c in needed} for t in range(n_sets)] if needed else [{}]
    known = [transitions_at(transitions, discount, x) for x in sets]
    known = known if needed else known * n_sets
    task = known[0][0]
    space, pair = number_choices(rows, columns, task)
    attributes = situations.read_attributes(states, space.columns, uses)
    space = situations.add_attributes(space, attributes)
    clash = [c for c in names if c in space.attributes]
    if clash:
        raise ValueError(f"column {clash[0]!r} is in the frame and in states; rename one of them")
    used = frozenset([*columns, *filter(uses, [*names, *space.attributes])])
    cells = of_row * len(task.sizes) + pair
    counts = np.bincount(cells, rows.weight, n_sets * len(task.sizes)).reshape(n_sets, -1)
    choices = expand_choices(space, task, used, covariates)
    recipe = parse_recipe(formula, choices, [*table.names, *space.attributes])
    psi = place_rows(task, recipe.rows(choices, np.arange(len(recipe.columns))))
    problems = [
        DynamicLogit(task, prob, x, n, discount)
        for (task, prob, _), x, n in zip(known, psi, counts, strict=True)
    ]
    keep, references = find_identified(recipe, problems)
    problems = [replace(p, features=p.features[:, keep]) for p in problems]
    null = sum_parts(problems, np.zeros(len(keep)))
    w, found, converged = maximize_likelihood(problems, np.zeros(len(keep)))
    scale = 1.0 / np.sqrt(np.diag(null.outer))
    least, directions = np.linalg.eigh(-found.hessian * np.outer(scale, scale))
    if not converged or least[0] < VANISHED:
        at = keep[int(np.argmax(np.abs(directions[:, 0])))]
        raise ValueError(f"the likelihood has no maximum: {recipe.columns[at].name!r} goes to "
                         "infinity, because it predicts choices perfectly")  # fmt: skip
    problems = [replace(p, phi=phi) for p, (_, _, phi) in zip(problems, known, strict=True)]
    beta = w if isinstance(transitions, FiniteMDP) else np.concatenate([w, transitions.theta])
    members, clusters = None, []
    if cluster is not None:
        number, clusters = rows.codes(cluster)
        members = sparse.csr_array((rows.weight, (number, cells)), (len(clusters), counts.size))
        if len(clusters) < 2:
            raise ValueError(f"column {cluster!r} has one cluster; clustered errors need at "
                             "least 2")  # fmt: skip
    log = ChoiceLog(
        formula, recipe, keep, references, space, used, transitions, discount, covariates,
        problems, members, clusters, rows.n_rows, rows.dropped,
    )  # fmt: skip
    errors = "classical" if cluster is None else "cluster"
    return RewardModel(log, sum_parts(problems, w), null.value, beta, beta, errors)


def number_choices(rows: Rows, columns: Sequence[str], task: Task) -> tuple[StateSpace, Array]:
    """Return the states and actions of a task, and (m,) the pair s * A + a of each row."""
    states = range(task.n_states) if task.states is None else list(task.states)
    actions = range(task.n_actions) if task.actions is None else list(task.actions)
    s = rows.numbers(columns[0], states, "state")
    a = rows.numbers(columns[1], actions, "action")
    missing = ~task.available[s, a]
    if missing.any():
        i = int(np.argmax(missing))
        state, action = states[int(s[i])], actions[int(a[i])]
        at = rows.table.place(dict(zip(columns, (state, action), strict=True)))
        allowed = listed(actions[j] for j in np.flatnonzero(task.available[s[i]]).tolist())
        raise ValueError(f"{at} has the action {action!r} in state {state!r}, which the model does "
                         f"not have there; it must be one of {allowed}")  # fmt: skip
    space = StateSpace(
        states, actions, (columns[0], columns[1], ""), {}, task.indptr, task.successors, ""
    )
    return space, s * task.n_actions + a


def find_identified(recipe: Recipe, problems: list[DynamicLogit]) -> tuple[Array, list[str]]:
    """Return the columns that choices can identify, and those that are reference categories.

    It is decided by the expected information where all rewards are 0: a column of zero information
    changes no choice, neither now nor through what follows.
    """
    d = len(recipe.columns)
    found = sum_parts(problems, np.zeros(d))
    gram, size, total = np.zeros((d, d)), np.zeros(d), 0.0
    for p, x in zip(problems, found.parts, strict=True):
        visits = p.counts.reshape(p.task.n_states, -1).sum(axis=1)
        weight = np.repeat(visits, p.task.n_actions) * x.probability
        gram += x.scores.T @ (weight[:, None] * x.scores)
        size, total = np.maximum(size, np.abs(p.features).max(axis=0)), total + visits.sum()
    varies = np.diag(gram) > 1e-18 * total * size**2
    return select_identified(recipe, gram, varies, True, REASONS)


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class RewardModel(Estimates):
    """The rewards behind a log of choices, fitted by `fit_rewards`.

    The estimates have the names that statsmodels gives them. A model with covariates has `policy`
    and `mdp` after `at` has fixed their values: `model.at(price=2.0)`.
    """

    log: ChoiceLog
    found: Objective  #: The likelihood of the choices at the estimate.
    null: float  #: The log-likelihood where all rewards are 0.
    estimate: Array  #: (k,) the estimates: rewards, then the coefficients of the transitions.
    beta: Array  #: (k,) the coefficients; those of `what_if` differ from the estimates.
    errors: str = "classical"  #: Which standard errors it has.
    values: Mapping[str, Any] = field(default_factory=dict)  #: The values of the covariates.

    # What was estimated.

    @property
    def n_rewards(self) -> int:
        """The number of coefficients of the reward."""
        return len(self.log.keep)

    @cached_property
    def covariance(self) -> Array:
        """(k, k) of `beta`; 0 for coefficients that `what_if` has fixed."""
        free = self.beta == self.estimate
        return estimate_covariance(self.log, self.found, self.errors) * np.outer(free, free)

    @cached_property
    def fitted(self) -> FittedMNL:  # pyright: ignore[reportIncompatibleVariableOverride]
        log, matrix = self.log, self.covariance[: self.n_rewards, : self.n_rewards]
        return FittedRewards(
            self.beta[: self.n_rewards], self.found.value, self.null,
            float(sum(p.counts.sum() for p in log.problems)), 0.0,
            [log.recipe.columns[j].name for j in log.keep], errors=self.errors,
            n_clusters=len(log.clusters), matrix=matrix,
        )  # fmt: skip

    @property
    def theta(self) -> Array:
        """The estimates without names."""
        return self.fitted.theta

    @property
    def terms(self) -> list[str]:
        """The term of the formula that each coefficient belongs to."""
        return [self.log.recipe.columns[j].term for j in self.log.keep]

    def with_errors(self, kind: str) -> RewardModel:
        """Return the model with "classical", "robust" or "cluster" standard errors."""
        check_choice("errors", kind, tuple(ERRORS))
        if kind == "cluster" and self.log.members is None:
            raise ValueError("errors is 'cluster'; the model was fitted without cluster=")
        return replace(self, errors=kind)

    def card(self) -> Card:
        card, log = self.fitted.card(), self.log
        sizes = {"states": log.task.n_states, "actions": log.task.n_actions}
        return card._replace(of=log.formula, facts={**card.facts, **sizes})

    def summary(self, limit: int = 40) -> str:
        """Return what was fitted to which log, and the first `limit` coefficients, as text."""
        log, fitted = self.log, self.fitted
        sets = f", {len(log.problems)} sets of covariates" if log.covariates else ""
        is_known = isinstance(log.transitions, FiniteMDP)
        lines = [
            f"reward ~ {log.formula}",
            f"{log.n_rows} rows{sets}; {log.task.n_states} states, {log.task.n_actions} actions, "
            f"discount {log.discount:g}",
            *([f"reference (no coefficient): {listed(log.references, 6)}"] * bool(log.references)),
            *([f"rows left out: {dict(log.dropped)}"] * bool(log.dropped)),
            f"dynamic logit: {fitted.n_observations:g} choices, {len(fitted.theta)} coefficients",
            f"log-likelihood {self.llf:.4f} ({self.null:.4f} with no rewards), AIC {self.aic:.1f}, "
            f"BIC {self.bic:.1f}",
            f"standard errors: {fitted.errors_text}; transitions: "
            + ("known" if is_known else "estimated before, with their error"),
        ]
        return "\n".join([*wrap_lines(lines), *self.coefficient_lines(limit)])

    def comparable(self) -> tuple[Any, Array, Array]:
        """Return what `likelihood_ratio` compares: names and settings, pairs, and their counts."""
        log = self.log
        names = list(log.space.states), list(log.space.actions)
        counts = sum(p.counts for p in log.problems)
        return (*names, log.discount), log.task.indptr, np.asarray(counts)

    likelihood_ratio = effects.likelihood_ratio
    wald = effects.wald

    # What follows from it.

    def at(self, values: Mapping[str, Any] | None = None, /, **covariates: Any) -> RewardModel:
        """Return the model at fixed covariates, one value each, by name or in a mapping."""
        given = {**self.values, **(values or {}), **covariates}
        for name, value in given.items():
            if name not in self.log.covariates:
                raise ValueError(f"at names {name!r}; the covariates of the model are "
                                 f"{listed(self.log.covariates)}")  # fmt: skip
            if not isinstance(value, tuple) and isinstance(value_or_list(value), list | Mapping):
                raise ValueError(f"at[{name!r}] is {format_value(value)}; it must be one value")
            check_words(name, array_of([value]), words_of(self.log.covariates[name]))
        return replace(self, values=given)

    def what_if(
        self, values: Mapping[str, float] | None = None, /, **coefficients: float
    ) -> RewardModel:
        """Return the model with other coefficients, by name; they count as known.

        Its policy is what the same decision maker would do, who knows about the change.
        """
        beta = self.beta.copy()
        for name, value in {**(values or {}), **coefficients}.items():
            if name not in self.coefficient_names[: self.n_rewards]:
                raise ValueError(f"what_if names {name!r}; the coefficients are "
                                 f"{listed(self.coefficient_names[: self.n_rewards])}")  # fmt: skip
            beta[self.coefficient_names.index(name)] = finite_number(name, value, -np.inf)
        return replace(self, beta=beta)

    def draws(self, n: int, seed: int = 0) -> list[RewardModel]:
        """Return n models whose coefficients are drawn from the distribution of the estimates."""
        rng = np.random.default_rng(seed)
        drawn = rng.multivariate_normal(self.beta, self.covariance, n, method="eigh")
        return [replace(self, beta=x) for x in drawn]

    @cached_property
    def problem(self) -> DynamicLogit:
        """The decision problem at the values of the covariates."""
        log = self.log
        lacking = [c for c in log.covariates if c not in self.values]
        if lacking:
            needed = ", ".join(f"{c}=..." for c in lacking)
            raise ValueError(f"the model has covariates; fix them first: model.at({needed})")
        cells = {c: array_of([x]) for c, x in self.values.items()}
        needed = {c: self.values[c] for c in open_covariates(log.transitions)}
        task, prob, phi = transitions_at(self.known, log.discount, needed)
        rows = log.recipe.rows(expand_choices(log.space, task, log.used, cells), log.keep)
        counts = np.zeros(len(task.sizes))
        return DynamicLogit(task, prob, place_rows(task, rows)[0], counts, log.discount, phi)

    @cached_property
    def solution(self) -> Evaluation:
        """The values and choice probabilities of the decision problem, with their derivatives."""
        return self.problem.evaluate(self.beta[: self.n_rewards])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The MDP with the estimated rewards, without shocks."""
        mdp, known = from_model(self.task, self.problem.prob[None]), self.known
        if not isinstance(known, FiniteMDP):
            return mdp
        return replace(mdp, initial_states=known.initial_states,
                       initial_probability=known.initial_probability)  # fmt: skip

    @cached_property
    def task(self) -> Task:
        """The states, actions and rewards."""
        task, problem = self.log.task, self.problem
        reward = (problem.features @ self.beta[: self.n_rewards]).reshape(task.available.shape)
        return replace(task, horizon=1, discount=problem.discount, reward=reward,
                       next_state_reward=None, terminal=None, reward_range=None)  # fmt: skip

    @property
    def known(self) -> Any:
        """The transitions that the decision maker is taken to know: an MDP, or the model."""
        model = self.log.transitions
        if isinstance(model, FiniteMDP):
            return model
        return replace(model, fitted=replace(model.fitted, theta=self.beta[self.n_rewards :]))

    @property
    def transitions(self) -> TransitionModel:
        """The transition model with the estimated rewards, for `policy_value`."""
        model = self.known
        if isinstance(model, FiniteMDP):
            raise ValueError("the transitions are known; use up.evaluate(model.mdp, policy)")
        values = {c: self.values[c] for c in open_covariates(model)}
        return model.at(values, discount=self.log.discount, reward=self.task.reward)

    @cached_property
    def policy(self) -> Policy:
        """The choice probabilities, as a policy with chance."""
        task, found = self.task, self.solution
        table = found.probability.reshape(task.available.shape)
        plan = StationaryPlan(table, found.v, self.log.discount, None, 0.0, 0, task)
        return Policy.from_plan(plan)

    def predict(self, confidence: float = 0.95) -> Any:
        """Return the choice probabilities of all states, with delta-method intervals.

        confidence: of the intervals, which are made on the scale of log-odds, so they lie between 0
        and 1.

        Returns
        -------
        A data frame with one row for each action that a state has: state, action, probability,
        standard_error, low, high.
        """
        z, space, task = self.fitted.quantile(confidence), self.log.space, self.log.task
        s, a = np.nonzero(task.available)
        pair = s * task.n_actions + a
        p, scores = self.solution.probability[pair], self.solution.scores[pair]
        sizes = task.available.sum(axis=1)
        error, low, high = log_odds_intervals(sizes[sizes > 0], p, scores, self.covariance, z)
        return pd.DataFrame({
            space.columns[0]: array_of(space.states)[s],
            space.columns[1]: array_of(space.actions)[a],
            "probability": p, "standard_error": error, "low": low, "high": high,
        })  # fmt: skip

    def plot(self) -> Any:
        """Return a figure of the choice probabilities over states."""
        from upriver.display import figures

        table, (column, chosen, _) = self.predict(), self.log.space.columns
        lines = {a: table[table[chosen] == a] for a in self.log.space.actions}
        return figures.plot_choices(
            {a: x[["probability", "low", "high"]].to_numpy() for a, x in lines.items()},
            {a: x[column].tolist() for a, x in lines.items()}, list(self.log.space.states),
        )  # fmt: skip


def estimate_covariance(log: ChoiceLog, found: Objective, kind: str) -> Array:
    """Return (k, k) the covariance of the estimates of rewards and transitions.

    Both solve equations: the score of the choices in w is 0, and that of the transitions in theta.
    J, the derivative of these equations, and the covariance B of their left-hand sides give
    J^-1 B J^-T. The scores of choices and of transitions are uncorrelated, except within clusters.
    """
    m, k = found.hessian.shape
    jacobian, middle, model = np.zeros((k, k)), np.zeros((k, k)), log.transitions
    jacobian[:m] = -found.hessian
    middle[:m, :m] = found.outer if kind == "robust" else jacobian[:m, :m]
    if k > m:
        jacobian[m:, m:] = np.linalg.inv(model.fitted.bread @ np.eye(k - m))
        if kind == "classical" and model.fitted.errors == "cluster":
            middle[m:, m:] = scatter_of_clusters(model.log.cluster_scores(model.theta))
        elif kind == "classical" or model.fitted.features is not None:
            middle[m:, m:] = jacobian[m:, m:]
        else:
            middle[m:, m:] = model.fitted.scatter
    if kind == "cluster":
        scores = log.members @ np.concatenate([x.scores[:, :m] for x in found.parts])
        parts = [pd.DataFrame(scores, list(log.clusters))]
        if k > m and model.log is not None and model.log.cluster is not None:
            moves = model.log.cluster_scores(model.theta)
            parts.append(pd.DataFrame(moves, list(model.log.clusters)))
        sums = pd.concat(parts, axis=1).fillna(0.0).to_numpy()
        middle[: sums.shape[1], : sums.shape[1]] = scatter_of_clusters(sums)
    inverse = np.linalg.inv(jacobian)
    return inverse @ middle @ inverse.T


def scatter_of_clusters(sums: Array) -> Array:
    """Return (d, d) the covariance of the sum of scores, from those of each cluster (C, d)."""
    return sums.T @ sums * (len(sums) / (len(sums) - 1.0))
