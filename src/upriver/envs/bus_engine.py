"""Bus-engine replacement: keep a bus running at a growing cost, or pay for a new engine.

Rust, "Optimal replacement of GMC bus engines: an empirical model of Harold Zurcher", Econometrica
1987. The state is the mileage since the last replacement, in bins of 5,000 miles; a decision is
made each month. The published estimates for the buses of group 4 (linear cost, discount 0.9999):
the mileage grows by 0, 1 or 2 bins with probabilities 0.3919, 0.5953 and 0.0128, a month at bin x
costs 0.001 * 2.2930 * x, and a replacement 10.0750.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from upriver.checks import positive_integer, positive_number, support_from_sets
from upriver.envs.indicators import indicators
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

KEEP, REPLACE = "keep", "replace"
INCREMENTS = (0.3919, 0.5953, 0.0128)
UPKEEP = 0.001 * 2.2930
"""Cost of a month for each bin of mileage."""
REPLACEMENT = 10.0750


def bus_engine(
    n_bins: int = 90,
    horizon: int = 240,
    increments: Sequence[float] = INCREMENTS,
    upkeep: float = UPKEEP,
    replacement: float = REPLACEMENT,
) -> FiniteMDP:
    """The decision problem with `n_bins` bins over `horizon` months, from a new engine.

    Replacing sets the mileage to 0 before the month's increment, and mileage stays in the last bin.
    Rewards are 1 - cost / largest cost. The local support does not say which action replaces: both
    may go on from the mileage as it is, or from 0. Deviations: a finite horizon instead of a
    discount, and no unobserved taste shocks, which belong to the estimation of a person's choices.
    """
    n_bins = positive_integer("n_bins", n_bins)
    if n_bins < 3:
        raise ValueError(f"n_bins is {n_bins}; there must be at least 3")
    if len(increments) != 3:
        raise ValueError(f"increments has {len(increments)} entries; there must be 3")
    rows: dict[tuple[int, int], dict[int, float]] = {}
    local = []
    for x in range(n_bins):
        for a, origin in enumerate((x, 0)):
            row: dict[int, float] = {}
            for step, p in enumerate(increments):
                s2 = min(origin + step, n_bins - 1)
                row[s2] = row.get(s2, 0.0) + float(p)
            rows[x, a] = row
        local += [set(rows[x, 0]) | set(rows[x, 1])] * 2
    cost = np.column_stack([
        positive_number("upkeep", upkeep) * np.arange(n_bins),
        np.full(n_bins, positive_number("replacement", replacement)),
    ])  # fmt: skip
    return FiniteMDP.from_rows(
        rows,
        1.0 - cost / cost.max(),
        horizon,
        local=support_from_sets(local, n_bins, 2),
        actions=(KEEP, REPLACE),
        name=f"bus-engine-{n_bins}",
    )


def features(task: Task) -> Features:
    """Indicators of an increment of 1 and of 2 bins, the same for both actions: d = 3.

    The third is for the last bin but one, where 1 and 2 are the same. With another support than the
    true one there is one more for each action, for going anywhere else.
    """
    last = task.n_states - 1

    def labels(s: int, a: str, s2: int) -> tuple[str, ...]:
        origin = s if a == KEEP else 0
        if s2 == origin:
            return ()
        if s2 - origin == 1 and s2 == last:
            return ("+1 or more",)
        return (f"+{s2 - origin}",) if s2 - origin in (1, 2) else (f"{a}: elsewhere",)

    return indicators(task, labels)
