"""The choices of the components of a factored problem, as features that `fit_mnl` takes."""

from __future__ import annotations

import numpy as np

from upriver.checks import check_kinds
from upriver.features.features import Features
from upriver.mdp import FactoredMDP, Task


@check_kinds
def components(problem: FactoredMDP) -> Features:
    """Return the features of the component choices of `problem`, for `fit_mnl` with its `count`.

    The likelihood of factored transitions is that of independent choices, one for each component
    and step. The task of these features has a state for each kind and one action; the next state is
    the value.
    """
    matrix = problem.matrix
    if not matrix.shape[1]:
        raise ValueError(f"{problem.name} has no parameter: every kind has one possible value")
    n_states, extra = max(problem.support.shape), problem.n_extra_rows
    sizes = np.append(problem.support.sum(axis=1), np.ones(extra, int))
    stay = np.arange(n_states - extra, n_states)  # a value that is not the number of a kind
    values = np.append(np.nonzero(problem.support)[1], stay)
    matrix = np.vstack([matrix, np.zeros((extra, matrix.shape[1]))])
    indptr = np.append(0, np.cumsum(sizes))
    task = Task(n_states, 1, 1, indptr, values, np.zeros((n_states, 1)))
    return Features(task, matrix, problem.parameter_names)
