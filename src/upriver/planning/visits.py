"""The value of a stationary policy and the visits of its states, from one factorisation.

The values v = r + discount P v and the visits d = first + discount P^T d solve one matrix and its
transpose, so sum_s d(s) x(s) is what the value first^T v gains where rewards change by x. For the
average reward the matrix has one row and one column more, for the gain: h + gain = r + P h with one
h fixed at 0, and d are the shares of time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning.policy_iteration import policy_rows, possible_rows
from upriver.planning.stationary import check_one_class


class Visits(NamedTuple):
    """A value, and how often the policy visits each state."""

    value: float
    """first^T v, or the gain."""
    v: Array
    """(S,) the values, or the bias."""
    visits: Array
    """(S,) discounted visits of each state, 1 / (1 - discount) in all; or shares of time."""


def solve_visits(task: Task, prob: Array, reward: Array, policy: Array, first: Array) -> Visits:
    """Solve for the values and visits of a policy on one model.

    Parameters
    ----------
    task : Task
        Whose discount is used; 1 is the average reward.
    prob : array (n,)
    reward : array (S*A,)
    policy : array (S,) or (S, A)
    first : array (S,)
        Probabilities of the first state.

    Raises
    ------
    ValueError
        For the average reward, where the policy has two recurrent classes.
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
