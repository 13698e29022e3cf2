"""Checks of a policy's value that do not rely on the model: they reweigh the log's episodes.

Per-decision weighted importance sampling (Precup, Sutton and Singh 2000) and weighted doubly robust
(Jiang and Li 2016; Thomas and Brunskill 2016, with the values of models of the other individuals).
Both assume that the log holds what the actions depended on: neither sees confounding or drift. They
follow episodes that were no longer observed (censored) as far as they go, and assume that this
depended on the step and the state alone. Where individuals have covariates of their own, a state is
a state at these covariates, as in the model's task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array, check_kinds
from upriver.display import add_repr
from upriver.logs.behaviour import Behaviour
from upriver.logs.model import TransitionModel, combine_outcomes, for_population
from upriver.logs.population import History
from upriver.logs.situations import find_triples
from upriver.logs.tables import array_of, is_same
from upriver.logs.value import policy_value, value_row
from upriver.logs.value_function import (
    action_values,
    as_probabilities,
    build_value_function,
    segment_table,
)  # fmt: skip
from upriver.mdp import Task
from upriver.mnl.choices import Choices
from upriver.mnl.fitted import quantile_of

PRIOR = 5.0  # episodes
FOLDS = 5  # parts of the individuals: the values of one come from a model of the others
FEW = 20  # effective episodes below which a reweighed log says nothing
ALONE = 0.999  # share of the weights from which on one episode is all that there is


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
    weights: Array  # (n,) how often each episode counts
    left: Array  # (n, H) whether the episode was no longer followed from this step on (censored)
    stays: Array  # (n, H) whether the episode has ended in a state that it would never leave
    propensity: Array  # (n, H) probabilities of the logged actions
    cluster: Array  # (n,) the cluster of each episode
    individual: Array  # (n,) the number of the individual in the history
    n_states: int  # of the log; `states` are more, because each segment has its own

    @property
    def real(self) -> Array:
        """(n, H) which steps the log has; in others an episode stays where it ended, or is over."""
        return self.there & ~self.stays


def build_episodes(model: TransitionModel) -> Episodes:
    """Return the episodes of the individuals of a model.

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
    rewards = np.zeros(shape)
    rewards[at] = realised_rewards(model, at[1], pairs[at], following[at], rows)
    cells, named = history.cells, history.named
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
        states, pairs, following, rewards, there, spread(history.weight)[:, 0],
        np.zeros(shape, bool), np.zeros(shape, bool), np.ones(shape), member, names, base.n_states,
    )  # fmt: skip
    mark_ends(task, data, read_ends(history, spread))
    if named.get("propensity") is not None:
        chance = spread(np.asarray(cells[named["propensity"]], np.float64), 1.0)
        bad = chance[~((chance > 0) & (chance <= 1))]
        if len(bad):
            raise ValueError(f"propensity {named['propensity']!r} is {bad[0]:g} somewhere; it must "
                             "be above 0 and at most 1")  # fmt: skip
    else:
        chance = chance_of(model, model.behaviour, data.pairs)
    data = data._replace(propensity=chance)
    # episodes that stay where they ended say nothing of those that went on from the last row
    followed = int(np.flatnonzero(data.real.any(axis=0))[-1]) + 1
    went_on = data.real[:, followed - 1] & data.left[:, min(followed, horizon - 1)]
    if went_on.any():
        raise CannotCheck(f"no {model.population.what} of the log is followed beyond step "
                          f"{followed}; the horizon is {horizon}, and it must be at most that, or "
                          "`ended` must say that episodes ended")  # fmt: skip
    return data


def read_ends(history: History, spread: Any) -> Array | None:
    """Return (n, H) whether each row is the last of an episode that ended; None where unsaid."""
    ended = history.named.get("ended")
    if ended is None:
        return None
    over = history.cells[ended]
    if not np.isin(over, (0, 1)).all():
        raise ValueError(f"column {ended!r} of the log must hold true and false, or 1 and 0")
    return spread(over.astype(bool))


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
        other[near] = ~is_same(history.cells[name][near], wanted[history.place[near]])
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
    if model.reward_rows is None or log.rewards is None or history is None:
        return earned
    weights, _ = combine_outcomes(log, model.setting[2])
    columns = {name: log.rewards.outcomes[name].source.column for name in weights}
    fitted = model.reward_rows.change(log.rewards.coefficients)
    none = np.zeros((task.n_states, task.n_actions))
    modelled = replace(task, reward=none, next_state_reward=fitted, reward_range=None)
    paid = sum(weights[name] * np.asarray(history.cells[c])[rows] for name, c in columns.items())
    discounts = model.reward_rows.discounts
    return earned - task_rewards(modelled, h, pair, s2) + discounts[h % len(discounts)] * paid


def chance_of(model: TransitionModel, behaviour: Behaviour, pairs: Array) -> Array:
    """Return (n, H) the probability of the actions of pairs of the model's task."""
    tables = np.array([behaviour.probabilities(z).ravel() for z in model.behaviour_columns])
    steps = np.minimum(np.arange(pairs.shape[1]), len(tables) - 1)
    return tables[steps, pairs]


def is_absorbing(task: Task) -> Array:
    """Return (S,) whether every action of a state stays there."""
    state, _, following = task.triples
    return np.bincount(state, following != state, task.n_states) == 0


def mark_ends(task: Task, data: Episodes, over: Array | None) -> None:
    """Say of episodes shorter than the horizon whether they ended or were no longer followed.

    over: see `read_ends`. An episode that ended in a state that the task never leaves stays there,
    and is paid for it.
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
    data.rewards[i, h] = task_rewards(task, h, data.pairs[i, h], s)


def task_rewards(task: Task, h: Array, pair: Array, s2: Array) -> Array:
    """Return (m,) the task's reward of each transition."""
    reward, pay = task.user_rewards
    paid = reward[np.minimum(h, len(reward) - 1), pair]
    if not pay.size:
        return paid
    at = find_triples(task, pair, s2, task.n_states)
    return paid + pay[np.minimum(h, len(pay) - 1), at]


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
    model: TransitionModel, policy: Any, confidence: float = 0.95
) -> ValueChecks:  # fmt: skip
    """Estimate a policy's value from the log's episodes, beside the value under the model.

    `fit_transitions(..., individual=)` says which rows are an episode, and has what else is needed:
    `step`, `ended`, `propensity` and `cluster`. Episodes start where the log's do, longer ones are
    cut at the horizon, and where `at` fixes covariates they are followed as long as they have
    these. Where the reward comes from columns, what was earned is what these columns say.

    Parameters
    ----------
    model
        A fitted model with a finite horizon, which knows its individuals.
    policy
        As in `policy_value`.
    confidence
        Of the intervals.

    Returns
    -------
    ValueChecks
        They are right if censoring depends on the step and the state alone. The values of the
        doubly robust estimate are cross-fitted: those of each fifth of the individuals come from a
        model of the others, unless there are fewer than ten.
    """
    model = for_population(model)
    if model.task.infinite_horizon:
        raise ValueError("the task has an infinite horizon; check_policy_value needs a last step")
    return check_episodes(model, policy, build_episodes(model), confidence)


def check_episodes(
    model: TransitionModel, policy: Any, data: Episodes, confidence: float
) -> ValueChecks:
    """Return the checks of `check_policy_value` for episodes that were read."""
    task, weights, n = model.task, data.weights, float(data.weights.sum())
    first = np.bincount(data.states[:, 0], weights, task.n_states)  # where the episodes start
    model = replace(model, joint=first / n)
    predicted = policy_value(model, policy, confidence)
    table = segment_table(model, policy)
    z = check_quantile(data, confidence)
    function = build_value_function(model, [(policy, 1.0)])
    chance = as_probabilities(task, function.done() if table is None else table)
    chance = np.broadcast_to(chance.reshape(len(chance), -1), (task.horizon, len(task.sizes)))

    def ratios(propensity: Array) -> Array:
        # what was done needs no weights
        return importance_ratios(task, data, chance, None if table is None else propensity)

    ratio = ratios(data.propensity)
    effective = float((weights @ ratio[:, -1]) ** 2 / max(weights @ ratio[:, -1] ** 2, 1e-300))
    if len(np.unique(data.cluster)) >= 2 * FOLDS:
        name, each = f"doubly robust, {FOLDS} folds", cross_fit(model, policy, data, ratios)
    else:
        name = "doubly robust"
        each = robust_parts(task, data, ratio, *action_values(model, policy))
    rows = [
        value_row("fitted model", predicted) | {"effective": n},
        estimate_row(
            "weighted importance sampling",
            *importance_value(data, ratio),
            effective,
            check_quantile(data, confidence, effective),
        ),
        estimate_row(name, *mean_and_error(each, data), effective, z),
    ]
    # the level is that of both comparisons together
    together = check_quantile(data, 0.5 + confidence / 2.0)
    return ValueChecks(rows, confidence, compare_estimates(rows, together))


def check_quantile(data: Episodes, confidence: float, most: float = np.inf) -> float:
    """Return how many standard errors of a mean over clusters an interval reaches to each side.

    most: of effective episodes, where some count much more than others.
    """
    n = min(max(1.0, count_units(data) - 1.0), max(1.0, most - 1.0))
    return quantile_of(n, confidence)


def count_units(data: Episodes) -> float:
    """Return the number of clusters; where each has one episode, one of weight 2 is two."""
    n = len(np.unique(data.cluster))
    return float(n) if n < len(data.cluster) else max(float(n), float(data.weights.sum()))


def realised_mean(model: TransitionModel, data: Episodes, confidence: float) -> dict[str, Any]:
    """Return the mean of what the individuals of the log earned, as a row of `ValueChecks`.

    Where some were no longer followed, those who were count more.
    """
    task = model.task
    ratio = importance_ratios(task, data, np.empty((task.horizon, 0)), None)
    n, z = float(data.weights.sum()), check_quantile(data, confidence)
    return estimate_row("mean of the log", *importance_value(data, ratio), n, z)


def cross_fit(model: TransitionModel, policy: Any, data: Episodes, ratios: Any) -> Array:
    """Return (n,) what each episode adds to the doubly robust value, the values of each part of the
    individuals and the propensities there from a model of the others.

    ratios: the function from propensities (n, H) to `importance_ratios`.
    """
    history, task = model.history, model.task
    assert history is not None and history.choice is not None
    part = np.searchsorted(np.unique(data.cluster), data.cluster) % FOLDS
    of_individual = np.full(len(history.labels), -1)
    of_individual[data.individual] = part
    propensity, values = data.propensity.copy(), []
    for k in range(FOLDS):
        mine = part == k
        weight = history.weight * (of_individual[history.individual] != k)
        others, behaviour = refit(model, history.choice, weight)
        if history.named.get("propensity") is None:
            propensity[mine] = chance_of(model, behaviour, data.pairs)[mine]
        values.append((mine, *action_values(others, policy)))
    ratio, each = ratios(propensity), np.zeros(len(part))
    for mine, q, v in values:
        each[mine] = robust_parts(task, data, ratio, q, v)[mine]
    return each


def refit(
    model: TransitionModel, choice: Array, weight: Array
) -> tuple[TransitionModel, Behaviour]:
    """Return the model, and that of the actions, fitted to other weights (m,) of its rows."""
    known = model.log.data
    counts = np.bincount(choice, weight, len(known.counts))
    visits, theta = np.add.reduceat(counts, known.indptr[:-1]), model.theta.copy()
    data = Choices(known.indptr, known.x, counts, visits, known.lam)
    for _ in range(10):
        _, slope, bend = data.evaluate(theta, True)
        step = np.linalg.pinv(bend, hermitian=True) @ slope
        theta = theta - step
        if slope @ step < 1e-10 * weight.sum():
            break
    fitted = replace(model.fitted, theta=theta)
    return replace(model, fitted=fitted), model.log.model_actions(visits)


def estimate_row(
    name: str, value: float, error: float, effective: float, z: float
) -> dict[str, Any]:
    """Return a row of `ValueChecks`."""
    return {
        "name": name, "value": float(value), "standard_error": float(error),
        "low": float(value - z * error), "high": float(value + z * error),
        "effective": float(effective),
    }  # fmt: skip


def compare_estimates(rows: list[dict[str, Any]], z: float) -> str:
    """Return whether the checks agree with the model, in a sentence.

    They count where the reweighed episodes are worth FEW of the policy's own.
    """
    model, *others = rows
    effective = others[0]["effective"]
    if effective < FEW:
        return (
            f"the log can hardly check this policy: its episodes say as much as {effective:.1f} "
            "played by the policy"
        )

    def distance(row: dict[str, Any]) -> float:
        error = float(np.hypot(row["standard_error"], model["standard_error"]))
        return abs(row["value"] - model["value"]) / max(error, 1e-300)

    off = [r["name"] for r in others if distance(r) > z]
    if off:
        return (
            f"the model disagrees with {' and '.join(off)}: do not trust its value before you "
            "know why"
        )
    return "the checks that do not rely on the model agree with it"


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

    The share of a state is drawn towards that of all states by as much as PRIOR episodes. It is
    that of all segments together: with a covariate that is a number each has only one individual.
    """
    result = np.where(data.left, 0.0, 1.0)
    for h in range(1, task.horizon):
        at_risk = data.there[:, h - 1] & ~data.stays[:, h] & (data.there | data.left)[:, h]
        weight, s = data.weights * at_risk, data.states[:, h] % data.n_states
        gone = np.bincount(s, weight * data.left[:, h], data.n_states)
        total = np.bincount(s, weight, data.n_states)
        if not gone.any():
            continue
        share = (gone + PRIOR * gone.sum() / total.sum()) / (total + PRIOR)
        result[:, h] *= np.where(at_risk, 1.0 / np.maximum(1.0 - share[s], 1e-12), 1.0)
    return result


def mean_and_error(each: Array, data: Episodes) -> tuple[float, float]:
    """Return the mean over episodes and its standard error, by cluster."""
    mean, n = float(data.weights @ each / data.weights.sum()), count_units(data)
    return mean, float(np.sqrt(n / max(n - 1.0, 1.0))) * error_of(each - mean, data)


def error_of(deviation: Array, data: Episodes) -> float:
    """Return the root of the sum of squares of what clusters add to a mean."""
    n = data.weights.sum()
    if len(np.unique(data.cluster)) == len(data.cluster):  # an episode of weight 2 is two episodes
        return float(np.sqrt(data.weights @ deviation**2) / n)
    return float(np.linalg.norm(np.bincount(data.cluster, data.weights * deviation)) / n)


def importance_value(data: Episodes, ratio: Array) -> tuple[float, float]:
    """Return value and standard error of per-decision weighted importance sampling.

    Few episodes may have most of the weight. They draw the mean towards themselves, so what they
    deviate by is enlarged by their share (HC2), and one that has all of it says nothing about the
    error. Both results are nan where no episode follows the policy to the last step: nothing says
    what is earned there, and leaving these steps out would be a wrong number.
    """
    if not ratio.any(axis=0).all():
        return nan, nan
    weights, n = data.weights[:, None], data.weights.sum()
    means = (weights * ratio * data.rewards).sum(axis=0) / n
    names, of = np.unique(data.cluster, return_inverse=True)
    share = np.minimum(weights, 1.0) * ratio / n  # of one of the episodes that a weight stands for
    if len(names) < len(of):
        share = np.zeros((len(names), ratio.shape[1]))
        np.add.at(share, of, weights * ratio / n)
        share = share[of]
    if share.max() > ALONE:
        return float(means.sum()), np.inf
    deviation = ratio * (data.rewards - means) / np.sqrt(1.0 - share)
    return float(means.sum()), error_of(deviation.sum(axis=1), data)


def robust_parts(task: Task, data: Episodes, ratio: Array, q: Array, v: Array) -> Array:
    """Return (n,) what each episode adds to the doubly robust value.

    sum_h w_(h-1) V_h(s_h) + w_h (r_h - Q_h(s_h, a_h)), w the ratios: where an episode is left at
    step h, the first part stays, and the model says what would have come. q (H, S*A), v (H + 1, S).
    """
    steps = np.arange(task.horizon)
    before = np.hstack([np.ones((len(ratio), 1)), ratio[:, :-1]])
    of_pair = np.where(data.there, q[steps, data.pairs], 0.0)
    # after the step at which an episode is left, `before` is 0
    of_state = np.where(data.there | data.left, v[steps, data.states], 0.0)
    return (ratio * (data.rewards - of_pair) + before * of_state).sum(axis=1)
