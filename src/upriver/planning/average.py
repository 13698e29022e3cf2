"""Average reward: the best reward per step of a known MDP that never ends, or that of a policy.

The gain must not depend on the start. That is so where there is one set of states that some policy
can stay in for ever (a maximal end component, de Alfaro 1997): every policy is drawn into it, and
in it every state can be reached. Two such sets, and the gain may differ between them: refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array, positive_number
from upriver.display import Card, displayed
from upriver.display.card import MOST_ROWS
from upriver.mdp import FiniteMDP, Task
from upriver.planning.stationary import MOST_SWEEPS, Rows, iterate, rows_of, values_of
from upriver.planning.tables import by_name, drawn, shown, spread, stationary_table

TOLERANCE = 1e-8
LAZY = 0.1
"""How much of the old value a sweep keeps, so that periodic chains do not oscillate."""
AWHILE = 1e-2
"""1 - discount of a problem that is quick to solve, where the average one is not."""
TRIES = 20
HOME = 30
"""How many steps from the best state count as near it."""


@displayed
class AveragePlan(NamedTuple):
    """One action for each state, for ever."""

    policy: Array
    """(S,) the action in each state."""
    gain: float
    """Reward per step in the long run, from any start, in the user's units."""
    bias: Array
    """(S,) how much better it is to start in each state, up to a number that is common to all."""
    error: float
    """The true gain, and that of the policy, are no further from `gain` than this."""
    sweeps: int
    """Passes over the states that it took."""
    task: Task | None = None
    """What it was made for, whose names are those of the tables."""

    def card(self) -> Card:
        facts = {"states": len(self.bias), "gain": self.gain, "bias": spread(self.bias)}
        return Card(
            facts,
            rows=lambda: self.to_pandas().head(MOST_ROWS).to_dict("records"),
            n_rows=len(self.bias),
            more="to_pandas() has every state, plot() draws them",
        )

    def to_pandas(self) -> Any:
        """A data frame with a row per state: state, action, bias."""
        return shown(self.policy, self.task, bias=self.bias)

    def plot(self) -> Any:
        """A figure of the actions and the bias by state."""
        return drawn(self.policy, self.task, self.bias)

    def on(self, task: Task) -> Array:
        """(S,) or (S, A) the policy in the order of another task, matched by name."""
        return by_name(self.policy, self.task, task)

    @property
    def span(self) -> float:
        """Largest difference of the bias between two states, at most the diameter."""
        return float(np.ptp(self.bias))


def solve_average(
    mdp: FiniteMDP, tolerance: float = TOLERANCE, policy: Array | None = None
) -> AveragePlan:
    """The best gain, or that of `policy`, (S,) or (S, A), within `tolerance`."""
    tolerance = positive_number("tolerance", tolerance)
    policy = None if policy is None else stationary_table(mdp.true_task, policy)
    rows = rows_of(mdp, policy, "an average")
    check_one_class(mdp.true_task, rows, mdp.name)
    found = iterate(rows, 1.0, LAZY, tolerance, split=True)
    sweeps, tries = found.sweeps, 0
    while not found.high - found.low <= 2.0 * tolerance and sweeps < MOST_SWEEPS and tries < TRIES:
        if tries == 0:  # slow to mix: what is best for a while is nearly best for ever
            found = iterate(rows, 1.0 - AWHILE, 0.0, tolerance)
            sweeps += found.sweeps
        found = iterate(rows, 1.0, LAZY, tolerance, homeward(rows, found.policy), split=True)
        sweeps, tries = sweeps + found.sweeps, tries + 1
    gain = 0.5 * (found.low + found.high)
    played = found.policy if policy is None else policy
    error = 0.5 * (found.high - found.low)
    return AveragePlan(played, gain, found.u - found.u.mean(), error, sweeps, mdp.true_task)


def homeward(rows: Rows, policy: Array) -> Array:
    """(S,) bias of going to where the policy earns most in the long run, and playing it there.

    A policy may keep many states where they are, and policy iteration would lead them away one
    after the other.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n_states, sizes = rows.n_states, np.diff(rows.indptr)
    n_actions = len(sizes) // n_states
    group = np.repeat(np.arange(len(sizes)), sizes)
    ways = csr_array(
        (np.ones(len(group)), (rows.successors, group // n_actions)), shape=(n_states, n_states)
    )
    best = int(np.argmax(values_of(rows, policy, 1.0 - 1e-7)))
    far = dijkstra(ways, indices=best, unweighted=True)
    closer = far[rows.successors] < far[group // n_actions]
    chance = np.bincount(group, rows.prob * closer, len(sizes)) - (sizes == 0)
    towards = chance.reshape(n_states, n_actions).argmax(axis=1)
    policy = np.where(far <= HOME, policy, towards).astype(np.int32)
    return values_of(rows, policy, 1.0)


def check_one_class(task: Task, rows: Rows, name: str) -> None:
    """Refuse rows with two sets of states that one can stay in for ever."""
    label = recurrent_classes(rows)
    classes = np.unique(label[label >= 0])
    if len(classes) > 1:
        one, other = (task.state_names[int(np.argmax(label == c))] for c in classes[:2])
        raise ValueError(
            f"{name} has {len(classes)} sets of states that one can stay in for ever, so the "
            f"average reward depends on the start (one holds {one!r}, another {other!r}); use a "
            "discount, or one set at a time"
        )


def recurrent_classes(rows: Rows) -> Array:
    """(S,) the maximal end component of each state, or -1 where every policy leaves for good."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n_states, groups = rows.n_states, len(rows.reward)
    n_actions = groups // n_states
    sizes = np.diff(rows.indptr)
    origin = np.repeat(np.arange(groups) // n_actions, sizes)
    allowed, alive = sizes > 0, np.ones(n_states, bool)
    while True:
        kept = allowed.repeat(sizes)
        graph = csr_array(
            (np.ones(int(kept.sum()), np.int8), (origin[kept], rows.successors[kept])),
            shape=(n_states, n_states),
        )
        label = connected_components(graph, connection="strong")[1]
        label[~alive] = -1
        if not kernels.stationary.leave(
            rows.indptr, rows.successors, n_actions, label, allowed, alive
        ):  # fmt: skip
            return label
