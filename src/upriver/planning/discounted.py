"""Discounted reward: the optimum of a known MDP, or the value of a policy, with no last step."""

from __future__ import annotations

from typing import Any, NamedTuple

from upriver.checks import Array, positive_number
from upriver.display import Card, displayed
from upriver.display.card import MOST_ROWS
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.declaring import checked_discount
from upriver.planning.stationary import iterate, rows_of
from upriver.planning.tables import by_name, drawn, shown, spread, stationary_table

TOLERANCE = 1e-8


@displayed
class DiscountedPlan(NamedTuple):
    """One action for each state, for ever."""

    policy: Array
    """(S,) the action in each state."""
    v: Array
    """(S,) the value, the sum of discount^t times the reward of step t, in the user's units."""
    discount: float
    error: float
    """No value is further from the true one than this, and the policy loses at most twice it."""
    sweeps: int
    """Passes over the states that it took."""
    task: Task | None = None
    """What it was made for, whose names are those of the tables."""

    def card(self) -> Card:
        facts = {"states": len(self.v), "discount": self.discount, "values": spread(self.v)}
        return Card(
            facts,
            rows=lambda: self.to_pandas().head(MOST_ROWS).to_dict("records"),
            n_rows=len(self.v),
            more="to_pandas() has every state, plot() draws them",
        )

    def to_pandas(self) -> Any:
        """A data frame with a row per state: state, action, value."""
        return shown(self.policy, self.task, value=self.v)

    def plot(self) -> Any:
        """A figure of the actions and the values by state."""
        return drawn(self.policy, self.task, self.v)

    def on(self, task: Task) -> Array:
        """(S,) or (S, A) the policy in the order of another task, matched by name."""
        return by_name(self.policy, self.task, task)


def solve_discounted(
    mdp: FiniteMDP,
    discount: float,
    tolerance: float = TOLERANCE,
    policy: Array | None = None,
) -> DiscountedPlan:
    """The optimum, or the value of `policy`, (S,) or (S, A), within `tolerance`.

    Where values are so large that rounding is more than `tolerance`, `error` says what is left.
    """
    discount = checked_discount(None, discount) or 0.0
    tolerance = positive_number("tolerance", tolerance)
    policy = None if policy is None else stationary_table(mdp.true_task, policy)
    rows = rows_of(mdp, policy, "a discounted sum")
    ratio = discount / (1.0 - discount)
    level = tolerance / max(ratio, 1.0)  # half of the bound below; the rest is for rounding
    found = iterate(rows, discount, 0.0, level)
    v = found.u + ratio * 0.5 * (found.low + found.high)
    error = (0.5 * ratio + 0.5) * (found.high - found.low)
    played = found.policy if policy is None else policy
    return DiscountedPlan(played, v, float(discount), float(error), found.sweeps, mdp.true_task)
