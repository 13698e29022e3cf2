"""Stationary plans of a known MDP with an infinite horizon: discounted and average reward.

The average reward must not depend on the start. That is so where there is one set of states that
some policy never leaves (a maximal end component, de Alfaro 1997): every policy is drawn
into it, and in it every state can be reached. With two such sets the gain may differ between them,
and the problem is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array, positive_number
from upriver.display import Card, add_repr, to_frame
from upriver.display.card import MAX_ROWS
from upriver.display.frames import name_column
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.validation import check_discount
from upriver.planning import tables
from upriver.planning.policy_iteration import (
    MAX_SWEEPS,
    iterate_policies,
    policy_rows,
    possible_rows,
    relative_values,
)

TOLERANCE = 1e-8
MIN_DISCOUNT_GAP = 1e-10
"""The smallest 1 - discount: values are of the order of 1 / (1 - discount) rewards, and rounding
errors of probabilities count as many times."""
FIRST_GAP = 1e-2
"""1 - discount of a problem that is quick to solve, where that of the average reward is not."""
MAX_TRIES = 20
NEARBY = 30
"""How many steps from the best state count as near it."""


@add_repr
class StationaryPlan(NamedTuple):
    """One action, or a distribution over actions, for each state at every step.

    What `solve` and `evaluate` return with a discount and for the average reward.
    """

    policy: Array
    """(S,) the action in each state, or (S, A) its action probabilities."""
    v: Array
    """(S,) the value of each state in the user's units: the expected sum of discount^t times the
    reward of step t; with the average reward the bias, how much better it is to start in each
    state, with mean 0."""
    discount: float
    """1 for the average reward."""
    gain: float | None
    """Reward per step in the long run, from any start, in the user's units; None with a discount.
    """
    error: float
    """With a discount no value is further from the true one than this, and the policy loses at most
    twice as much; for the average reward the true gain, and that of the policy, are no further from
    `gain` than this."""
    sweeps: int
    """Passes over the states that it took."""
    task: Task | None = None
    """What it was made for, whose names are those of the tables."""

    def card(self) -> Card:
        """Return what a notebook shows."""
        spread = f"{float(self.v.min()):.4g} to {float(self.v.max()):.4g}"
        facts: dict[str, Any] = {"states": len(self.v)}
        if self.gain is None:
            facts |= {"discount": self.discount, "values": spread}
        else:
            facts |= {"gain": self.gain, "bias": spread}
        return Card(
            facts,
            rows=lambda: self.to_pandas().head(MAX_ROWS).to_dict("records"),
            more="to_pandas() has every state, plot() draws them",
        )

    def to_pandas(self) -> Any:
        """Return a data frame with a row per state: state, action, and value or bias."""
        names = None if self.task is None else self.task.states
        states, column = np.arange(len(self.v)), "value" if self.gain is None else "bias"
        actions = tables.action_columns(self.task, self.policy)
        return to_frame({"state": name_column(names, states), **actions, column: self.v})

    def plot(self) -> Any:
        """Return a figure of the actions by state."""
        from upriver.display import figures

        if self.policy.ndim == 2:
            raise ValueError("this policy is random; plot() draws one action for each state")
        names = (None, None) if self.task is None else (self.task.states, self.task.actions)
        return figures.plot_policy(self.policy[None], *names)

    def on(self, task: Task) -> Array:
        """Return the policy in the order of another task's states and actions, by name."""
        return tables.by_name(self.policy, self.task, task)


def solve_discounted(
    mdp: FiniteMDP, discount: float, tolerance: float = TOLERANCE, policy: Any = None
) -> StationaryPlan:
    """Return the discounted optimum, or the value of `policy`, (S,) or (S, A), within `tolerance`.

    Where values are so large that rounding is more than `tolerance`, `error` says what is left.
    """
    discount = check_discount(None, discount) or 0.0
    if 1.0 - discount < MIN_DISCOUNT_GAP:
        raise ValueError(
            f"discount is {discount!r}; it must be at most 1 - {MIN_DISCOUNT_GAP:g}, nearer to 1 "
            "rounding decides the values: use average=True"
        )
    tolerance = positive_number("tolerance", tolerance)
    rows, table = rows_and_table(mdp, policy, "a discounted sum")
    ratio = discount / (1.0 - discount)
    # the bound below is 0.5 (ratio + 1) times the spread of the changes, at most `tolerance`
    found = iterate_policies(rows, discount, tolerance / max(ratio, 1.0))
    v = found.values + ratio * found.mean_change
    error = (ratio + 1.0) * found.half_spread
    played = found.policy if table is None else table
    return StationaryPlan(
        played, v, float(discount), None, float(error), found.sweeps, mdp.true_task
    )


def solve_average_reward(
    mdp: FiniteMDP, tolerance: float = TOLERANCE, policy: Any = None
) -> StationaryPlan:
    """Return the best gain, or that of `policy`, (S,) or (S, A), within `tolerance`.

    Refused where there are two sets of states that some policy never leaves.
    """
    tolerance = positive_number("tolerance", tolerance)
    rows, table = rows_and_table(mdp, policy, "an average")
    check_one_class(mdp.true_task, rows, mdp.name)
    found = iterate_policies(rows, 1.0, tolerance, stop_at_two_classes=True)
    sweeps, tries = found.sweeps, 0
    while not found.half_spread <= tolerance and sweeps < MAX_SWEEPS and tries < MAX_TRIES:
        if tries == 0:  # slow to mix: what is best with a discount is nearly best without
            found = iterate_policies(rows, 1.0 - FIRST_GAP, tolerance)
            sweeps += found.sweeps
        guess = values_of_returning(rows, found.policy)
        found = iterate_policies(rows, 1.0, tolerance, guess=guess, stop_at_two_classes=True)
        sweeps, tries = sweeps + found.sweeps, tries + 1
    gain, error = found.mean_change, found.half_spread
    if not np.isfinite(gain):
        raise ValueError(
            f"the average reward of {mdp.name} was not found in {sweeps} sweeps; use a discount"
        )
    bias = found.values - found.values.mean()
    played = found.policy if table is None else table
    return StationaryPlan(played, bias, 1.0, gain, error, sweeps, mdp.true_task)


def rows_and_table(mdp: FiniteMDP, policy: Any, setting: str) -> tuple[Any, Array | None]:
    """Return the rows of an MDP, or those of a policy on it, and the policy as a table."""
    task = mdp.true_task
    table = None if policy is None else tables.stationary_table(task, policy)
    if len(mdp.probability) > 1 or len(mdp.reward_rows) > 1 or mdp.terminal.any():
        raise ValueError(
            f"{mdp.name} changes with the step, and {setting} has an infinite horizon: it needs "
            "one transition and one reward for all steps, and no terminal value"
        )
    rows = possible_rows(
        task.indptr, task.successors, mdp.probability[0], mdp.reward_rows[0], task.n_states
    )
    return rows if table is None else policy_rows(rows, task, table), table


def values_of_returning(rows: Any, policy: Array) -> Array:
    """Return the bias (S,) of going to where the policy earns most, and following it there.

    A policy may keep many states where they are, and policy iteration would lead them away one
    after the other.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n_states, sizes = rows.n_states, np.diff(rows.indptr)
    n_actions = len(sizes) // n_states
    pair = np.repeat(np.arange(len(sizes)), sizes)
    backwards = csr_array(
        (np.ones(len(pair)), (rows.successors, pair // n_actions)), shape=(n_states, n_states)
    )
    best = int(np.argmax(relative_values(rows, policy, 1.0 - 1e-7)))
    steps = dijkstra(backwards, indices=best, unweighted=True)
    closer = steps[rows.successors] < steps[pair // n_actions]
    chance = np.bincount(pair, rows.prob * closer, len(sizes)) - (sizes == 0)
    towards = chance.reshape(n_states, n_actions).argmax(axis=1)
    policy = np.where(steps <= NEARBY, policy, towards).astype(np.int32)
    return relative_values(rows, policy, 1.0)


def check_one_class(task: Task, rows: Any, name: str) -> None:
    """Refuse rows with two sets of states that some policy never leaves."""
    label = end_components(rows)
    classes = np.unique(label[label >= 0])
    if len(classes) > 1:
        one, other = (task.state_names[int(np.argmax(label == c))] for c in classes[:2])
        raise ValueError(
            f"{name} has {len(classes)} sets of states that some policy never leaves, so the "
            f"average reward depends on the start (one holds {one!r}, another {other!r}); use a "
            "discount, or one set at a time"
        )


def end_components(rows: Any) -> Array:
    """Return the maximal end component (S,) of each state, -1 where every policy leaves for good.

    Strongly connected components, without the pairs that may leave theirs, until none does. Every
    triple of `rows` has a probability above 0.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n_states, n_pairs = rows.n_states, len(rows.reward)
    pairs, sizes = np.arange(n_pairs, dtype=np.int32), np.diff(rows.indptr)
    pair, origin = pairs.repeat(sizes), (pairs // (n_pairs // n_states)).repeat(sizes)
    successors = rows.successors
    while True:
        ones = np.ones(len(pair), np.int8)
        graph = csr_array((ones, (origin, successors)), shape=(n_states, n_states))
        label = connected_components(graph, connection="strong")[1]
        leaves = label[origin] != label[successors]
        if not leaves.any():
            return np.where(np.bincount(origin, minlength=n_states) > 0, label, -1)
        allowed = np.ones(n_pairs, bool)
        allowed[pair[leaves]] = False
        kept = allowed[pair]
        pair, origin, successors = pair[kept], origin[kept], successors[kept]


class Visits(NamedTuple):
    """A value, and how often the policy visits each state."""

    value: float
    """first^T v, or the gain."""
    v: Array
    """(S,) the values, or the bias."""
    visits: Array
    """(S,) discounted visits of each state, 1 / (1 - discount) in all; or shares of time."""


def solve_visits(task: Task, prob: Array, reward: Array, policy: Array, first: Array) -> Visits:
    """Solve for the values and visits of a policy, (S,) or (S, A), on prob (n,) and reward (S*A,).

    The values v = r + discount P v and the visits d = first + discount P^T d, first (S,) the
    probabilities of the first state, solve one matrix and its transpose, so sum_s d(s) x(s) is what
    the value first^T v gains where rewards change by x. For the average reward, discount 1, the
    matrix has one row and one column more, for the gain: h + gain = r + P h with one h fixed at 0,
    and d are the shares of time; a policy with two recurrent classes is refused.
    """
    from scipy import sparse
    from scipy.sparse.linalg import splu

    n, discount = task.n_states, task.discount
    assert discount is not None
    rows = possible_rows(task.indptr, task.successors, prob, reward, n)
    chain = policy_rows(rows, task, policy)
    matrix = sparse.eye_array(n) - discount * sparse.csr_array(
        (chain.prob, chain.successors, chain.indptr), shape=(n, n)
    )
    if discount < 1.0:
        solve = splu(matrix.tocsc()).solve
        v = solve(chain.reward)
        return Visits(float(first @ v), v, solve(first, "T"))
    check_one_class(task, chain, "the policy")
    ones, fixed = np.ones((n, 1)), np.eye(1, n)
    whole = sparse.block_array([[matrix, sparse.csr_array(ones)], [sparse.csr_array(fixed), None]])
    solve = splu(whole.tocsc()).solve
    found = solve(np.append(chain.reward, 0.0))
    return Visits(float(found[n]), found[:n], solve(np.append(np.zeros(n), 1.0), "T")[:n])
