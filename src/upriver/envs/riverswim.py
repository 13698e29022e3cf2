"""RiverSwim: a chain with a small certain reward on the left and a large one far to the right.

Swimming left (action 0) always moves one state left. Swimming right (action 1) fights the current.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from upriver.checks import Array, check_choice, check_kinds, positive_integer
from upriver.mdp import FiniteMDP
from upriver.mdp.building import assemble
from upriver.mdp.validation import check_size, support_of_triples

LEFT, RIGHT = 0, 1


class Current(NamedTuple):
    """Outcome of swimming right: (left, stay, right) at the first, a middle and the last state."""

    first: tuple[float, float, float]
    middle: tuple[float, float, float]
    last: tuple[float, float, float]
    small: float
    """Reward of swimming left at the first state."""
    starts: tuple[int, ...] = (0,)
    """States where an episode begins, with equal probability."""


OSBAND = Current((0, 0.4, 0.6), (0.05, 0.6, 0.35), (0.4, 0.6, 0), small=0.005)

VARIANTS: dict[str, Current] = {
    # The figure of the paper, and what its table was produced with; Osband et al. 2013 and Cho et
    # al. 2024 have the same numbers.
    "paper": OSBAND,
    # The paper's text, at odds with its table; so have Park, Kwon and Lee 2024.
    "paper-text": OSBAND._replace(small=0.05),
    "strehl": Current(
        (0, 0.7, 0.3), (0.1, 0.6, 0.3), (0.7, 0.3, 0), small=0.0005, starts=(1, 2)
    ),  # Strehl and Littman 2008, rewards 5 and 10000 divided by 10000
    "ayoub": Current((0, 0.3, 0.7), (0.1, 0.6, 0.3), (0.1, 0.9, 0), small=0.005),  # Ayoub et al.
}


@check_kinds
def riverswim(n_states: int = 6, horizon: int | None = None, variant: str = "paper") -> FiniteMDP:
    """Make RiverSwim; its actions are "left" and "right".

    The local support is the state itself and its neighbours, for both actions.

    Parameters
    ----------
    n_states, horizon : int
        At least 2 states; the default horizon is 4 * n_states.
    variant : str
        A key of `VARIANTS`: the numbers of several articles.
    """
    n_states = positive_integer("n_states", n_states, 2)
    check_size(n_states, 6 * n_states)
    current = VARIANTS[check_choice("variant", variant, VARIANTS)]
    if (last := max(current.starts)) >= n_states:
        raise ValueError(f"n_states is {n_states}; variant {variant!r} starts in state {last}")
    outcomes = np.empty((n_states, 2, 3))  # to move left, stay and move right
    outcomes[:, LEFT], outcomes[:, RIGHT] = (1.0, 0.0, 0.0), current.middle
    outcomes[0] = (0.0, 1.0, 0.0), current.first
    outcomes[-1, RIGHT] = current.last
    reward = np.zeros((n_states, 2))
    reward[0, LEFT] = current.small
    reward[-1, RIGHT] = 1.0
    initial = np.zeros(n_states)
    initial[list(current.starts)] = 1.0 / len(current.starts)
    name = f"riverswim-{n_states}" + ("" if variant == "paper" else f"-{variant}")
    names = {"local": neighbours(n_states, 2), "actions": ("left", "right"), "name": name}
    horizon = 4 * n_states if horizon is None else horizon
    return assemble(
        *list_moves(outcomes), outcomes[outcomes > 0.0][None], (n_states, 2), reward, horizon,
        initial, names,
    )  # fmt: skip


def list_moves(outcomes: Array) -> tuple[Array, Array]:
    """Return (s * A + a, successor) of every positive entry of outcomes (S, A, 3)."""
    s, a, step = np.nonzero(outcomes)
    return s * outcomes.shape[1] + a, s + step - 1


def neighbours(n_states: int, n_actions: int) -> tuple[Array, Array]:
    """Return {s - 1, s, s + 1} for every pair, as (indptr, successors)."""
    near = np.ones((n_states, n_actions, 3))
    near[0, :, 0] = near[-1, :, 2] = 0.0
    return support_of_triples(*list_moves(near), n_states * n_actions)
