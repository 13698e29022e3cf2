"""Uneven river: RiverSwim where swimming right is a little different in every state.

What is true of one state is then only nearly true of another, so that features which are shared
between states are wrong by a chosen distance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from upriver.envs.random_mnl import stream
from upriver.envs.riverswim import riverswim
from upriver.mdp import FiniteMDP

UNEVEN = 4  # a stream of the seed beside those of random_mnl


def uneven_river(
    n_states: int = 20, distance: float = 0.1, seed: int = 0, horizon: int | None = None
) -> FiniteMDP:
    """`riverswim` with every row of swimming right moved by a total variation of `distance`.

    In each state a drawn sign says whether swimming gets ahead more often and stays less, or the
    other way round (at the last state: whether it stays). The reachable states stay the same and
    the average river is `riverswim`, which is also what a distance of 0 gives exactly. What a
    learner sees does not depend on the seed.
    """
    if not 0.0 <= distance <= 0.3:
        raise ValueError(f"distance is {distance!r}; it must lie between 0 and 0.3")
    river = riverswim(n_states, horizon)
    swims = np.flatnonzero(river.true_task.sizes > 1)
    ahead = river.true_task.indptr[swims + 1] - 1
    moved = distance * stream(seed, UNEVEN).choice([-1.0, 1.0], len(swims))
    probability = river.probability.copy()
    probability[0, ahead] += moved
    probability[0, ahead - 1] -= moved
    return replace(river, probability=probability, name=f"uneven-river-{n_states}")
