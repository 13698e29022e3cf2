"""What a policy is worth under a fitted model, with the standard error that the log implies.

J(theta) is the value of a policy under P_theta. Its gradient takes one backward and one forward
sweep, grad J = sum_h sum_(s,a) d_h(s, a) sum_s' p (V_{h+1} - PV) varphi with d_h the chance of
(s, a) at step h, and the delta method gives the standard error sqrt(grad^T C grad), C the
covariance of the estimate: classical, robust or by cluster, whichever the fitted model has. The
interval is from the least to the largest value within z standard errors, see `logs.extremes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from upriver.checks import Array
from upriver.display import Card, displayed, to_frame
from upriver.logs.decisions import ModelAt
from upriver.logs.effects import quantile
from upriver.logs.extremes import Worth, behaviour, for_ever, sweep, visits_of, worth_of
from upriver.logs.fit import LogModel, pair_name
from upriver.mnl import likelihood
from upriver.mnl.fit import fit_mnl

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
    """Expected steps of an episode in pairs (s, a) of which the log has no row; with a discount
    discounted steps, of the average reward their share."""
    shares: list[dict[str, Any]]
    """Pairs (s, a), largest first: state, action, n, steps, share of the variance.

    Where to collect data. Empty where the model has covariates, or after a bootstrap.
    """
    steps: str = "steps of an episode"
    """What is counted."""

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "value": float(self.value),
            "standard error": float(self.standard_error),
            f"{100 * self.confidence:g}% interval": f"{self.low:.4g} to {self.high:.4g}",
            "method": self.method,
        }
        if self.unseen > 1e-9:
            facts[f"{self.steps} in pairs without data"] = float(self.unseen)
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
                f"{self.unseen:.3g} {self.steps} are in pairs of which the log has no row: "
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
    *,
    discount: float | None = None,
    average: bool = False,
) -> PolicyValue:
    """The value of a policy under a fitted model, with an interval.

    policy: a Plan, a Policy (matched by name), actions (H, S) or (S,), probabilities (H, S, A) or
    (S, A), or "behaviour", what the log did in each state, whose own uncertainty is added. start:
    a state, or {state: probability}; the first state unless given. method: "delta", by the exact
    gradient, or "bootstrap", by logs drawn from the estimate and fitted again (without covariates).
    Holds if the model is right; confounding and drift are not seen. discount, or average=True: of
    a process that never ends instead of the task's horizon; the value of the average is the gain,
    reward per step, and policies are (S,) or (S, A).
    """
    model = for_ever(model, discount, average)
    return valued(model, [(policy, 1.0)], confidence, start, method, seed)


def compare_policies(
    model: LogModel | ModelAt,
    new: Any,
    old: Any = "behaviour",
    confidence: float = 0.95,
    start: Any = None,
    method: str = "delta",
    seed: int = 0,
    *,
    discount: float | None = None,
    average: bool = False,
) -> PolicyValue:
    """The value of `new` minus that of `old`, with its own interval; see `policy_value`.

    Both depend on the same estimate, so the interval is narrower than that of two values.
    """
    model = for_ever(model, discount, average)
    return valued(model, [(new, 1.0), (old, -1.0)], confidence, start, method, seed)


def valued(
    model: LogModel | ModelAt,
    policies: list[tuple[Any, float]],
    confidence: float,
    start: Any,
    method: str,
    seed: int,
) -> PolicyValue:
    z = quantile(confidence)
    worth = worth_of(model, policies, start)
    centre = worth.at(worth.origin)
    value, image = centre.value, worth.image(centre.slope)
    error = float(np.sqrt(max(centre.slope @ image, 0.0)))
    seen, sizes = visits_of(model.task, model.counts), model.task.sizes
    unseen = float(centre.occupancy[(seen == 0) & (sizes > 1)].sum())
    shares: list[dict[str, Any]] = []
    if method == "bootstrap":
        drawn = bootstrap(worth, seed)
        error = float(drawn.std(ddof=1))
        low, high = np.quantile(drawn, [0.5 - confidence / 2, 0.5 + confidence / 2]).tolist()
    elif method == "delta":
        low, high = (worth.extreme(centre, z, sign)[0].value for sign in (-1.0, 1.0))
        if isinstance(model, LogModel):
            shares = by_pair(model, image, centre.slope * image, seen, centre.occupancy)
    else:
        raise ValueError(f"method is {method!r}; it must be 'delta' or 'bootstrap'")
    chance_up = float(special.ndtr(value / error)) if error > 0 else float(value > 0)
    counted = {None: PolicyValue.steps, 1.0: "of all steps"}
    steps = counted.get(model.task.discount, "discounted steps")
    return PolicyValue(
        value, error, low, high, confidence, method, chance_up, unseen, shares, steps
    )


def by_pair(
    model: LogModel, image: Array, part: Array, seen: Array, steps: Array
) -> list[dict[str, Any]]:
    """The share of the variance that the rows of each pair bring; the ridge keeps the rest.

    With v = I^-1 grad the variance is sum over pairs of n Var_p(varphi^T v), and what the
    behaviour's own estimate adds, `part`.
    """
    task, p, d = model.task, model.probability, len(model.fitted.theta)
    score = np.asarray(model.features.matrix @ image[:d]).ravel()
    group = np.repeat(np.arange(len(task.sizes)), task.sizes)
    mean = np.bincount(group, p * score, len(seen))
    part = seen * np.bincount(group, p * (score - mean[group]) ** 2, len(seen)) + part[d:]
    total = max(float(part.sum()), 1e-300)
    rows = []
    for g in np.argsort(-part)[: int((part > 0).sum())].tolist():
        state, action = pair_name(task, g)
        rows.append({
            "state": state, "action": action, "n": float(seen[g]), "steps": float(steps[g]),
            "share": float(part[g]) / total,
        })  # fmt: skip
    return rows


def bootstrap(worth: Worth, seed: int) -> Array:
    """(REPLICATES,) values under estimates from logs that the fitted model writes."""
    model, task = worth.model, worth.model.task
    if not isinstance(model, LogModel):
        raise ValueError("a bootstrap needs a model without covariates; use method='delta'")
    if (model.counts != np.rint(model.counts)).any():
        raise ValueError("a bootstrap needs whole counts; use method='delta'")
    chance, rng = model.probability, np.random.default_rng(seed)
    shape = task.n_states, task.n_actions
    by_state = visits_of(task, model.counts).reshape(shape).astype(np.int64)
    values = np.empty(REPLICATES)
    for b in range(REPLICATES):
        n = by_state
        if any(policy is None for policy, _ in worth.terms):
            n = rng.multinomial(by_state.sum(axis=1), worth.behaviour.reshape(shape))
        counts = np.zeros(task.n_triples)
        for g in np.flatnonzero(n.ravel()).tolist():
            at = slice(task.indptr[g], task.indptr[g + 1])
            counts[at] = rng.multinomial(n.flat[g], chance[at] / chance[at].sum())
        fitted = fit_mnl(model.features, counts, max(model.fitted.regularization, 1e-6))
        prob = likelihood.probabilities(model.features, fitted.theta)[None]
        did = behaviour(task, counts)[None]
        values[b] = sum(
            sign * sweep(task, prob, did if p is None else p, worth.first).value
            for p, sign in worth.terms
        )
    return values
