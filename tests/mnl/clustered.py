"""Choices with errors by cluster."""

from typing import Any

import numpy as np

from upriver.mnl.choices import Choices
from upriver.mnl.fit import fit_dense


def fit_clusters(x: Any, chosen: Any, groups: Any, cluster: Any, ridge: float = 0.0) -> Any:
    """Fit choices with errors by cluster, as `fit_transitions` does; groups are contiguous."""
    x, groups, rows = np.asarray(x, float), np.asarray(groups), np.flatnonzero(chosen)
    starts = np.append(0, np.flatnonzero(groups[1:] != groups[:-1]) + 1)
    counts, indptr = np.bincount(rows, minlength=len(x)) * 1.0, np.append(starts, len(x))
    numbers = np.unique(cluster, return_inverse=True)[1][starts]
    data = Choices(indptr, x, counts, np.ones(len(starts)), ridge)
    return fit_dense(data, None, clusters=(numbers, rows, None))
