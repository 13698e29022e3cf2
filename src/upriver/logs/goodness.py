"""Does a fitted model fit? Pearson's test, in total and for each (s, a) of the log."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from upriver.checks import Array
from upriver.mdp import Task


class GoodnessOfFit(NamedTuple):
    """sum (n - N p)^2 / (N p), against the chi-squared distribution."""

    statistic: float
    degrees: int
    """Free frequencies of the log minus fitted features."""
    p_value: float
    rows: list[dict[str, Any]]
    """Each (s, a) with a choice: state, action, n, statistic, degrees, p_value, least_expected.

    Below an expected count of about 5 the p-value is not to be trusted.
    """

    def summary(self, limit: int = 10) -> str:
        """The total and the `limit` pairs (s, a) that fit worst."""
        lines = [
            f"goodness of fit: chi-squared {self.statistic:.2f} with {self.degrees} degrees of "
            f"freedom, p = {self.p_value:.3g}",
            "     n  chi-squared  df        p  least expected  (state, action)",
        ]
        for r in sorted(self.rows, key=lambda r: r["p_value"])[:limit]:
            lines.append(
                f"{r['n']:6g} {r['statistic']:12.2f} {r['degrees']:3d} {r['p_value']:8.3g} "
                f"{r['least_expected']:15.1f}  ({r['state']!r}, {r['action']!r})"
            )
        return "\n".join(lines)


def goodness_of_fit(task: Task, counts: Array, probability: Array, dimension: int) -> GoodnessOfFit:
    """Pearson's test of the fitted probability (n,) against the counts (n,)."""
    starts, free = task.indptr[:-1], task.sizes - 1
    total = np.add.reduceat(counts, starts)
    expected = np.repeat(total, task.sizes) * probability
    safe = np.where(expected > 0, expected, 1.0)
    share = np.where(expected > 0, (counts - expected) ** 2 / safe, 0.0)
    statistic = np.add.reduceat(share, starts)
    least = np.minimum.reduceat(expected, starts)
    used = np.flatnonzero((total > 0) & (free > 0))
    states = task.states if task.states is not None else range(task.n_states)
    actions = task.actions if task.actions is not None else range(task.n_actions)
    rows = [
        {
            "state": states[g // task.n_actions],
            "action": actions[g % task.n_actions],
            "n": float(total[g]),
            "statistic": float(statistic[g]),
            "degrees": int(free[g]),
            "p_value": float(special.chdtrc(free[g], statistic[g])),
            "least_expected": float(least[g]),
        }
        for g in used.tolist()
    ]
    degrees = max(int(free[used].sum()) - dimension, 0)
    summed = float(statistic[used].sum())
    p_value = float(special.chdtrc(degrees, summed)) if degrees else float("nan")
    return GoodnessOfFit(summed, degrees, p_value, rows)
