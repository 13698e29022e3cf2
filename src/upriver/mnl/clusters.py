"""Few clusters: scores of clusters adjusted for their own influence on the estimate (CR2).

The sum of scores of a cluster, taken at an estimate that the cluster helped to make, is too small.
With H the information of all rows and H_c that of cluster c, the score u_c becomes
H^(1/2) (I - H^(-1/2) H_c H^(-1/2))^(-1/2) H^(-1/2) u_c (Bell and McCaffrey 2002).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.mnl.choices import Choices

MANY = 100  # clusters; of more the adjustment would be too small to matter
LARGEST = 2e9  # of the product of clusters and cubed coefficients; more would take too long


def is_adjusted(n_clusters: int, n_coefficients: int) -> bool:
    """Whether the sandwich of so many clusters is adjusted for few clusters."""
    return n_clusters <= MANY and n_clusters * n_coefficients**3 <= LARGEST


def adjust_means(share: Array) -> Array:
    """Return what multiplies the scores of a mean of which a cluster has this share of the rows.

    Where one cluster has all of the rows there is nothing to enlarge.
    """
    return 1.0 / np.sqrt(np.where(share < 1.0 - 1e-9, 1.0 - share, 1.0))


def adjust_scores(scores: Array, bread: Array, information: Callable[[int], Array]) -> Array:
    """Return (C, d) adjusted sums of scores; the sandwich is the sum of their outer products.

    scores (C, d), bread (d, d) the inverse information, information(c) (d, d) that of a cluster.
    Of many clusters the scores are multiplied by the root of C / (C - 1) instead.
    """
    n = len(scores)
    if not is_adjusted(n, scores.shape[1]):
        return scores * np.sqrt(n / (n - 1.0))
    values, vectors = np.linalg.eigh(bread)
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # bread = root root^T
    inverse = vectors / np.sqrt(np.maximum(values, 1e-300))  # root^T inverse = I
    found = np.empty_like(scores)
    for c, score in enumerate(scores):
        share, axes = np.linalg.eigh(root.T @ information(c) @ root)
        found[c] = inverse @ (axes @ (adjust_means(share) * (axes.T @ (root.T @ score))))
    return found


def cluster_scores(
    data: Choices, theta: Array, bread: Array, cluster: Array, chosen: Array, weights: Array | None
) -> Array:
    """Return (C, d) the sums of the scores of each cluster of choices, adjusted for few clusters.

    cluster, chosen, weights (m,): the cluster of each choice, its row and how often it counts.
    """
    sums = data.cluster_scores(theta, cluster, chosen, weights)
    n, d = sums.shape
    own = np.zeros((n, d, d) if is_adjusted(n, d) else 0)  # the information of each cluster
    if len(own):
        times = np.ones(len(chosen)) if weights is None else weights
        situation = np.repeat(np.arange(len(data.visits)), np.diff(data.indptr))
        visits = sparse.csr_array((times, (cluster, situation[chosen])), (n, len(data.visits)))
        p = data.probabilities(theta)
        for low, high, score in data.scores(p):
            part = situation[low:high]
            for c, mine in enumerate(visits[:, part[0] : part[-1] + 1].toarray()):
                weight = mine[part - part[0]] * p[low:high]
                some = np.flatnonzero(weight)
                own[c] += (score[some] * weight[some, None]).T @ score[some]
    return adjust_scores(sums, bread, lambda c: own[c])
