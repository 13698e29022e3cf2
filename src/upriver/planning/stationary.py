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
from upriver.display.frames import name_column
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.validation import check_discount
from upriver.planning import tables
from upriver.planning.policy_iteration import (
    MAX_SWEEPS,
    ModelRows,
    band_reach,
    chain_values,
    iterate_policies,
    policy_rows,
    possible_rows,
    scale_exponent,
)

DEFAULT_TOLERANCE = 1e-8
"""The default tolerance, times the range of the rewards where that is below 1."""
MIN_DISCOUNT_GAP = 1e-10
"""The smallest 1 - discount: values are of the order of 1 / (1 - discount) rewards, and rounding
errors of probabilities count as many times."""
NEARBY = 30
"""How many steps from the best state count as near it."""
FIRST_GAP, LAST_GAP = 1e-2, 1e-11
"""1 - discount of the problems that help to find the average reward; below, rounding decides."""


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
    mdp: FiniteMDP, discount: float, tolerance: float | None = None, policy: Any = None
) -> StationaryPlan:
    """Return the discounted optimum, or the value of `policy`, (S,) or (S, A), within `tolerance`.

    Where values are so large that rounding is more than `tolerance`, `error` says what is left.
    """
    discount = check_stationary_discount(discount)
    check_one_step(mdp, "a discounted sum")
    rows, table, k = rows_and_table(mdp, policy)
    tolerance = float(np.ldexp(choose_tolerance(mdp, tolerance), -k))
    ratio = discount / (1.0 - discount)
    # the bound below is 0.5 (ratio + 1) times the spread of the changes, at most `tolerance`
    found = iterate_policies(rows, discount, tolerance / max(ratio, 1.0))
    v = np.ldexp(found.values + ratio * found.mean_change, k)
    error = float(np.ldexp((ratio + 1.0) * found.half_spread, k))
    played = found.policy if table is None else table
    return StationaryPlan(played, v, discount, None, error, found.sweeps, mdp.true_task)


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


def solve_average_reward(
    mdp: FiniteMDP, tolerance: float | None = None, policy: Any = None
) -> StationaryPlan:
    """Return the best gain, or that of `policy`, (S,) or (S, A), within `tolerance`.

    Raise ValueError if it depends on the start.
    """
    check_one_step(mdp, "an average")
    rows, table, k = rows_and_table(mdp, policy)
    tolerance = float(np.ldexp(choose_tolerance(mdp, tolerance), -k))
    label = end_components(rows)
    inside = label >= 0
    found = iterate_policies(rows, 1.0, tolerance)
    sweeps, gap = found.sweeps, FIRST_GAP
    while not found.level and sweeps < MAX_SWEEPS and gap > LAST_GAP:
        # Slow to mix, or the policy has several recurrent classes. What is best with a discount is
        # nearly best without, and its values are relative values also where classes earn the same.
        near = iterate_policies(rows, 1.0 - gap, tolerance)
        sweeps, gap = sweeps + near.sweeps, 1e-2 * gap
        best = int(np.argmax(np.where(inside, near.values, -np.inf)))
        starts = [(near.policy, near.values)]
        if np.ptp(label[inside]) == 0:
            starts.append(policy_of_returning(rows, near.policy, best))
        for policy, guess in starts:
            if not found.level:
                found = iterate_policies(rows, 1.0, tolerance, guess=guess, policy=policy.copy())
                sweeps += found.sweeps
    if not found.level:
        check_one_class(mdp.true_task, rows, mdp.name)
        raise ValueError(
            f"the average reward of {mdp.name} was not found in {sweeps} sweeps; use a discount"
        )
    bias = np.ldexp(found.values - found.values.mean(), k)
    gain, error = float(np.ldexp(found.mean_change, k)), float(np.ldexp(found.half_spread, k))
    played = found.policy if table is None else table
    return StationaryPlan(played, bias, 1.0, gain, error, sweeps, mdp.true_task)


def check_one_step(mdp: FiniteMDP, setting: str) -> None:
    """Raise ValueError if steps differ, or there are terminal values, or states of some steps."""
    mdp.check_any_number_of_steps()
    if len(mdp.probability) > 1 or len(mdp.reward_rows) > 1 or mdp.terminal.any():
        raise ValueError(
            f"{mdp.name} changes with the step, and {setting} has an infinite horizon: it needs "
            "one transition and one reward for all steps, and no terminal value"
        )


def rows_and_table(mdp: FiniteMDP, policy: Any) -> tuple[ModelRows, Array | None, int]:
    """Return the rows of an MDP, or those of a policy on it, the policy as a table, and k.

    The rewards of the rows are divided by 2^k, see `scale_exponent`.
    """
    task, reward, table = mdp.true_task, mdp.reward_rows[0], None
    rows = possible_rows(task.indptr, task.successors, mdp.probability[0], reward, task.n_states)
    if policy is not None:
        table = tables.stationary_table(task, policy)
        rows = policy_rows(rows, task, table)
    by_state = (x.reshape(task.n_states, -1) for x in (rows.reward, np.diff(rows.indptr) > 0))
    k = scale_exponent(largest_reward(*by_state))
    return rows._replace(reward=np.ldexp(rows.reward, -k)), table, k


def policy_of_returning(rows: ModelRows, policy: Array, best: int) -> tuple[Array, Array]:
    """Return a policy (S,) that goes to the state `best`, and follows `policy` near it; its bias.

    A policy may keep many states where they are, and policy iteration would lead them away one
    after the other. It is followed where it reaches `best` by states that are at most NEARBY steps
    away. Every state then reaches `best`, so there is one recurrent class. The bias (S,) is 0 where
    its equations would take long to solve.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, dijkstra

    n_states, sizes = rows.n_states, np.diff(rows.indptr)
    n_actions = len(sizes) // n_states
    pair = np.repeat(np.arange(len(sizes)), sizes)
    origin, successors = pair // n_actions, rows.successors

    def reverse(triples: Any) -> Any:
        edges = successors[triples], origin[triples]
        return csr_array((np.ones(len(edges[0])), edges), shape=(n_states, n_states))

    steps = dijkstra(reverse(slice(None)), indices=best, unweighted=True)
    closer = steps[successors] < steps[origin]
    chance = np.bincount(pair, rows.prob * closer, len(sizes)) - (sizes == 0)
    towards = chance.reshape(n_states, n_actions).argmax(axis=1).astype(np.int32)
    played = np.zeros(len(sizes), bool)
    played[(np.arange(n_states) * n_actions + policy)[steps <= NEARBY]] = True
    triples = np.flatnonzero(played[pair])
    triples = triples[steps[successors[triples]] <= NEARBY]
    kept = breadth_first_order(reverse(triples), best, return_predecessors=False)
    towards[kept] = policy[kept]
    reach = band_reach(rows.indptr, rows.successors, n_states)
    bias = None if reach is None else chain_values(rows.for_kernels(), towards, 1.0, reach)
    return towards, np.zeros(n_states) if bias is None else bias


def check_one_class(task: Task, rows: ModelRows, name: str) -> None:
    """Raise ValueError if there are two sets of states that some policy never leaves."""
    label = end_components(rows)
    classes = np.unique(label[label >= 0])
    if len(classes) > 1:
        one, other = (task.state_names[int(np.argmax(label == c))] for c in classes[:2])
        raise ValueError(
            f"{name} has {len(classes)} sets of states that some policy never leaves, so the "
            f"average reward depends on the start (one holds {one!r}, another {other!r}); use a "
            "discount, or one set at a time"
        )


def end_components(rows: ModelRows) -> Array:
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


class PolicyVisits(NamedTuple):
    """A value, and how often the policy visits each state."""

    value: float
    """first^T v, or the gain."""
    v: Array
    """(S,) the values, or the bias."""
    visits: Array
    """(S,) discounted visits of each state, 1 / (1 - discount) in all; or shares of time."""


def solve_visits(
    task: Task, prob: Array, reward: Array, policy: Array, first: Array
) -> PolicyVisits:
    """Solve for the values and visits of a policy, (S,) or (S, A), on prob (n,) and reward (S*A,).

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
    rows = possible_rows(task.indptr, task.successors, prob, reward, n)
    chain = policy_rows(rows, task, policy)
    matrix = sparse.eye_array(n) - discount * sparse.csr_array(
        (chain.prob, chain.successors, chain.indptr), shape=(n, n)
    )
    if discount < 1.0:
        solve = splu(matrix.tocsc()).solve
        v = solve(chain.reward)
        return PolicyVisits(float(first @ v), v, solve(first, "T"))
    check_one_class(task, chain, "the policy")
    ones, fixed = np.ones((n, 1)), np.eye(1, n)
    whole = sparse.block_array([[matrix, sparse.csr_array(ones)], [sparse.csr_array(fixed), None]])
    solve = splu(whole.tocsc()).solve
    found = solve(np.append(chain.reward, 0.0))
    return PolicyVisits(float(found[n]), found[:n], solve(np.append(np.zeros(n), 1.0), "T")[:n])
