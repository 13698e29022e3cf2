"""Rewards from choices: fit a dynamic logit model to a log of states and actions (Rust 1987).

model = fit_rewards("replaced + cost", frame, transitions=mdp, discount=0.9999, states=table)
print(model.summary())
model.what_if(replaced=-8.0).predict()

`logs.dynamic_choice` has the likelihood. The same estimate is known as inverse reinforcement
learning with maximum causal entropy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from upriver.checks import Array, check_choice, check_kinds, finite_number
from upriver.display import Card, add_repr
from upriver.logs import effects, situations
from upriver.logs.design import select_identified
from upriver.logs.dynamic_choice import DynamicLogit, Evaluation, maximize_likelihood
from upriver.logs.formula import Column, Recipe, mentions, parse_recipe
from upriver.logs.model import TransitionModel
from upriver.logs.situations import Situations, StateSpace
from upriver.logs.tables import Rows, Table, array_of, listed
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
    columns: list[Column]  # The columns of the formula that are estimated
    references: list[str]  # Columns that are combinations of others: reference categories
    space: StateSpace
    transitions: Any  # The MDP or the transition model
    problem: DynamicLogit
    members: Any  # (C, S*A) sparse: how often each cluster chose each pair
    clusters: Sequence[Any]  # The name of each cluster; none without clusters
    n_rows: int
    dropped: Mapping[str, int]  # The number of rows that were left out, by the column with the gap


def read_transitions(
    transitions: FiniteMDP | TransitionModel,
) -> tuple[Task, Array, Array | None]:
    """Return the task, the probabilities (n,) and, of a model, the features (n, d)."""
    if isinstance(transitions, FiniteMDP):
        task, prob, phi = transitions.task(), transitions.probability, None
    else:
        model = transitions
        if model.task is None:
            values = ", ".join(f"{name}=..." for name in model.log.situations.covariates)
            raise ValueError(f"the model has covariates; give them values: model.at({values})")
        task, prob, phi = model.task, model.prob, np.array(model.steps[0].matrix)
    if len(prob) > 1:
        raise ValueError(f"the transitions change with the step and have {len(prob)} steps; "
                         "fit_rewards needs the same for all steps")  # fmt: skip
    return task, np.array(prob[0]), phi


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
        The reward, in the language of formulaic. It may use state, action, and attributes from
        `states`. Formulas are executed; use only formulas you trust.
    frame
        One row per choice, with the columns of state and action; the kinds of tables are those of
        `fit_transitions`. A property of the decision maker that matters is a part of the state.
    transitions
        An MDP, whose rewards are not used, or a model from `fit_transitions`; then the standard
        errors have the error of its coefficients in them. Its covariates must have values.
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
    task, prob, phi = read_transitions(transitions)
    keys = [*columns, *([] if cluster is None else [cluster])]
    rows = Table(frame).read(keys, weights, missing=missing, group=True)
    space, pair = number_choices(rows, columns, task)
    attributes = situations.read_attributes(states, space.columns, mentions(formula))
    space = situations.add_attributes(space, attributes)
    pairs = np.flatnonzero(task.sizes)
    nowhere = np.zeros(len(pairs), np.int64)  # a reward of pairs knows no next state
    of = Situations(pairs, {}, np.arange(len(pairs) + 1), nowhere)
    choices = situations.expand(space, of, lambda name: name != "")
    recipe = parse_recipe(formula, choices, list(choices))
    psi = np.zeros((len(task.sizes), len(recipe.columns)))
    psi[pairs] = recipe.rows(choices, np.arange(len(recipe.columns)))
    counts = np.bincount(pair, rows.weight, len(task.sizes))
    problem = DynamicLogit(task, prob, psi, counts, discount)
    keep, references = find_identified(recipe, problem)
    problem = replace(problem, features=psi[:, keep])
    null = problem.evaluate(np.zeros(len(keep)))
    w, found, converged = maximize_likelihood(problem, np.zeros(len(keep)))
    scale = 1.0 / np.sqrt(np.diag(null.outer))
    least, directions = np.linalg.eigh(-found.hessian * np.outer(scale, scale))
    if not converged or least[0] < VANISHED:
        at = keep[int(np.argmax(np.abs(directions[:, 0])))]
        raise ValueError(f"the likelihood has no maximum: {recipe.columns[at].name!r} goes to "
                         "infinity, because it predicts choices perfectly")  # fmt: skip
    problem = replace(problem, phi=phi)
    beta = w if isinstance(transitions, FiniteMDP) else np.concatenate([w, transitions.theta])
    members, clusters = None, []
    if cluster is not None:
        number, clusters = rows.codes(cluster)
        members = sparse.csr_array((rows.weight, (number, pair)), (len(clusters), counts.size))
        if len(clusters) < 2:
            raise ValueError(f"column {cluster!r} has one cluster; clustered errors need at "
                             "least 2")  # fmt: skip
    log = ChoiceLog(
        formula, [recipe.columns[j] for j in keep], references, space, transitions, problem,
        members, clusters, rows.n_rows, rows.dropped,
    )  # fmt: skip
    errors = "classical" if cluster is None else "cluster"
    return RewardModel(log, problem.evaluate(w), null.value, beta, beta, errors)


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


def find_identified(recipe: Recipe, problem: DynamicLogit) -> tuple[Array, list[str]]:
    """Return the columns that choices can identify, and those that are reference categories.

    It is decided by the expected information where all rewards are 0: a column of zero information
    changes no choice, neither now nor through what follows.
    """
    found, task = problem.evaluate(np.zeros(len(recipe.columns))), problem.task
    visits = problem.counts.reshape(task.n_states, -1).sum(axis=1)
    weight = np.repeat(visits, task.n_actions) * found.probability
    gram = found.scores.T @ (weight[:, None] * found.scores)
    size = np.abs(problem.features).max(axis=0)
    varies = np.diag(gram) > 1e-18 * visits.sum() * size**2
    return select_identified(recipe, gram, varies, True, REASONS)


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class RewardModel(Estimates):
    """The rewards behind a log of choices, fitted by `fit_rewards`.

    The estimates have the names that statsmodels gives them.
    """

    log: ChoiceLog
    found: Evaluation  #: The likelihood of the choices at the estimate.
    null: float  #: The log-likelihood where all rewards are 0.
    estimate: Array  #: (k,) the estimates: rewards, then the coefficients of the transitions.
    beta: Array  #: (k,) the coefficients; those of `what_if` differ from the estimates.
    errors: str = "classical"  #: Which standard errors it has.

    # What was estimated.

    @property
    def n_rewards(self) -> int:
        """The number of coefficients of the reward."""
        return len(self.log.columns)

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
            float(log.problem.counts.sum()), 0.0,
            [column.name for column in log.columns], errors=self.errors,
            n_clusters=len(log.clusters), matrix=matrix,
        )  # fmt: skip

    @property
    def theta(self) -> Array:
        """The estimates without names."""
        return self.fitted.theta

    @property
    def terms(self) -> list[str]:
        """The term of the formula that each coefficient belongs to."""
        return [column.term for column in self.log.columns]

    def with_errors(self, kind: str) -> RewardModel:
        """Return the model with "classical", "robust" or "cluster" standard errors."""
        check_choice("errors", kind, tuple(ERRORS))
        if kind == "cluster" and self.log.members is None:
            raise ValueError("errors is 'cluster'; the model was fitted without cluster=")
        return replace(self, errors=kind)

    def card(self) -> Card:
        card, task = self.fitted.card(), self.log.problem.task
        sizes = {"states": task.n_states, "actions": task.n_actions}
        return card._replace(of=self.log.formula, facts={**card.facts, **sizes})

    def summary(self, limit: int = 40) -> str:
        """Return what was fitted to which log, and the first `limit` coefficients, as text."""
        log, fitted, task = self.log, self.fitted, self.log.problem.task
        is_known = isinstance(log.transitions, FiniteMDP)
        lines = [
            f"reward ~ {log.formula}",
            f"{log.n_rows} rows; {task.n_states} states, {task.n_actions} actions, "
            f"discount {log.problem.discount:g}",
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
        space, problem = self.log.space, self.log.problem
        names = list(space.states), list(space.actions)
        return (*names, problem.discount), problem.task.indptr, problem.counts

    likelihood_ratio = effects.likelihood_ratio
    wald = effects.wald

    # What follows from it.

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
        """The decision problem, with the transitions that the decision maker knows."""
        _, prob, phi = read_transitions(self.known)
        return replace(self.log.problem, prob=prob, phi=phi)

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
        problem, task = self.log.problem, self.log.problem.task
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
        return model.at(discount=self.task.discount, reward=self.task.reward)

    @cached_property
    def policy(self) -> Policy:
        """The choice probabilities, as a policy with chance."""
        task, found = self.task, self.solution
        table = found.probability.reshape(task.available.shape)
        plan = StationaryPlan(table, found.v, self.problem.discount, None, 0.0, 0, task)
        return Policy.from_plan(plan)

    def predict(self, confidence: float = 0.95) -> Any:
        """Return the choice probabilities of all states, with delta-method intervals.

        The data frame has one row for each action that a state has: state, action, probability,
        standard_error, low, high.

        confidence: of the intervals, which are made on the scale of log-odds, so they lie between 0
        and 1.
        """
        z, space, task = self.fitted.quantile(confidence), self.log.space, self.log.problem.task
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


def estimate_covariance(log: ChoiceLog, found: Evaluation, kind: str) -> Array:
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
        elif kind == "classical":
            middle[m:, m:] = jacobian[m:, m:]
        else:
            middle[m:, m:] = model.fitted.scatter
    if kind == "cluster":
        parts = [pd.DataFrame(log.members @ found.scores[:, :m], list(log.clusters))]
        if k > m and model.log.cluster is not None:
            moves = model.log.cluster_scores(model.theta)
            parts.append(pd.DataFrame(moves, list(model.log.clusters)))
        sums = pd.concat(parts, axis=1).fillna(0.0).to_numpy()
        middle[: sums.shape[1], : sums.shape[1]] = scatter_of_clusters(sums)
    inverse = np.linalg.inv(jacobian)
    return inverse @ middle @ inverse.T


def scatter_of_clusters(sums: Array) -> Array:
    """Return (d, d) the covariance of the sum of scores, from those of each cluster (C, d)."""
    return sums.T @ sums * (len(sums) / (len(sums) - 1.0))
