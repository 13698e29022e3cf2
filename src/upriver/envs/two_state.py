"""Two states and many actions that hardly differ: the hard instance of Park, Kwon and Lee.

"Infinite-horizon reinforcement learning with multinomial logit function approximation", 2024. From
state 0 one crosses to state 1, which has a reward of 1, and falls back with probability 1/4. An
action is a row of signs, and each sign changes the log-odds of crossing a little.
"""

from __future__ import annotations

from itertools import product
from math import exp

from upriver.checks import check_kinds, open_fraction, positive_integer
from upriver.envs.named import build_mdp, check_listed, normalize
from upriver.features import Features, from_function
from upriver.mdp import FiniteMDP, Task

BACK = 0.25


@check_kinds
def two_state(dimension: int = 3, horizon: int = 20, gap: float = 0.01) -> FiniteMDP:
    """Make the instance with 2^dimension actions, rows of signs -1 and 1; it starts in state 0.

    State 1 has a reward of 1 for every action. The log-odds of crossing are
    log(1/3) + gap / (3/16) * (sum of the signs), so the signs are exact features. Deviations: a
    finite horizon; the public code of the paper has the probability 1/4 + gap * (sum of the signs),
    which differs by less than 0.002 and is not of the form (1).

    Parameters
    ----------
    gap : float
        About what a sign adds to the probability of crossing.
    """
    dimension = positive_integer("dimension", dimension, most=1000)
    check_listed(2, 2**dimension, 2)
    slope = open_fraction("gap", gap) / (BACK * (1.0 - BACK))

    def outcomes(s: int, a: tuple[int, ...]) -> list[tuple[int, float]]:
        if s == 1:
            return [(0, BACK), (1, 1.0 - BACK)]
        return normalize([(0, 1.0 - BACK), (1, BACK * exp(slope * sum(a)))])

    actions = list(product((-1, 1), repeat=dimension))
    name = f"two-state-{dimension}"
    return build_mdp(name, range(2), actions, outcomes, lambda s, a: float(s), horizon)


@check_kinds
def two_state_features(task: Task) -> Features:
    """Make indicators of crossing and falling back, and for a crossing the signs of the action.

    d = dimension + 2.
    """
    dimension = task.n_actions.bit_length() - 1
    names = ["crosses", "falls back", *(f"sign {i + 1}" for i in range(dimension))]

    if list(task.action_names) != list(product((-1, 1), repeat=dimension)):
        raise ValueError("the actions of the task are no rows of signs; make it with two_state")

    def vector(s: int, a: tuple[int, ...], s2: int) -> list[float]:
        if s == s2:
            return [0.0] * len(names)
        return [1.0, 0.0, *a] if s2 == 1 else [0.0, 1.0, *[0] * len(a)]

    return from_function(task, vector, names)
