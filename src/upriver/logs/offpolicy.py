"""Checks of a policy's value that do not rely on the model: they reweigh the log's episodes.

Per-decision weighted importance sampling (Precup, Sutton and Singh 2000), weighted doubly robust
(Jiang and Li 2016; Thomas and Brunskill 2016, with the fitted model's values), and fitted-Q
evaluation with tables. All three assume that the log holds what the actions depended on: none of
them sees confounding or drift. They follow episodes that were no longer observed (censored) as far
as they go, and assume that this depended on the step and the state alone. Where individuals have
covariates of their own, a state is a state at these covariates, as in the model's task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, special

from upriver.checks import Array, check_kinds, open_fraction
from upriver.display import add_repr
from upriver.logs.behaviour import Behaviour, fit_behaviour
from upriver.logs.effects import predicted_probabilities
from upriver.logs.fit import as_table, check_columns, fit_transitions
from upriver.logs.model import (
    TransitionModel,
    combine_outcomes,
    discount_factors,
    discount_of,
    for_population,
)
from upriver.logs.population import History, population_of, read_history
from upriver.logs.situations import build_situations, find_triples, number_rows
from upriver.logs.tables import COLUMNS, array_of, listed
from upriver.logs.value import policy_value
from upriver.logs.value_function import as_probabilities, build_value_function, segment_table
from upriver.mdp import Task
from upriver.mdp.declaring import as_names
from upriver.mnl.choices import Choices
from upriver.mnl.fit import fit_mnl
from upriver.planning import steps_of

REPLICATES = 200  # resampled logs for the error of fitted-Q evaluation
PRIOR = 5.0  # episodes
FOLDS = 5  # parts of the individuals: the values of one come from a model of the others
UNSEEN = 0.001  # share of the steps of the policy in pairs without rows that tables may ignore
FEW = 20  # effective episodes below which a reweighed log says nothing
EACH = 20  # individuals for each set of covariates below which tables say nothing
SAME = 1e-6  # relative difference below which two estimates are one number by construction


class CannotCheck(ValueError):
    """The log has no episodes that could check the model's value."""


class Episodes(NamedTuple):
    """The episodes of a log, all as long as the horizon."""

    states: Array
    """(n, H); where an episode was no longer followed, the state in which it was left."""
    pairs: Array  # (n, H) s * A + a of each step
    following: Array  # (n, H) next states
    rewards: Array  # (n, H)
    there: Array  # (n, H) whether the episode has this step
    last: Array  # (S,) the terminal value of each state, beside the rewards
    weights: Array  # (n,) how often each episode counts
    left: Array  # (n, H) whether the episode was no longer followed from this step on (censored)
    stays: Array  # (n, H) whether the episode has ended in a state that it would never leave
    propensity: Array  # (n, H) probabilities of the logged actions
    cluster: Array  # (n,) the cluster of each episode
    individual: Array  # (n,) the number of the individual in the history

    @property
    def real(self) -> Array:
        """(n, H) which steps the log has; in others an episode stays where it ended, or is over."""
        return self.there & ~self.stays

    @property
    def earned(self) -> Array:
        """(n, H) the rewards, and at the last step the terminal value as well."""
        earned = self.rewards.copy()
        earned[:, -1] += np.where(self.there[:, -1], self.last[self.following[:, -1]], 0.0)
        return earned


def build_episodes(model: TransitionModel, reward: str | None = None) -> Episodes:
    """Return the episodes of the individuals of a model; reward: a column of all that was earned.

    Their states are those of the model's task: the segment of the individual, and the state.
    """
    history = model.history
    if history is None:
        raise CannotCheck("the model does not know which rows are one individual's; name the "
                          "column: fit_transitions(..., individual=...)")  # fmt: skip
    task, base, horizon = model.task, model.segment_task, model.task.horizon
    rows = select_rows(model, history)
    broken = rows[history.broken[rows]]
    if len(broken):
        i = int(broken[0])
        label, when = history.labels[history.individual[i]], history.when
        raise ValueError(f"{model.population.what} {label!r} of the log goes to another state at "
                         f"step {when[i - 1]} than it is in at step {when[i]}; add the rows "
                         "between them, or give the parts names of their own")  # fmt: skip
    names, of = np.unique(history.individual[rows], return_inverse=True)
    segment = np.zeros(len(history.labels), np.int64)
    segment[model.member[0]] = model.member[1]
    s0, at, shape = segment[names], (of, history.place[rows]), (len(names), horizon)

    def spread(values: Array, fill: Any = 0) -> Array:
        """Return (n, H) the entries of the rows of the log, episode by episode."""
        table = np.full(shape, fill, values.dtype)
        table[at] = values[rows]
        return table

    offset = (s0 * base.n_states)[:, None]
    there = spread(np.ones(len(history.place), bool))
    states, following = (offset + spread(x) for x in (history.state, history.following))
    pairs = states * task.n_actions + spread(history.action)
    rewards, last = np.zeros(shape), np.zeros(task.n_states)
    cells, named = history.cells, history.named
    if reward is not None:
        discounts = discount_factors(model.setting[0], discount_of(model.setting[1], reward))
        rewards = spread(np.asarray(cells[reward], np.float64)) * discounts
    else:
        rewards[at] = realised_rewards(model, at[1], pairs[at], following[at], rows)
        last = last if task.terminal is None else task.terminal
    cluster = named.get("cluster")
    member = np.arange(len(names))
    if cluster is not None:
        codes = spread(np.unique(cells[cluster], return_inverse=True)[1])
        if (codes != codes[:, :1])[there].any():
            i = int(np.argmax((there & (codes != codes[:, :1])).any(axis=1)))
            raise CannotCheck(f"{history.labels[names[i]]!r} is in more than one {cluster!r}; all "
                              "rows of an individual must be in one cluster")  # fmt: skip
        member = codes[:, 0]
    data = Episodes(
        states, pairs, following, rewards, there, last, spread(history.weight)[:, 0],
        np.zeros(shape, bool), np.zeros(shape, bool), np.ones(shape), member, names,
    )  # fmt: skip
    over, ended = None, named.get("ended")
    if isinstance(ended, str) and ended in cells:
        over = cells[ended]
        if not np.isin(over, (0, 1)).all():
            raise ValueError(f"column {ended!r} of the log must hold true and false, or 1 and 0")
        over = spread(over.astype(bool))
    elif ended is not None:
        known, final = (
            list(base.state_names),
            [
                x.strip() if isinstance(x, str) else x
                for x in (ended.split(",") if isinstance(ended, str) else as_names("ended", ended))
            ],
        )
        by_text = {str(x): i for i, x in enumerate(known)}
        for name in final:
            if name not in known and str(name) not in by_text:
                raise ValueError(f"ended names the state {name!r}; it must be one of "
                                 f"{listed(known)}")  # fmt: skip
        over = np.isin(following % base.n_states, [by_text[str(x)] for x in final])
    mark_ends(task, data, over, reward is None)
    given = named.get("propensity")
    if given is not None:
        chance = np.asarray(cells[given] if given in cells else fit_propensities(model, given))
        data = data._replace(propensity=spread(np.asarray(chance, np.float64), 1.0))
        bad = ~((data.propensity > 0) & (data.propensity <= 1))
        if bad.any():
            raise ValueError(f"propensity {given!r} is {data.propensity[bad][0]:g} somewhere; it "
                             "must be above 0 and at most 1")  # fmt: skip
    else:
        chance = chance_of(model, log_behaviour(model), data.pairs)
        data = data._replace(propensity=chance)
    # episodes that stay where they ended say nothing of those that went on from the last row
    followed = int(np.flatnonzero(data.real.any(axis=0))[-1]) + 1
    went_on = data.real[:, followed - 1] & data.left[:, min(followed, horizon - 1)]
    if went_on.any():
        raise CannotCheck(f"no {model.population.what} of the log is followed beyond step "
                          f"{followed}; the horizon is {horizon}, and it must be at most that, or "
                          "`ended` must say that episodes ended")  # fmt: skip
    return data


def select_rows(model: TransitionModel, history: History) -> Array:
    """Return the rows of the individuals of a model, up to its horizon.

    An individual is followed up to the first row that has other covariates than the model: to leave
    it out because of what it has later would be to choose those that ended early.
    """
    horizon, n = model.task.horizon, len(history.labels)
    first, mine = np.full(n, horizon), np.zeros(n, bool)
    mine[model.member[0]] = True
    for name, value in model.values.items():
        values = value if isinstance(value, list) else [value]
        wanted = np.resize(array_of(values), horizon)
        near = history.place < horizon
        other = np.zeros(len(near), bool)
        other[near] = history.cells[name][near] != wanted[history.place[near]]
        np.minimum.at(first, history.individual[other], history.place[other])
    keep = mine[history.individual] & (history.place < first[history.individual])
    if not keep.any():
        given = ", ".join(f"{c} = {x!r}" for c, x in model.values.items())
        raise CannotCheck(
            f"no {model.population.what} of the log has {given}, so it cannot check "
            "the model there; fix the covariates at values that some have"
        )
    return np.flatnonzero(keep)


def realised_rewards(
    model: TransitionModel, h: Array, pair: Array, s2: Array, rows: Array
) -> Array:
    """Return (m,) what transitions earned: columns of the log where the reward has them.

    rows: (m,) the rows of the history.
    """
    task, log, history = model.task, model.log, model.history
    earned = task_rewards(task, h, pair, s2)
    if model.reward_rows is None or log is None or log.rewards is None or history is None:
        return earned
    weights, _ = combine_outcomes(log, model.setting[2])
    columns = {name: log.rewards.outcomes[name].source.column for name in weights}
    if not set(columns.values()) <= set(history.cells):
        return earned  # a log of its own that has no column of what was earned
    fitted = model.reward_rows.change(log.rewards.coefficients)
    none = np.zeros((task.n_states, task.n_actions))
    modelled = replace(task, reward=none, next_state_reward=fitted, reward_range=None)
    paid = sum(weights[name] * np.asarray(history.cells[c])[rows] for name, c in columns.items())
    discounts = model.reward_rows.discounts
    return earned - task_rewards(modelled, h, pair, s2) + discounts[h % len(discounts)] * paid


def log_behaviour(model: TransitionModel, weight: Array | None = None) -> Behaviour:
    """Return the model of the actions, fitted to the rows of the history; weight: (m,) of each."""
    history, base = model.history, model.segment_task
    assert history is not None
    covariates = [] if model.log is None else list(model.log.situations.covariates)
    cells = {c: history.cells[c] for c in covariates}
    pair = history.state * base.n_actions + history.action
    weight = history.weight if weight is None else weight
    some = weight > 0
    return fit_behaviour(
        model.behaviour.factors, {c: x[some] for c, x in cells.items()}, pair[some], weight[some],
        base.available, list(base.state_names),
    )  # fmt: skip


def chance_of(model: TransitionModel, behaviour: Behaviour, pairs: Array) -> Array:
    """Return (n, H) the probability of the actions of pairs of the model's task."""
    tables = np.array([behaviour.probabilities(z).ravel() for z in model.behaviour_columns])
    steps = np.minimum(np.arange(pairs.shape[1]), len(tables) - 1)
    return tables[steps, pairs]


def is_absorbing(task: Task) -> Array:
    """Return (S,) whether every action of a state stays there."""
    state = np.repeat(np.arange(task.n_states), task.n_actions)
    state = np.repeat(state, task.sizes)
    return np.bincount(state, task.successors != state, task.n_states) == 0


def mark_ends(task: Task, data: Episodes, over: Array | None, known_reward: bool) -> None:
    """Say of episodes shorter than the horizon whether they ended or were no longer followed.

    over: (n, H) whether each row is the last of an episode that ended. One that ended in a state
    that the task never leaves stays there, and is paid for it where the rewards are those of the
    task.
    """
    n_steps = data.there.sum(axis=1)
    short = np.flatnonzero(n_steps < task.horizon)
    final = data.following[short, n_steps[short] - 1]
    absorbing = is_absorbing(task)
    has_ended = absorbing[final] if over is None else over[short, n_steps[short] - 1]
    after = np.arange(task.horizon) >= n_steps[short][:, None]
    data.left[short] = after & ~has_ended[:, None]
    data.stays[short] = after & (has_ended & absorbing[final])[:, None]
    data.states[short] = np.where(after, final[:, None], data.states[short])
    i, h = np.nonzero(data.stays)
    s = data.states[i, h]
    data.there[i, h], data.following[i, h] = True, s
    data.pairs[i, h] = s * task.n_actions + np.argmax(task.available, axis=1)[s]
    if known_reward:
        data.rewards[i, h] = task_rewards(task, h, data.pairs[i, h], s)


def fit_propensities(model: TransitionModel, formula: str) -> Array:
    """Return (m,) the probability of each logged action, by an MNL model of the actions.

    It is the model of `fit_transitions` with actions in the place of next states, without a ridge.
    """
    history, base, none = model.history, model.segment_task, "no action yet"
    assert history is not None
    state, action = ("state", "action") if model.log is None else model.log.space.columns[:2]
    names = list(base.state_names), list(base.action_names)
    table = {state: array_of(names[0])[history.state], action: array_of(names[1])[history.action]}
    table |= {c: x for c, x in history.cells.items() if c != formula}
    table[none] = np.zeros(len(history.place), np.int64)
    fitted = fit_transitions(formula, table, columns=(state, none, action), weights=history.weight)
    log = fitted.log
    assert log is not None
    known = {x: i for i, x in enumerate(log.space.states)}
    s = np.array([known[x] for x in table[state].tolist()])
    a = np.array([known[x] for x in table[action].tolist()])
    of = build_situations(log.space, s, {c: table[c] for c in log.situations.covariates})
    probability, _ = predicted_probabilities(fitted, of)
    return probability[of.successor == np.repeat(a, np.diff(of.indptr))]


def task_rewards(task: Task, h: Array, pair: Array, s2: Array) -> Array:
    """Return (m,) the task's reward of each transition; of unknown next states the average."""
    reward, pay = task.user_rewards
    paid = reward[np.minimum(h, len(reward) - 1), pair]
    if not pay.size:
        return paid
    at = find_triples(task, pair, s2, task.n_states)
    mean, of_step = task.by_pair(pay) / np.maximum(task.sizes, 1), np.minimum(h, len(pay) - 1)
    return paid + np.where(at >= 0, pay[of_step, at], mean[of_step, pair])


@add_repr
@dataclass(frozen=True, repr=False)
class ValueChecks:
    """Estimates of one policy's value side by side, in the order of reliance on the model."""

    rows: list[dict[str, Any]]
    """A row per estimate: name, value, standard_error, low, high, effective (episodes)."""
    confidence: float
    verdict: str  #: Whether they agree, in a sentence.

    def summary(self) -> str:
        """Return the estimates as a table of text, and the verdict."""
        lines = [
            f"{'estimate':<32}   value  std.err.  effective   {100 * self.confidence:g}% interval"
        ]
        for r in self.rows:
            lines.append(
                f"{r['name']:<32} {r['value']:7.4g}  {r['standard_error']:8.3g}  "
                f"{r['effective']:9.1f}   [{r['low']:.4g}, {r['high']:.4g}]"
            )
        return "\n".join([*lines, self.verdict])


@check_kinds
def check_policy_value(
    model: TransitionModel, policy: Any, log: Any = None, columns: Sequence[str] = COLUMNS,
    episode: str = "episode", step: str = "step", reward: str | None = None,
    confidence: float = 0.95, weights: str | None = None, missing: str = "refuse", *,
    ended: str | Iterable[Any] | None = None, propensity: str | None = None,
    cluster: str | None = None,
) -> ValueChecks:  # fmt: skip
    """Estimate a policy's value from the log's episodes, beside the value under the model.

    Parameters
    ----------
    model
        A fitted model with a finite horizon. Where `at` fixes covariates, episodes are followed as
        long as they have these, and count as censored from there on.
    policy
        As in `policy_value`.
    log
        None: the rows of the individuals that the model was fitted to, for which
        `fit_transitions(..., individual=...)` was given all that follows; the doubly robust
        estimate is then cross-fitted over individuals. Or a table as in `fit_transitions`, with
        columns of the episode and of the step. Steps are numbers or dates, of which only the order
        counts: each row must start in the state to which the row before it goes. Episodes start
        where the log's do, and longer ones are cut at the horizon.
    columns, episode, step
        The names of the columns.
    reward
        A column of all that was earned, which is discounted as the model is. Unless given, the
        columns that the reward of the model comes from, or the rewards of the task.
    confidence
        Of the intervals.
    weights
        A column of how often each episode counts.
    missing
        "refuse" or "drop", as in `fit_transitions`. An episode is then followed up to its first
        row with a gap, as if it had been censored there, and left out where that is its first row.
    ended
        Which episodes shorter than the horizon have ended; the others are censored, they went on
        without being followed. A column that is true on the last row of episodes that ended, or a
        list of the states in which episodes end. Unless given, those that no action leaves.
    propensity
        The probability of the logged action: a column, or a formula of an MNL model of the actions
        such as "action:C(state) + action:age". Unless given, the model of the actions that is
        "behaviour" for `policy_value`, fitted to the log.
    cluster
        A column of individuals whose episodes may depend on each other.

    Returns
    -------
    ValueChecks
        Censoring may depend on the step and on the state in which an episode is left, but on
        nothing else that matters for the future. Importance sampling then weighs the episodes that
        go on by the inverse of their estimated share; the doubly robust estimate adds the model's
        value where an episode is left; fitted-Q evaluation needs only single transitions. It has a
        table for each step where the model's transitions or rewards change with the step, and one
        table for all steps otherwise.
    """
    model = for_population(model)
    if model.task.infinite_horizon:
        raise ValueError("the task has an infinite horizon; check_policy_value needs a last step")
    if log is not None:
        table, base = as_table(log, "the log"), model.segment_task
        columns = check_columns(columns)
        covariates = [] if model.log is None else list(model.log.situations.covariates)
        paid = [reward]
        if reward is None and model.log is not None and model.log.rewards is not None:
            paid = [x.source.column for x in model.log.rewards.outcomes.values()]
            paid = [c for c in paid if c in table.names]
        names = list(base.state_names), list(base.action_names)
        history = read_history(
            table, lambda rows: number_rows(rows, columns, *names), columns, episode, step,
            covariates, weights, [c for c in paid if c is not None], missing,
            {"cluster": cluster, "ended": ended, "propensity": propensity},
        )  # fmt: skip
        people = population_of(history, episode, names[0], covariates)
        model = replace(model, people=people, history=history, first=None)
        kept = {"horizon": model.setting[0], "discount": model.setting[1]}
        if model.log is not None:
            model = model.at(**kept, reward=model.setting[2])
        else:
            model = replace(model, **model.locate([{}], np.zeros(0, np.int64)))
    return check_episodes(model, policy, build_episodes(model, reward), confidence)


def check_episodes(
    model: TransitionModel, policy: Any, data: Episodes, confidence: float
) -> ValueChecks:
    """Return the checks of `check_policy_value` for episodes that were read."""
    task, weights, n = model.task, data.weights, float(data.weights.sum())
    model = at_starts_of(model, data)
    predicted = policy_value(model, policy, confidence)
    table = segment_table(model, policy)
    z = check_quantile(data, confidence)
    function = build_value_function(model, [(policy, 1.0)])
    chance = as_probabilities(task, function.done() if table is None else table)
    chance = np.broadcast_to(chance.reshape(len(chance), -1), (task.horizon, len(task.sizes)))
    # what was done needs no weights
    propensity = None if table is None else data.propensity
    ratio = importance_ratios(task, data, chance, propensity)
    effective = float((weights @ ratio[:, -1]) ** 2 / max(weights @ ratio[:, -1] ** 2, 1e-300))
    cross = cross_fit(model, policy, data)
    by_step = len(model.steps) > 1 or (task.reward is not None and task.reward.ndim > 2)
    by_step = by_step or len(model.behaviour_columns) > 1
    rows = [
        estimate_row("fitted model", predicted.value, predicted.standard_error, n, z)
        | {"low": predicted.low, "high": predicted.high},
        estimate_row("weighted importance sampling", *importance_value(data, ratio), effective, z),
    ]
    if cross is None:
        robust = doubly_robust(task, data, ratio, *model_values(model, policy))
    else:
        robust = doubly_robust_folds(task, data, chance, table is None, cross)
    name = "doubly robust" if cross is None else f"doubly robust, {FOLDS} folds"
    rows.append(estimate_row(name, *robust, effective, z))
    if len(weights) >= EACH * len(model.segments):
        name = f"fitted-Q evaluation, {'by step' if by_step else 'steps pooled'}"
        rows.append(estimate_row(name, *fitted_q(task, data, chance, by_step), n, z))
    # the level is that of all comparisons together
    together = check_quantile(data, 1.0 - (1.0 - confidence) / 3.0)
    unseen = predicted.unseen / task.horizon
    return ValueChecks(rows, confidence, compare_estimates(rows, together, unseen))


def at_starts_of(model: TransitionModel, data: Episodes) -> TransitionModel:
    """Return the model whose population starts where the episodes do."""
    first = np.bincount(data.states[:, 0], data.weights, model.task.n_states)
    return replace(model, joint=first / first.sum())


def check_quantile(data: Episodes, confidence: float) -> float:
    """Return how many standard errors of a mean over clusters an interval reaches to each side."""
    level = open_fraction("confidence", confidence)
    n = len(np.unique(data.cluster))
    if n == len(data.cluster):
        n = max(n, round(float(data.weights.sum())))
    return float(special.stdtrit(max(n - 1, 1), 0.5 + level / 2.0))


def realised_mean(model: TransitionModel, data: Episodes, confidence: float) -> dict[str, Any]:
    """Return the mean of what the individuals of the log earned, as a row of `ValueChecks`.

    Where some were no longer followed, those who were count more.
    """
    task = model.task
    ratio = importance_ratios(task, data, np.empty((task.horizon, 0)), None)
    n, z = float(data.weights.sum()), check_quantile(data, confidence)
    return estimate_row("mean of the log", *importance_value(data, ratio), n, z)


class Fold(NamedTuple):
    """What the individuals outside of one part of the log say."""

    mine: Array  # (n,) whether each episode is in the part
    q: Array  # (H, S*A) action values of the policy under the model of the others
    v: Array  # (H + 1, S)
    propensity: Array  # (n, H) probabilities of the logged actions, by the others' model


def cross_fit(model: TransitionModel, policy: Any, data: Episodes) -> list[Fold] | None:
    """Return models of the others for each part of the individuals; None without the fit's rows."""
    history = model.history
    clusters = np.unique(data.cluster)
    if history is None or history.choice is None or len(clusters) < 2 * FOLDS:
        return None
    part = np.searchsorted(clusters, data.cluster) % FOLDS
    of_individual = np.full(len(history.labels), -1)
    of_individual[data.individual] = part
    folds = []
    for k in range(FOLDS):
        weight = history.weight * (of_individual[history.individual] != k)
        others = refit(model, history.choice, weight)
        chance = data.propensity
        if history.named.get("propensity") is None:
            chance = chance_of(model, log_behaviour(model, weight), data.pairs)
        folds.append(Fold(part == k, *model_values(others, policy), chance))
    return folds


def refit(model: TransitionModel, choice: Array, weight: Array) -> TransitionModel:
    """Return the model with coefficients fitted to other weights (m,) of its rows."""
    if model.log is None:
        counts = np.bincount(choice, weight, model.task.n_triples)
        lam = model.fitted.regularization
        return replace(model, fitted=fit_mnl(model.features, counts, lam))
    known = model.log.data
    counts = np.bincount(choice, weight, len(known.counts))
    visits, theta = np.add.reduceat(counts, known.indptr[:-1]), model.theta.copy()
    data = Choices(known.indptr, known.x, counts, visits, known.lam, known.offset)
    for _ in range(10):
        _, slope, bend = data.evaluate(theta, True)
        step = np.linalg.pinv(bend, hermitian=True) @ slope
        theta = theta - step
        if slope @ step < 1e-10 * weight.sum():
            break
    return replace(model, fitted=replace(model.fitted, theta=theta))


def doubly_robust_folds(
    task: Task, data: Episodes, chance: Array, as_done: bool, folds: list[Fold]
) -> tuple[float, float]:
    """Return the doubly robust value and its error, the values of each part from the others."""
    propensity = data.propensity.copy()
    for fold in folds:
        propensity[fold.mine] = fold.propensity[fold.mine]
    ratio = importance_ratios(task, data, chance, None if as_done else propensity)
    each = np.zeros(len(data.weights))
    for fold in folds:
        each[fold.mine] = robust_parts(task, data, ratio, fold.q, fold.v)[fold.mine]
    return mean_and_error(each, data)


def estimate_row(
    name: str, value: float, error: float, effective: float, z: float
) -> dict[str, Any]:
    """Return a row of `ValueChecks`."""
    return {
        "name": name, "value": float(value), "standard_error": float(error),
        "low": float(value - z * error), "high": float(value + z * error),
        "effective": float(effective),
    }  # fmt: skip


def compare_estimates(rows: list[dict[str, Any]], z: float, unseen: float) -> str:
    """Return whether the checks agree with the model, in a sentence.

    Reweighed episodes count where they are worth FEW of the policy's own, and fitted-Q evaluation
    where the policy stays in pairs that the log has: unseen is the share of its other steps.
    """
    model, others = rows[0], rows[1:]
    effective = others[0]["effective"]
    tables = model["effective"] >= FEW and unseen <= UNSEEN
    same = [r for r in others[2:] if abs(r["value"] - model["value"]) <= SAME * abs(r["value"])]
    tables = tables and len(others) > 2 and not same
    able = [*(others[:2] if effective >= FEW else []), *(others[2:] if tables else [])]

    def distance(row: dict[str, Any]) -> float:
        error = float(np.hypot(row["standard_error"], model["standard_error"]))
        return abs(row["value"] - model["value"]) / max(error, 1e-300)

    off = [r["name"] for r in able if distance(r) > z]
    if off:
        return (
            f"the model disagrees with {' and '.join(off)}: do not trust its value before you "
            "know why"
        )
    also = "; fitted-Q evaluation is the same number as the model's by construction"
    if effective >= FEW:
        return f"the checks that do not rely on the model agree with it{also if same else ''}"
    agrees = "; fitted-Q evaluation agrees with the model" if tables else also if same else ""
    return (
        f"the log can hardly check this policy: its episodes are worth {effective:.1f} of the "
        f"policy's own{agrees}"
    )


def importance_ratios(task: Task, data: Episodes, chance: Array, propensity: Array | None) -> Array:
    """Return (n, H) products of the ratios of action probabilities up to each step.

    They are divided by the probability to be followed so far, are 0 where an episode is not, and
    are scaled to a mean of 1 at every step. chance: (H, S*A) of the policy; propensity: (n, H) of
    the logged actions, None where the policy is what was done.
    """
    each = np.ones(data.pairs.shape)
    if propensity is not None:
        new, old = chance[np.arange(task.horizon), data.pairs], propensity
        # a model of the other individuals may say that what was done has no chance
        each = np.where(data.real, new / np.where(data.real, np.maximum(old, 1e-12), 1.0), 1.0)
    ratio, weights = np.cumprod(each * follow_weights(task, data), axis=1), data.weights
    return ratio / np.maximum(weights @ ratio / weights.sum(), 1e-300)


def follow_weights(task: Task, data: Episodes) -> Array:
    """Return (n, H) 1 / (1 - the share that is left at this step and state), 0 for those left.

    The share of a state is drawn towards that of all states by as much as PRIOR episodes.
    """
    result = np.where(data.left, 0.0, 1.0)
    for h in range(1, task.horizon):
        at_risk = data.there[:, h - 1] & ~data.stays[:, h] & (data.there | data.left)[:, h]
        weight, s = data.weights * at_risk, data.states[:, h]
        gone = np.bincount(s, weight * data.left[:, h], task.n_states)
        total = np.bincount(s, weight, task.n_states)
        if not gone.any():
            continue
        share = (gone + PRIOR * gone.sum() / total.sum()) / (total + PRIOR)
        result[:, h] *= np.where(at_risk, 1.0 / np.maximum(1.0 - share[s], 1e-12), 1.0)
    return result


def mean_and_error(each: Array, data: Episodes) -> tuple[float, float]:
    """Return the mean over episodes and its standard error, by cluster."""
    n = data.weights.sum()
    mean, n_clusters = float(data.weights @ each / n), len(np.unique(data.cluster))
    if n_clusters == len(data.cluster):  # an episode of weight 2 is two episodes
        return mean, float(np.sqrt(data.weights @ (each - mean) ** 2) / n)
    sums = np.bincount(data.cluster, data.weights * (each - mean))
    few = n_clusters / max(n_clusters - 1.0, 1.0)
    return mean, float(np.sqrt(few) * np.linalg.norm(sums) / n)


def importance_value(data: Episodes, ratio: Array) -> tuple[float, float]:
    """Return value and standard error of per-decision weighted importance sampling.

    Both are nan where no episode follows the policy to the last step: nothing says what is earned
    there, and leaving these steps out would be a wrong number.
    """
    if not ratio.any(axis=0).all():
        return nan, nan
    means = data.weights @ (ratio * data.earned) / data.weights.sum()
    deviation = (ratio * (data.earned - means)).sum(axis=1)
    return float(means.sum()), mean_and_error(deviation, data)[1]


def model_values(model: TransitionModel, policy: Any) -> tuple[Array, Array]:
    """Return (H, S*A) action values and (H + 1, S) values of the policy under the model."""
    function = build_value_function(model, [(policy, 1.0)])
    task, v = function.task, function.at(function.origin).v
    q, (reward, pay) = np.empty((task.horizon, len(task.sizes))), task.user_rewards
    for h in range(task.horizon):
        ahead = v[h + 1][task.successors][None] + (steps_of(pay, h) if pay.size else 0.0)
        q[h] = (steps_of(reward, h) + task.by_pair(steps_of(model.prob, h) * ahead))[0]
    return q, v


def doubly_robust(
    task: Task, data: Episodes, ratio: Array, q: Array, v: Array
) -> tuple[float, float]:
    """Return the model's value, corrected by the log, and its standard error.

    sum_h w_(h-1) V_h(s_h) + w_h (r_h - Q_h(s_h, a_h)), w the ratios: where an episode is left at
    step h, the first part stays, and the model says what would have come.
    """
    return mean_and_error(robust_parts(task, data, ratio, q, v), data)


def robust_parts(task: Task, data: Episodes, ratio: Array, q: Array, v: Array) -> Array:
    """Return (n,) what each episode adds to the doubly robust value."""
    steps = np.arange(task.horizon)
    before = np.hstack([np.ones((len(ratio), 1)), ratio[:, :-1]])
    of_pair = np.where(data.there, q[steps, data.pairs], 0.0)
    # after the step at which an episode is left, `before` is 0
    of_state = np.where(data.there | data.left, v[steps, data.states], 0.0)
    return (ratio * (data.earned - of_pair) + before * of_state).sum(axis=1)


def fitted_q(task: Task, data: Episodes, chance: Array, by_step: bool) -> tuple[float, float]:
    """Return value and standard error of tables Q fitted backwards; errors by resampled episodes.

    by_step: Q_h is fitted to the rows of step h alone; otherwise to the rows of all steps.
    """
    rng, n = np.random.default_rng(0), float(data.weights.sum())
    value = fit_q_tables(task, data, chance, data.weights, by_step)
    names, of = np.unique(data.cluster, return_inverse=True)
    alone = len(names) == len(of)
    again = []
    for _ in range(REPLICATES):
        if alone:
            drawn = rng.multinomial(round(n), data.weights / n).astype(float)
        else:
            drawn = data.weights * rng.multinomial(len(names), [1 / len(names)] * len(names))[of]
        again.append(fit_q_tables(task, data, chance, drawn, by_step))
    few = 1.0 if alone else len(names) / max(len(names) - 1.0, 1.0)
    return value, float(np.sqrt(few) * np.std(again, ddof=1))


def fit_q_tables(task: Task, data: Episodes, chance: Array, weights: Array, by_step: bool) -> float:
    """Return the value of tables fitted backwards to weighted episodes.

    A pair without rows at a step has the mean of its state's other pairs there; a state without
    rows at a step has what the rows of all steps say.
    """
    n_pairs, shape = len(task.sizes), (task.n_states, task.n_actions)
    episode, step = np.nonzero(data.there)
    pair = data.pairs[data.there]
    # an episode that ended does not go on from its last state; one that was left does
    goes = np.hstack([(data.there | data.left)[:, 1:], np.ones((len(weights), 1), bool)])
    ends, weight = data.there & ~goes, weights[episode]
    rewards, goes_on = data.rewards[data.there], weight * ~ends[data.there]

    def tables(mine: Any) -> tuple[Any, Array, Array]:
        entries = goes_on[mine], (pair[mine], data.following[data.there][mine])
        moves = sparse.csr_array(entries, (n_pairs, task.n_states))
        paid = np.bincount(pair[mine], (weight * rewards)[mine], n_pairs)
        return moves, paid, np.bincount(pair[mine], weight[mine], n_pairs)

    def fitted(moves: Any, paid: Array, total: Array, v: Array) -> tuple[Array, Array]:
        q = ((paid + moves @ v) / np.maximum(total, 1e-300)).reshape(shape)
        seen = (total > 0).reshape(shape)
        typical = (q * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        return np.where(seen, q, typical[:, None]), np.asarray(seen.any(axis=1))

    pooled, v = tables(slice(None)), data.last
    for h in reversed(range(task.horizon)):
        q, _ = fitted(*pooled, v)
        if by_step:
            of_step, seen = fitted(*tables(step == h), v)
            q = np.where(seen[:, None], of_step, q)
        v = (chance[h].reshape(shape) * q).sum(axis=1)
    return float(weights @ v[data.states[:, 0]] / weights.sum())
