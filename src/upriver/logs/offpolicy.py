"""Checks of a policy's value that do not believe the model: they only reweigh the log's episodes.

Per-decision weighted importance sampling (Precup, Sutton and Singh 2000), weighted doubly robust
(Jiang and Li 2016; Thomas and Brunskill 2016, with the fitted model's values), and fitted-Q
evaluation with a table for each step. All three believe that the log says what the actions were
chosen by: none of them sees confounding, nor that the world has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import displayed
from upriver.logs.decisions import ModelAt
from upriver.logs.effects import quantile
from upriver.logs.episodes import Episodes, read_episodes
from upriver.logs.extremes import behaviour, check_model, played, worth_of
from upriver.logs.fit import LogModel
from upriver.logs.reading import COLUMNS
from upriver.logs.value import policy_value
from upriver.mdp import Task
from upriver.planning import steps_of

REPLICATES = 200  # resampled logs for the error of fitted-Q evaluation
FEW = 20  # effective episodes below which reweighing says nothing


@displayed
@dataclass(frozen=True, repr=False)
class ValueChecks:
    """Estimates of one policy's value side by side, in the order of trust in the model."""

    rows: list[dict[str, Any]]
    """A row per estimate: name, value, standard_error, low, high, effective (episodes)."""
    confidence: float
    verdict: str
    """Whether they agree, in a sentence."""

    def summary(self) -> str:
        lines = [
            f"{'estimate':<32}   value  std.err.  effective   {100 * self.confidence:g}% interval"
        ]
        for r in self.rows:
            lines.append(
                f"{r['name']:<32} {r['value']:7.4g}  {r['standard_error']:8.3g}  "
                f"{r['effective']:9.1f}   [{r['low']:.4g}, {r['high']:.4g}]"
            )
        return "\n".join([*lines, self.verdict])

    def plot(self) -> Any:
        """A figure of the estimates and their intervals."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 0.5 * len(self.rows) + 1.2), layout="constrained")
        axes = figure.subplots()
        for i, r in enumerate(self.rows):
            colour = "#0072b2" if i == 0 else "#1a1a1a"
            axes.plot([r["low"], r["high"]], [i, i], color=colour, lw=2)
            axes.plot(r["value"], i, "o", color=colour)
        axes.axvspan(self.rows[0]["low"], self.rows[0]["high"], color="#0072b2", alpha=0.12, lw=0)
        axes.set_yticks(range(len(self.rows)), [r["name"] for r in self.rows])
        axes.invert_yaxis()
        axes.set_xlabel(f"value of the policy, {100 * self.confidence:g}% intervals")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        return figure


def check_policy_value(
    model: LogModel | ModelAt,
    policy: Any,
    log: Any,
    columns: Sequence[str] = COLUMNS,
    episode: str = "episode",
    step: str = "step",
    reward: str | None = None,
    confidence: float = 0.95,
    weights: str | None = None,
) -> ValueChecks:
    """What the log's own episodes say of a policy's value, beside what the model says.

    log: as for `fit_from_log`, with two columns more, the episode of each row and its step, whose
    order counts. reward: a column of all that was paid; what the task pays unless given. Episodes
    start where the log's do, longer ones are cut at the horizon, and shorter ones have ended.
    weights: a column of how often each episode counts. The chance of each action is estimated by
    its share in each state.
    """
    check_model(model)
    z, task = quantile(confidence), model.task
    if task.infinite_horizon:
        raise ValueError(
            "check_policy_value follows episodes to their last step; the task has none"
        )
    data = read_episodes(task, log, tuple(columns), episode, step, reward, weights)
    times, n = data.times, float(data.times.sum())
    start = data.starts(task)
    believed = policy_value(model, policy, confidence, start)
    table = played(task, policy)
    did = behaviour(task, visits(task, data))
    chance = chances(task, did[None] if table is None else table)
    ratio = ratios(task, data, chance, did)
    effective = float((times @ ratio[:, -1]) ** 2 / max(times @ ratio[:, -1] ** 2, 1e-300))
    q, v = model_values(model, policy, start)
    rows = [
        row("fitted model", believed.value, believed.standard_error, n, z)
        | {"low": believed.low, "high": believed.high},
        row("weighted importance sampling", *reweighed(data, ratio), effective, z),
        row("doubly robust", *doubly_robust(task, data, ratio, q, v), effective, z),
        row("fitted-Q evaluation", *fitted_q(task, data, chance), n, z),
    ]
    return ValueChecks(rows, confidence, verdict(rows, z))


def row(name: str, value: float, error: float, effective: float, z: float) -> dict[str, Any]:
    return {
        "name": name, "value": float(value), "standard_error": float(error),
        "low": float(value - z * error), "high": float(value + z * error),
        "effective": float(effective),
    }  # fmt: skip


def apart(a: dict[str, Any], b: dict[str, Any]) -> float:
    """How many standard errors two estimates are apart."""
    error = float(np.hypot(a["standard_error"], b["standard_error"]))
    return abs(a["value"] - b["value"]) / max(error, 1e-300)


def verdict(rows: list[dict[str, Any]], z: float) -> str:
    if rows[1]["effective"] < FEW:
        return (
            "the log can hardly check this policy: its episodes are worth "
            f"{rows[1]['effective']:.1f} of the policy's own"
        )
    model, others = rows[0], rows[1:]
    off = [r["name"] for r in others if apart(r, model) > z]
    if not off:
        return "the checks that do not believe the model agree with it"
    return (
        f"the model disagrees with {' and '.join(off)}: do not trust its value before you know why"
    )


def visits(task: Task, data: Episodes) -> Array:
    """(n,) counts of the task's triples, of which only the pairs matter here."""
    group = (data.states * task.n_actions + data.actions)[data.there]
    weight = np.broadcast_to(data.times[:, None], data.there.shape)[data.there]
    pairs = np.bincount(group, weight, minlength=len(task.sizes))
    counts = np.zeros(task.n_triples)
    counts[task.indptr[:-1][task.sizes > 0]] = pairs[task.sizes > 0]
    return counts


def chances(task: Task, table: Array) -> Array:
    """(H, S, A) probabilities of the actions."""
    shape = task.horizon, task.n_states, task.n_actions
    if table.dtype.kind == "f":
        return np.broadcast_to(table.reshape(-1, *shape[1:]), shape)
    return np.eye(task.n_actions)[table.astype(np.int64)]


def ratios(task: Task, data: Episodes, chance: Array, did: Array) -> Array:
    """(n, H) how much likelier each episode so far is under the policy than under the log's."""
    steps = np.arange(task.horizon)
    new = chance[steps, data.states, data.actions]
    old = did[data.states * task.n_actions + data.actions]
    each = np.where(data.there, new / np.where(data.there, old, 1.0), 1.0)
    return np.cumprod(each, axis=1)


def averaged(each: Array, times: Array) -> tuple[float, float]:
    """(mean, its standard error) of what the episodes say."""
    n = times.sum()
    mean = float(times @ each / n)
    return mean, float(np.sqrt(times @ (each - mean) ** 2) / n)


def per_step(ratio: Array, times: Array) -> Array:
    """(n, H) the ratios so that they are 1 on average at every step."""
    return ratio / np.maximum(times @ ratio / times.sum(), 1e-300)


def reweighed(data: Episodes, ratio: Array) -> tuple[float, float]:
    """(value, standard error) of per-decision weighted importance sampling."""
    weight = per_step(ratio, data.times)
    means = data.times @ (weight * data.earned) / data.times.sum()
    off = (weight * (data.earned - means)).sum(axis=1)
    return float(means.sum()), averaged(off, data.times)[1]


def model_values(model: LogModel | ModelAt, policy: Any, start: Any) -> tuple[Array, Array]:
    """(H, S*A) and (H + 1, S) action values and values of the policy under the fitted model."""
    task = model.task
    worth = worth_of(model, [(policy, 1.0)], start)
    v = worth.at(worth.origin).v
    q, (reward, pay) = np.empty((task.horizon, len(task.sizes))), task.user_rewards
    for h in range(task.horizon):
        ahead = v[h + 1][task.successors][None] + (steps_of(pay, h) if pay.size else 0.0)
        q[h] = (steps_of(reward, h) + task.by_pair(steps_of(model.prob, h) * ahead))[0]
    return q, v


def doubly_robust(
    task: Task, data: Episodes, ratio: Array, q: Array, v: Array
) -> tuple[float, float]:
    """(value, standard error): the model's value, corrected by what the log saw beyond it."""
    steps = np.arange(task.horizon)
    after = per_step(ratio, data.times)
    before = np.hstack([np.ones((len(ratio), 1)), after[:, :-1]])
    said = np.where(data.there, q[steps, data.states * task.n_actions + data.actions], 0.0)
    stood = np.where(data.there, v[steps, data.states], 0.0)
    return averaged((after * (data.earned - said) + before * stood).sum(axis=1), data.times)


def fitted_q(task: Task, data: Episodes, chance: Array) -> tuple[float, float]:
    """(value, standard error) by tables Q_h fitted backwards; errors by resampled episodes.

    A pair without rows has the mean of what its state's other pairs have.
    """
    rng, n = np.random.default_rng(0), float(data.times.sum())
    value = backward(task, data, chance, data.times)
    again = [
        backward(task, data, chance, rng.multinomial(round(n), data.times / n).astype(float))
        for _ in range(REPLICATES)
    ]
    return value, float(np.std(again, ddof=1))


def backward(task: Task, data: Episodes, chance: Array, times: Array) -> float:
    groups, n_states = len(task.sizes), task.n_states
    rows, _ = np.nonzero(data.there)
    pair = (data.states * task.n_actions + data.actions)[data.there]
    weight = times[rows]
    total = np.bincount(pair, weight, groups)
    # an episode that ended does not go on from its last state
    last = data.there & ~np.hstack([data.there[:, 1:], np.ones((len(times), 1), bool)])
    goes_on = weight * ~last[data.there]
    shape = groups, n_states
    moves = sparse.csr_array((goes_on, (pair, data.following[data.there])), shape)
    paid = np.bincount(pair, weight * data.rewards[data.there], groups)
    seen = (total > 0).reshape(n_states, task.n_actions)
    share = np.maximum(total, 1e-300)
    v = data.last
    for h in reversed(range(task.horizon)):
        q = ((paid + moves @ v) / share).reshape(seen.shape)
        typical = (q * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        v = (chance[h] * np.where(seen, q, typical[:, None])).sum(axis=1)
    return float(times @ v[data.states[:, 0]] / times.sum())
