"""The value of a policy under a fitted model, with the standard error that the log implies.

J(theta) is the value of a policy under P_theta. Its gradient takes one backward and one forward
pass, grad J = sum_h sum_(s,a) d_h(s, a) sum_s' p (V_{h+1} - PV) varphi with d_h the probability of
(s, a) at step h, and the delta method gives the standard error sqrt(grad^T C grad), C the
covariance of the estimate: classical, robust or by cluster, whichever the fitted model has. The
interval is from the least to the largest value within z standard errors, see `logs.value_function`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from upriver.checks import Array, check_kinds
from upriver.display import Card, add_repr, to_frame
from upriver.logs.effects import normal_quantile
from upriver.logs.model import TransitionModel
from upriver.logs.value_function import build_value_function, with_infinite_horizon


@add_repr
@dataclass(frozen=True, repr=False)
class PolicyValue:
    """A value, or a difference of values, with its interval."""

    value: float
    standard_error: float
    low: float
    high: float
    confidence: float
    probability_positive: float
    """Of a difference: the probability that it is above 0, under the same approximation."""
    unseen: float
    """Expected steps of an episode in pairs (s, a) of which the log has no row; with a discount
    discounted steps, of the average reward their share."""
    shares: list[dict[str, Any]]
    """Pairs (s, a), largest first: state, action, n, steps, share of the variance.

    They say where to collect data. Empty where the model has covariates or clusters.
    """
    steps: str = "steps of an episode"  #: What is counted.

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "value": float(self.value),
            "standard error": float(self.standard_error),
            f"{100 * self.confidence:g}% interval": f"{self.low:.4g} to {self.high:.4g}",
        }
        if self.unseen > 1e-9:
            facts[f"{self.steps} in pairs without data"] = float(self.unseen)
        return Card(facts, rows=lambda: self.shares, more="where the variance comes from")

    def to_pandas(self) -> Any:
        """Return the `shares` as a data frame."""
        return to_frame(self.shares)

    def summary(self, limit: int = 5) -> str:
        """Return the value, its interval and the `limit` pairs with most variance, as text."""
        lines = [
            f"{self.value:.4g} ± {self.standard_error:.3g}, {100 * self.confidence:g}% interval "
            f"[{self.low:.4g}, {self.high:.4g}]"
        ]
        if self.unseen > 1e-9:
            lines.append(
                f"{self.unseen:.3g} {self.steps} are in pairs of which the log has no row:\n"
                "there the value relies on the model alone"
            )
        for r in self.shares[:limit]:
            lines.append(
                f"{100 * r['share']:5.1f}% of the variance from ({r['state']!r}, {r['action']!r}): "
                f"{r['n']:g} rows, {r['steps']:.2g} steps"
            )
        return "\n".join(lines)


@check_kinds
def policy_value(
    model: TransitionModel, policy: Any, confidence: float = 0.95, start: Any = None, *,
    discount: float | None = None, average: bool = False,
) -> PolicyValue:  # fmt: skip
    """Return the value of a policy under a fitted model, with an interval.

    The interval holds if the model is right; it does not see confounding or drift.

    Parameters
    ----------
    model
        A fitted model, at fixed covariates.
    policy
        A Plan, a Policy (matched by name), actions (H, S) or (S,), probabilities (H, S, A) or
        (S, A), or "behaviour", what the log did in each state, whose uncertainty is added.
    confidence
        The probability that the interval is to hold the value.
    start
        The first state, or {state: probability}; the first state of the task unless given.
    discount, average
        An infinite horizon with a discount, or its average reward per step (the gain), instead of
        the task's horizon; policies are then (S,) or (S, A).
    """
    model = with_infinite_horizon(model, discount, average)
    return value_difference(model, [(policy, 1.0)], confidence, start)


@check_kinds
def compare_policies(
    model: TransitionModel, new: Any, old: Any = "behaviour", confidence: float = 0.95,
    start: Any = None, *, discount: float | None = None, average: bool = False,
) -> PolicyValue:  # fmt: skip
    """Return the value of `new` minus that of `old`, with its own interval.

    Both depend on the same estimate, so the interval is narrower than that of two values. The
    parameters are those of `policy_value`.
    """
    model = with_infinite_horizon(model, discount, average)
    return value_difference(model, [(new, 1.0), (old, -1.0)], confidence, start)


def value_difference(
    model: TransitionModel, policies: list[tuple[Any, float]], confidence: float, start: Any
) -> PolicyValue:
    """Return a signed sum of values of policies, with its interval."""
    z = normal_quantile(confidence)
    function = build_value_function(model, policies, start)
    centre, task = function.at(function.origin), function.task
    value, image = centre.value, function.image(centre.slope)
    error = float(np.sqrt(max(centre.slope @ image, 0.0)))
    visits = task.by_pair(model.counts)
    unseen = float(centre.occupancy[(visits == 0) & (task.sizes > 1)].sum())
    low, high = (function.optimize_in_ellipsoid(centre, z, x).value for x in (-1.0, 1.0))
    shares: list[dict[str, Any]] = []
    if not model.values and model.fitted.errors == "classical":
        shares = variance_shares(model, image, centre.slope * image, visits, centre.occupancy)
    positive = float(special.ndtr(value / error)) if error > 0 else float(value > 0)
    words = {None: PolicyValue.steps, 1.0: "of all steps"}.get(task.discount, "discounted steps")
    return PolicyValue(value, error, low, high, confidence, positive, unseen, shares, words)


def variance_shares(
    model: TransitionModel, image: Array, part: Array, visits: Array, occupancy: Array
) -> list[dict[str, Any]]:
    """Return the share of the variance that the rows of each pair contribute.

    With v = I^-1 grad the variance is the sum over pairs of n Var_p(varphi^T v), what the
    estimate of the behaviour adds (`part`), and what the ridge contributes, which has no pair.
    """
    task, p, d = model.features.task, model.probability, len(model.theta)
    score = np.asarray(model.features.matrix @ image[:d]).ravel()
    mean = np.repeat(task.by_pair(p * score), task.sizes)
    share = visits * task.by_pair(p * (score - mean) ** 2) + part[d:]
    total = max(float(share.sum()), 1e-300)
    states, actions = task.state_names, task.action_names
    return [
        {
            "state": states[g // task.n_actions], "action": actions[g % task.n_actions],
            "n": float(visits[g]), "steps": float(occupancy[g]), "share": float(share[g]) / total,
        }
        for g in np.argsort(-share)[: int((share > 0).sum())].tolist()
    ]  # fmt: skip
