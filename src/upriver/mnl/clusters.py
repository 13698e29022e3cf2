"""Few clusters: scores of clusters adjusted for their own influence on the estimate (CR2).

The sum of scores of a cluster, taken at an estimate that the cluster helped to make, is too small.
With H the information of all rows and H_c that of cluster c, the score u_c becomes
H^(1/2) (I - H^(-1/2) H_c H^(-1/2))^(-1/2) H^(-1/2) u_c (Bell and McCaffrey 2002).

In a direction that one cluster alone determines every score is 0, which says nothing about its
error. There a row is added whose variance is the information times the dispersion: the mean of
u_c' H_c^(-1) u_c over the directions that several clusters share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.mnl.choices import Choices

MANY = 100  # clusters; of more the adjustment would be too small to matter
LARGEST = 2e9  # of the product of clusters and cubed coefficients; more would take too long
WHOLE = 1.0 - 1e-9  # the share of the information from which on a cluster has all of it


def is_adjusted(n_clusters: int, n_coefficients: int) -> bool:
    """Whether the sandwich of so many clusters is adjusted for few clusters."""
    return n_clusters <= MANY and n_clusters * n_coefficients**3 <= LARGEST


def adjust_means(share: Array) -> Array:
    """Return what multiplies the scores of a mean of which a cluster has this share of the rows.

    Where one cluster has all of the rows there is nothing to enlarge.
    """
    return 1.0 / np.sqrt(np.where(share < WHOLE, 1.0 - share, 1.0))


def adjust_scores(
    scores: Array, bread: Array, own: Iterable[tuple[int, Array]], least: float = 1.0
) -> Array:
    """Return (C + k, d) adjusted scores; the sandwich is the sum of their outer products.

    scores (C, d), bread (d, d) the inverse information, own: (c, (d, d) information) of clusters.
    Of many clusters `own` has those that alone determine a coefficient, and the scores of all are
    multiplied by the root of C / (C - 1) instead. The last k rows are those of such directions,
    with a dispersion of at least `least`.
    """
    n, few = len(scores), is_adjusted(*scores.shape)
    values, vectors = np.linalg.eigh(bread)
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # bread = root root^T
    inverse = vectors / np.sqrt(np.maximum(values, 1e-300))  # root^T inverse = I
    found, alone = scores * np.sqrt(n / (n - 1.0)), []
    square = total = 0.0
    for c, information in own:
        share, axes = np.linalg.eigh(root.T @ information @ root)
        along, shared = adjust_means(share) * (axes.T @ (root.T @ scores[c])), share < WHOLE
        alone.append((inverse @ axes[:, ~shared]).T)
        square, total = square + float(along[shared] @ along[shared]), total + share[shared].sum()
        if few:
            found[c] = inverse @ (axes @ (along * shared))
    dispersion = max(square / total, least) if few and total > 1e-9 else least
    return np.concatenate([found, *(np.sqrt(dispersion) * x for x in alone)])


def stack_influence(parts: Sequence[Any], n_clusters: int) -> Any:
    """Return (C + k, R) sparse influences of estimates side by side, from (C + k_i, R_i) parts.

    The rows of clusters are joined; those of what one cluster determines stay apart.
    """
    shared = sparse.hstack([sparse.csr_array(x)[:n_clusters] for x in parts])
    alone = sparse.block_diag([sparse.csr_array(x)[n_clusters:] for x in parts])
    return sparse.csr_array(sparse.vstack([shared, alone]))


def cluster_scores(
    data: Choices, theta: Array, bread: Array, cluster: Array, chosen: Array, weights: Array | None
) -> Array:
    """Return the sums of the scores of each cluster of choices, as `adjust_scores` does.

    cluster, chosen, weights (m,): the cluster of each choice, its row and how often it counts.
    """
    sums, p = data.cluster_scores(theta, cluster, chosen, weights), data.probabilities(theta)
    n, d = sums.shape
    times = np.ones(len(chosen)) if weights is None else weights
    situation = np.repeat(np.arange(len(data.visits)), np.diff(data.indptr))
    visits = sparse.csc_array((times, (cluster, situation[chosen])), (n, len(data.visits)))
    expected = sparse.csc_array(visits[:, situation] * p)  # (C, rows) how often rows are chosen
    clusters = np.arange(n)
    if not is_adjusted(n, d):  # the diagonal of the information of each cluster
        square: Any = sum(expected[:, low:high] @ score**2 for low, high, score in data.scores(p))
        clusters = np.flatnonzero((square >= WHOLE * square.sum(axis=0)).any(axis=1))
    own = np.zeros((len(clusters), d, d))
    for low, high, score in data.scores(p) if len(clusters) else ():
        for c, weight in enumerate(expected[clusters, low:high].toarray()):
            some = np.flatnonzero(weight)
            own[c] += (score[some] * weight[some, None]).T @ score[some]
    return adjust_scores(sums, bread, zip(clusters.tolist(), own, strict=True))
