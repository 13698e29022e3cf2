"""Modified policy iteration on relative values, the loop behind discounted and average reward.

Write T for the Bellman operator and u = T w. Whatever w is, adding a number to it moves w and T w
alike, so only differences count, and the optimal value v* obeys

    u + gamma/(1 - gamma) min(u - w) <= v* <= u + gamma/(1 - gamma) max(u - w)    (gamma < 1)
    min(u - w) <= the optimal gain <= max(u - w)                                  (gamma = 1)

(MacQueen 1966; Odoni 1969), and so does the value of the policy that is greedy in w. Rows of
probabilities are taken to sum to 1 exactly. Between two
improvements the policy's own chain is followed until its changes are nearly level; where that takes
long and the chain is a band, its linear equations are solved instead, which is policy iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.mdp import FiniteMDP, Task
from upriver.planning.tables import check_mixture

LEVEL = 0.1
"""A chain is followed until its changes are this much more level than the improvement's."""
SHORT, LONG = 6, 200
"""The most sweeps of a chain between improvements, where its equations can be solved and not."""
WILD = 1e9
"""Changes so far apart that the equations of a chain are solved by rounding alone."""
STUCK = 3
"""Solutions in a row that may leave the policy as it is."""
CHOICES, MOST_CHOICES = 30, 3_000
"""Solutions, and then sweeps, at most where each improvement chooses a model too. The first is also
how many policies without a gain of their own are passed through."""
GAP = 1e-3
"""1 - discount where a chain has no gain of its own."""
BAND = 2e9
"""The most multiplications that solving the equations of a chain may take."""
MOST_SWEEPS = 1_000_000


class Rows(NamedTuple):
    """The triples as the kernels of stationary plans read them."""

    indptr: Array
    successors: Array
    prob: Array
    """(n,)"""
    reward: Array
    """(S*A,)"""

    n_states: int


class Found(NamedTuple):
    policy: Array
    """(S,)"""
    u: Array
    """(S,) relative values after a last backup."""
    low: float
    high: float
    """The least and largest change of the last backup, with what rounding may add."""
    sweeps: int
    """Passes over the states, of all actions or of one."""


def rows_of(mdp: FiniteMDP, policy: Array | None, setting: str) -> Rows:
    """The rows of an MDP, or those of one policy on it, as an MDP with one action."""
    task = mdp.true_task
    if len(mdp.probability) > 1 or len(mdp.reward_rows) > 1 or mdp.terminal.any():
        raise ValueError(
            f"{mdp.name} changes with the step, and {setting} is for ever: it needs one transition "
            "and one reward for all steps, and no terminal value"
        )
    rows = Rows(task.indptr, task.successors, mdp.probability[0], mdp.reward_rows[0], task.n_states)
    return rows if policy is None else chain_of(rows, task, policy)


def chain_of(rows: Rows, task: Task, policy: Array) -> Rows:
    """The rows of a policy: (S,) whole numbers, or probabilities (S, A)."""
    from scipy import sparse

    shape = task.n_states, task.n_actions
    mixture = policy
    if mixture.shape not in {shape, shape[:1]}:
        raise ValueError(f"policy has shape {mixture.shape}; it must be {shape[:1]} or {shape}")
    if mixture.ndim == 1:
        bad = (mixture < 0) | (mixture >= task.n_actions)
        if mixture.dtype.kind not in "iu" or bad.any():
            s = int(np.argmax(bad))
            raise ValueError(f"policy[{s}] is {mixture[s]}; actions are 0 to {task.n_actions - 1}")
        mixture = np.eye(task.n_actions)[mixture]
    if not ((mixture >= 0).all() and np.allclose(mixture.sum(axis=1), 1.0, atol=1e-8)):
        raise ValueError("policy must hold whole numbers, or probabilities that sum to 1")
    check_mixture(mixture, task)
    groups = np.arange(mixture.size)
    select = sparse.csr_array((mixture.ravel(), (groups // shape[1], groups)))
    select.eliminate_zeros()
    size = mixture.size, task.n_states
    chain: Any = select @ sparse.csr_array((rows.prob, rows.successors, rows.indptr), shape=size)
    reward = select @ rows.reward
    return Rows(
        chain.indptr.astype(np.int64), chain.indices.astype(np.int32), chain.data, reward, shape[0]
    )


def iterate(
    rows: Rows, discount: float, lazy: float, tolerance: float, guess: Array | None = None,
    improve: Callable[[Array, Array, Array], tuple[float, float]] | None = None,
    policy: Array | None = None, split: bool = False,
) -> Found:  # fmt: skip
    """Improve and follow until the changes of a backup are within `tolerance` of each other.

    lazy: how much of the old value a step of a chain keeps; above 0 it cannot oscillate. guess:
    (S,) values to begin with. improve: (w, u, policy) -> the least and largest change, another
    backup, which also writes the probabilities that it chose into `rows.prob`. policy: (S,) int32
    to begin with. split: whether to end where a policy without a discount has two recurrent
    classes; else it is taken to have a discount. Ends early where rounding keeps the changes apart.
    """
    k, n_states = kernels.stationary, rows.n_states
    widest = int(np.diff(rows.indptr).max())
    start = np.empty(n_states + 1, np.int64)
    to, weight = np.empty(n_states * widest, np.int32), np.empty(n_states * widest)
    w = np.zeros(n_states) if guess is None else guess - guess[0]
    u, pay = np.empty(n_states), np.empty(n_states)
    policy = np.zeros(n_states, np.int32) if policy is None else policy
    followed = np.full(n_states, -1, np.int32)
    choosing = improve is not None
    patience = MOST_CHOICES if choosing else STUCK
    if improve is None:
        improve = partial(k.improve, *rows[:4], discount, np.empty_like(rows.reward))
    reach, band = band_of(rows)
    # solving the equations of a chain takes as long as a few sweeps of it
    most = LONG if band is None else min(LONG, SHORT + (reach + 1) ** 2 // widest)
    sweeps, stuck, torn, direct = 0, 0, 0, False
    while True:
        before = policy.copy()
        low, high = improve(w, u, policy)
        sweeps, span = sweeps + 1, high - low
        slack = 8.0 * np.finfo(float).eps * max(float(np.abs(u).max()), 1.0)
        same = np.array_equal(before, policy)
        stuck = stuck + 1 if direct and (choosing or same) else 0
        hopeless = not span < WILD or stuck > patience or torn > CHOICES or sweeps > MOST_SWEEPS
        if span <= max(tolerance, slack) or hopeless:
            return Found(policy, u, float(low - slack), float(high + slack), sweeps)
        if choosing:
            followed.fill(-1)  # the probabilities are others
        k.follow(*rows[:4], policy, followed, start, to, weight, pay)
        if stuck > CHOICES:  # chosen models go round in circles: sweep after sweep, halfway
            w = 0.5 * (w + u)
            w -= w[0]
            continue
        if direct and band is not None:
            exact = settled(start, to, weight, pay, discount, reach, w, band)
            if exact is None and split:
                return Found(policy, u, -np.inf, np.inf, sweeps)
            if exact is None:
                torn += 1
                exact = settled(start, to, weight, pay, 1.0 - GAP, reach, w, band)
            assert exact is not None
            w = exact
            continue
        if lazy == 0.0:
            w, u = u, w
        enough = 0.5 * tolerance if same and not choosing else LEVEL * span
        done = k.advance(start, to, weight, pay, discount, lazy, enough, most, w, u)
        sweeps += done
        direct = band is not None and done == most


def values_of(rows: Rows, policy: Array, discount: float) -> Array:
    """(S,) the relative values of a policy, as far as the equations of its chain can be solved."""
    n_states, widest = rows.n_states, int(np.diff(rows.indptr).max())
    w, (reach, band) = np.zeros(n_states), band_of(rows)
    if band is None:
        return w
    chain = (
        np.empty(n_states + 1, np.int64), np.empty(n_states * widest, np.int32),
        np.empty(n_states * widest), np.empty(n_states),
    )  # fmt: skip
    kernels.stationary.follow(*rows[:4], policy, np.full(n_states, -1, np.int32), *chain)
    found = settled(*chain, discount, reach, w, band)
    return w if found is None else found


def band_of(rows: Rows) -> tuple[int, Array | None]:
    """The furthest that a step leads, in numbers of states, and room to solve chains with it."""
    most = int((BAND / rows.n_states) ** 0.5) - 1
    n_actions = len(rows.reward) // rows.n_states
    reach = kernels.stationary.furthest(rows.indptr, rows.successors, n_actions, most)
    return reach, np.empty((rows.n_states, 2 * reach + 1)) if reach <= most else None


def settled(
    start: Array, to: Array, weight: Array, pay: Array, discount: float, reach: int, w: Array,
    band: Array,
) -> Array | None:  # fmt: skip
    """Relative values of a chain, level in pay + discount * P w - w, by elimination in the band.

    w: a guess, which is corrected, so that rounding concerns the correction only. None where there
    are two recurrent classes and no discount.
    """
    to, weight = to[: start[-1]], weight[: start[-1]]
    change = pay + discount * np.add.reduceat(weight * w[to], start[:-1]) - w
    change -= 0.5 * (change.max() + change.min())
    x = np.empty_like(w)
    if not kernels.stationary.eliminate(start, to, weight, discount, reach, change, x, band):
        return None
    w = w + x
    return w - w[0]
