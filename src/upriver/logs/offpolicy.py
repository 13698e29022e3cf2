"""Checks of a policy's value that do not rely on the model: they reweigh the log's episodes.

Per-decision weighted importance sampling (Precup, Sutton and Singh 2000), weighted doubly robust
(Jiang and Li 2016; Thomas and Brunskill 2016, with the fitted model's values), and fitted-Q
evaluation with tables. All three assume that the log holds what the actions depended on: none of
them sees confounding or drift. They follow episodes that were no longer observed (censored) as far
as they go, and assume that this depended on the step and the state alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, check_kinds
from upriver.display import add_repr
from upriver.logs.effects import predicted_probabilities
from upriver.logs.fit import check_columns, fit_transitions
from upriver.logs.formula import mentions
from upriver.logs.model import TransitionModel, check_model, discount_factors
from upriver.logs.situations import build_situations, find_triples, task_numbers
from upriver.logs.tables import COLUMNS, Rows, Table, array_of, listed
from upriver.logs.value import policy_value
from upriver.logs.value_function import (
    as_probabilities,
    behaviour_policy,
    build_value_function,
    policy_table,
)
from upriver.mdp import Task
from upriver.mdp.declaring import as_names
from upriver.planning import steps_of

REPLICATES = 200  # resampled logs for the error of fitted-Q evaluation
PRIOR = 5.0  # episodes
PROPENSITY_RIDGE = 0.01  # some states have one action
UNSEEN = 0.001  # share of the steps of the policy in pairs without rows that tables may ignore
FEW = 20  # effective episodes below which a reweighed log says nothing


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
    propensity: Array | None  # (n, H) probabilities of the logged actions, where they are given
    cluster: Array  # (n,) the cluster of each episode

    @property
    def real(self) -> Array:
        """(n, H) which steps the log has; in others an episode stays where it ended, or is over."""
        return self.there & ~self.stays

    def starts(self, task: Task) -> dict[Any, float]:
        """Return {state: share of the episodes that start there}."""
        first = np.bincount(self.states[:, 0], self.weights) / self.weights.sum()
        return {task.state_names[s]: float(first[s]) for s in np.flatnonzero(first)}

    @property
    def earned(self) -> Array:
        """(n, H) the rewards, and at the last step the terminal value as well."""
        earned = self.rewards.copy()
        earned[:, -1] += np.where(self.there[:, -1], self.last[self.following[:, -1]], 0.0)
        return earned


def read_episodes(
    model: TransitionModel, log: Any, columns: Sequence[str], episode: str, step: str,
    reward: str | None = None, weights: str | None = None, missing: str = "refuse",
    ended: str | Iterable[Any] | None = None, propensity: str | None = None,
    cluster: str | None = None,
) -> Episodes:  # fmt: skip
    """Read the episodes of a log; the parameters are those of `check_policy_value`."""
    columns = check_columns(columns)
    task, table = check_model(model).task, log if isinstance(log, Table) else Table(log, "the log")
    paid = [] if reward is None else [reward]
    named = [c for c in (ended, cluster) if isinstance(c, str)]
    # a column of propensities, or the covariates of a formula, which may be the action alone
    uses, others = mentions(propensity or ""), [c for c in table.names if c not in columns]
    logged = propensity in others
    factors = [c for c in others if (c == propensity if logged else uses(c))]
    keys = [*columns, episode, step, *named, *factors, *model.values, *paid]
    numbers = [*paid, *factors] if logged else paid
    rows = table.read(keys, weights, numbers, missing, group=False)
    for what, column in (("weight", weights), ("cluster", cluster)):
        change = None if column is None else table.find_change(column, episode)
        if change is not None:
            label, low, high = change
            raise CannotCheck(f"column {column!r} holds {low} and {high} in episode {label!r}; all "
                             f"rows of an episode must have one {what}")  # fmt: skip
    numbered = task_numbers(rows, columns, task)
    order, place = order_rows(rows, numbered, episode, step, task.horizon)
    if not len(order):
        raise CannotCheck("the first row of every episode of the log has a gap; fill them in")
    of = rows.codes(episode)[0][order]
    alike = find_alike(model, rows, of, place, order)
    # an episode with a gap or other covariates in its first row is not among those that are left
    names, of = np.unique(of[alike], return_inverse=True)
    order, at, shape = order[alike], (of, place[alike]), (len(names), task.horizon)

    def spread(values: Array, fill: Any = 0) -> Array:
        """Return (n, H) the entries (m,) of rows, episode by episode."""
        table = np.full(shape, fill, values.dtype)
        table[at] = values[order]
        return table

    states, actions, following = map(spread, numbered)
    there = spread(np.ones(len(rows.weight), bool))
    pairs = states * task.n_actions + actions
    rewards, last = np.zeros(shape), np.zeros(task.n_states)
    if reward is not None:
        discounts = discount_factors(*model.setting[:2])  # the task's own rewards have them
        rewards = spread(np.asarray(rows.values(reward), np.float64)) * discounts
    else:
        rewards[at] = task_rewards(task, at[1], pairs[at], following[at])
        last = last if task.terminal is None else task.terminal
    times = spread(rows.weight)[:, 0]
    member = np.arange(len(names)) if cluster is None else spread(rows.codes(cluster)[0])[:, 0]
    chance = None
    if propensity is not None:
        if logged:
            found = rows.values(propensity)
        else:
            found = fit_propensities(rows, propensity, columns, factors)
        chance = spread(np.asarray(found, np.float64), 1.0)
        bad = ~((chance > 0) & (chance <= 1))
        if bad.any():
            raise ValueError(f"propensity {propensity!r} is {chance[bad][0]:g} somewhere; it must "
                             "be above 0 and at most 1")  # fmt: skip
    data = Episodes(
        states, pairs, following, rewards, there, last, times, np.zeros(shape, bool),
        np.zeros(shape, bool), chance, member,
    )  # fmt: skip
    over = None
    if isinstance(ended, str):
        over = rows.values(ended)
        if not np.isin(over, (0, 1)).all():
            raise ValueError(f"column {ended!r} of {rows.table.title} must hold true and false, or "
                             "1 and 0")  # fmt: skip
        over = spread(over.astype(bool))
    elif ended is not None:
        known, final = list(task.state_names), as_names("ended", ended)
        for name in final:
            if name not in known:
                raise ValueError(f"ended names the state {name!r}; it must be one of "
                                 f"{listed(known)}")  # fmt: skip
        over = np.isin(following, [known.index(x) for x in final])
    mark_ends(task, data, over, reward is None)
    # episodes that stay where they ended say nothing of those that went on from the last row
    followed = int(np.flatnonzero(data.real.any(axis=0))[-1]) + 1
    went_on = data.real[:, followed - 1] & data.left[:, min(followed, task.horizon - 1)]
    if went_on.any():
        raise CannotCheck(f"no episode of the log is followed beyond step {followed}; the horizon "
                         f"is {task.horizon}, and it must be at most that, or `ended` must say "
                         "that episodes ended")  # fmt: skip
    return data


def order_rows(
    rows: Rows, numbered: Sequence[Array], episode: str, step: str, horizon: int
) -> tuple[Array, Array]:
    """Return the rows to use, by episode and step, and the place of each in its episode.

    Every row must start in the state to which the row before it goes. Where rows with gaps were
    left out, an episode is followed up to the first of them, as if it had been censored there.
    numbered: (m,) the numbers of s, a and s' of the rows.
    """
    (of, labels), steps, title = rows.codes(episode), rows.values(step), rows.table.title
    if steps.dtype.kind == "O":
        raise ValueError(f"column {step!r} of {title} holds words; it must hold numbers or dates, "
                         "which say in which order the rows of an episode follow")  # fmt: skip
    order = np.lexsort((steps, of))
    (s, _, s2), of, steps = (x[order] for x in numbered), of[order], steps[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    later = np.flatnonzero(place > 0)
    twice = later[steps[later] == steps[later - 1]]
    if len(twice):
        i = twice[0]
        raise ValueError(f"episode {labels[of[i]]!r} of {title} has more than one row of step "
                         f"{steps[i]}; every row must have a step of its own")  # fmt: skip
    last = np.full(len(labels), horizon)  # the place at which each episode is cut
    unplaced = False
    if rows.dropped:
        earlier, unplaced = count_earlier(rows.table, episode, step, labels, of, steps)
        lost = earlier != place
        np.minimum.at(last, of[lost], place[lost])
    broken = later[(s[later] != s2[later - 1]) & (place[later] < last[of[later]])]
    if len(broken) and not unplaced:
        i = broken[0]
        raise ValueError(f"episode {labels[of[i]]!r} of {title} goes to another state at step "
                         f"{steps[i - 1]} than it is in at step {steps[i]}; add the rows between "
                         "them, or give the parts episodes of their own")  # fmt: skip
    np.minimum.at(last, of[broken], place[broken])
    keep = place < last[of]
    return order[keep], place[keep]


def count_earlier(
    table: Table, episode: str, step: str, labels: Sequence[Any], of: Array, steps: Array
) -> tuple[Array, bool]:
    """Return (m,) how many rows of its episode come before each row, those with gaps included.

    The second result says whether there are rows without an episode or step, which have no place.
    """
    every = table.read([episode, step], missing="drop", group=False)
    index, names = every.codes(episode)
    levels, at = np.unique(every.values(step), return_inverse=True)
    key, number = np.sort(index * len(levels) + at), {x: i for i, x in enumerate(names)}
    first = np.array([number[x] for x in labels])[of] * len(levels)
    mine = first + np.searchsorted(levels, steps)
    return np.searchsorted(key, mine) - np.searchsorted(key, first), bool(every.dropped)


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


def fit_propensities(
    rows: Rows, formula: str, columns: Sequence[str], covariates: Sequence[str]
) -> Array:
    """Return (m,) the probability of each logged action, by an MNL model of the actions.

    It is the model of `fit_transitions` with actions in the place of next states.
    """
    (state, action, _), none = columns, "no action yet"
    table = {c: rows.values(c) for c in (state, action, *covariates)}
    table[none] = np.zeros(len(rows.weight), np.int64)
    model = fit_transitions(
        formula, table, columns=(state, none, action), weights=rows.weight,
        regularization=PROPENSITY_RIDGE,
    )  # fmt: skip
    assert model.log is not None
    space = model.log.space
    s, a = (rows.numbers(c, space.states, c) for c in (state, action))
    of = build_situations(space, s, {c: table[c] for c in model.log.situations.covariates})
    probability, _ = predicted_probabilities(model, of)
    return probability[of.successor == np.repeat(a, np.diff(of.indptr))]


def find_alike(model: TransitionModel, rows: Rows, of: Array, place: Array, order: Array) -> Array:
    """Return (m,) which rows are before the first that has other covariates than the model.

    An episode is followed up to there: to leave it out because of what it has later would be to
    choose those that ended early. of, place: (m,) the episode of each row and its place there;
    order: their numbers.
    """
    first = np.full(int(of.max()) + 1, model.task.horizon)  # of each episode, with others
    for name, value in model.values.items():
        values = value if isinstance(value, list) else [value]
        wanted = np.resize(array_of(values), model.task.horizon)
        other = rows.values(name)[order] != wanted[place]
        np.minimum.at(first, of[other], place[other])
    alike = place < first[of]
    if not alike.any():
        given = ", ".join(f"{c} = {x!r}" for c, x in model.values.items())
        raise CannotCheck(f"no episode of the log has {given}, so it cannot check the model there; "
                         "fix the covariates at values that episodes have")  # fmt: skip
    return alike


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
    model: TransitionModel, policy: Any, log: Any, columns: Sequence[str] = COLUMNS,
    episode: str = "episode", step: str = "step", reward: str | None = None,
    confidence: float = 0.95, weights: str | None = None, missing: str = "refuse", *,
    ended: str | Iterable[Any] | None = None, propensity: str | None = None,
    cluster: str | None = None,
) -> ValueChecks:  # fmt: skip
    """Estimate a policy's value from the log's episodes, beside the value under the model.

    Parameters
    ----------
    model
        A fitted model, at fixed covariates, with a finite horizon. Episodes are followed as long
        as they have these covariates, and count as censored from there on.
    policy
        As in `policy_value`.
    log
        A table as in `fit_transitions`, with columns of the episode and of the step. Steps are
        numbers or dates, of which only the order counts: each row must start in the state to which
        the row before it goes. Episodes start where the log's do, and longer ones are cut at the
        horizon.
    columns, episode, step
        The names of the columns.
    reward
        A column of all that was earned, which is discounted as the model is; the rewards of the
        task unless given.
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
        such as "action:C(state) + action:age". Unless given, shares of the actions in each state.
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
    if check_model(model).task.infinite_horizon:
        raise ValueError("the task has an infinite horizon; check_policy_value needs a last step")
    data = read_episodes(
        model, log, tuple(columns), episode, step, reward, weights, missing, ended, propensity,
        cluster,
    )  # fmt: skip
    return check_episodes(model, policy, data, confidence)


def check_episodes(
    model: TransitionModel, policy: Any, data: Episodes, confidence: float
) -> ValueChecks:
    """Return the checks of `check_policy_value` for episodes that were read."""
    z, task = model.fitted.quantile(confidence), model.task
    weights, n = data.weights, float(data.weights.sum())
    start = data.starts(task)
    predicted = policy_value(model, policy, confidence, start)
    table = policy_table(task, policy)
    real = data.real
    weight = np.broadcast_to(weights[:, None], real.shape)[real]
    behaviour = behaviour_policy(task, np.bincount(data.pairs[real], weight, len(task.sizes)))
    chance = as_probabilities(task, behaviour if table is None else table)
    chance = np.broadcast_to(chance.reshape(-1, len(behaviour)), (task.horizon, len(behaviour)))
    if table is None:
        data = data._replace(propensity=None)  # what was done needs no weights
    ratio = importance_ratios(task, data, chance, behaviour)
    effective = float((weights @ ratio[:, -1]) ** 2 / max(weights @ ratio[:, -1] ** 2, 1e-300))
    q, v = model_values(model, policy, start)
    by_step = len(model.steps) > 1 or (task.reward is not None and task.reward.ndim > 2)
    name = f"fitted-Q evaluation, {'by step' if by_step else 'steps pooled'}"
    rows = [
        estimate_row("fitted model", predicted.value, predicted.standard_error, n, z)
        | {"low": predicted.low, "high": predicted.high},
        estimate_row("weighted importance sampling", *importance_value(data, ratio), effective, z),
        estimate_row("doubly robust", *doubly_robust(task, data, ratio, q, v), effective, z),
        estimate_row(name, *fitted_q(task, data, chance, by_step), n, z),
    ]
    # the level is that of all three comparisons together
    together = model.fitted.quantile(1.0 - (1.0 - confidence) / 3.0)
    unseen = predicted.unseen / task.horizon
    return ValueChecks(rows, confidence, compare_estimates(rows, together, unseen))


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
    if effective >= FEW:
        return "the checks that do not rely on the model agree with it"
    return (
        f"the log can hardly check this policy: its episodes are worth {effective:.1f} of the "
        f"policy's own{'; fitted-Q evaluation agrees with the model' if tables else ''}"
    )


def importance_ratios(task: Task, data: Episodes, chance: Array, behaviour: Array) -> Array:
    """Return (n, H) products of the ratios of action probabilities up to each step.

    They are divided by the probability to be followed so far, are 0 where an episode is not, and
    are scaled to a mean of 1 at every step. chance: (H, S*A) of the policy; behaviour: (S*A,).
    """
    new = chance[np.arange(task.horizon), data.pairs]
    old = behaviour[data.pairs] if data.propensity is None else data.propensity
    each = np.where(data.real, new / np.where(data.real, old, 1.0), 1.0)
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
    mean = float(data.weights @ each / n)
    if len(np.unique(data.cluster)) == len(data.cluster):  # an episode of weight 2 is two episodes
        return mean, float(np.sqrt(data.weights @ (each - mean) ** 2) / n)
    return mean, float(np.linalg.norm(np.bincount(data.cluster, data.weights * (each - mean))) / n)


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


def model_values(model: TransitionModel, policy: Any, start: Any) -> tuple[Array, Array]:
    """Return (H, S*A) action values and (H + 1, S) values of the policy under the model."""
    function = build_value_function(model, [(policy, 1.0)], start)
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
    steps = np.arange(task.horizon)
    before = np.hstack([np.ones((len(ratio), 1)), ratio[:, :-1]])
    of_pair = np.where(data.there, q[steps, data.pairs], 0.0)
    # after the step at which an episode is left, `before` is 0
    of_state = np.where(data.there | data.left, v[steps, data.states], 0.0)
    each = (ratio * (data.earned - of_pair) + before * of_state).sum(axis=1)
    return mean_and_error(each, data)


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
    return value, float(np.std(again, ddof=1))


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
