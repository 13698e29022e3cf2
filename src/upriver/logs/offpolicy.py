"""Checks of a policy's value that do not believe the model: they only reweigh the log's episodes.

Per-decision weighted importance sampling (Precup, Sutton and Singh 2000), weighted doubly robust
(Jiang and Li 2016; Thomas and Brunskill 2016, with the fitted model's values), and fitted-Q
evaluation with a table for each step. All three believe that the log says what the actions were
chosen by: none of them sees confounding, nor that the world has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, shown
from upriver.display import displayed
from upriver.logs.decisions import ModelAt
from upriver.logs.effects import quantile
from upriver.logs.extremes import behaviour, check_model, played, worth_of
from upriver.logs.fit import LogModel
from upriver.logs.reading import COLUMNS, Log, numbers
from upriver.logs.value import policy_value
from upriver.mdp import Task
from upriver.mdp.frames import column, column_names, read_table
from upriver.planning import steps_of

REPLICATES = 200  # resampled logs for the error of fitted-Q evaluation
FEW = 20  # effective episodes below which reweighing says nothing


class Episodes(NamedTuple):
    """The episodes of a log, all as long as the horizon; rows after an end have weight 0."""

    states: Array
    """(n, H)"""
    actions: Array
    """(n, H)"""
    following: Array
    """(n, H) next states."""
    rewards: Array
    """(n, H)"""
    there: Array
    """(n, H) whether the episode has this step."""
    last: Array
    """(S,) what it is worth to be in each state after the last step, beside the rewards."""

    @property
    def earned(self) -> Array:
        """(n, H) the rewards, and at the last step what comes after it."""
        earned = self.rewards.copy()
        earned[:, -1] += np.where(self.there[:, -1], self.last[self.following[:, -1]], 0.0)
        return earned


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


def check_value(
    model: LogModel | ModelAt,
    policy: Any,
    log: Any,
    columns: Sequence[str] = COLUMNS,
    episode: str = "episode",
    step: str = "step",
    reward: str | None = None,
    confidence: float = 0.95,
) -> ValueChecks:
    """What the log's own episodes say of a policy's value, beside what the model says.

    log: as for `fit_from_log`, with two columns more, the episode of each row and its step, whose
    order counts. reward: a column of all that was paid; what the task pays unless given. Episodes
    start where the log's do, longer ones are cut at the horizon, and shorter ones have ended. The
    chance of each action is estimated by its share in each state.
    """
    check_model(model)
    z, task = quantile(confidence), model.task
    if task.endless:
        raise ValueError("check_value follows episodes to their last step; the task has none")
    data = read_episodes(task, log, tuple(columns), episode, step, reward)
    first = np.bincount(data.states[:, 0], minlength=task.n_states) / len(data.states)
    start = {task.state_names[s]: float(p) for s, p in enumerate(first) if p > 0}
    believed = policy_value(model, policy, confidence, start)
    table = played(task, policy)
    did = behaviour(task, visits(task, data))
    chance = chances(task, did[None] if table is None else table)
    ratio = ratios(task, data, chance, did)
    effective = float(ratio[:, -1].sum() ** 2 / max((ratio[:, -1] ** 2).sum(), 1e-300))
    q, v = model_values(model, policy, start)
    rows = [
        row("fitted model", believed.value, believed.standard_error, len(first), z)
        | {"low": believed.low, "high": believed.high, "effective": float(len(data.states))},
        row("weighted importance sampling", *reweighed(data, ratio), effective, z),
        row("doubly robust", *doubly_robust(task, data, ratio, q, v), effective, z),
        row("fitted-Q evaluation", *fitted_q(task, data, chance), len(data.states), z),
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


def read_episodes(
    task: Task, log: Any, columns: tuple[str, ...], episode: str, step: str, reward: str | None
) -> Episodes:
    source = str(log) if isinstance(log, str | Path) else None
    wanted = [*columns, episode, step, *([] if reward is None else [reward])]
    frame: Any = log
    present = column_names(log)
    if source is not None:
        frame, present = read_table(Path(source), wanted.__contains__)
    if present is None:
        raise TypeError(f"log is {shown(log)}; it must be a frame, a mapping of columns or a file")
    for name in wanted:
        if name not in present:
            raise ValueError(f"{source or 'log'} has no column {name!r}; it has {present}")
    cells = [column(frame[c]) for c in wanted]
    read = Log(cells, None, source)
    s = numbers(read, 0, task.states, task.n_states, "state")
    a = numbers(read, 1, task.actions, task.n_actions, "action")
    s2 = numbers(read, 2, task.states, task.n_states, "next state")
    _, of = np.unique(cells[3], return_inverse=True)
    order = np.lexsort((cells[4], of))
    of = of[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    keep = place < task.horizon
    at = of[keep], place[keep]
    shape = int(of.max()) + 1, task.horizon
    found = [np.zeros(shape, np.int64) for _ in range(3)]
    for out, values in zip(found, (s, a, s2), strict=True):
        out[at] = values[order][keep]
    there = np.zeros(shape, bool)
    there[at] = True
    paid, last = np.zeros(shape), np.zeros(task.n_states)
    if reward is not None:
        paid[at] = np.asarray(cells[5], np.float64)[order][keep]
    else:
        paid[at] = task_pays(task, at[1], *(x[at] for x in found))
        last = last if task.terminal is None else task.terminal
    states, actions, following = found
    return Episodes(states, actions, following, paid, there, last)


def task_pays(task: Task, h: Array, s: Array, a: Array, s2: Array) -> Array:
    """(m,) what the task pays for each transition; of a next state it does not have, on average."""
    reward, pay = task.paid_rows
    group = s * task.n_actions + a
    paid = reward[np.minimum(h, len(reward) - 1), group]
    if not pay.size:
        return paid
    declared = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    wanted = group * task.n_states + s2
    at = np.minimum(np.searchsorted(declared, wanted), len(declared) - 1)
    mean = task.by_pair(pay) / np.maximum(task.sizes, 1)
    of_step = np.minimum(h, len(pay) - 1)
    return paid + np.where(declared[at] == wanted, pay[of_step, at], mean[of_step, group])


def visits(task: Task, data: Episodes) -> Array:
    """(n,) counts of the task's triples, of which only the pairs matter here."""
    group = (data.states * task.n_actions + data.actions)[data.there]
    pairs = np.bincount(group, minlength=len(task.sizes)).astype(float)
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


def reweighed(data: Episodes, ratio: Array) -> tuple[float, float]:
    """(value, standard error) of per-decision weighted importance sampling."""
    weight = ratio / np.maximum(ratio.mean(axis=0), 1e-300)
    means = (weight * data.earned).mean(axis=0)
    each = (weight * (data.earned - means)).sum(axis=1)
    return float(means.sum()), float(each.std() / np.sqrt(len(each)))


def model_values(model: LogModel | ModelAt, policy: Any, start: Any) -> tuple[Array, Array]:
    """(H, S*A) and (H + 1, S) action values and values of the policy under the fitted model."""
    task = model.task
    worth = worth_of(model, [(policy, 1.0)], start)
    v = worth.at(worth.origin).v
    q, (reward, pay) = np.empty((task.horizon, len(task.sizes))), task.paid_rows
    for h in range(task.horizon):
        ahead = v[h + 1][task.successors][None] + (steps_of(pay, h) if pay.size else 0.0)
        q[h] = (steps_of(reward, h) + task.by_pair(steps_of(model.prob, h) * ahead))[0]
    return q, v


def doubly_robust(
    task: Task, data: Episodes, ratio: Array, q: Array, v: Array
) -> tuple[float, float]:
    """(value, standard error): the model's value, corrected by what the log saw beyond it."""
    steps = np.arange(task.horizon)
    after = ratio / np.maximum(ratio.mean(axis=0), 1e-300)
    before = np.hstack([np.ones((len(ratio), 1)), after[:, :-1]])
    said = np.where(data.there, q[steps, data.states * task.n_actions + data.actions], 0.0)
    stood = np.where(data.there, v[steps, data.states], 0.0)
    each = (after * (data.earned - said) + before * stood).sum(axis=1)
    return float(each.mean()), float(each.std() / np.sqrt(len(each)))


def fitted_q(task: Task, data: Episodes, chance: Array) -> tuple[float, float]:
    """(value, standard error) by tables Q_h fitted backwards; errors by resampled episodes.

    A pair without rows has the mean of what its state's other pairs have.
    """
    rng, n = np.random.default_rng(0), len(data.states)
    value = backward(task, data, chance, np.ones(n))
    again = [
        backward(task, data, chance, rng.multinomial(n, np.full(n, 1 / n)).astype(float))
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
