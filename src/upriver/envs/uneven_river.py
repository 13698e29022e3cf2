"""Uneven river: RiverSwim where swimming right is a little different in every state.

Features that are shared between states are then wrong by a chosen distance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from upriver.checks import check_kinds
from upriver.envs.random_mnl import stream
from upriver.envs.riverswim import riverswim
from upriver.mdp import FiniteMDP

UNEVEN = 4  # a stream of the seed beside those of random_mnl


@check_kinds
def uneven_river(
    n_states: int = 20, distance: float = 0.1, seed: int = 0, horizon: int | None = None
) -> FiniteMDP:
    """Make `riverswim` with every row of swimming right changed by `distance`.

    In each state a random sign says whether swimming moves right more often and stays less, or the
    reverse (in the last state: whether it stays more or less often). The reachable states stay the
    same and the average river is `riverswim`, as is the river at distance 0. The distance is the
    total variation, from 0 to 0.3. The task does not depend on the seed.
    """
    if not 0.0 <= distance <= 0.3:
        raise ValueError(f"distance is {distance!r}; it must lie between 0 and 0.3")
    river = riverswim(n_states, horizon)
    pairs = np.flatnonzero(river.true_task.sizes > 1)
    ahead = river.true_task.indptr[pairs + 1] - 1
    change = distance * stream(seed, UNEVEN).choice([-1.0, 1.0], len(pairs))
    probability = river.probability.copy()
    probability[0, ahead] += change
    probability[0, ahead - 1] -= change
    return replace(river, probability=probability, name=f"uneven-river-{n_states}")
