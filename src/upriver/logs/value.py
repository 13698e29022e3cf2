"""What a policy is worth under a fitted model, with the standard error that the log implies.

J(theta) is the value of a policy under P_theta. Its gradient takes one backward and one forward
sweep, grad J = sum_h sum_(s,a) d_h(s, a) sum_s' p (V_{h+1} - PV) varphi with d_h the chance of
(s, a) at step h, and the delta method gives the standard error sqrt(grad^T C grad), C the
covariance of the estimate: classical, robust or by cluster, whichever the fitted model has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from upriver import kernels
from upriver.checks import Array
from upriver.display import Card, displayed, to_frame
from upriver.features import Features
from upriver.logs.decisions import ModelAt
from upriver.logs.effects import quantile
from upriver.logs.fit import LogModel, pair_name
from upriver.logs.planning import check_model
from upriver.mdp import Task
from upriver.mdp.formats import start_of
from upriver.mnl import likelihood
from upriver.mnl.fit import fit_mnl
from upriver.planning import mixture_or_actions

REPLICATES = 400  # logs of a bootstrap


@displayed
@dataclass(frozen=True, repr=False)
class PolicyValue:
    """A value, or a difference of values, with its interval."""

    value: float
    standard_error: float
    low: float
    high: float
    confidence: float
    method: str
    probability_positive: float
    """Of a difference: the chance that it is above 0, under the same approximation."""
    unseen: float
    """Expected steps of an episode in pairs (s, a) of which the log has no row."""
    shares: list[dict[str, Any]]
    """Pairs (s, a), largest first: state, action, n, steps, share of the variance.

    Where to collect data. Empty where the model has covariates, or after a bootstrap.
    """

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "value": float(self.value),
            "standard error": float(self.standard_error),
            f"{100 * self.confidence:g}% interval": f"{self.low:.4g} to {self.high:.4g}",
            "method": self.method,
        }
        if self.unseen > 1e-9:
            facts["steps in pairs without data"] = float(self.unseen)
        return Card(facts, rows=lambda: self.shares, more="where the variance comes from")

    def to_pandas(self) -> Any:
        """The `shares` as a data frame."""
        return to_frame(self.shares)

    def summary(self, limit: int = 5) -> str:
        lines = [
            f"{self.value:.4g} ± {self.standard_error:.3g}, {100 * self.confidence:g}% interval "
            f"[{self.low:.4g}, {self.high:.4g}] ({self.method})"
        ]
        if self.unseen > 1e-9:
            lines.append(
                f"{self.unseen:.3g} steps of an episode are in pairs of which the log has no row: "
                "there the value is the model's word alone"
            )
        for r in self.shares[:limit]:
            lines.append(
                f"{100 * r['share']:5.1f}% of the variance from ({r['state']!r}, {r['action']!r}): "
                f"{r['n']:g} rows, {r['steps']:.2g} steps"
            )
        return "\n".join(lines)


def policy_value(
    model: LogModel | ModelAt,
    policy: Any,
    confidence: float = 0.95,
    start: Any = None,
    method: str = "delta",
    seed: int = 0,
) -> PolicyValue:
    """The value of a policy under a fitted model, with an interval.

    policy: a Plan, a Policy (matched by name), actions (H, S) or (S,), probabilities (H, S, A) or
    (S, A), or "behaviour", what the log did in each state, whose own uncertainty is added. start:
    a state, or {state: probability}; the first state unless given. method: "delta", by the exact
    gradient, or "bootstrap", by logs drawn from the estimate and fitted again (without covariates).
    Holds if the model is right; confounding and drift are not seen.
    """
    return valued(model, [(policy, 1.0)], confidence, start, method, seed)


def compare_policies(
    model: LogModel | ModelAt,
    new: Any,
    old: Any = "behaviour",
    confidence: float = 0.95,
    start: Any = None,
    method: str = "delta",
    seed: int = 0,
) -> PolicyValue:
    """The value of `new` minus that of `old`, with its own interval; see `policy_value`.

    Both depend on the same estimate, so the interval is narrower than that of two values.
    """
    return valued(model, [(new, 1.0), (old, -1.0)], confidence, start, method, seed)


def valued(
    model: LogModel | ModelAt,
    terms: list[tuple[Any, float]],
    confidence: float,
    start: Any,
    method: str,
    seed: int,
) -> PolicyValue:
    check_model(model)
    z, task = quantile(confidence), model.task
    at, chance = start_of(task, start)
    first = np.bincount(at, chance, minlength=task.n_states)
    parts = [(mixture_of(model, policy), sign, policy) for policy, sign in terms]
    value, unseen = 0.0, 0.0
    weight, worth = np.zeros_like(model.prob), np.zeros(len(task.sizes))
    steps = np.zeros(len(task.sizes))
    seen = visits_of(task, model.counts)
    for mixture, sign, policy in parts:
        found = sweep(task, model.prob, mixture, first)
        value += sign * found.value
        weight += sign * found.weight
        steps += found.occupancy
        unseen += float(found.occupancy[(seen == 0) & (task.sizes > 1)].sum())
        if is_behaviour(policy):
            worth += sign * found.worth
    slope = gradient(model.steps, weight)
    image = model.fitted.covariance @ slope
    log_part = float(slope @ image)
    own, of_state = behaviour_variance(task, seen, worth)
    error = float(np.sqrt(log_part + own))
    low, high = value - z * error, value + z * error
    shares: list[dict[str, Any]] = []
    if method == "bootstrap":
        drawn = bootstrap(model, parts, first, seed)
        error = float(drawn.std(ddof=1))
        low, high = np.quantile(drawn, [0.5 - confidence / 2, 0.5 + confidence / 2]).tolist()
    elif method != "delta":
        raise ValueError(f"method is {method!r}; it must be 'delta' or 'bootstrap'")
    elif isinstance(model, LogModel):
        shares = by_pair(model, image, seen, steps, of_state)
    chance_up = float(special.ndtr(value / error)) if error > 0 else float(value > 0)
    return PolicyValue(value, error, low, high, confidence, method, chance_up, unseen, shares)


@dataclass(frozen=True)
class Swept:
    value: float
    weight: Array
    occupancy: Array
    worth: Array


def sweep(task: Task, prob: Array, mixture: Array, first: Array) -> Swept:
    """See `kernels.value.sensitivity`."""
    v, weight = np.zeros((task.horizon + 1, task.n_states)), np.zeros_like(prob)
    if task.terminal is not None:
        v[-1] = task.terminal
    occupancy, worth = np.zeros(len(task.sizes)), np.zeros(len(task.sizes))
    kernels.value.sensitivity(
        task.indptr, task.successors, prob, *task.paid_rows, mixture, first, v, weight,
        occupancy, worth,
    )  # fmt: skip
    return Swept(float(first @ v[0]), weight, occupancy, worth)


def gradient(steps: tuple[Features, ...], weight: Array) -> Array:
    """(d,) gradient of the value in theta."""
    return np.sum([x.matrix.T @ w for x, w in zip(steps, weight, strict=True)], axis=0)


def is_behaviour(policy: Any) -> bool:
    return isinstance(policy, str)


def mixture_of(model: LogModel | ModelAt, policy: Any) -> Array:
    """(1 | H, S*A) probabilities of actions."""
    task = model.task
    if is_behaviour(policy):
        if policy != "behaviour":
            raise ValueError(f"policy is {policy!r}; the only word is 'behaviour'")
        return behaviour(task, model.counts)
    table = mixture_or_actions(task, policy)
    if table.ndim == 2:
        table = np.eye(task.n_actions)[table]
    return table.reshape(-1, len(task.sizes))


def visits_of(task: Task, counts: Array) -> Array:
    """(S*A,) rows of the log of each pair."""
    return np.bincount(np.repeat(np.arange(len(task.sizes)), task.sizes), counts, len(task.sizes))


def behaviour(task: Task, counts: Array) -> Array:
    """(1, S*A) how often the log took each action; all alike in states that it never saw."""
    table = visits_of(task, counts).reshape(task.n_states, task.n_actions)
    total = table.sum(axis=1, keepdims=True)
    even = task.available / task.available.sum(axis=1, keepdims=True)
    return np.where(total > 0, table / np.maximum(total, 1e-300), even).reshape(1, -1)


def behaviour_variance(task: Task, seen: Array, worth: Array) -> tuple[float, Array]:
    """(the variance from not knowing the behaviour, its part of each pair).

    In each state the log's actions are a multinomial sample, independent of the transitions.
    """
    n = seen.reshape(task.n_states, task.n_actions)
    total = n.sum(axis=1, keepdims=True)
    p = n / np.maximum(total, 1.0)
    d = worth.reshape(n.shape)
    mean = (p * d).sum(axis=1, keepdims=True)
    part = p * (d - mean) ** 2 / np.maximum(total, 1.0)
    return float(part.sum()), part.ravel()


def by_pair(
    model: LogModel, image: Array, seen: Array, steps: Array, of_state: Array
) -> list[dict[str, Any]]:
    """The share of the variance that the rows of each pair bring; the ridge keeps the rest.

    With v = I^-1 grad the variance is sum over pairs of n Var_p(varphi^T v).
    """
    task, p = model.task, model.probability
    score = np.asarray(model.features.matrix @ image).ravel()
    group = np.repeat(np.arange(len(task.sizes)), task.sizes)
    mean = np.bincount(group, p * score, len(seen))
    part = seen * np.bincount(group, p * (score - mean[group]) ** 2, len(seen)) + of_state
    total = max(float(part.sum()), 1e-300)
    rows = []
    for g in np.argsort(-part)[: int((part > 0).sum())].tolist():
        state, action = pair_name(task, g)
        rows.append({
            "state": state, "action": action, "n": float(seen[g]), "steps": float(steps[g]),
            "share": float(part[g]) / total,
        })  # fmt: skip
    return rows


def bootstrap(
    model: LogModel | ModelAt, parts: list[tuple[Array, float, Any]], first: Array, seed: int
) -> Array:
    """(REPLICATES,) values under estimates from logs that the fitted model writes."""
    if not isinstance(model, LogModel):
        raise ValueError("a bootstrap needs a model without covariates; use method='delta'")
    task, p, rng = model.task, model.probability, np.random.default_rng(seed)
    if (model.counts != np.rint(model.counts)).any():
        raise ValueError("a bootstrap needs whole counts; use method='delta'")
    by_state = visits_of(task, model.counts).reshape(task.n_states, task.n_actions).astype(np.int64)
    values = np.empty(REPLICATES)
    for b in range(REPLICATES):
        n = by_state
        if any(is_behaviour(policy) for _, _, policy in parts):
            shares = behaviour(task, model.counts).reshape(by_state.shape)
            n = rng.multinomial(by_state.sum(axis=1), shares)
        counts = np.zeros(task.n_triples)
        for g in np.flatnonzero(n.ravel()).tolist():
            at = slice(task.indptr[g], task.indptr[g + 1])
            counts[at] = rng.multinomial(n.flat[g], p[at] / p[at].sum())
        fitted = fit_mnl(model.features, counts, max(model.fitted.regularization, 1e-6))
        prob = likelihood.probabilities(model.features, fitted.theta)[None]
        did = behaviour(task, counts)
        values[b] = sum(
            sign * sweep(task, prob, did if is_behaviour(policy) else mixture, first).value
            for mixture, sign, policy in parts
        )
    return values
