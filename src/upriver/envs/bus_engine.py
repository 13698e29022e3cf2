"""Bus-engine replacement: keep a bus running at an increasing cost, or pay for a new engine.

Rust, "Optimal replacement of GMC bus engines: an empirical model of Harold Zurcher", Econometrica
1987. The state is the mileage since the last replacement, in bins of 5,000 miles; a decision is
made each month. The numbers are the published estimates for the buses of group 4 (linear cost,
discount 0.9999).
"""

from __future__ import annotations

from upriver.checks import check_kinds, positive_integer, positive_number
from upriver.envs.named import build_mdp, check_listed
from upriver.mdp import FiniteMDP

KEEP, REPLACE = "keep", "replace"
INCREMENTS = (0.3919, 0.5953, 0.0128)
"""Probabilities of an increment of 0, 1 and 2 bins in a month."""
UPKEEP = 0.001 * 2.2930
"""Cost of a month for each bin of mileage."""
REPLACEMENT = 10.0750
"""Cost of a new engine."""


@check_kinds
def bus_engine(n_bins: int = 90, horizon: int = 240, replacement: float = REPLACEMENT) -> FiniteMDP:
    """Make the bus-engine problem, which starts with a new engine.

    Replacing sets the mileage to 0 before the month's increment, and mileage stays in the last bin.
    Rewards are 1 - cost / largest cost. The local support does not say which action replaces: both
    may continue from the present mileage or from 0. Deviations from the article: a finite horizon
    instead of a discount, and no unobserved taste shocks, which belong to the estimation of a
    person's choices.

    Parameters
    ----------
    n_bins, horizon : int
        Bins of mileage, at least 3, which are the states; and months.
    replacement : float
        Cost of a new engine.
    """
    n_bins = positive_integer("n_bins", n_bins, 3)
    check_listed(n_bins, 2, 3)
    dear = positive_number("replacement", replacement)
    highest = max(dear, UPKEEP * (n_bins - 1))

    def outcomes(x: int, a: str) -> list[tuple[int, float]]:
        origin = x if a == KEEP else 0
        return [(min(origin + step, n_bins - 1), p) for step, p in enumerate(INCREMENTS)]

    def reward(x: int, a: str) -> float:
        return 1.0 - (UPKEEP * x if a == KEEP else dear) / highest

    name, bins = f"bus-engine-{n_bins}", range(n_bins)
    return build_mdp(name, bins, (KEEP, REPLACE), outcomes, reward, horizon)
