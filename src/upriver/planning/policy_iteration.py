"""Modified policy iteration on relative values, the loop behind every stationary plan.

Write T for the Bellman operator and u = T w. Whatever w is, adding a number to it moves w and T w
alike, so only differences count, and the optimal value v* obeys

    u + gamma/(1 - gamma) min(u - w) <= v* <= u + gamma/(1 - gamma) max(u - w)    (gamma < 1)
    min(u - w) <= the optimal gain <= max(u - w)                                  (gamma = 1)

(MacQueen 1966; Odoni 1969), and so does the value of the policy that is greedy in w. A model is a
sparse matrix `transition` (S*A, S), whose row s * A + a is P(. | s, a), and `reward` (S*A,); a pair
with an empty row does not exist. Rows are taken to sum to 1 exactly, and rewards to be of the order
of 1. Between two improvements the chain of the policy is iterated until its changes are nearly
equal; where that takes long and the chain has a band matrix, its linear equations are solved
instead, which is policy iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning.tables import check_policy_table

Matrix = Any
"""A `csr_array` of scipy.sparse, which is not imported before it is needed."""
DAMPING = 0.1
"""Share of the old value that a step of a chain keeps for the average reward: periodic chains then
settle."""
CHAIN_LEVEL = 0.1
"""A chain is iterated until its changes differ by this much of those of the improvement."""
SHORT, LONG = 6, 200
"""The most steps of a chain between improvements, where its equations can be solved and not."""
DIVERGED = 1e9
"""Changes so far apart that rounding alone decides the equations of a chain without a discount.
With one they may differ by twice the largest value, and nothing diverges."""
POOR = 1e4
"""A guess is poor where its changes differ by so many times as much as the rewards: rounding errors
of the correction would lead to another policy, again and again, where the discount is near 1."""
MAX_UNCHANGED = 3
"""Solutions in a row that may leave the policy as it is."""
MAX_CHOICES, MAX_HALF_STEPS = 100, 3_000
"""Improvements, and then half steps, at most where each improvement chooses a model too."""
NEAR_GAPS = (1e-8, 1e-10, 1e-5, 1e-2)
"""1 - discount of the problems that help to find the average reward; below, rounding decides."""
MAX_BAND_OPERATIONS = 2e9
"""The most multiplications that solving the equations of a chain may take."""
MAX_SWEEPS = 1_000_000
ORDINARY_EXPONENT = 10
"""Rewards are of the order of 1 where the largest is between 2^-11 and 2^10."""


class PolicyIteration(NamedTuple):
    """How far policy iteration came."""

    policy: Array
    """(S,) the last policy."""
    values: Array
    """(S,) relative values after a last backup."""
    mean_change: float
    """The middle of the least and the largest change of the last backup."""
    half_spread: float
    """Half of what they differ by, with what rounding may add."""
    level: bool
    """Whether they differ by no more than the tolerance, or than rounding."""
    sweeps: int
    """Passes over the states, of all actions or of one."""


def transition_matrix(task: Task, prob: Array) -> Matrix:
    """Return the probabilities (n,) of a task's triples as a matrix (S*A, S), without those of 0:
    they lead nowhere."""
    from scipy.sparse import csr_array

    shape = len(task.sizes), task.n_states
    matrix = csr_array((prob, task.successors, task.indptr), shape=shape, copy=True)
    matrix.eliminate_zeros()
    return matrix


def scale_exponent(largest: float) -> int:
    """Return k such that rewards divided by 2^k are of the order of 1; `largest` is the largest.

    The iterations compare with numbers that are meant for such rewards. A power of 2 changes no
    digit, and k is 0 where rewards are of that order already.
    """
    k = int(np.frexp(largest)[1])
    return 0 if abs(k) <= ORDINARY_EXPONENT else k


def follow_policy(
    transition: Matrix, reward: Array, task: Task, policy: Array
) -> tuple[Matrix, Array]:
    """Return the transition (S, S) and the reward (S,) of the chain of a policy.

    policy: whole numbers (S,), or action probabilities (S, A).
    """
    from scipy.sparse import csr_array

    mixture = check_policy_table(task, policy)
    if mixture.ndim == 1:
        mixture = np.eye(task.n_actions)[mixture]
    pairs = np.arange(mixture.size)
    select = csr_array((mixture.ravel(), (pairs // task.n_actions, pairs)))
    chain = select @ transition
    chain.eliminate_zeros()
    return chain, select @ reward


def iterate_policies(
    transition: Matrix, reward: Array, discount: float, tolerance: float, *,
    policy: Array | None = None, choose_model: Callable[[Array], None] | None = None,
) -> PolicyIteration:  # fmt: skip
    """Improve a policy until the changes of a backup are within `tolerance` of each other.

    Discount 1 is the average reward. policy (S,), int32, is what to begin with. choose_model:
    writes the best model of a set for the values w (S,) into `transition.data` and `reward`.
    """
    model = transition, reward
    found = run_policy_iteration(*model, discount, tolerance, None, policy, choose_model)
    for gap in NEAR_GAPS if discount == 1.0 else ():
        if found.level or found.sweeps > MAX_SWEEPS:
            break
        # Slow to mix, or the policy has several recurrent classes. What is best with a discount is
        # nearly best without, and its values are relative values also where classes earn the same.
        near = run_policy_iteration(*model, 1.0 - gap, tolerance, None, None, choose_model)
        sweeps = found.sweeps + near.sweeps
        found = run_policy_iteration(*model, 1.0, tolerance, near.values, near.policy, choose_model)
        found = found._replace(sweeps=sweeps + found.sweeps)
    return found


def run_policy_iteration(
    transition: Matrix, reward: Array, discount: float, tolerance: float,
    guess: Array | None, policy: Array | None, choose_model: Callable[[Array], None] | None,
) -> PolicyIteration:  # fmt: skip
    """Do one run of `iterate_policies`, from the values `guess` (S,) and a policy on.

    Actions stay where they are as good as others. Ends early where rounding keeps the changes
    further apart, and where a policy has two recurrent classes, which have no common gain.
    """
    k, n_states = kernels.stationary, transition.shape[1]
    indptr, successors = transition.indptr, transition.indices
    arrays = indptr.astype(np.uint32), successors.astype(np.uint32), transition.data, reward
    w = np.zeros(n_states) if guess is None else guess - guess[0]
    u, q = np.empty(n_states), np.empty(len(reward))
    policy = np.zeros(n_states, np.int32) if policy is None else policy
    damping = DAMPING if discount == 1.0 else 0.0
    choosing = choose_model is not None
    patience = MAX_HALF_STEPS if choosing else MAX_UNCHANGED
    reach, widest = band_reach(indptr, successors, n_states), int(np.diff(indptr).max())
    # solving the equations of a chain takes as long as a few steps of it
    most = LONG if reach is None else min(LONG, SHORT + (reach + 1) ** 2 // widest)
    diverged = DIVERGED if discount == 1.0 else np.inf
    sweeps, unchanged, hopeless, direct, last = 0, 0, False, False, np.inf
    while True:
        before = policy.copy()
        if choose_model is not None:
            choose_model(w)
        low, high = k.improve_policy(*arrays, discount, w, u, policy, q)
        sweeps, spread = sweeps + 1, high - low
        rounding = 8.0 * np.finfo(float).eps * max(float(np.abs(u).max()), 1.0)
        same = np.array_equal(before, policy)
        # improvements that choose a model may go round in circles, so all of them count
        unchanged = unchanged + 1 if choosing or (direct and same) else 0
        hopeless |= not spread < diverged or unchanged > patience or sweeps > MAX_SWEEPS
        # Where equations are not solved, the rounding errors of so many steps of a chain remain.
        stalled = reach is None and same and last <= spread <= most * rounding
        level, last = bool(spread <= max(tolerance, rounding) or stalled), spread
        if level or hopeless:
            middle, half = 0.5 * (low + high), 0.5 * (high - low) + rounding
            return PolicyIteration(policy, u, float(middle), float(half), level, sweeps)
        if unchanged > MAX_CHOICES:  # the chosen models go round in circles
            w = 0.5 * (w + u)
            w -= w[0]
            continue
        if direct and reach is not None:
            exact = chain_values(arrays, policy, discount, reach, w, u - w)
            hopeless = exact is None
            w = w if exact is None else exact
            continue
        if damping == 0.0:
            w, u = u, w
        enough = 0.5 * tolerance if same and not choosing else CHAIN_LEVEL * spread
        done = k.iterate_chain(*arrays, policy, discount, damping, enough, most, w, u)
        sweeps += done
        direct = reach is not None and done == most


def band_reach(indptr: Array, successors: Array, n_states: int) -> int | None:
    """Return the largest |s' - s| of a step; None where eliminating so wide a band takes long."""
    states = np.repeat(np.arange(n_states), np.diff(indptr[:: (len(indptr) - 1) // n_states]))
    reach = int(np.abs(successors - states).max())
    return reach if (reach + 1) ** 2 * n_states <= MAX_BAND_OPERATIONS else None


def chain_values(
    arrays: tuple[Array, ...], policy: Array, discount: float, reach: int, w: Array, change: Array
) -> Array | None:
    """Return w such that r + discount P w - w is the same at every state of a policy's chain.

    arrays: the triples and rewards as kernels read them. A guess w, and how a backup changes it,
    are corrected, so that rounding concerns the correction only; a guess that is `POOR` is replaced
    by 0. None where there are two recurrent classes and no discount.
    """
    n_states, (*triples, reward) = len(policy), arrays
    earned = reward.reshape(n_states, -1)[np.arange(n_states), policy]
    if np.ptp(change) > POOR * np.ptp(earned):
        w, change = np.zeros(n_states), earned
    x, c = np.empty(n_states), change - 0.5 * (change.max() + change.min())
    if not kernels.stationary.solve_chain(*triples, policy, discount, reach, c, x):
        return None
    w = w + x
    return w - w[0]
