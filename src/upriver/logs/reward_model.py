"""Rewards from choices: fit a dynamic logit model to a log of states and actions (Rust 1987).

model = fit_rewards("replaced + cost", frame, transitions=mdp, discount=0.9999, states=table)
print(model.summary())
model.what_if(replaced=-8.0).predict()

`logs.dynamic_choice` has the likelihood. The same estimate is known as inverse reinforcement
learning with maximum causal entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from upriver.checks import Array, check_kinds, finite_number, format_value, positive_integer
from upriver.display import Card, add_repr
from upriver.logs import dynamic_choice, effects, situations
from upriver.logs.design import select_identified
from upriver.logs.dynamic_choice import DynamicLogit, Evaluation, Objective, sum_parts
from upriver.logs.formula import Columns, Recipe, check_words, mentions, parse_recipe, words_of
from upriver.logs.model import TransitionModel
from upriver.logs.situations import Situations, StateSpace
from upriver.logs.tables import Rows, Table, array_of, listed, value_or_list
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.building import from_model
from upriver.mdp.validation import check_discount
from upriver.mnl.fitted import (
    ERRORS,
    Estimates,
    FittedMNL,
    log_odds_intervals,
    wrap_lines,
)
from upriver.planning.induction import Plan
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
    step: str  # The column of the step, where the horizon is finite
    transitions: Any  # The MDP or the transition model
    discount: float
    horizon: int | None
    joint: bool  # Whether the transitions were estimated together with the rewards
    covariates: Mapping[str, Array]  # (T,) each: the distinct sets of covariates
    problems: list[DynamicLogit]  # One for each set of covariates
    members: Any  # (C, sets * steps * S*A) sparse: how often each cluster chose each pair
    clusters: Sequence[Any]  # The name of each cluster; none without clusters
    n_rows: int
    dropped: Mapping[str, int]  # The number of rows that were left out, by the column with the gap

    @property
    def task(self) -> Task:
        return self.problems[0].task


def expand_choices(
    space: StateSpace, task: Task, used: frozenset[str], covariates: Columns, step: str,
    horizon: int | None,
) -> tuple[Columns, Callable[[Array], Array]]:  # fmt: skip
    """Return a table of all states and actions, for each set of covariates and each step.

    The second result puts rows of the table, (n, j), into an array (T, 1 | H, S*A, j).
    """
    n_sets = len(next(iter(covariates.values()))) if covariates else 1
    by_step = horizon is not None and step in used
    pairs, steps = np.flatnonzero(task.sizes), horizon if horizon is not None and by_step else 1
    shape = n_sets, steps, len(pairs)
    at, h, g = (x.ravel() for x in np.indices(shape))
    cells = {c: x[at] for c, x in covariates.items()} | ({step: h} if by_step else {})
    of = Situations(pairs[g], cells, np.arange(len(g) + 1), np.zeros(len(g), np.int64))

    def arrange(rows: Array) -> Array:
        every = np.zeros((n_sets, steps, len(task.sizes), rows.shape[1]))
        every[:, :, pairs] = rows.reshape(*shape, -1)
        return every

    return situations.expand(space, of, used.__contains__), arrange


def build_problem(
    transitions: FiniteMDP | TransitionModel, discount: float, horizon: int | None,
    values: Mapping[str, Any],
) -> DynamicLogit:  # fmt: skip
    """Return the decision problem at values of the covariates, without rewards and choices."""
    none = np.empty((1, 0, 0))
    if isinstance(transitions, FiniteMDP):
        task, prob, phi = transitions.task(), transitions.probability, ()
    else:
        model = transitions
        if model.task is None:
            model = model.at(values, horizon=horizon, discount=None if horizon else discount)
        task, prob = model.task, model.prob
        matrices = (x.matrix for x in model.steps)
        phi = tuple(np.array(x.toarray() if sparse.issparse(x) else x) for x in matrices)
    if len(prob) not in (1, horizon):
        raise ValueError(f"the transitions change with the step and have {len(prob)} steps; "
                         f"horizon is {horizon}, it must be the same")  # fmt: skip
    return DynamicLogit(task, np.array(prob), none, none[0], discount, horizon, phi)


def open_covariates(model: Any) -> list[str]:
    """Return the covariates of a transition model that have no values yet."""
    if isinstance(model, FiniteMDP) or model.task is not None:
        return []
    return list(model.log.situations.covariates)


@check_kinds
def fit_rewards(
    formula: str, frame: Any, transitions: FiniteMDP | TransitionModel,
    discount: float | None = None, *, horizon: int | None = None, states: Any = None,
    columns: Sequence[str] = ("state", "action"), step: str = "step", cluster: str | None = None,
    weights: Any = None, missing: str = "refuse", joint: bool = False,
) -> RewardModel:  # fmt: skip
    """Fit the rewards that explain a log of choices, by maximum likelihood (Rust 1987).

    Whoever chose is taken to maximize the expected discounted sum of r(s, a) = psi(s, a)'w and of
    independent extreme-value shocks of scale 1, and to know the transitions. So the coefficients
    are in units of the shocks' scale. The discount is not estimated.

    Parameters
    ----------
    formula
        The reward, in the language of formulaic. It
        may use state, action, covariates, the step, and attributes from `states`. Formulas are
        executed; use only formulas you trust.
    frame
        One row per choice, with the columns of state and action; the kinds of tables are those of
        `fit_transitions`. A covariate is a property of the decision maker: it is taken to last.
    transitions
        An MDP, whose rewards are not used, or a model from `fit_transitions`; then the standard
        errors have the error of its coefficients in them. Its covariates are read from the frame.
    discount, horizon
        An infinite horizon with a discount in [0, 1), or a number of steps, with a discount of 1
        unless given. A finite horizon needs the column `step`, counted from 0.
    states
        Tables of attributes of states, or of pairs of state and action.
    columns, step
        The columns of the state, the action, and the step.
    cluster
        The column of the individual: standard errors are then those of the sandwich by cluster.
        Where the transitions have the same clusters, both errors are taken together; without
        clusters here the transitions keep the errors by cluster that they were fitted with.
    weights, missing
        As in `fit_transitions`.
    joint
        Whether the transitions are estimated again, together with the rewards, from the sum of both
        log-likelihoods (full information), where the default takes them as they are (two steps).

    Raises
    ------
    ValueError
        If a state or an action of the log is not one of the model, or if the choices do not
        identify a coefficient.
    """
    if horizon is not None:
        horizon = positive_integer("horizon", horizon)
        discount = 1.0 if discount is None else discount
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"discount is {discount!r}; with a horizon it must be from 0 to 1")
    elif discount is None:
        raise ValueError("discount is None; it must be at least 0 and less than 1, unless a "
                         "horizon is given")  # fmt: skip
    else:
        check_discount(None, discount)
    if joint:
        if isinstance(transitions, FiniteMDP) or transitions.log is None:
            raise ValueError("joint is True; transitions must come from fit_transitions with a "
                             "formula")  # fmt: skip
        if transitions.fitted.regularization > 0:
            raise ValueError("joint is True; transitions were fitted with regularization "
                             f"{transitions.fitted.regularization:g}, it must be 0")  # fmt: skip
    table = Table(frame)
    uses, needed = mentions(formula), open_covariates(transitions)
    own = [*columns, *([] if horizon is None else [step])]
    names = [c for c in table.names if c not in own and (uses(c) or c in needed)]
    names = list(dict.fromkeys([*names, *needed]))
    keys = [*own, *names, *([] if cluster is None else [cluster])]
    rows = table.read(keys, weights, missing=missing, group=True)
    covariates, of_row = find_sets(rows, names)
    n_sets = int(of_row.max()) + 1
    sets = [{c: covariates[c][t] for c in needed} for t in range(n_sets)] if needed else [{}]
    bare = [build_problem(transitions, discount, horizon, x) for x in sets]
    bare = bare if needed else bare * n_sets
    task, steps = bare[0].task, horizon or 1
    space, pair = number_choices(rows, columns, task)
    attributes = situations.read_attributes(states, space.columns, uses)
    space = situations.add_attributes(space, attributes)
    clash = [c for c in names if c in space.attributes]
    if clash:
        raise ValueError(f"column {clash[0]!r} is in the frame and in states; rename one of them")
    used = {*names, *own, *space.attributes}
    used = frozenset(c for c in used if uses(c) or c in columns)
    h = 0 if horizon is None else rows.numbers(step, range(horizon), "step")
    cells = (of_row * steps + h) * len(task.sizes) + pair
    counts = np.bincount(cells, rows.weight, n_sets * steps * len(task.sizes))
    counts = counts.reshape(n_sets, steps, -1)
    choices, arrange = expand_choices(space, task, used, covariates, step, horizon)
    recipe = parse_recipe(formula, choices, [*table.names, *space.attributes])
    psi = arrange(recipe.rows(choices, np.arange(len(recipe.columns))))
    problems = [
        replace(p, features=x, counts=n, phi=()) for p, x, n in zip(bare, psi, counts, strict=True)
    ]
    keep, references = find_identified(recipe, problems)
    problems = [replace(p, features=p.features[..., keep]) for p in problems]
    null = sum_parts(problems, np.zeros(len(keep)))
    w, found, converged = dynamic_choice.maximize_likelihood(
        lambda w, before: sum_parts(problems, w, before and before.parts), np.zeros(len(keep))
    )
    scale = 1.0 / np.sqrt(np.diag(null.outer))
    least, directions = np.linalg.eigh(-found.hessian * np.outer(scale, scale))
    if not converged or least[0] < VANISHED:
        at = keep[int(np.argmax(np.abs(directions[:, 0])))]
        raise ValueError(f"the likelihood has no maximum: {recipe.columns[at].name!r} goes to "
                         "infinity, because it predicts choices perfectly")  # fmt: skip
    problems = [replace(p, phi=x.phi) for p, x in zip(problems, bare, strict=True)]
    beta = w if isinstance(transitions, FiniteMDP) else np.concatenate([w, transitions.theta])
    members, clusters = None, []
    if cluster is not None:
        number, clusters = rows.codes(cluster)
        members = sparse.csr_array((rows.weight, (number, cells)), (len(clusters), counts.size))
        if len(clusters) < 2:
            raise ValueError(f"column {cluster!r} has one cluster; clustered errors need at "
                             "least 2")  # fmt: skip
    log = ChoiceLog(
        formula, recipe, keep, references, space, used, step, transitions,
        discount, horizon, joint, covariates, problems, members, clusters, rows.n_rows,
        rows.dropped,
    )  # fmt: skip
    null_value = null.value
    if joint:
        beta, log = estimate_jointly(log, beta)
        null_value += log.transitions.fitted.null_log_likelihood
    found = sum_parts(log.problems, beta[: len(keep)])
    return RewardModel(
        log, found, null_value, beta, beta, "classical" if cluster is None else "cluster"
    )


def find_sets(rows: Rows, names: Sequence[str]) -> tuple[dict[str, Array], Array]:
    """Return the distinct sets of covariates, and (m,) the set of each row."""
    codes = [np.zeros(len(rows.weight), np.int64), *(rows.codes(c)[0] for c in names)]
    _, first, of_row = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    return {c: rows.values(c)[first] for c in names}, of_row.ravel()  # NumPy 2.0.0 has (1, m)


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
        visits = p.counts.reshape(len(p.counts), p.task.n_states, -1).sum(axis=2)
        weight = np.repeat(visits, p.task.n_actions, axis=1) * x.probability
        gram += np.einsum("hg,hgi,hgj->ij", weight, x.scores, x.scores, optimize=True)
        size, total = np.maximum(size, np.abs(p.features).max(axis=(0, 1))), total + visits.sum()
    varies = np.diag(gram) > 1e-18 * total * size**2
    return select_identified(recipe, gram, varies, True, REASONS)


def estimate_jointly(log: ChoiceLog, beta: Array) -> tuple[Array, ChoiceLog]:
    """Return the estimates of full information, and the log with the problems at them."""
    data, m = log.transitions.log.data, len(log.keep)
    first = beta[m:]

    def evaluate(beta: Array, before: Objective | None) -> Objective:
        problems = [p.shift_transitions(beta[m:] - first) for p in log.problems]
        found = sum_parts(problems, beta[:m], before and before.parts)
        loss, gradient, hessian = data.evaluate(beta[m:], True)
        for x, more in ((found.hessian, -1.0), (found.outer, 1.0)):
            x[m:, m:] += more * hessian
        found.gradient[m:] -= gradient
        return found._replace(value=found.value - loss)

    beta, _, converged = dynamic_choice.maximize_likelihood(evaluate, beta)
    if not converged:
        raise ValueError("the joint likelihood has no maximum; fit with joint=False")
    problems = [p.shift_transitions(beta[m:] - first) for p in log.problems]
    model = log.transitions
    fitted = replace(
        model.fitted, theta=beta[m:], log_likelihood=-data.evaluate(beta[m:], False)[0],
        hessian=partial(data.hessian, beta[m:]), scatter=partial(data.scatter, beta[m:]),
    )  # fmt: skip
    return beta, log._replace(problems=problems, transitions=replace(model, fitted=fitted))


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
    with_transitions: bool = True
    """Whether the errors contain the error of the estimated transitions."""
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
        covariance = estimate_covariance(self.log, self.found, self.errors, self.with_transitions)
        return covariance * np.outer(free, free)

    @cached_property
    def fitted(self) -> FittedMNL:  # pyright: ignore[reportIncompatibleVariableOverride]
        log, d = self.log, len(self.beta) if self.log.joint else self.n_rewards
        names, value = [log.recipe.columns[j].name for j in log.keep], self.found.value
        if log.joint:
            names += [f"transitions: {x}" for x in log.transitions.coefficient_names]
            value += log.transitions.llf
        matrix = self.covariance[:d, :d]
        return FittedRewards(
            self.beta[:d], value, self.null, float(sum(p.counts.sum() for p in log.problems)), 0.0,
            partial(np.linalg.inv, matrix), names, errors=self.errors,
            n_clusters=len(log.clusters), matrix=matrix,
        )  # fmt: skip

    @property
    def theta(self) -> Array:
        """The estimates without names."""
        return self.fitted.theta

    @property
    def terms(self) -> list[str]:
        """The term of the formula that each coefficient belongs to."""
        terms = [self.log.recipe.columns[j].term for j in self.log.keep]
        return terms + self.coefficient_names[len(terms) :]

    def with_errors(self, kind: str, transitions: bool = True) -> RewardModel:
        """Return the model with "classical", "robust" or "cluster" standard errors.

        transitions: whether the error of the estimated transitions is added.
        """
        if kind not in ERRORS:
            raise ValueError(f"errors is {kind!r}; it must be 'classical', 'robust' or 'cluster'")
        if kind == "cluster" and self.log.members is None:
            raise ValueError("errors is 'cluster'; the model was fitted without cluster=")
        return replace(self, errors=kind, with_transitions=bool(transitions))

    def card(self) -> Card:
        card, log = self.fitted.card(), self.log
        sizes = {"states": log.task.n_states, "actions": log.task.n_actions}
        return card._replace(of=log.formula, facts={**card.facts, **sizes})

    def summary(self, limit: int = 40) -> str:
        """Return what was fitted to which log, and the first `limit` coefficients, as text."""
        log, fitted = self.log, self.fitted
        future = f"discount {log.discount:g}"
        future += "" if log.horizon is None else f", horizon {log.horizon}"
        sets = f", {len(log.problems)} sets of covariates" if log.covariates else ""
        kind = "known"
        if not isinstance(log.transitions, FiniteMDP):
            error = "with" if self.with_transitions else "without"
            kind = f"estimated {'jointly' if log.joint else 'before'}, {error} their error"
        lines = [
            f"reward ~ {log.formula}",
            f"{log.n_rows} rows{sets}; {log.task.n_states} states, {log.task.n_actions} actions, "
            + future,
            *([f"reference (no coefficient): {listed(log.references, 6)}"] * bool(log.references)),
            *([f"rows left out: {dict(log.dropped)}"] * bool(log.dropped)),
            f"dynamic logit: {fitted.n_observations:g} choices, {len(fitted.theta)} coefficients",
            f"log-likelihood {self.llf:.4f} ({self.null:.4f} with no rewards), AIC {self.aic:.1f}, "
            f"BIC {self.bic:.1f}",
            f"standard errors: {fitted.errors_text}; transitions: {kind}",
        ]
        return "\n".join([*wrap_lines(lines), *self.coefficient_lines(limit)])

    def comparable(self) -> tuple[Any, Array, Array]:
        """Return what `likelihood_ratio` compares: names and settings, pairs, and their counts."""
        log = self.log
        names = list(log.space.states), list(log.space.actions)
        counts = sum(p.counts.sum(axis=0) for p in log.problems)
        setting = log.discount, log.horizon, log.joint
        return (*names, *setting), log.task.indptr, np.asarray(counts)

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
        log, m = self.log, self.n_rewards
        lacking = [c for c in log.covariates if c not in self.values]
        if lacking:
            needed = ", ".join(f"{c}=..." for c in lacking)
            raise ValueError(f"the model has covariates; fix them first: model.at({needed})")
        cells = {c: array_of([x]) for c, x in self.values.items()}
        needed = {c: self.values[c] for c in open_covariates(log.transitions)}
        bare = build_problem(log.transitions, log.discount, log.horizon, needed)
        table, arrange = expand_choices(log.space, log.task, log.used, cells, log.step, log.horizon)
        psi = arrange(log.recipe.rows(table, log.keep))[0]
        counts = np.zeros((log.horizon or 1, len(log.task.sizes)))
        made = replace(bare, features=psi, counts=counts)
        return made.shift_transitions(self.beta[m:] - self.estimate[m:]) if made.phi else made

    @cached_property
    def solution(self) -> Evaluation:
        """The values and choice probabilities of the decision problem, with their derivatives."""
        return self.problem.evaluate(self.beta[: self.n_rewards])

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The MDP with the estimated rewards, without shocks."""
        mdp, known = from_model(self.task, self.problem.prob), self.log.transitions
        if not isinstance(known, FiniteMDP):
            return mdp
        return replace(mdp, initial_states=known.initial_states,
                       initial_probability=known.initial_probability)  # fmt: skip

    @cached_property
    def task(self) -> Task:
        """The states, actions and rewards; discounted where the horizon is finite."""
        log, shape = self.log, (self.log.task.n_states, self.log.task.n_actions)
        reward = self.problem.features @ self.beta[: self.n_rewards]
        reward, rule = reward.reshape(-1, *shape), {"horizon": 1, "discount": log.discount}
        if log.horizon is None:
            reward = reward[0]
        else:
            reward = reward * (log.discount ** np.arange(log.horizon))[:, None, None]
            rule = {"horizon": log.horizon, "discount": None}
        return replace(log.task, **rule, reward=reward, next_state_reward=None, terminal=None,
                       reward_range=None)  # fmt: skip

    @property
    def transitions(self) -> TransitionModel:
        """The transition model with the estimated rewards, for `policy_value`."""
        model, m = self.log.transitions, self.n_rewards
        if isinstance(model, FiniteMDP):
            raise ValueError("the transitions are known; use up.evaluate(model.mdp, policy)")
        model = replace(model, fitted=replace(model.fitted, theta=self.beta[m:]))
        values = {c: self.values[c] for c in open_covariates(model)}
        h, discount = self.log.horizon, self.log.discount if self.log.horizon is None else None
        return model.at(values, horizon=h, discount=discount, reward=self.task.reward)

    @cached_property
    def policy(self) -> Policy:
        """The choice probabilities, as a policy with chance."""
        task, found = self.task, self.solution
        table = found.probability.reshape(-1, task.n_states, task.n_actions)
        if self.log.horizon is None:
            plan: Any = StationaryPlan(table[0], found.v, self.log.discount, None, 0.0, 0, task)
        else:
            plan = Plan(table, found.v, None, task, in_user_units=True)
        return Policy.from_plan(plan)

    def predict(self, confidence: float = 0.95) -> Any:
        """Return the choice probabilities of all states, and steps, with delta-method intervals.

        confidence: of the intervals, which are made on the scale of log-odds, so they lie between 0
        and 1.

        Returns
        -------
        A data frame with one row for each action that a state has, at each step of a finite
        horizon: state, step, action, probability, standard_error, low, high.
        """
        z, log, task = self.fitted.quantile(confidence), self.log, self.log.task
        column, chosen, _ = log.space.columns
        shape = log.horizon or 1, *task.available.shape
        h, s, a = np.nonzero(np.broadcast_to(task.available, shape))
        pair = s * task.n_actions + a
        p, scores = self.solution.probability[h, pair], self.solution.scores[h, pair]
        sizes = np.broadcast_to(task.available, shape).sum(axis=2).ravel()
        error, low, high = log_odds_intervals(sizes[sizes > 0], p, scores, self.covariance, z)
        return pd.DataFrame({
            column: array_of(log.space.states)[s], **({log.step: h} if log.horizon else {}),
            chosen: array_of(log.space.actions)[a],
            "probability": p, "standard_error": error, "low": low, "high": high,
        })  # fmt: skip

    def plot(self, step: int = 0) -> Any:
        """Return a figure of the choice probabilities over states."""
        from upriver.display import figures

        table, (column, chosen, _) = self.predict(), self.log.space.columns
        if self.log.horizon is not None:
            table = table[table[self.log.step] == step]
        lines = {a: table[table[chosen] == a] for a in self.log.space.actions}
        return figures.plot_choices(
            {a: x[["probability", "low", "high"]].to_numpy() for a, x in lines.items()},
            {a: x[column].tolist() for a, x in lines.items()}, list(self.log.space.states),
        )  # fmt: skip


def estimate_covariance(
    log: ChoiceLog, found: Objective, kind: str, with_transitions: bool
) -> Array:
    """Return (k, k) the covariance of the estimates of rewards and transitions.

    Both solve equations: the score of the choices in w is 0, and that of the transitions in theta,
    to which the choices contribute only in a joint fit. J, the derivative of these equations, and
    the covariance B of their left-hand sides give J^-1 B J^-T. The scores of choices and of
    transitions are uncorrelated, except within clusters. Without the error of the transitions,
    theta is known and has no equation.
    """
    m, k = len(log.keep), len(found.gradient)
    own = slice(k if log.joint else m)  # the equations that the choices enter
    jacobian, middle = np.zeros((k, k)), np.zeros((k, k))
    sums: Any = None  # (C, k) the scores of each cluster
    jacobian[own] = -found.hessian[own]
    if kind == "cluster":
        sums = log.members @ np.concatenate([x.scores.reshape(-1, k) for x in found.parts])
        sums[:, own.stop :] = 0.0
    else:
        middle[own, own] = (found.outer if kind == "robust" else -found.hessian)[own, own]
    if k > m and with_transitions:
        model = log.transitions
        information = np.linalg.inv(model.fitted.bread @ np.eye(k - m))
        jacobian[m:, m:] += information
        if sums is not None and model.log is not None and model.log.cluster is not None:
            number = {x: i for i, x in enumerate(log.clusters)}
            at = [number.setdefault(x, len(number)) for x in model.log.clusters]
            sums = np.vstack([sums, np.zeros((len(number) - len(sums), k))])
            sums[at, m:] += model.log.cluster_scores(model.theta)
        elif kind == "classical" and model.fitted.errors == "cluster":
            assert model.log is not None  # errors by cluster come from a log
            sums_of_moves = model.log.cluster_scores(model.theta)
            n = len(sums_of_moves)
            middle[m:, m:] += sums_of_moves.T @ sums_of_moves * (n / (n - 1.0))
        elif kind == "classical" or model.fitted.scatter is None:
            middle[m:, m:] += information
        else:
            middle[m:, m:] += model.fitted.scatter()
    if sums is not None:
        middle += sums.T @ sums * (len(sums) / (len(sums) - 1.0))
    solved, inverse = slice(k if with_transitions else m), np.zeros((k, k))
    inverse[solved, solved] = np.linalg.inv(jacobian[solved, solved])
    return inverse @ middle @ inverse.T
