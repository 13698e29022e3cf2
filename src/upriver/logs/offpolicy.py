"""Checks of a policy's value that do not rely on the model: they reweigh the log's episodes.

Per-decision weighted importance sampling (Precup, Sutton and Singh 2000), weighted doubly robust
(Jiang and Li 2016; Thomas and Brunskill 2016, with the fitted model's values), and fitted-Q
evaluation with tables. All three assume that the log holds what the actions depended on: none of
them sees confounding or drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, check_kinds
from upriver.display import add_repr
from upriver.logs.effects import normal_quantile
from upriver.logs.model import TransitionModel, check_model
from upriver.logs.situations import find_triples, task_numbers
from upriver.logs.tables import COLUMNS, open_table
from upriver.logs.value import policy_value
from upriver.logs.value_function import behaviour_policy, build_value_function, policy_table
from upriver.mdp import Task
from upriver.planning import steps_of

REPLICATES = 200  # resampled logs for the error of fitted-Q evaluation
FEW = 20  # effective episodes below which a reweighed log says nothing


class Episodes(NamedTuple):
    """The episodes of a log, all as long as the horizon."""

    states: Array  # (n, H)
    actions: Array  # (n, H)
    following: Array  # (n, H) next states
    rewards: Array  # (n, H)
    there: Array  # (n, H) whether the episode has this step
    last: Array  # (S,) the terminal value of each state, beside the rewards
    weights: Array  # (n,) how often each episode counts

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
    task: Task, log: Any, columns: Sequence[str], episode: str, step: str,
    reward: str | None = None, weights: str | None = None, missing: str = "refuse",
) -> Episodes:  # fmt: skip
    """Read the episodes of a log; the parameters are those of `check_policy_value`."""
    table = open_table(log, "the log")
    extra = [c for c in (reward, weights) if c is not None]
    rows = table.read([*columns, episode, step, *extra], weights, extra, missing, group=False)
    cells = task_numbers(rows, columns, task)
    of, labels = rows.codes(episode)
    order = np.lexsort((rows.values(step), of))
    of = of[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    keep = place < task.horizon
    at = of[keep], place[keep]
    shape = len(labels), task.horizon
    found = [np.zeros(shape, np.int64) for _ in range(3)]
    for out, values in zip(found, cells, strict=True):
        out[at] = values[order][keep]
    there = np.zeros(shape, bool)
    there[at] = True
    rewards, last = np.zeros(shape), np.zeros(task.n_states)
    if reward is not None:
        rewards[at] = np.asarray(rows.values(reward), np.float64)[order][keep]
    else:
        rewards[at] = task_rewards(task, at[1], *(x[at] for x in found))
        last = last if task.terminal is None else task.terminal
    given = np.ones(len(of)) if weights is None else rows.weight[order]
    times = np.zeros(len(labels))
    times[of] = given
    if (times[of] != given).any():
        i = int(np.argmax(times[of] != given))
        raise ValueError(f"weights {weights!r} are {given[i]:g} and {times[of[i]]:g} in "
                         f"episode {labels[of[i]]!r}; all rows of an episode must have "
                         "one weight")  # fmt: skip
    states_of, actions_of, following = found
    return Episodes(states_of, actions_of, following, rewards, there, last, times)


def task_rewards(task: Task, h: Array, s: Array, a: Array, s2: Array) -> Array:
    """Return (m,) the task's reward of each transition; of unknown next states the average."""
    reward, pay = task.user_rewards
    pair = s * task.n_actions + a
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
    confidence: float = 0.95, weights: str | None = None, missing: str = "refuse",
) -> ValueChecks:  # fmt: skip
    """Estimate a policy's value from the log's episodes, beside the value under the model.

    Parameters
    ----------
    model
        A fitted model, at fixed covariates, with a finite horizon.
    policy
        As in `policy_value`.
    log
        A table as in `fit_transitions`, with columns of the episode and of the step; only the order
        of the steps counts. Episodes start where the log's do, longer ones are cut at the horizon,
        and shorter ones are taken to have ended.
    columns, episode, step
        The names of the columns.
    reward
        A column of all that was earned; the rewards of the task unless given.
    confidence
        Of the intervals.
    weights
        A column of how often each episode counts.
    missing
        "refuse" or "drop", as in `fit_transitions`.

    Returns
    -------
    ValueChecks
        The probabilities of the logged actions are estimated by their shares in each state.
        Fitted-Q evaluation has a table for each step where the model's transitions or rewards
        change with the step, and one table for all steps otherwise.
    """
    task = check_model(model).task
    if task.infinite_horizon:
        raise ValueError("the task has an infinite horizon; check_policy_value needs a last step")
    data = read_episodes(task, log, tuple(columns), episode, step, reward, weights, missing)
    return check_episodes(model, policy, data, confidence)


def check_episodes(
    model: TransitionModel, policy: Any, data: Episodes, confidence: float
) -> ValueChecks:
    """Return the checks of `check_policy_value` for episodes that were read."""
    z, task = normal_quantile(confidence), model.task
    weights, n = data.weights, float(data.weights.sum())
    start = data.starts(task)
    predicted = policy_value(model, policy, confidence, start)
    table = policy_table(task, policy)
    pair = (data.states * task.n_actions + data.actions)[data.there]
    weight = np.broadcast_to(weights[:, None], data.there.shape)[data.there]
    behaviour = behaviour_policy(task, np.bincount(pair, weight, len(task.sizes)))
    chance = action_probabilities(task, behaviour[None] if table is None else table)
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
    return ValueChecks(rows, confidence, compare_estimates(rows, z))


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
    """Return whether the checks agree with the model, in a sentence."""
    if rows[1]["effective"] < FEW:
        return (
            "the log can hardly check this policy: its episodes are worth "
            f"{rows[1]['effective']:.1f} of the policy's own"
        )
    model, others = rows[0], rows[1:]

    def distance(row: dict[str, Any]) -> float:
        error = float(np.hypot(row["standard_error"], model["standard_error"]))
        return abs(row["value"] - model["value"]) / max(error, 1e-300)

    off = [r["name"] for r in others if distance(r) > z]
    if not off:
        return "the checks that do not rely on the model agree with it"
    return (
        f"the model disagrees with {' and '.join(off)}: do not trust its value before you know why"
    )


def action_probabilities(task: Task, table: Array) -> Array:
    """Return (H, S, A) probabilities of the actions of a policy."""
    shape = task.horizon, task.n_states, task.n_actions
    if table.dtype.kind == "f":
        return np.broadcast_to(table.reshape(-1, *shape[1:]), shape)
    return np.eye(task.n_actions)[table.astype(np.int64)]


def importance_ratios(task: Task, data: Episodes, chance: Array, behaviour: Array) -> Array:
    """Return (n, H) products of the ratios of action probabilities up to each step."""
    steps = np.arange(task.horizon)
    new = chance[steps, data.states, data.actions]
    old = behaviour[data.states * task.n_actions + data.actions]
    each = np.where(data.there, new / np.where(data.there, old, 1.0), 1.0)
    return np.cumprod(each, axis=1)


def normalize_ratios(ratio: Array, weights: Array) -> Array:
    """Return (n, H) the ratios, scaled to a mean of 1 at every step."""
    return ratio / np.maximum(weights @ ratio / weights.sum(), 1e-300)


def mean_and_error(each: Array, weights: Array) -> tuple[float, float]:
    """Return the mean over episodes and its standard error."""
    n = weights.sum()
    mean = float(weights @ each / n)
    return mean, float(np.sqrt(weights @ (each - mean) ** 2) / n)


def importance_value(data: Episodes, ratio: Array) -> tuple[float, float]:
    """Return value and standard error of per-decision weighted importance sampling."""
    weight = normalize_ratios(ratio, data.weights)
    means = data.weights @ (weight * data.earned) / data.weights.sum()
    deviation = (weight * (data.earned - means)).sum(axis=1)
    return float(means.sum()), mean_and_error(deviation, data.weights)[1]


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
    """Return the model's value, corrected by the log, and its standard error."""
    steps = np.arange(task.horizon)
    after = normalize_ratios(ratio, data.weights)
    before = np.hstack([np.ones((len(ratio), 1)), after[:, :-1]])
    of_pair = np.where(data.there, q[steps, data.states * task.n_actions + data.actions], 0.0)
    of_state = np.where(data.there, v[steps, data.states], 0.0)
    each = (after * (data.earned - of_pair) + before * of_state).sum(axis=1)
    return mean_and_error(each, data.weights)


def fitted_q(task: Task, data: Episodes, chance: Array, by_step: bool) -> tuple[float, float]:
    """Return value and standard error of tables Q fitted backwards; errors by resampled episodes.

    by_step: Q_h is fitted to the rows of step h alone; otherwise to the rows of all steps.
    """
    rng, n = np.random.default_rng(0), float(data.weights.sum())
    value = fit_q_tables(task, data, chance, data.weights, by_step)
    again = []
    for _ in range(REPLICATES):
        drawn = rng.multinomial(round(n), data.weights / n).astype(float)
        again.append(fit_q_tables(task, data, chance, drawn, by_step))
    return value, float(np.std(again, ddof=1))


def fit_q_tables(task: Task, data: Episodes, chance: Array, weights: Array, by_step: bool) -> float:
    """Return the value of tables fitted backwards to weighted episodes.

    A pair without rows at a step has the mean of its state's other pairs there; a state without
    rows at a step has what the rows of all steps say.
    """
    n_pairs, shape = len(task.sizes), (task.n_states, task.n_actions)
    episode, step = np.nonzero(data.there)
    pair = (data.states * task.n_actions + data.actions)[data.there]
    # an episode that ended does not go on from its last state
    ends = data.there & ~np.hstack([data.there[:, 1:], np.ones((len(weights), 1), bool)])
    weight = weights[episode]
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
        v = (chance[h] * q).sum(axis=1)
    return float(weights @ v[data.states[:, 0]] / weights.sum())
