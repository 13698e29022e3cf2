"""Stationary plans of a known MDP with an infinite horizon: discounted and average reward.

The average reward must not depend on the start. That is so where there is one set of states that
some policy never leaves (a maximal end component, de Alfaro 1997): every policy is drawn
into it, and in it every state can be reached. With several such sets the gain may differ between
them; where the bounds of the gain do not meet, the problem is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array, positive_number
from upriver.display import Card, add_repr, to_frame
from upriver.display.card import MAX_ROWS
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.validation import check_discount
from upriver.planning import tables
from upriver.planning.policy_iteration import (
    Matrix,
    follow_policy,
    iterate_policies,
    scale_exponent,
    transition_matrix,
)

DEFAULT_TOLERANCE = 1e-8
"""The default tolerance, times the range of the rewards where that is below 1."""
MIN_DISCOUNT_GAP = 1e-10
"""The smallest 1 - discount: values are of the order of 1 / (1 - discount) rewards, and rounding
errors of probabilities count as many times."""


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
        column = "value" if self.gain is None else "bias"
        columns = tables.policy_columns(*tables.names_of(self.task), self.policy)
        return to_frame({**columns, column: self.v})

    def plot(self) -> Any:
        """Return a figure of the actions by state."""
        from upriver.display import figures

        if self.policy.ndim == 2:
            raise ValueError("this policy is random; plot() draws one action for each state")
        return figures.plot_policy(self.policy[None], *tables.names_of(self.task))

    def on(self, task: Task) -> Array:
        """Return the policy in the order of another task's states and actions, by name."""
        return tables.by_name(self.policy, self.task, task)


def solve_stationary(
    mdp: FiniteMDP, discount: float | None, average: bool, tolerance: float | None,
    policy: Any = None,
) -> StationaryPlan:  # fmt: skip
    """Return the optimum, or the value of `policy`, (S,) or (S, A), within `tolerance`.

    Without a discount and an average, those of the MDP decide. Where values are so large that
    rounding is more than `tolerance`, `error` says what is left. Raise ValueError if the average
    reward depends on the start.
    """
    if discount is not None and average:
        raise ValueError(f"discount is {discount!r} and average is True; it must be one of them")
    average = average or (discount is None and mdp.discount == 1.0)
    if not average:
        discount = check_stationary_discount(mdp.discount if discount is None else discount)
    mdp.check_steps_are_alike()
    task, reward, table = mdp.true_task, mdp.reward_rows[0], None
    transition = transition_matrix(task, mdp.probability[0])
    if policy is not None:
        table = tables.stationary_table(task, policy)
        transition, reward = follow_policy(transition, reward, task, table)
    exists = np.diff(transition.indptr) > 0
    k = scale_exponent(largest_reward(*(x.reshape(task.n_states, -1) for x in (reward, exists))))
    reward = np.ldexp(reward, -k)
    tolerance = float(np.ldexp(choose_tolerance(mdp, tolerance), -k))
    if average:
        found = iterate_policies(transition, reward, 1.0, tolerance)
        if not found.level:
            check_one_class(task, transition, mdp.name)
            why = f"was not found in {found.sweeps} sweeps; use a discount"
            raise ValueError(f"the average reward of {mdp.name} {why}")
        v, error = found.values - found.values.mean(), found.half_spread
        discount, gain = 1.0, float(np.ldexp(found.mean_change, k))
    else:
        assert discount is not None
        ratio, gain = discount / (1.0 - discount), None
        # the bound below is 0.5 (ratio + 1) times the spread of the changes, at most `tolerance`
        found = iterate_policies(transition, reward, discount, tolerance / max(ratio, 1.0))
        v, error = found.values + ratio * found.mean_change, (ratio + 1.0) * found.half_spread
    played, error = found.policy if table is None else table, float(np.ldexp(error, k))
    return StationaryPlan(played, np.ldexp(v, k), discount, gain, error, found.sweeps, task)


def check_stationary_discount(discount: Any) -> float:
    """Return a discount that is not so near to 1 that rounding decides the values."""
    checked = check_discount(None, discount)
    assert checked is not None
    if 1.0 - checked < MIN_DISCOUNT_GAP:
        raise ValueError(
            f"discount is {discount!r}; it must be at most 1 - {MIN_DISCOUNT_GAP:g}: nearer to 1 "
            "rounding decides the values, and the average reward is the limit to use"
        )
    return checked


def expected_reward_bounds(mdp: FiniteMDP) -> tuple[float, float]:
    """Return the least and the largest expected reward of the pairs (s, a) that exist."""
    reward = mdp.reward_rows[0][mdp.true_task.available.ravel()]
    return float(reward.min()), float(reward.max())


def choose_tolerance(mdp: FiniteMDP, tolerance: Any, temperature: float = 0.0) -> float:
    """Return the tolerance, by default in proportion to what small rewards or shocks differ by."""
    if tolerance is not None:
        return positive_number("tolerance", tolerance)
    low, high = expected_reward_bounds(mdp)
    return DEFAULT_TOLERANCE * min(1.0, max(high - low, temperature) or 1.0)


def largest_reward(reward: Array, exists: Array) -> float:
    """Return the largest size of the best reward of a state; both arguments are (S, A).

    Penalties that forbid some actions of a state do not count: on a scale on which they are 1,
    rounding would decide about the other rewards.
    """
    best = np.abs(np.where(exists, reward, -np.inf).max(axis=1)).max()
    # An action that pays 0 is optimal where every state has one, and must not tie with tiny costs.
    return float(best or np.abs(reward[reward != 0.0]).min(initial=1.0))


def check_one_class(task: Task, transition: Matrix, name: str) -> None:
    """Raise ValueError if there are two sets of states that some policy never leaves."""
    label = end_components(transition)
    classes = np.unique(label[label >= 0])
    if len(classes) > 1:
        one, other = (task.state_names[int(np.argmax(label == c))] for c in classes[:2])
        raise ValueError(
            f"{name} has {len(classes)} sets of states that some policy never leaves, so the "
            f"average reward depends on the start (one holds {one!r}, another {other!r}); use a "
            "discount, or one set at a time"
        )


def end_components(transition: Matrix) -> Array:
    """Return the maximal end component (S,) of each state, -1 where every policy leaves for good.

    Strongly connected components, without the pairs that may leave theirs, until none does.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n_pairs, n_states = transition.shape
    pair, successors = transition.nonzero()
    origin = pair // (n_pairs // n_states)
    while True:
        edges = np.ones(len(pair), np.int8), (origin, successors)
        graph = csr_array(edges, shape=(n_states, n_states))
        label = connected_components(graph, connection="strong")[1]
        stays = ~np.isin(pair, pair[label[origin] != label[successors]])
        if stays.all():
            return np.where(np.bincount(origin, minlength=n_states) > 0, label, -1)
        pair, origin, successors = pair[stays], origin[stays], successors[stays]


def solve_visits(
    task: Task, prob: Array, reward: Array, policy: Array, first: Array
) -> tuple[float, Array, Array]:
    """Return (value, values (S,), visits (S,)) of a policy, (S,) or (S, A), on prob (n,) and reward
    (S*A,): first^T v, v and d with a discount; the gain, the bias and the shares of time without.

    The values v = r + discount P v and the visits d = first + discount P^T d, first (S,) the
    probabilities of the first state, solve one matrix and its transpose, so sum_s d(s) x(s) is what
    the value first^T v gains where rewards change by x. For the average reward, discount 1, the
    matrix has one row and one column more, for the gain: h + gain = r + P h with one h fixed at 0,
    and d are the shares of time. Raise ValueError if the policy has two recurrent classes.
    """
    from scipy import sparse
    from scipy.sparse.linalg import splu

    n, discount = task.n_states, task.discount
    assert discount is not None
    chain, earned = follow_policy(transition_matrix(task, prob), reward, task, policy)
    matrix = sparse.eye_array(n) - discount * chain
    if discount < 1.0:
        solve = splu(matrix.tocsc()).solve
        visits = solve(first, "T")
        mean = visits @ earned / visits.sum()  # without it values, and rounding errors, are small
        v = mean / (1.0 - discount) + solve(earned - mean)
        return float(first @ v), v, visits
    check_one_class(task, chain, "the policy")
    ones, fixed = np.ones((n, 1)), np.eye(1, n)
    whole = sparse.block_array([[matrix, sparse.csr_array(ones)], [sparse.csr_array(fixed), None]])
    solve = splu(whole.tocsc()).solve
    found = solve(np.append(earned, 0.0))
    return float(found[n]), found[:n], solve(np.append(np.zeros(n), 1.0), "T")[:n]
