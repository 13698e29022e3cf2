"""Eq. (2), the regularised negative log-likelihood, of choice data, evaluated chunk by chunk.

A situation is a set of alternatives, one row each, of which one or more were chosen. The rows of a
few situations, a chunk, stay in the processor's cache between BLAS and the compiled loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array

CHUNK_NUMBERS = 65_536  # numbers of a chunk of rows
SHARE = 1 / 8  # of the situations are in a sample
PER_FEATURE = 200  # but at least this many situations for each feature
PIECES = 16  # taken at this many places or more, since data may come sorted
PARTS = 16  # of large data, whatever the number of threads: their sum is always the same
NO_ROWS = np.empty((0, 0))


class Choices:
    """Choice data and their loss (2).

    indptr (G + 1,): where the rows of each situation begin; x: rows (n, d); counts (n,): how often
    each alternative was chosen; visits (G,): the sum of the counts of each situation; lam: the
    ridge.
    """

    def __init__(self, indptr: Array, x: Any, counts: Array, visits: Array, lam: float) -> None:
        self.indptr, self.x, self.counts, self.visits, self.lam = indptr, x, counts, visits, lam
        rows = max(CHUNK_NUMBERS // x.shape[1], 1)  # about so many are in a chunk
        edges = np.unique(np.searchsorted(indptr, np.arange(0, indptr[-1], rows)))
        self.chunks = list(pairwise([*edges.tolist(), len(indptr) - 1]))

    def sample(self) -> tuple[Choices, float] | None:
        """Return a share of the situations of many chunks, and that share's inverse.

        The ridge is divided by that number. None where there are too few situations.
        """
        n_groups = len(self.visits)
        share = max(SHARE, PER_FEATURE * self.x.shape[1] / n_groups)
        if share > 0.25:
            return None
        part = copy(self)
        every = min(max(len(self.chunks) // PIECES, 1), int(1.0 / share))
        part.chunks = [
            (first, first + ceil((last - first) * every * share))
            for first, last in self.chunks[::every]
        ]
        times = n_groups / sum(last - first for first, last in part.chunks)
        part.lam = self.lam / times
        return part, times

    def evaluate(self, theta: Array, with_hessian: bool) -> tuple[float, Array, Any]:
        """Return the loss (2), its gradient (d,) and its Hessian (d, d), or None."""
        d, n = len(theta), len(self.chunks)

        def evaluate_chunks(first: int, last: int) -> tuple[float, Array, Any]:
            loss, gradient = 0.0, np.zeros(d)
            hessian = np.zeros((d, d)) if with_hessian else None
            for low, high in self.chunks[first:last]:
                x = self.rows(low, high)
                residual = x @ theta  # for now the logits
                centred = np.empty(x.shape) if with_hessian else NO_ROWS
                loss += kernels.likelihood.evaluate_chunk(
                    self.indptr, low, high, x, self.counts, self.visits, residual, centred
                )
                gradient += residual @ x
                if hessian is not None:
                    hessian += centred.T @ centred
            return loss, gradient, hessian

        if len(self.counts) < kernels.LARGE:
            parts = [evaluate_chunks(0, n)]
        else:
            parts = kernels.compiled.parallel_ranges(evaluate_chunks, n, PARTS)
        losses, gradients, hessians = zip(*parts, strict=True)
        of_ridge = self.lam * theta
        loss = sum(losses, 0.5 * float(of_ridge @ theta))
        hessian = sum(hessians, self.lam * np.eye(d)) if with_hessian else None
        return loss, sum(gradients, of_ridge), hessian

    def rows(self, first: int, last: int) -> Array:
        """Return the rows of situations [first, last), read-only so that kernels compile once."""
        rows = np.asarray(self.x[self.indptr[first] : self.indptr[last]], np.float64)
        rows.flags.writeable = False
        return rows

    def hessian(self, theta: Array) -> Array:
        """Return the Hessian (d, d) of (2)."""
        return self.evaluate(theta, True)[2]

    def separating(self) -> Array:
        """Return the columns of which every choice has the largest, or smallest, value."""
        largest, smallest = np.ones((2, self.x.shape[1]), bool)
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            x, chosen = self.rows(first, last), self.counts[low:high] > 0
            bounds = self.indptr[first : last + 1] - low
            for kept, extreme in ((largest, np.maximum), (smallest, np.minimum)):
                ends = np.repeat(extreme.reduceat(x, bounds[:-1]), np.diff(bounds), axis=0)
                kept &= (x == ends)[chosen].all(axis=0)
        return np.flatnonzero(largest ^ smallest)

    def spans(self, n_columns: int) -> Array:
        """Return the largest difference within a situation of each of the first columns."""
        if sparse.issparse(self.x):
            x, sizes = self.x[:, :n_columns], np.diff(self.indptr)
            from_first = x - x[np.repeat(self.indptr[:-1], sizes)]  # within a factor of two
            return abs(from_first).max(axis=0).toarray().ravel()
        most = np.zeros(n_columns)
        for first, last in self.chunks:
            x, starts = self.rows(first, last), self.indptr[first:last] - self.indptr[first]
            high, low = np.maximum.reduceat(x, starts), np.minimum.reduceat(x, starts)
            np.maximum(most, (high - low).max(axis=0), out=most)
        return most

    def probabilities(self, theta: Array) -> Array:
        """Return (n,) the probability (1) of every row."""
        logits = np.concatenate([self.rows(*chunk) @ theta for chunk in self.chunks])
        return softmax(self.indptr, logits)

    def scores(self, probability: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield (low, high, rows minus the mean of their situation) for each chunk.

        A centred row is what a choice adds to the gradient of the log-likelihood.
        """
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            x, sizes = self.rows(first, last), np.diff(self.indptr[first : last + 1])
            weighted = x * probability[low:high, None]
            mean = np.add.reduceat(weighted, self.indptr[first:last] - low)
            yield low, high, x - np.repeat(mean, sizes, axis=0)

    def scatter(self, theta: Array) -> Array:
        """Return (d, d) the sum over choices of the outer products of their scores."""
        total = np.zeros((len(theta), len(theta)))
        for low, high, score in self.scores(self.probabilities(theta)):
            weighted = score * np.sqrt(self.counts[low:high, None])
            total += weighted.T @ weighted
        return total

    def cluster_scores(
        self, theta: Array, cluster: Array, chosen: Array, weights: Array | None = None
    ) -> Array:
        """Return (C, d) the sums of the scores of each cluster.

        cluster, chosen, weights (m,): the cluster of each choice, its row and how often it counts.
        """
        weights = np.ones(len(cluster)) if weights is None else weights
        sums = np.zeros((int(cluster.max()) + 1, len(theta)))
        shape = len(sums), len(self.counts)
        times = sparse.csc_array((weights, (cluster, chosen)), shape)
        for low, high, score in self.scores(self.probabilities(theta)):
            part = times[:, low:high].tocsr()
            some = np.flatnonzero(np.diff(part.indptr))
            sums[some] += part[some] @ score
        return sums


def visited(features: Any, counts: Any, lam: float) -> Choices:
    """Return the choice data of the pairs (s, a) that have counts, which are often few."""
    sizes = features.task.sizes
    pair = np.repeat(np.arange(len(sizes)), sizes)
    visits = np.bincount(pair, counts, len(sizes))
    seen = visits > 0 if (visits > 0).any() else np.arange(len(sizes)) == np.argmax(sizes > 0)
    x, n = features.matrix, counts
    if not seen.all():
        x, n = x[seen[pair]], n[seen[pair]]
    return Choices(np.concatenate([[0], np.cumsum(sizes[seen])]), x, n, visits[seen], lam)


def log_softmax(indptr: Array, logits: Array) -> Array:
    """Return the log-probabilities, eq. (1), of situations whose rows follow each other in logits.

    logits (n,), or (n, C) of C parameters.
    """
    starts = indptr[:-1][np.diff(indptr) > 0]
    sizes = np.diff(np.append(starts, indptr[-1]))
    shifted = logits - np.repeat(np.maximum.reduceat(logits, starts), sizes, axis=0)
    total = np.add.reduceat(np.exp(shifted), starts)
    return shifted - np.repeat(np.log(total), sizes, axis=0)


def softmax(indptr: Array, logits: Array) -> Array:
    """Return the probabilities, eq. (1), of which `log_softmax` has the logarithms."""
    return np.exp(log_softmax(indptr, logits))
