"""The shared features of a river as a linear mixture, for learners that need one."""

from __future__ import annotations

import numpy as np

from upriver.features import Features, shared
from upriver.mdp import Task


def directions(task: Task) -> Features:
    """`features.shared` with staying as a direction too: the river as a linear mixture.

    Every triple has exactly one indicator, of (action, where on the line, direction), and the
    probabilities of a river are linear in them: what a linear learner needs to share as much as an
    MNL model with the shared features does. d = 14 with two actions and local support.
    """
    base = shared(task).matrix
    place = np.arange(task.n_states) if task.states is None else np.asarray(task.states)
    s, a, _ = task.triples
    where = np.where(s == np.argmin(place), 0, np.where(s == np.argmax(place), 2, 1))
    left_out = np.flatnonzero(~base.any(axis=1))
    _, column = np.unique((a * 3 + where)[left_out], return_inverse=True)
    extra = np.zeros((task.n_triples, column.max() + 1))
    extra[left_out, column] = 1.0
    return Features(task, np.hstack([base, extra]))
